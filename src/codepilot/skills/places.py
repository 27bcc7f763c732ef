"""Paths of the workspace, in the sandbox. Standard library only: this source is shipped as it is.

The checks here advise the agent; the sandbox is the boundary.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from codepilot.skills.errors import PolicyError
from codepilot.skills.lazy_loader import FOLDER

ROOT = Path(FOLDER).resolve()
CAPABILITY = "write_and_run_tests"

NOISE = frozenset({".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".tox", ".mypy_cache"})


MAX_WALKED = 50_000
"""The number of files that are searched for a suggestion in place of a wrong path."""


class PathError(Exception):
    """The path is not one this skill can use; the message says why."""


def inside(path: str) -> Path:
    """The resolved form of a workspace path. A path that leads out of the workspace is refused."""
    if "\0" in path:
        raise PathError("A path cannot contain a zero byte.")
    try:
        place = (ROOT / path).resolve()
        if place != ROOT and ROOT not in place.parents:
            raise PathError(f"{path} leads out of the workspace. Use paths relative to its root.{_below(path)}")
        os.lstat(place)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, RuntimeError, UnicodeError) as error:
        raise PathError(f"{_brief(path)} cannot be a path: {_why(error)}.") from None
    return place


def writable(path: str, skill: str = "write_file") -> Path:
    """The resolved form of a path that may be written."""
    if CAPABILITY == "read_only":
        raise PolicyError("capability.read_only", skill, f"{path}: this task may only read.")
    place = inside(path)
    if any(part.lower() == ".git" for part in place.relative_to(ROOT).parts):
        raise PolicyError("path.git", skill, f"{path}: files of git itself may not be written.")
    return place


def read_bytes(path: str) -> bytes:
    """A file's bytes, or an error that says what is wrong with the path."""
    place = inside(path)
    try:
        if place.exists() and not place.is_file() and not place.is_dir():
            raise PathError(f"{path} is no ordinary file and cannot be read.")
        return place.read_bytes()
    except FileNotFoundError:
        if (ROOT / path).is_symlink():
            raise PathError(f"{path} is a link to {(ROOT / path).readlink()}, which is not there.") from None
        raise PathError(f"There is no {path}.{_like(path)}") from None
    except IsADirectoryError:
        raise PathError(f"{path or 'The empty path'} is a directory; use list_files.") from None
    except NotADirectoryError:
        raise PathError(f"There is no {path}: a part of it is a file.{_like(path)}") from None
    except PermissionError:
        raise PathError(f"{path} may not be read. If you need it, os.chmod it first.") from None


def walk(base: Path) -> Iterator[Path]:
    """The files below a directory, without caches and repositories."""
    for folder, folders, names in os.walk(base):
        folders[:] = sorted(name for name in folders if name not in NOISE)
        yield from (Path(folder, name) for name in names)


def relative(place: Path) -> str:
    """The path relative to the workspace."""
    return place.relative_to(ROOT).as_posix()


def _like(path: str) -> str:
    """A suggestion: a file of the same name elsewhere."""
    name = Path(path).name
    near = [relative(file) for file in islice(walk(ROOT), MAX_WALKED) if file.name == name][:3]
    return f" Did you mean {', '.join(near)}?" if near else ""


def _below(path: str) -> str:
    """A suggestion: the same path below the workspace's root."""
    parts = Path(path).parts
    for first in range(1, min(len(parts), 20)):
        if ".." not in parts[first:] and (ROOT / Path(*parts[first:])).exists():
            return f" Did you mean {Path(*parts[first:]).as_posix()}?"
    return ""


def _brief(path: str) -> str:
    return repr(path if len(path) <= 100 else f"{path[:100]}…")


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "it holds characters that no file name can have"
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error).lower()
