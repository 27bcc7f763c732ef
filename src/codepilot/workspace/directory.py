"""A plain directory as a tree, without git: what a build starts from, and what a person changes there meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import is_git_name
from codepilot.workspace import dirfd
from codepilot.workspace.ignore import IgnoreRules
from codepilot.workspace.objects import ObjectStore, Writer
from codepilot.workspace.trees import EXECUTABLE, FILE, SYMLINK, Entry

_LEFTOVERS = IgnoreRules.read({})
_INSTALLED = frozenset({"node_modules", ".venv", "venv", "target"})
"""Directories into which tools install or compile."""
MAX_FILES = 5_000


def pin_directory(directory: Path, objects: ObjectStore) -> str:
    """Store the files of a directory, and return their tree; an empty one if there is no such directory.

    `.git`, caches, installed packages and directories that ignore themselves are left out. Links are kept and never
    followed.
    """
    entries: dict[str, Entry] = {}
    if directory.is_dir():
        with dirfd.opened(directory.resolve()) as top, objects.writer() as writer:
            for path, entry in _collected(top, "", writer):
                entries[path] = entry
                if len(entries) > MAX_FILES:
                    raise CodePilotError(
                        FailureKind.INVALID_SPEC,
                        f"{directory} holds more than {MAX_FILES} files.",
                        next_action="Name a new or a smaller directory, or make it a git repository.",
                    )
    return objects.write_tree(entries)


def _collected(fd: int, prefix: str, writer: Writer) -> Iterator[tuple[str, Entry]]:
    for name in dirfd.names(fd):
        status = dirfd.status(fd, name)
        path = prefix + name
        if status is None or is_git_name(name) or _LEFTOVERS.matches(path, stat.S_ISDIR(status.st_mode)):
            continue
        if stat.S_ISDIR(status.st_mode):
            if name in _INSTALLED:
                continue
            with dirfd.opened(name, fd) as below:
                if dirfd.status(below, "pyvenv.cfg") is None and not _ignores_itself(below):
                    yield from _collected(below, f"{path}/", writer)
        elif (entry := file_entry(fd, name, status, writer)) is not None:
            yield path, entry


def file_entry(fd: int, name: str, status: os.stat_result, writer: Writer) -> Entry | None:
    """A file or a link of a directory, added to the objects; None for anything else, and for what cannot be opened."""
    if stat.S_ISLNK(status.st_mode):
        return Entry(SYMLINK, writer.add("blob", os.fsencode(os.readlink(name, dir_fd=fd))))
    opened = dirfd.open_regular(fd, name) if stat.S_ISREG(status.st_mode) else None
    if opened is None:
        return None
    try:
        oid = writer.add("blob", dirfd.read_all(opened, status.st_size))
    finally:
        os.close(opened)
    return Entry(EXECUTABLE if status.st_mode & 0o100 else FILE, oid)


def _ignores_itself(fd: int) -> bool:
    """True for a directory whose own `.gitignore` is `*`, as tools write it into what they make."""
    opened = dirfd.open_regular(fd, ".gitignore")
    if opened is None:
        return False
    try:
        return os.read(opened, 16).strip() == b"*"
    finally:
        os.close(opened)
