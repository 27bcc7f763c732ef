"""File statuses from one walk, so that the next walk and a restore read only files that changed.

An entry is kept only if a later change must move the file's status time, which only the kernel sets: that time lies
safely before the moment of reading. Names of content are kept, never content.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from codepilot.workspace.trees import Item

GRANULARITY_NS = 20_000_000
"""A file whose status changed this shortly before it was read may change again without a trace."""
COARSE_NS = 2_000_000_000
"""The same on file systems that count in whole seconds or milliseconds."""

Row = tuple[str, str, str]
"""Name, mode and object of one entry of a tree."""
StatRow = tuple[str, int, int, int, int, int, int]
"""All of a status that may matter, as `Status` names it; a plain tuple, because there are very many."""
Stamp = tuple[int, int]
"""Inode and status time of a directory, which the kernel moves whenever a name in it is made, removed or replaced."""
UNSETTLED: Stamp = (0, 0)
"""The stamp of a directory whose names may change without moving it."""

_KIND, _DIRECTORY = 0o170000, 0o040000


class Status(NamedTuple):
    """A `StatRow` whose fields have names."""

    name: str
    mode: int
    inode: int
    links: int
    size: int
    mtime_ns: int
    ctime_ns: int


class CachedFile(NamedTuple):
    """The status a file had when its content was last read."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    oid: str

    def older_than(self, moment_ns: int) -> bool:
        return self.ctime_ns < moment_ns - (COARSE_NS if is_coarse(self.ctime_ns) else GRANULARITY_NS)

    def holds(self, status: Status) -> bool:
        """True if the file still has that status, and so that content."""
        return (self.inode, self.size, self.mtime_ns, self.ctime_ns) == (
            status.inode,
            status.size,
            status.mtime_ns,
            status.ctime_ns,
        )


class Listing(NamedTuple):
    """All that is in a directory: files and the like, and subdirectories with their modes."""

    leaves: list[StatRow]
    directories: list[tuple[str, int]]
    stamp: Stamp = UNSETTLED


class Below(NamedTuple):
    """A subdirectory as it was walked; `empty` if the tree has no place for it."""

    name: str
    mode: int
    tree: str
    manifest: str
    empty: bool


class Leaves(NamedTuple):
    """The files of a directory, all of them ordinary, and unchanged as long as `found` is."""

    found: list[StatRow]
    situation: tuple[bool, bool, bool]
    rows: list[Row]
    items: list[tuple[str, Item]]
    files: int
    size: int


@dataclass(slots=True)
class CachedDirectory:
    """A directory as the last walk left it. Without `leaves` there is more in it than ordinary, unchanged files."""

    known: dict[str, CachedFile] = field(default_factory=dict)
    leaves: Leaves | None = None
    directories: list[tuple[str, int]] = field(default_factory=list)
    below: list[Below] = field(default_factory=list)
    tree: str = ""
    manifest: str = ""
    empty: bool = True
    stamp: Stamp = UNSETTLED

    def before(self, moment_ns: int) -> CachedDirectory:
        """The same without the files whose status changed since a moment."""
        known = {name: file for name, file in self.known.items() if file.older_than(moment_ns)}
        return self if len(known) == len(self.known) else replace(self, known=known, leaves=None)

    def is_exactly(self, manifest: str, listing: Listing) -> bool:
        """True if a directory listed just now is what a manifest says, the insides of its subdirectories aside."""
        return (
            self.manifest == manifest
            and self.leaves is not None
            and self.leaves.found == listing.leaves
            and self.directories == listing.directories
            and len(self.below) == len(self.directories)
        )

    def without(self, inodes: Set[int]) -> CachedDirectory:
        """The same without some files."""
        known = {name: file for name, file in self.known.items() if file.inode not in inodes}
        return self if len(known) == len(self.known) else replace(self, known=known, leaves=None)


@dataclass(slots=True)
class StatCache:
    """Directories by path, given as `""` or with a trailing slash."""

    directories: dict[str, CachedDirectory] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Mapping[str, CachedFile]) -> StatCache:
        """Begin with nothing but files by path."""
        stat_cache = cls()
        for path, entry in known.items():
            parent, slash, name = path.rpartition("/")
            stat_cache.directories.setdefault(parent + slash, CachedDirectory()).known[name] = entry
        return stat_cache

    def before(self, moment_ns: int) -> StatCache:
        """Only what is known of files whose status did not change since a moment."""
        return StatCache({path: one.before(moment_ns) for path, one in self.directories.items()})

    def without(self, inodes: Set[int]) -> StatCache:
        """What is known of all other files."""
        return StatCache({path: one.without(inodes) for path, one in self.directories.items()})


def listed(directory: int, limit: int, last: CachedDirectory | None = None) -> Listing | None:
    """All that is in an open directory; None if it is more than `limit`. What vanishes meanwhile was not there.

    The names are those of `last` as long as the directory's stamp is; the status of each is always asked for.
    """
    status = os.fstat(directory)
    stamp = (status.st_ino, status.st_ctime_ns)
    if last is not None and last.stamp == stamp and (again := _asked_again(directory, last, stamp)) is not None:
        return again
    leaves: list[StatRow] = []
    directories: list[tuple[str, int]] = []
    with os.scandir(directory) as listing:
        for entry in listing:
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            if found.st_mode & _KIND == _DIRECTORY:
                directories.append((entry.name, found.st_mode))
            else:
                leaves.append(_found(entry.name, found))
            limit -= 1
            if limit < 0:
                return None
    return Listing(leaves, directories, stamp)


def _asked_again(directory: int, last: CachedDirectory, stamp: Stamp) -> Listing | None:
    """The current state of the names that were there; None if they are unknown or out of date."""
    if last.leaves is None:
        return None
    leaves: list[StatRow] = []
    directories: list[tuple[str, int]] = []
    try:
        for name, _, _, _, _, _, _ in last.leaves.found:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if found.st_mode & _KIND == _DIRECTORY:
                return None
            leaves.append(_found(name, found))
        for name, _ in last.directories:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if found.st_mode & _KIND != _DIRECTORY:
                return None
            directories.append((name, found.st_mode))
    except FileNotFoundError:
        return None
    return Listing(leaves, directories, stamp)


def _found(name: str, status: os.stat_result) -> StatRow:
    return (
        name,
        status.st_mode,
        status.st_ino,
        status.st_nlink,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def without_git(listing: Listing) -> Listing:
    """The top of a tree, without the agent's own repository."""
    return Listing(
        [found for found in listing.leaves if found[0] != ".git"],
        [found for found in listing.directories if found[0] != ".git"],
        listing.stamp,
    )


def status_of(name: str, found: os.stat_result) -> Status:
    return Status(*_found(name, found))


def is_coarse(time_ns: int) -> bool:
    """True if a time looks like one of a file system with a coarse clock."""
    return time_ns % 1_000_000 == 0
