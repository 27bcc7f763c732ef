"""Mutation testing: how many small mutants of a change its tests notice."""
