"""The exact content of a directory as one immutable object: what a tree leaves out, this keeps.

A manifest lists every entry of a directory with permissions, modification time and content, ignored files and empty
directories included; a subdirectory is named by its own manifest, so what did not change costs nothing. Pure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import is_git_name
from codepilot.workspace.paths import is_plain_name

ItemKind = Literal["d", "f", "l"]

_SNAPSHOT = "codepilot snapshot 1"
_RECORD = re.compile(_SNAPSHOT.encode() + rb"\n[0-9a-f]{64}\n[0-9a-f]{64}\n[0-7]{1,4}\n")
_OID = re.compile("[0-9a-f]{64}")


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
    """The entries of a manifest. One that leads elsewhere is refused: what an agent wrote may look like one."""
    items: dict[str, Item] = {}
    try:
        for row in data.split(b"\0")[:-1]:
            kind, mode, mtime_ns, size, oid, name = row.split(b" ", 5)
            items[os.fsdecode(name)] = Item(_kind(kind), int(mode, 8), int(mtime_ns), int(size), oid.decode())
    except ValueError:
        raise _unfit() from None
    if not all(map(_fits, items.items())):
        raise _unfit()
    return items


def encode_record(record: SnapshotRecord) -> bytes:
    return f"{_SNAPSHOT}\n{record.tree}\n{record.manifest}\n{record.mode:o}\n".encode()


def check_manifest(data: bytes) -> dict[str, Item]:
    """The entries of a manifest from elsewhere; one that `encode` did not write is refused."""
    items = decode(data)
    if encode(sorted(items.items())) != data:
        raise _unfit()
    return items


def is_record(data: bytes) -> bool:
    """Whether an object is a snapshot, or at least looks like one in every respect."""
    return len(data) < 300 and _RECORD.fullmatch(data) is not None


def decode_record(data: bytes) -> SnapshotRecord:
    if not is_record(data):
        raise CodePilotError(FailureKind.INTERNAL, "not a snapshot")
    _, tree, manifest, mode, _ = data.decode("ascii").split("\n")
    return SnapshotRecord(tree, manifest, int(mode, 8))


def _unfit() -> CodePilotError:
    return CodePilotError(FailureKind.POLICY_VIOLATION, "a manifest is not one that a snapshot can hold")


def _fits(entry: tuple[str, Item]) -> bool:
    name, item = entry
    sound = _OID.fullmatch(item.oid) is not None and item.mode <= 0o777
    return sound and abs(item.mtime_ns) < 1 << 63 and is_plain_name(name) and not is_git_name(name)


def _kind(raw: bytes) -> ItemKind:
    if raw == b"f":
        return "f"
    if raw not in (b"d", b"l"):
        raise ValueError(f"unknown kind of entry {raw!r}")
    return "d" if raw == b"d" else "l"
