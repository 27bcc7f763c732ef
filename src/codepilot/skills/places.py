"""Paths of the workspace, seen from inside. Standard library only: this source travels as it is.

The checks here advise the agent; the sandbox is the wall.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from codepilot.skills.arrival import FOLDER
from codepilot.skills.violation import PolicyError

ROOT = Path(FOLDER).resolve()
CAPABILITY = "write_and_run_tests"

NOISE = frozenset({".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache"})


class PathError(Exception):
    """The path is not one this skill can use; the message says why."""


def inside(path: str) -> Path:
    """The real place of a workspace path. Anything that leads out of the workspace is refused."""
    if "\0" in path:
        raise PathError("A path cannot contain a zero byte.")
    place = (ROOT / path).resolve()
    if place != ROOT and ROOT not in place.parents:
        raise PathError(f"{path} leads out of the workspace. Use paths relative to its root.")
    return place


def writable(path: str, skill: str = "write_file") -> Path:
    """The real place of a path that may be written."""
    if CAPABILITY == "read_only":
        raise PolicyError("capability.read_only", skill, f"{path}: this task may only read.")
    place = inside(path)
    if any(part.lower() == ".git" for part in place.relative_to(ROOT).parts):
        raise PolicyError("path.git", skill, f"{path}: files of git itself may not be written.")
    return place


def read_bytes(path: str) -> bytes:
    """A file's bytes, or what is wrong with the path."""
    try:
        return inside(path).read_bytes()
    except FileNotFoundError:
        raise PathError(f"There is no {path}.{_like(path)}") from None
    except IsADirectoryError:
        raise PathError(f"{path} is a directory; use list_files.") from None


def decoded(data: bytes) -> tuple[str, str]:
    """Text and the encoding that gives the same bytes back. Latin-1 holds whatever is not UTF-8."""
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def walk(base: Path) -> Iterator[Path]:
    """The files below a directory, without caches and repositories."""
    for folder, folders, names in os.walk(base):
        folders[:] = sorted(name for name in folders if name not in NOISE)
        yield from (Path(folder, name) for name in names)


def relative(place: Path) -> str:
    """As the agent names it."""
    return place.relative_to(ROOT).as_posix()


def _like(path: str) -> str:
    name = Path(path).name
    near = [relative(file) for file in walk(ROOT) if file.name == name][:3]
    return f" Did you mean {', '.join(near)}?" if near else ""
