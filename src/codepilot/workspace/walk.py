"""Our own walk through a tree that an agent has written to.

One pass yields both the tree object that is compared with the base and the manifest from which the directory can be
restored exactly. Promises: the walk stays inside, opens regular files only, never blocks, follows no link, and reports
whatever has no place in a change as a `Violation` instead of hiding it; a file that did not change is not read again,
one that might have changed within the clock's granularity is. Never does: trust an ignore file, a `.git`, or a time
stamp that user code can set.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from typing import Any

from codepilot.workspace import beneath
from codepilot.workspace.manifest import Item, encode
from codepilot.workspace.memory import COARSE_NS, GRANULARITY_NS, Encoded, Known, Memory, Plain, Row, is_coarse
from codepilot.workspace.objects import Writer
from codepilot.workspace.paths import is_git_name
from codepilot.workspace.reference import Reference
from codepilot.workspace.trees import EXECUTABLE, FILE, GITLINK, SYMLINK, Entry, encode_tree


@dataclass(frozen=True)
class Violation:
    """Something that has no place in a change."""

    rule: str
    path: str
    detail: str = ""


@dataclass(frozen=True)
class WalkLimits:
    """How much a workspace may hold beyond its base."""

    files: int = 200_000
    total_bytes: int = 1 << 30
    file_bytes: int = 512 << 20
    depth: int = 200


@dataclass(frozen=True)
class Walked:
    """What a walk found. An incomplete one ran into a limit, and its tree and manifest are not the whole."""

    tree: str
    manifest: str
    violations: tuple[Violation, ...]
    ignored: tuple[str, ...]
    memory: Memory
    complete: bool


@dataclass
class _Level:
    """A directory being walked: where it is, what holds for everything beneath, and what was found in it."""

    fd: int
    prefix: str
    ignored: bool
    collapsed: bool
    submodule: bool
    depth: int
    rows: list[Row] = field(default_factory=list)
    items: list[tuple[str, Item]] = field(default_factory=list)


class Walk:
    """One pass over a tree. Make a new one for each."""

    def __init__(self, reference: Reference, memory: Memory, writer: Writer, limits: WalkLimits) -> None:
        self._reference = reference
        self._memory = memory
        self._writer = writer
        self._limits = limits
        self._next = Memory()
        self._fresh = self._next.known
        self._violations: list[Violation] = []
        self._ignored: list[str] = []
        self._links: dict[str, str] = {}
        self._new_links: list[str] = []
        self._seen_in_submodules: set[str] = set()
        self._files = 0
        self._bytes = 0
        self._complete = True
        self._started_ns = time.time_ns()

    def run(self, root: int) -> Walked:
        """Walk the tree beneath an open directory."""
        level = _Level(root, "", ignored=False, collapsed=False, submodule=False, depth=0)
        tree, manifest = self._directory(level)
        for path in self._new_links:
            if leaves(path, self._links):
                self._violate("symlink_leaves_tree", path, f"points to {self._links[path]}")
        missing = self._reference.submodule_files.keys() - self._seen_in_submodules
        for path in sorted(missing):
            self._violate("submodule_changed", path, "a file of a submodule is gone; submodules are left as they are")
        ordered = sorted(self._violations, key=lambda violation: (violation.path, violation.rule))
        return Walked(tree, manifest, tuple(ordered), tuple(sorted(self._ignored)), self._next, self._complete)

    def _violate(self, rule: str, path: str, detail: str = "") -> None:
        self._violations.append(Violation(rule, path, detail))

    def _directory(self, level: _Level) -> tuple[str, str]:
        """Walk a directory; the names of its tree and its manifest."""
        with os.scandir(level.fd) as listing:
            found = list(listing)
        files: list[tuple[str, str, os.stat_result]] = []
        directories: list[tuple[str, str, os.stat_result]] = []
        for entry in found:
            name = entry.name
            path = level.prefix + name
            if is_git_name(name):
                if path != ".git":
                    self._violate("nested_git", path, "a repository inside the tree can run code on the host")
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            (directories if stat.S_ISDIR(status.st_mode) else files).append((name, path, status))
        self._leaves(level, files)
        for name, path, status in sorted(directories, key=_name):
            self._subdirectory(level, name, path, status)
        names = {entry.name for entry in found}
        for name, oid in self._reference.gitlinks_in(level.prefix):
            if name not in names:
                level.rows.append((name, GITLINK, oid))
        return self._encode(level)

    def _encode(self, level: _Level) -> tuple[str, str]:
        level.items.sort(key=_name)
        last = self._memory.encoded.get(level.prefix)
        if last is None or last.rows != level.rows or last.items != level.items:
            tree = self._writer.add("tree", encode_tree(level.rows))
            last = Encoded(level.rows, level.items, tree, self._writer.add("blob", encode(level.items)))
        self._next.encoded[level.prefix] = last
        return last.tree, last.manifest

    def _leaves(self, level: _Level, files: list[tuple[str, str, os.stat_result]]) -> None:
        """Everything in a directory but its subdirectories; at once, if nothing of it changed."""
        status = (level.ignored, level.collapsed, level.submodule, *(_fields(name, found) for name, _, found in files))
        last = self._memory.plain.get(level.prefix)
        if last is None or last.status != status:
            before = (len(self._violations), len(self._ignored), self._files, self._bytes)
            for name, path, found in sorted(files, key=_name):
                if self._complete:
                    self._leaf(level, name, path, found)
            known = {path: self._fresh[path] for _, path, _ in files if path in self._fresh}
            quiet = before[:2] == (len(self._violations), len(self._ignored)) and not level.submodule
            if quiet and self._complete and len(known) == len(files):
                files_added, bytes_added = self._files - before[2], self._bytes - before[3]
                self._next.plain[level.prefix] = Plain(
                    status, list(level.rows), list(level.items), known, files_added, bytes_added
                )
            return
        self._next.plain[level.prefix] = last
        self._fresh.update(last.known)
        level.rows.extend(last.rows)
        level.items.extend(last.items)
        self._add_up(level.prefix, last.files, last.size)

    def _leaf(self, level: _Level, name: str, path: str, status: os.stat_result) -> None:
        """A file, a link, or something that may not be."""
        tracked = self._reference.entries.get(path)
        hidden = level.submodule or (tracked is None and (level.ignored or self._reference.ignores(path, False)))
        if stat.S_ISREG(status.st_mode):
            result = self._file(level.fd, name, path, status, hidden)
        elif stat.S_ISLNK(status.st_mode):
            result = self._link(level.fd, name, path, hidden, tracked)
        else:
            result = None
            if not hidden:
                self._violate("special_file", path, f"{_special(status.st_mode)}; only files and links may be added")
        if hidden and not level.collapsed and path not in self._reference.submodule_files:
            self._ignored.append(path)
        if result is None:
            return
        row, item = result
        level.items.append((name, item))
        if level.submodule:
            self._check_submodule(path, row)
        elif row is not None and not hidden:
            level.rows.append((name, row.mode, row.oid))

    def _subdirectory(self, level: _Level, name: str, path: str, status: os.stat_result) -> None:
        gitlink = self._reference.gitlinks.get(path)
        if gitlink is not None:
            level.rows.append((name, gitlink.mode, gitlink.oid))
        submodule = level.submodule or gitlink is not None
        ignored = level.ignored or (not submodule and self._reference.ignores(path, True))
        collapsed = level.collapsed or (ignored and not self._reference.holds_tracked(path))
        if collapsed and not level.collapsed:
            self._ignored.append(path + "/")
        if level.depth >= self._limits.depth:
            self._violate("too_deep", path, f"more than {self._limits.depth} directories deep")
            return
        try:
            fd = os.open(name, beneath.DIRECTORY, dir_fd=level.fd)
        except FileNotFoundError:
            return
        except OSError as error:
            if not collapsed:
                self._violate("unreadable", path, error.strerror or "cannot be opened")
            return
        try:
            below = _Level(fd, path + "/", ignored, collapsed, submodule, level.depth + 1)
            tree, manifest = self._directory(below)
        finally:
            os.close(fd)
        level.items.append((name, Item("d", status.st_mode & 0o777, 0, 0, manifest)))
        if below.rows and gitlink is None:
            level.rows.append((name, "40000", tree))

    def _file(
        self, fd: int, name: str, path: str, status: os.stat_result, hidden: bool
    ) -> tuple[Entry | None, Item] | None:
        if not hidden:
            if status.st_mode & 0o6000:
                self._violate("setuid", path, f"mode {status.st_mode & 0o7777:o}")
            if status.st_nlink > 1:
                self._violate("hard_link", path, f"{status.st_nlink} names for one file")
        oid = self._remembered(path, status)
        if oid is None:
            try:
                read = self._read(fd, name, path, status)
            except PermissionError as error:
                if not hidden:
                    self._violate("unreadable", path, error.strerror or "cannot be read")
                return None
            if read is None:
                return None
            oid, status = read
        mode = EXECUTABLE if status.st_mode & 0o100 else FILE
        self._count(path, oid, status.st_size)
        item = Item("f", status.st_mode & 0o777, status.st_mtime_ns, status.st_size, oid)
        return (Entry(mode, oid) if status.st_nlink == 1 else None), item

    def _remembered(self, path: str, status: os.stat_result) -> str | None:
        known = self._memory.known.get(path)
        if known is None or (known.inode, known.size, known.mtime_ns, known.ctime_ns) != (
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        ):
            return None
        self._fresh[path] = known
        return known.oid

    def _read(self, parent: int, name: str, path: str, status: os.stat_result) -> tuple[str, os.stat_result] | None:
        """Hash and store a file's content. Its status is taken from the open file, before and after."""
        if status.st_size > self._limits.file_bytes:
            self._violate("file_too_large", path, f"{status.st_size} bytes, at most {self._limits.file_bytes}")
            return None
        fd = beneath.open_regular(parent, name)
        if fd is None:
            return None
        try:
            before = os.fstat(fd)
            if before.st_size > self._limits.file_bytes:
                return None
            data = beneath.read_all(fd, before.st_size)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        oid = self._writer.add("blob", data)
        if (before.st_ctime_ns, before.st_size) == (after.st_ctime_ns, len(data)) and self._settled(after.st_ctime_ns):
            self._fresh[path] = Known(after.st_ino, after.st_size, after.st_mtime_ns, after.st_ctime_ns, oid)
        return oid, after

    def _settled(self, ctime_ns: int) -> bool:
        """Whether any later change is bound to move the file's status time."""
        return ctime_ns < self._started_ns - (COARSE_NS if is_coarse(ctime_ns) else GRANULARITY_NS)

    def _link(
        self, fd: int, name: str, path: str, hidden: bool, tracked: Entry | None
    ) -> tuple[Entry | None, Item] | None:
        try:
            target = os.readlink(name, dir_fd=fd)
        except OSError:
            return None
        oid = self._writer.add("blob", os.fsencode(target))
        self._links[path] = target
        entry = Entry(SYMLINK, oid)
        if not hidden and entry != tracked:
            self._new_links.append(path)
        return entry, Item("l", 0, 0, 0, oid)

    def _count(self, path: str, oid: str, size: int) -> None:
        """Count what the workspace holds beyond its base."""
        tracked = self._reference.entries.get(path) or self._reference.submodule_files.get(path)
        if tracked is not None and tracked.oid == oid:
            return
        self._add_up(path, 1, size)

    def _add_up(self, path: str, files: int, size: int) -> None:
        self._files += files
        self._bytes += size
        if self._complete and (self._files > self._limits.files or self._bytes > self._limits.total_bytes):
            self._complete = False
            self._violate(
                "quota", path, f"more than {self._limits.files} new files or {self._limits.total_bytes} new bytes"
            )

    def _check_submodule(self, path: str, row: Entry | None) -> None:
        expected = self._reference.submodule_files.get(path)
        if expected is None:
            return
        self._seen_in_submodules.add(path)
        if row != expected:
            self._violate("submodule_changed", path, "submodules are left as they are")


def leaves(path: str, links: dict[str, str]) -> bool:
    """Whether following a link could lead out of the tree or into its `.git`, by way of the tree's other links."""
    at = path.split("/")[:-1]
    ahead = list(reversed(links[path].split("/")))
    if links[path].startswith("/"):
        return True
    hops = 0
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(part)
        if len(at) == 1 and is_git_name(part):
            return True
        target = links.get("/".join(at))
        if target is not None:
            hops += 1
            if hops > 40 or target.startswith("/"):
                return True
            at.pop()
            ahead.extend(reversed(target.split("/")))
    return False


def _name(row: tuple[Any, ...]) -> Any:
    return row[0]


def _fields(name: str, found: os.stat_result) -> tuple[object, ...]:
    """All of a status that may matter, with the name."""
    return (
        name,
        found.st_mode,
        found.st_ino,
        found.st_nlink,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


def _special(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
