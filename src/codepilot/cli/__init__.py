"""The command line: parse, call one function, render. It decides nothing."""

from __future__ import annotations


def main() -> None:
    """The `codepilot` command."""
    from codepilot.cli.app import run

    run()


__all__ = ["main"]
