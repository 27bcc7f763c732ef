"""Directories of ours that go with us: known to the janitor before they are made, and named by their owner."""

from __future__ import annotations

import os
import secrets
from functools import cache
from pathlib import Path

from codepilot.sandbox import janitor, janitor_client


def make(parent: Path, prefix: str) -> Path:
    """A directory that is removed should we be killed; those of owners that were killed with their janitor go first."""
    _sweep(os.fspath(parent), prefix)
    path = parent / f"{prefix}{janitor.owner()}-{secrets.token_hex(4)}"
    janitor_client.opened(janitor_client.DIRECTORY, os.fspath(path))
    path.mkdir(0o700)
    return path


@cache
def _sweep(parent: str, prefix: str) -> None:
    janitor.sweep_directories(parent, prefix)


def remove(directory: Path) -> None:
    if janitor.remove_directory(os.fspath(directory)):
        janitor_client.closed(janitor_client.DIRECTORY, os.fspath(directory))
