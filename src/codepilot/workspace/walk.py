"""Walks a tree that an agent has written to.

One pass gives both the tree object that is compared with the base and the manifest from which the directory is
restored. The walk stays inside, opens regular files only, never blocks and follows no link. Whatever has no place in a
change is reported as a `Violation`. A file that did not change is not read again; one that may have changed within the
clock's granularity is. Ignore files, a `.git` and time stamps that user code can set are never trusted.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field, replace

from codepilot.core.git_names import is_git_alias, is_git_name
from codepilot.workspace import dirfd
from codepilot.workspace.base_index import BaseIndex
from codepilot.workspace.objects import Writer
from codepilot.workspace.stat_cache import (
    COARSE_NS,
    GRANULARITY_NS,
    UNSETTLED,
    Below,
    CachedDirectory,
    CachedFile,
    Leaves,
    Listing,
    Row,
    StatCache,
    StatRow,
    Status,
    is_coarse,
    listed,
    status_of,
    without_git,
)
from codepilot.workspace.trees import (
    DIRECTORY,
    EXECUTABLE,
    FILE,
    GITLINK,
    SYMLINK,
    Entry,
    Item,
    encode_manifest,
    encode_tree,
    leads_out,
)

_TEXT_BYTES = 16 << 20
"""How much the paths of violations, links and ignored files may take."""
_NOTHING = CachedDirectory()
_ALIAS = "git on other systems takes this name for .git"


@dataclass(frozen=True)
class Violation:
    """Something that has no place in a change."""

    rule: str
    path: str
    detail: str = ""


@dataclass(frozen=True)
class WalkLimits:
    """How much a workspace may hold beyond its base; `files` counts directories and links too."""

    files: int = 200_000
    total_bytes: int = 1 << 30
    file_bytes: int = 512 << 20
    depth: int = 200


@dataclass(frozen=True)
class Walked:
    """The result of a walk. An incomplete one reached a limit, and its tree and manifest are partial."""

    tree: str
    manifest: str
    violations: tuple[Violation, ...]
    ignored: tuple[str, ...]
    stat_cache: StatCache
    complete: bool


@dataclass(slots=True)
class _Level:
    """A directory being walked: its position, the rules for everything below it, and the entries found."""

    fd: int
    prefix: str
    ignored: bool
    collapsed: bool
    submodule: bool
    depth: int
    rows: list[Row] = field(default_factory=list)
    items: list[tuple[str, Item]] = field(default_factory=list)
    fresh: dict[str, CachedFile] = field(default_factory=dict)
    known: dict[str, CachedFile] = field(default_factory=dict)


class Walk:
    """One pass over a tree. Make a new one for each."""

    def __init__(self, base_index: BaseIndex, stat_cache: StatCache, writer: Writer, limits: WalkLimits) -> None:
        self._base_index = base_index
        self._stat_cache = stat_cache
        self._writer = writer
        self._limits = limits
        self._next = StatCache()
        self._room = limits.files + len(base_index.entries) + len(base_index.submodule_files) + 1
        self._violations: list[Violation] = []
        self._ignored: list[str] = []
        self._links: dict[str, str] = {}
        self._new_links: list[str] = []
        self._seen_in_submodules: set[str] = set()
        self._files = 0
        self._bytes = 0
        self._complete = True
        self._text = _TEXT_BYTES
        self._started_ns = time.time_ns()

    def run(self, root: int) -> Walked:
        """Walk the tree below an open directory."""
        level = _Level(root, "", ignored=False, collapsed=False, submodule=False, depth=0)
        listing = self._listed(root, "")
        seen = self._directory(level, without_git(listing))
        for path in self._new_links:
            if leads_out(path, self._links):
                self._violate("symlink_leaves_tree", path, f"points to {self._links[path]}")
        missing = self._base_index.submodule_files.keys() - self._seen_in_submodules
        for path in sorted(missing):
            self._violate("submodule_changed", path, "a file of a submodule is gone; submodules are left as they are")
        ordered = sorted(self._violations, key=lambda violation: (violation.path, violation.rule))
        return Walked(
            seen.tree, seen.manifest, tuple(ordered), tuple(sorted(self._ignored)), self._next, self._complete
        )

    def _violate(self, rule: str, path: str, detail: str = "") -> None:
        self._violations.append(Violation(rule, path, detail))
        self._weigh(path, detail)

    def _weigh(self, *texts: str) -> None:
        """Bound what is kept of paths, however many and long they are."""
        self._text -= sum(map(len, texts)) + 100
        if self._text < 0:
            self._exceed(texts[0])

    def _listed(self, fd: int, prefix: str) -> Listing:
        """All that is in a directory, unless that alone is too much."""
        listing = listed(fd, self._room, self._stat_cache.directories.get(prefix))
        if listing is None:
            self._exceed(prefix.removesuffix("/"))
            return Listing([], [])
        return listing if self._settled(listing.stamp[1]) else listing._replace(stamp=UNSETTLED)

    def _directory(self, level: _Level, listing: Listing) -> CachedDirectory:
        """Walk a directory; what is to be remembered of it."""
        last = self._stat_cache.directories.get(level.prefix) or _NOTHING
        leaves = self._leaves(level, listing.leaves, last)
        below: list[Below] = []
        for name, mode in sorted(listing.directories):
            if self._complete and (found := self._subdirectory(level, name, mode)) is not None:
                below.append(found)
        gitlinks = self._base_index.gitlinks_in(level.prefix)
        seen = last
        if leaves is None or leaves is not last.leaves or below != last.below or gitlinks:
            if leaves is not None:
                level.rows.extend(leaves.rows)
                level.items.extend(leaves.items)
            there = {name for name, _ in listing.directories} | {found[0] for found in listing.leaves}
            level.rows.extend((name, GITLINK, oid) for name, oid in gitlinks if name not in there)
            seen = self._encoded(level, leaves, listing, below)
        elif listing.directories != last.directories or listing.stamp != last.stamp:
            seen = replace(last, directories=listing.directories, stamp=listing.stamp)
        self._next.directories[level.prefix] = seen
        return seen

    def _encoded(self, level: _Level, leaves: Leaves | None, listing: Listing, below: list[Below]) -> CachedDirectory:
        for name, mode, tree, manifest, empty in below:
            level.items.append((name, Item("d", mode, 0, 0, manifest)))
            if not empty:
                level.rows.append((name, DIRECTORY, tree))
        level.items.sort()
        tree = self._writer.add("tree", encode_tree(level.rows))
        manifest = self._writer.add("blob", encode_manifest(level.items))
        known = level.known if leaves is not None else level.fresh
        return CachedDirectory(known, leaves, listing.directories, below, tree, manifest, not level.rows, listing.stamp)

    def _leaves(self, level: _Level, found: list[StatRow], last: CachedDirectory) -> Leaves | None:
        """Everything in a directory but its subdirectories: at once if nothing of it changed, else one by one.

        None if not all of it is ordinary; what was found is then in the level.
        """
        situation = (level.ignored, level.collapsed, level.submodule)
        level.known = last.known
        if last.leaves is not None and last.leaves.found == found and last.leaves.situation == situation:
            self._add_up(level.prefix, last.leaves.files, last.leaves.size)
            return last.leaves
        before = (len(self._violations), len(self._ignored), self._files, self._bytes)
        for status in sorted(found):
            if self._complete:
                self._leaf(level, Status(*status))
        quiet = before[:2] == (len(self._violations), len(self._ignored)) and not level.submodule
        plain = all(mode & 0o7000 == 0 and links == 1 for _, mode, _, links, _, _, _ in found)
        if not (quiet and plain and self._complete and len(level.fresh) == len(found)):
            return None
        leaves = Leaves(found, situation, level.rows, level.items, self._files - before[2], self._bytes - before[3])
        level.known, level.rows, level.items = level.fresh, [], []
        return leaves

    def _leaf(self, level: _Level, status: Status) -> None:
        """A file, a link, or something that may not be."""
        path = level.prefix + status.name
        if is_git_name(status.name):
            self._nested(path)
            return
        tracked = self._base_index.entries.get(path)
        hidden = level.submodule or (tracked is None and (level.ignored or self._base_index.ignores(path, False)))
        if stat.S_ISREG(status.mode):
            result = self._file(level, path, status, hidden)
        elif stat.S_ISLNK(status.mode):
            result = self._link(level.fd, status.name, path, hidden, tracked)
        else:
            result = None
            self._add_up(path, 1, 0)
            if not hidden:
                self._violate("special_file", path, f"{_special(status.mode)}; only files and links may be added")
        if hidden and not level.collapsed and path not in self._base_index.submodule_files:
            self._ignored.append(path)
            self._weigh(path)
        if tracked is None and is_git_alias(status.name):
            self._violate("nested_git", path, _ALIAS)
        if result is None:
            return
        row, item = result
        level.items.append((status.name, item))
        if level.submodule:
            self._check_submodule(path, row)
        elif row is not None and not hidden:
            level.rows.append((status.name, row.mode, row.oid))

    def _nested(self, path: str) -> None:
        self._violate("nested_git", path, "a repository inside the tree can run code on the host")

    def _subdirectory(self, level: _Level, name: str, mode: int) -> Below | None:
        path = level.prefix + name
        if is_git_name(name):
            self._nested(path)
            return None
        gitlink = self._base_index.gitlinks.get(path)
        if gitlink is not None:
            level.rows.append((name, gitlink.mode, gitlink.oid))
        submodule = level.submodule or gitlink is not None
        ignored = level.ignored or (not submodule and self._base_index.ignores(path, True))
        tracked = submodule or self._base_index.holds_tracked(path)
        collapsed = level.collapsed or (ignored and not tracked)
        if collapsed and not level.collapsed:
            self._ignored.append(path + "/")
            self._weigh(path)
        if not tracked:
            self._add_up(path, 1, 0)
            if is_git_alias(name):
                self._violate("nested_git", path, _ALIAS)
        if level.depth >= self._limits.depth:
            self._violate("too_deep", path, f"more than {self._limits.depth} directories deep")
            return None
        try:
            fd = os.open(name, dirfd.DIRECTORY, dir_fd=level.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._unreadable(path, collapsed, error)
            return None
        try:
            try:
                inside = self._listed(fd, path + "/")
            except PermissionError as error:
                self._unreadable(path, collapsed, error)
                return None
            if not ignored and not submodule and self._is_new_repository(path, inside):
                self._nested(path)
            seen = self._directory(_Level(fd, path + "/", ignored, collapsed, submodule, level.depth + 1), inside)
        finally:
            os.close(fd)
        return Below(name, mode & 0o777, seen.tree, seen.manifest, seen.empty or gitlink is not None)

    def _is_new_repository(self, path: str, inside: Listing) -> bool:
        """True if git would take a directory for a repository without a `.git`, and its base did not hold it so."""
        if not any(len(found[0]) == 4 and found[0].lower() == "head" for found in inside.leaves):
            return False
        names = {found[0].lower() for found in inside.leaves} | {found[0].lower() for found in inside.directories}
        if not {"objects", "refs"} <= names and "commondir" not in names:
            return False
        known = self._base_index
        held = known.holds_tracked(f"{path}/objects") and known.holds_tracked(f"{path}/refs")
        return f"{path}/HEAD" not in known.entries or not (held or f"{path}/commondir" in known.entries)

    def _unreadable(self, path: str, hidden: bool, error: OSError) -> None:
        if not hidden:
            self._violate("unreadable", path, error.strerror or "cannot be read")

    def _file(self, level: _Level, path: str, status: Status, hidden: bool) -> tuple[Entry | None, Item] | None:
        if not hidden:
            if status.mode & 0o6000:
                self._violate("setuid", path, f"mode {status.mode & 0o7777:o}")
            if status.links > 1:
                self._violate("hard_link", path, f"{status.links} names for one file")
        known = level.known.get(status.name)
        if known is not None and known.holds(status):
            level.fresh[status.name] = known
            oid = known.oid
        else:
            try:
                read = self._read(level, path, status)
            except PermissionError as error:
                self._unreadable(path, hidden, error)
                return None
            if read is None:
                return None
            oid, status = read
        mode = EXECUTABLE if status.mode & 0o100 else FILE
        self._count(path, oid, status.size)
        item = Item("f", status.mode & 0o777, status.mtime_ns, status.size, oid)
        return (Entry(mode, oid) if status.links == 1 else None), item

    def _read(self, level: _Level, path: str, status: Status) -> tuple[str, Status] | None:
        """Hash and store a file's content. Its status is taken from the open file, before and after."""
        if status.size > self._limits.file_bytes:
            self._violate("file_too_large", path, f"{status.size} bytes, at most {self._limits.file_bytes}")
            return None
        fd = dirfd.open_regular(level.fd, status.name)
        if fd is None:
            return None
        try:
            before = os.fstat(fd)
            if before.st_size > self._limits.file_bytes:
                self._violate("file_too_large", path, f"it grew beyond {self._limits.file_bytes} bytes")
                return None
            oid, size = self._writer.add_file(fd, before.st_size)
            after = status_of(status.name, os.fstat(fd))
        finally:
            os.close(fd)
        if (before.st_ctime_ns, before.st_size) == (after.ctime_ns, size) and self._settled(after.ctime_ns):
            level.fresh[status.name] = CachedFile(after.inode, after.size, after.mtime_ns, after.ctime_ns, oid)
        return oid, after._replace(size=size)

    def _settled(self, ctime_ns: int) -> bool:
        """True if any later change is bound to move the file's status time."""
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
        self._weigh(path, target)
        self._count(path, oid, 0)
        entry = Entry(SYMLINK, oid)
        if not hidden and entry != tracked:
            self._new_links.append(path)
        return entry, Item("l", 0, 0, 0, oid)

    def _count(self, path: str, oid: str, size: int) -> None:
        """Count what the workspace holds beyond its base."""
        tracked = self._base_index.entries.get(path) or self._base_index.submodule_files.get(path)
        if tracked is not None and tracked.oid == oid:
            return
        self._add_up(path, 1, size)

    def _add_up(self, path: str, files: int, size: int) -> None:
        self._files += files
        self._bytes += size
        if self._files > self._limits.files or self._bytes > self._limits.total_bytes:
            self._exceed(path)

    def _exceed(self, path: str) -> None:
        if self._complete:
            self._complete = False
            self._violate(
                "quota", path, f"more than {self._limits.files} new files or {self._limits.total_bytes} new bytes"
            )

    def _check_submodule(self, path: str, row: Entry | None) -> None:
        expected = self._base_index.submodule_files.get(path)
        if expected is None:
            return
        self._seen_in_submodules.add(path)
        if row != expected:
            self._violate("submodule_changed", path, "submodules are left as they are")


def _special(mode: int) -> str:
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
