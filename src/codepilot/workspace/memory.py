"""What one walk leaves to the next, so that what did not change costs little.

Promises: a remembered file is one whose status cannot be the same after a change (its status time, which only the
kernel sets, lay safely before the moment it was read). Only names of content are kept here, never content.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from codepilot.workspace.manifest import Item

GRANULARITY_NS = 20_000_000
"""A file whose status changed this shortly before it was read may change again without a trace."""
COARSE_NS = 2_000_000_000
"""The same on file systems that count in whole seconds or milliseconds."""

Row = tuple[str, str, str]
"""Name, mode and object of one entry of a tree."""


class Known(NamedTuple):
    """The status a file had when its content was last read."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    oid: str


class Encoded(NamedTuple):
    """A directory as it was last written to the store."""

    rows: list[Row]
    items: list[tuple[str, Item]]
    tree: str
    manifest: str


class Plain(NamedTuple):
    """The files of a directory, all of them ordinary and unchanged as long as `status` is."""

    status: tuple[object, ...]
    rows: list[Row]
    items: list[tuple[str, Item]]
    known: dict[str, Known]
    files: int
    size: int


@dataclass
class Memory:
    """Files by path, and directories by path with a trailing slash."""

    known: dict[str, Known] = field(default_factory=dict)
    plain: dict[str, Plain] = field(default_factory=dict)
    encoded: dict[str, Encoded] = field(default_factory=dict)


def is_coarse(time_ns: int) -> bool:
    """Whether a time looks like one of a file system with a coarse clock."""
    return time_ns % 1_000_000 == 0
