"""Laying files down: a tree into a new directory, and a directory back to what a snapshot says.

Promises: content, modes, links, modification times and empty directories come out exactly as recorded, whatever lies
there before; every file appears complete or not at all; nothing outside the directory is touched and no link is
followed. Never does: apply a filter, or touch the `.git` at the top.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import beneath
from codepilot.workspace.manifest import Item, decode
from codepilot.workspace.memory import Known
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.pack import object_id
from codepilot.workspace.paths import is_git_name
from codepilot.workspace.submodules import carried_tree
from codepilot.workspace.trees import EXECUTABLE, GITLINK, SYMLINK, Entry

LAID_DOWN_NS = 1_000_000_000 * 1_000_000_000
"""The time of every file of a new workspace: a later edit is always newer, also for build tools and bytecode caches."""


def lay_down(objects: ObjectStore, tree: str, root: int) -> dict[str, Known]:
    """Fill an empty directory with a tree; the status of every file written."""
    known: dict[str, Known] = {}
    _lay_directory(objects, tree, root, "", known)
    return known


def _lay_directory(objects: ObjectStore, tree: str, fd: int, prefix: str, known: dict[str, Known]) -> None:
    for name, entry in objects.read_directory(tree).items():
        if name in (".", "..", "") or is_git_name(name) or "/" in name:
            raise CodePilotError(FailureKind.POLICY_VIOLATION, f"a workspace cannot hold the path {prefix + name!r}")
        if entry.mode in ("40000", GITLINK):
            os.mkdir(name, 0o755, dir_fd=fd)
            inside = carried_tree(objects, entry.oid) if entry.mode == GITLINK else entry.oid
            with beneath.opened(name, fd) as below:
                os.fchmod(below, 0o755)
                if inside is not None:
                    _lay_directory(objects, inside, below, f"{prefix}{name}/", known)
        else:
            _lay_file(objects, entry, fd, name, prefix + name, known)


def _lay_file(objects: ObjectStore, entry: Entry, fd: int, name: str, path: str, known: dict[str, Known]) -> None:
    data = objects.read_blob(entry.oid)
    if entry.mode == SYMLINK:
        os.symlink(data, os.fsencode(name), dir_fd=fd)
        return
    mode = 0o755 if entry.mode == EXECUTABLE else 0o644
    status = beneath.create_file(fd, name, data, mode, LAID_DOWN_NS)
    known[path] = Known(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, entry.oid)


class Restorer:
    """Makes a directory equal to a manifest. New files are written in `staging`, then renamed into place."""

    def __init__(self, objects: ObjectStore, staging: int, known: Mapping[str, Known]) -> None:
        self._objects = objects
        self._staging = staging
        self._known = known

    def directory(self, fd: int, manifest: str, prefix: str = "") -> None:
        """Everything beneath an open, writable directory."""
        wanted = decode(self._objects.read_blob(manifest))
        for name in beneath.names(fd):
            if name not in wanted and (prefix or name != ".git"):
                beneath.remove(fd, name)
        for name, item in wanted.items():
            self.entry(fd, name, item, prefix + name)

    def path(self, root: int, manifest: str, parts: Sequence[str]) -> None:
        """One path only: put back if the manifest has it, removed if not."""
        self._path(root, manifest, parts, "")

    def _path(self, fd: int, manifest: str, parts: Sequence[str], prefix: str) -> None:
        name, rest = parts[0], parts[1:]
        item = decode(self._objects.read_blob(manifest)).get(name)
        if item is None or (rest and item.kind != "d"):
            if not rest or (item is not None and not _is_directory(fd, name)):
                beneath.remove(fd, name)
            elif item is None and _is_directory(fd, name):
                self._remove_below(fd, name, rest)
        elif not rest:
            self.entry(fd, name, item, prefix + name)
        else:
            with self._subdirectory(fd, name, item.mode) as below:
                self._path(below, item.oid, rest, f"{prefix}{name}/")

    def _remove_below(self, fd: int, name: str, rest: Sequence[str]) -> None:
        below = beneath.open_for_change(fd, name)
        try:
            if len(rest) == 1:
                beneath.remove(below, rest[0])
            elif _is_directory(below, rest[0]):
                self._remove_below(below, rest[0], rest[1:])
        finally:
            os.close(below)

    def entry(self, fd: int, name: str, item: Item, path: str) -> None:
        """One entry of an open, writable directory."""
        if item.kind == "d":
            with self._subdirectory(fd, name, item.mode) as below:
                self.directory(below, item.oid, path + "/")
        elif item.kind == "l":
            self._link(fd, name, item)
        else:
            self._file(fd, name, item, path)

    @contextlib.contextmanager
    def _subdirectory(self, fd: int, name: str, mode: int) -> Iterator[int]:
        if not _is_directory(fd, name):
            beneath.remove(fd, name)
            os.mkdir(name, 0o700, dir_fd=fd)
        below = beneath.open_for_change(fd, name)
        try:
            yield below
            if stat.S_IMODE(os.fstat(below).st_mode) != mode:
                os.fchmod(below, mode)
        finally:
            os.close(below)

    def _link(self, fd: int, name: str, item: Item) -> None:
        target = self._objects.read_blob(item.oid)
        found = beneath.status(fd, name)
        if found is not None and stat.S_ISLNK(found.st_mode):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(os.fsencode(name), dir_fd=fd) == target:
                    return
        elif found is not None and stat.S_ISDIR(found.st_mode):
            beneath.remove(fd, name)
        temporary = secrets.token_hex(8)
        os.symlink(target, os.fsencode(temporary), dir_fd=self._staging)
        os.rename(temporary, name, src_dir_fd=self._staging, dst_dir_fd=fd)

    def _file(self, fd: int, name: str, item: Item, path: str) -> None:
        found = beneath.status(fd, name)
        if found is not None and stat.S_ISREG(found.st_mode) and self._kept(fd, name, item, path, found):
            return
        if found is not None and stat.S_ISDIR(found.st_mode):
            beneath.remove(fd, name)
        temporary = secrets.token_hex(8)
        data = self._objects.read_blob(item.oid)
        beneath.create_file(self._staging, temporary, data, item.mode, item.mtime_ns)
        os.rename(temporary, name, src_dir_fd=self._staging, dst_dir_fd=fd)

    def _kept(self, fd: int, name: str, item: Item, path: str, found: os.stat_result) -> bool:
        """Whether the file has the right content already; if so its mode and time are put right."""
        if found.st_size != item.size or found.st_nlink != 1:
            return False
        exact = found.st_mode & 0o7777 == item.mode and found.st_mtime_ns == item.mtime_ns
        known = self._known.get(path)
        same = known is not None and known[:4] == (
            found.st_ino,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
        )
        if same and known is not None and known.oid == item.oid and exact:
            return True
        try:
            opened = beneath.open_regular(fd, name)
        except PermissionError:
            return False
        if opened is None:
            return False
        try:
            if object_id("blob", beneath.read_all(opened, item.size)) != item.oid:
                return False
            if not exact:
                os.fchmod(opened, item.mode)
                os.utime(opened, ns=(item.mtime_ns, item.mtime_ns))
            return True
        finally:
            os.close(opened)


def _is_directory(fd: int, name: str) -> bool:
    found = beneath.status(fd, name)
    return found is not None and stat.S_ISDIR(found.st_mode)
