"""The exact content of a directory as one immutable object: what a tree leaves out, this keeps.

A manifest lists every entry of a directory with permissions, modification time and content, ignored files and empty
directories included; a subdirectory is named by its own manifest, so what did not change costs nothing. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, NamedTuple

from codepilot.core.failures import CodePilotError, FailureKind

ItemKind = Literal["d", "f", "l"]

_SNAPSHOT = "codepilot snapshot 1"


class Item(NamedTuple):
    """A directory, file or symbolic link. `oid` names its manifest, content or target."""

    kind: ItemKind
    mode: int
    mtime_ns: int
    size: int
    oid: str


class SnapshotRecord(NamedTuple):
    """What a snapshot's id names."""

    tree: str
    manifest: str
    mode: int


def encode(items: Iterable[tuple[str, Item]]) -> bytes:
    """Items must come sorted by name, so that equal directories have equal manifests."""
    return b"".join(
        b"%s %o %d %d %s %s\0"
        % (item.kind.encode(), item.mode, item.mtime_ns, item.size, item.oid.encode(), os.fsencode(name))
        for name, item in items
    )


def decode(data: bytes) -> dict[str, Item]:
    items: dict[str, Item] = {}
    for row in data.split(b"\0")[:-1]:
        kind, mode, mtime_ns, size, oid, name = row.split(b" ", 5)
        items[os.fsdecode(name)] = Item(_kind(kind), int(mode, 8), int(mtime_ns), int(size), oid.decode())
    return items


def encode_record(record: SnapshotRecord) -> bytes:
    return f"{_SNAPSHOT}\n{record.tree}\n{record.manifest}\n{record.mode:o}\n".encode()


def decode_record(data: bytes) -> SnapshotRecord:
    lines = data.decode("utf-8", "replace").split("\n")
    if len(lines) != 5 or lines[0] != _SNAPSHOT:
        raise CodePilotError(FailureKind.INTERNAL, "not a snapshot")
    return SnapshotRecord(lines[1], lines[2], int(lines[3], 8))


def _kind(raw: bytes) -> ItemKind:
    if raw == b"f":
        return "f"
    return "d" if raw == b"d" else "l"
