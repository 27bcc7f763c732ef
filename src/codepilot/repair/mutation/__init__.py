"""Mutation testing of a change: do the tests around it notice when it is wrong?"""
