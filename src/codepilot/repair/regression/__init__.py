"""Writes the regression test that comes with a confirmed repair."""
