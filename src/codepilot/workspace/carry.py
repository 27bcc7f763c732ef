"""Copies of host files that a workspace needs but that are no part of its tree (generated, ignored files).

Promises: symbolic links are copied as links, `.git` and anything but files, directories and links is left out, and
whatever the tree itself holds at the same place stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import beneath
from codepilot.workspace.paths import is_git_name


def carry(source: Path, root: int, target: Sequence[str]) -> None:
    """Copy a file or directory to a place beneath an open directory."""
    try:
        with contextlib.ExitStack() as stack:
            parent = stack.enter_context(beneath.opened(source.parent))
            place = root
            for part in target[:-1]:
                place = stack.enter_context(_subdirectory(place, part))
            _copy(parent, source.name, place, target[-1])
    except FileNotFoundError as error:
        raise CodePilotError(
            FailureKind.PATH_NOT_FOUND,
            f"there is nothing to carry at {source}",
            "Generate the file, or take it out of `carry` in codepilot.toml.",
        ) from error


def _copy(parent: int, name: str, place: int, target: str) -> None:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        with beneath.opened(name, parent) as source, _subdirectory(place, target) as below:
            for child in beneath.names(source):
                if not is_git_name(child):
                    _copy(source, child, below, child)
    elif beneath.status(place, target) is not None:
        return
    elif stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=parent), target, dir_fd=place)
    elif stat.S_ISREG(status.st_mode):
        fd = beneath.open_regular(parent, name)
        if fd is None:
            return
        try:
            data = beneath.read_all(fd, status.st_size)
        finally:
            os.close(fd)
        beneath.create_file(place, target, data, status.st_mode & 0o777, status.st_mtime_ns)


def _subdirectory(place: int, name: str) -> contextlib.AbstractContextManager[int]:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=place)
    return beneath.opened(name, place)
