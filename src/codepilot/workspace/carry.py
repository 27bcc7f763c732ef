"""Copies of host files that a workspace needs but that are no part of its tree (generated, ignored files).

Promises: symbolic links are copied as links; git directories of any name, and anything but files, directories and
links, are left out; whatever the tree itself holds at the same place stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import is_git_alias, is_in_git_directory
from codepilot.workspace import beneath
from codepilot.workspace.paths import shown
from codepilot.workspace.repository import is_git_directory


def carry(source: Path, root: int, target: Sequence[str]) -> None:
    """Copy a file or directory to a place beneath an open directory."""
    folder = source.parent.resolve()
    named = is_in_git_directory(os.fspath(folder / source.name)) or any(map(is_git_alias, target))
    try:
        if named or any(map(is_git_directory, (folder / source.name, *(folder / source.name).parents))):
            raise CodePilotError(
                FailureKind.TOOL_PERMISSION_DENIED,
                f"{shown(str(source))} is in a git directory, which is never copied into a workspace",
                "Take it out of `carry` in codepilot.toml.",
            )
        with contextlib.ExitStack() as stack:
            parent = stack.enter_context(beneath.opened(folder))
            place = root
            for part in target[:-1]:
                place = stack.enter_context(_subdirectory(place, part))
            _copy(parent, source.name, place, target[-1])
    except FileNotFoundError as error:
        raise CodePilotError(
            FailureKind.PATH_NOT_FOUND,
            f"there is nothing to carry at {shown(str(source))}",
            "Generate the file, or take it out of `carry` in codepilot.toml.",
        ) from error
    except OSError as error:
        if error.errno in beneath.NO_ROOM:
            raise
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS,
            f"{shown(str(source))} cannot be copied to {shown('/'.join(target))!r}: {error.strerror}",
            "Name a place in the tree that leads through no link and no file.",
        ) from error


def _copy(parent: int, name: str, place: int, target: str) -> None:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        with beneath.opened(name, parent) as source:
            children = set(beneath.names(source))
            if "HEAD" in children and ("commondir" in children or {"objects", "refs"} <= children):
                return
            with _subdirectory(place, target) as below:
                for child in sorted(children):
                    if not is_git_alias(child):
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
            chunks = beneath.read_chunks(fd, status.st_size)
            beneath.create_file(place, target, chunks, status.st_mode & 0o777, status.st_mtime_ns)
        finally:
            os.close(fd)


def _subdirectory(place: int, name: str) -> contextlib.AbstractContextManager[int]:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=place)
    return beneath.opened(name, place)
