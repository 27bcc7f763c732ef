"""Writing files: a tree into a new directory, host files into it, and a directory back to a snapshot.

Content, modes, links, modification times and empty directories come out exactly as recorded, whatever was there
before. Every file appears complete or not at all. Nothing outside the directory is touched and no link is followed. No
filter runs, and the `.git` at the top stays untouched. Host files that a workspace needs (generated, ignored files) are
copied without git directories of any name; what the tree holds at the same place wins.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import is_git_alias, is_git_name, is_in_git_directory
from codepilot.workspace import dirfd
from codepilot.workspace.base_index import carried_tree
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.pack import file_id
from codepilot.workspace.repository import is_git_directory
from codepilot.workspace.stat_cache import CachedFile, Listing, StatCache, Status, listed, status_of, without_git
from codepilot.workspace.trees import EXECUTABLE, GITLINK, SYMLINK, Entry, Item, decode_manifest, shown

LINK_BYTES = 4095
"""How long the target of a symbolic link may be."""
LAID_DOWN_NS = 1_000_000_000 * 1_000_000_000
"""The time of every file of a new workspace: a later edit is always newer, also for build tools and bytecode caches."""


def materialise(objects: ObjectStore, tree: str, root: int) -> dict[str, CachedFile]:
    """Fill an empty directory with a tree; the status of every file written."""
    known: dict[str, CachedFile] = {}
    _lay_directory(objects, tree, root, "", known)
    return known


def _lay_directory(objects: ObjectStore, tree: str, fd: int, prefix: str, known: dict[str, CachedFile]) -> None:
    for name, entry in objects.read_directory(tree).items():
        if name in (".", "..", "") or is_git_name(name) or "/" in name:
            raise CodePilotError(FailureKind.POLICY_VIOLATION, f"a workspace cannot hold the path {prefix + name!r}")
        if entry.mode in ("40000", GITLINK):
            os.mkdir(name, 0o755, dir_fd=fd)
            inside = carried_tree(objects, entry.oid) if entry.mode == GITLINK else entry.oid
            with dirfd.opened(name, fd) as below:
                os.fchmod(below, 0o755)
                if inside is not None:
                    _lay_directory(objects, inside, below, f"{prefix}{name}/", known)
        else:
            _lay_file(objects, entry, fd, name, prefix + name, known)


def _lay_file(objects: ObjectStore, entry: Entry, fd: int, name: str, path: str, known: dict[str, CachedFile]) -> None:
    if entry.mode == SYMLINK:
        header = objects.header(entry.oid)
        target = objects.read_blob(entry.oid) if header and header[1] <= LINK_BYTES else b""
        if not target or b"\0" in target:
            message = f"a workspace cannot hold the link {path!r}: no file system takes its target"
            raise CodePilotError(FailureKind.POLICY_VIOLATION, message)
        os.symlink(target, os.fsencode(name), dir_fd=fd)
        return
    mode = 0o755 if entry.mode == EXECUTABLE else 0o644
    status = dirfd.create_file(fd, name, objects.stream(entry.oid), mode, LAID_DOWN_NS)
    known[path] = CachedFile(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, entry.oid)


class Restorer:
    """Makes a directory equal to a manifest. New files are written in `staging`, then renamed into place."""

    def __init__(self, objects: ObjectStore, staging: int, stat_cache: StatCache) -> None:
        self._objects = objects
        self._staging = staging
        self._stat_cache = stat_cache

    def directory(self, fd: int, manifest: str, prefix: str = "") -> None:
        """Everything below an open, writable directory."""
        seen = self._stat_cache.directories.get(prefix)
        listing = listed(fd, sys.maxsize, seen) or Listing([], [])
        if not prefix:
            listing = without_git(listing)
        if seen is not None and seen.is_exactly(manifest, listing):
            modes = dict(listing.directories)
            for name, mode, _, inside, _ in seen.below:
                self._descend(fd, name, mode, inside, f"{prefix}{name}/", modes[name])
            return
        wanted = decode_manifest(self._objects.read_blob(manifest))
        leaves = {found[0]: Status(*found) for found in listing.leaves}
        modes = dict(listing.directories)
        for name in (leaves.keys() | modes.keys()) - wanted.keys():
            self._discard(fd, name, name in modes)
        known = {} if seen is None else seen.known
        for name, item in wanted.items():
            if item.kind == "d":
                self._descend(fd, name, item.mode, item.oid, f"{prefix}{name}/", modes.get(name))
            elif item.kind == "l":
                self._link(fd, name, item)
            else:
                self._file(fd, name, item, leaves.get(name), known.get(name))

    def _discard(self, fd: int, name: str, is_directory: bool) -> None:
        """Move what is to go into `staging`, which is emptied at once in the end; see `dirfd.put`."""
        with contextlib.suppress(FileNotFoundError):
            if is_directory:
                os.close(dirfd.open_for_change(fd, name))
            os.rename(name, secrets.token_hex(8), src_dir_fd=fd, dst_dir_fd=self._staging)

    def _descend(self, fd: int, name: str, mode: int, manifest: str, prefix: str, found: int | None) -> None:
        """A subdirectory, which was just `found` to have a mode or else not to be one."""
        with self._subdirectory(fd, name, mode, found) as below:
            self.directory(below, manifest, prefix)

    def path(self, root: int, manifest: str, parts: Sequence[str]) -> None:
        """One path only: put back if the manifest has it, removed if not."""
        self._path(root, manifest, parts, "")

    def _path(self, fd: int, manifest: str, parts: Sequence[str], prefix: str) -> None:
        name, rest = parts[0], parts[1:]
        item = decode_manifest(self._objects.read_blob(manifest)).get(name)
        if item is None or (rest and item.kind != "d"):
            if not rest or (item is not None and not _is_directory(fd, name)):
                dirfd.remove(fd, name)
            elif item is None and _is_directory(fd, name):
                self._remove_below(fd, name, rest)
        elif not rest:
            self.entry(fd, name, item, prefix + name)
        else:
            mode = item.mode if _is_directory(fd, name) else None
            with self._subdirectory(fd, name, item.mode, mode) as below:
                self._path(below, item.oid, rest, f"{prefix}{name}/")

    def _remove_below(self, fd: int, name: str, rest: Sequence[str]) -> None:
        below = dirfd.open_for_change(fd, name)
        try:
            if len(rest) == 1:
                dirfd.remove(below, rest[0])
            elif _is_directory(below, rest[0]):
                self._remove_below(below, rest[0], rest[1:])
        finally:
            os.close(below)

    def entry(self, fd: int, name: str, item: Item, path: str) -> None:
        """One entry of an open, writable directory."""
        found = dirfd.status(fd, name)
        if item.kind == "d":
            mode = found.st_mode if found is not None and stat.S_ISDIR(found.st_mode) else None
            self._descend(fd, name, item.mode, item.oid, path + "/", mode)
        elif item.kind == "l":
            self._link(fd, name, item)
        else:
            parent = self._stat_cache.directories.get(path[: -len(name)])
            status = None if found is None else status_of(name, found)
            self._file(fd, name, item, status, None if parent is None else parent.known.get(name))

    @contextlib.contextmanager
    def _subdirectory(self, fd: int, name: str, mode: int, found: int | None) -> Iterator[int]:
        if found is None:
            dirfd.remove(fd, name)
            os.mkdir(name, 0o700, dir_fd=fd)
        below = dirfd.open_for_change(fd, name)
        try:
            yield below
            if stat.S_IMODE(os.fstat(below).st_mode) != mode:
                os.fchmod(below, mode)
        finally:
            os.close(below)

    def _link(self, fd: int, name: str, item: Item) -> None:
        target = self._objects.read_blob(item.oid)
        found = dirfd.status(fd, name)
        if found is not None and stat.S_ISLNK(found.st_mode):
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(os.fsencode(name), dir_fd=fd) == target:
                    return
        elif found is not None and stat.S_ISDIR(found.st_mode):
            dirfd.remove(fd, name)
        temporary = secrets.token_hex(8)
        os.symlink(target, os.fsencode(temporary), dir_fd=self._staging)
        dirfd.put(self._staging, temporary, fd, name)

    def _file(self, fd: int, name: str, item: Item, found: Status | None, known: CachedFile | None) -> None:
        if found is not None and stat.S_ISREG(found.mode) and self._kept(fd, name, item, found, known):
            return
        if found is None or stat.S_ISDIR(found.mode):
            dirfd.remove(fd, name)
        temporary = secrets.token_hex(8)
        if self._objects.header(item.oid) != ("blob", item.size):
            raise CodePilotError(FailureKind.POLICY_VIOLATION, f"the snapshot is wrong about the size of {name!r}")
        content = self._objects.stream
        try:
            dirfd.create_file(self._staging, temporary, content(item.oid), item.mode, item.mtime_ns)
        except OSError as error:
            if error.errno not in dirfd.NO_ROOM:
                raise
            dirfd.empty(self._staging)
            dirfd.create_file(self._staging, temporary, content(item.oid), item.mode, item.mtime_ns)
        dirfd.put(self._staging, temporary, fd, name)

    def _kept(self, fd: int, name: str, item: Item, found: Status, known: CachedFile | None) -> bool:
        """True if the file has the right content already; if so its mode and time are put right."""
        if found.size != item.size or found.links != 1:
            return False
        exact = found.mode & 0o7777 == item.mode and found.mtime_ns == item.mtime_ns
        if exact and known is not None and known.oid == item.oid and known.holds(found):
            return True
        try:
            opened = dirfd.open_regular(fd, name)
        except PermissionError:
            return False
        if opened is None:
            return False
        try:
            if os.fstat(opened).st_nlink != 1 or file_id(opened, item.size) != item.oid:
                return False
            if not exact:
                os.fchmod(opened, item.mode)
                os.utime(opened, ns=(item.mtime_ns, item.mtime_ns))
            return True
        finally:
            os.close(opened)


def _is_directory(fd: int, name: str) -> bool:
    found = dirfd.status(fd, name)
    return found is not None and stat.S_ISDIR(found.st_mode)


def copy_in(source: Path, root: int, target: Sequence[str]) -> None:
    """Copy a file or directory to a place below an open directory."""
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
            parent = stack.enter_context(dirfd.opened(folder))
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
        if error.errno in dirfd.NO_ROOM:
            raise
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS,
            f"{shown(str(source))} cannot be copied to {shown('/'.join(target))!r}: {error.strerror}",
            "Name a place in the tree that leads through no link and no file.",
        ) from error


def _copy(parent: int, name: str, place: int, target: str) -> None:
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        with dirfd.opened(name, parent) as source:
            children = set(dirfd.names(source))
            if "HEAD" in children and ("commondir" in children or {"objects", "refs"} <= children):
                return
            with _subdirectory(place, target) as below:
                for child in sorted(children):
                    if not is_git_alias(child):
                        _copy(source, child, below, child)
    elif dirfd.status(place, target) is not None:
        return
    elif stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=parent), target, dir_fd=place)
    elif stat.S_ISREG(status.st_mode):
        fd = dirfd.open_regular(parent, name)
        if fd is None:
            return
        try:
            chunks = dirfd.read_chunks(fd, status.st_size)
            dirfd.create_file(place, target, chunks, status.st_mode & 0o777, status.st_mtime_ns)
        finally:
            os.close(fd)


def _subdirectory(place: int, name: str) -> contextlib.AbstractContextManager[int]:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=place)
    return dirfd.opened(name, place)


def lay_out(objects: ObjectStore, tree: str, directory: Path) -> Path:
    """Make `directory` hold the tree, whole or not at all; one that is there already does."""
    if directory.is_dir():
        return directory
    partial = directory.with_name(f"{directory.name}.{secrets.token_hex(4)}.tmp")
    partial.mkdir(mode=0o700, parents=True)
    with dirfd.opened(partial.parent) as parent:
        with dirfd.opened(partial.name, parent) as root:
            materialise(objects, tree, root)
        try:
            os.rename(partial.name, directory.name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            dirfd.remove(parent, partial.name)
            if not directory.is_dir():
                raise
    return directory
