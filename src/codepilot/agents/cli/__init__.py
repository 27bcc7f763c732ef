"""Coding agents that are programs of their own, run inside the sandbox: an adapter a dialect."""
