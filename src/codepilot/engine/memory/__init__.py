"""Memories: recorded by runs, and kept by people."""
