"""Paths, git trees and snapshot manifests: checked, encoded and decoded. Pure.

Paths are `str` as the operating system gives them, with undecodable bytes escaped as surrogates. No tree made here can
hold a path that leads elsewhere (`..`, an absolute path), into a `.git`, or through a file. A manifest records the
exact content of a directory with permissions, modification times, ignored files and empty directories; a subdirectory
is named by its own manifest, so unchanged parts cost nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import is_git_name

FILE, EXECUTABLE, SYMLINK, GITLINK, DIRECTORY = "100644", "100755", "120000", "160000", "40000"
_TREE_ROW = re.compile(rb"[0-7]+ [^\0]+\0.{32}", re.DOTALL)
_MODES = frozenset((FILE, EXECUTABLE, SYMLINK, GITLINK, DIRECTORY))


class Entry(NamedTuple):
    """One file of a tree. A gitlink's `oid` is the submodule's commit, padded with zeros to 64 digits."""

    mode: str
    oid: str


class _Directory(dict[str, "Entry | _Directory"]):
    """Files and subdirectories by name."""


def decode_tree(data: bytes) -> dict[str, Entry]:
    """The entries of one tree object."""
    entries: dict[str, Entry] = {}
    position = 0
    while position < len(data):
        space = data.index(b" ", position)
        end = data.index(b"\0", space)
        oid = data[end + 1 : end + 33]
        entries[os.fsdecode(data[space + 1 : end])] = Entry(data[position:space].decode(), oid.hex())
        position = end + 33
    return entries


def differing_entries(old: bytes, new: bytes) -> tuple[dict[str, Entry], dict[str, Entry]]:
    """The entries of one tree object that another does not have, on both sides; what is the same is not decoded."""
    before, after = set(_TREE_ROW.findall(old)), set(_TREE_ROW.findall(new))
    return decode_tree(b"".join(before - after)), decode_tree(b"".join(after - before))


def encode_tree(entries: Iterable[tuple[str, str, str]]) -> bytes:
    """One tree object from (name, mode, oid); directories have mode `40000`."""
    rows = []
    for name, mode, oid in entries:
        raw = os.fsencode(name)
        rows.append((raw + b"/" if mode == DIRECTORY else raw, mode.encode() + b" " + raw + b"\0" + bytes.fromhex(oid)))
    rows.sort()
    return b"".join(row for _, row in rows)


def check_tree(data: bytes) -> dict[str, Entry]:
    """The entries of a tree from elsewhere; one that was not written by `encode_tree` or leads elsewhere is refused."""
    try:
        entries = decode_tree(data)
        fits = encode_tree((name, *entry) for name, entry in entries.items()) == data
    except ValueError:
        fits = False
    if not fits or not all(
        is_plain_name(name) and not is_git_name(name) and entry.mode in _MODES and len(entry.oid) == 64
        for name, entry in entries.items()
    ):
        raise CodePilotError(FailureKind.POLICY_VIOLATION, "a tree is not one that a workspace can hold")
    return entries


def encode_nested(entries: Mapping[str, Entry], add: Callable[[bytes], str]) -> str:
    """Hand every directory's tree to `add`, innermost first; the name it gives to the root's."""
    return _encode_directory(_nest(entries), add)


def _encode_directory(directory: _Directory, add: Callable[[bytes], str]) -> str:
    rows = []
    for name, child in directory.items():
        if isinstance(child, _Directory):
            rows.append((name, DIRECTORY, _encode_directory(child, add)))
        else:
            rows.append((name, child.mode, child.oid))
    return add(encode_tree(rows))


def _nest(entries: Mapping[str, Entry]) -> _Directory:
    root = _Directory()
    directories: dict[str, _Directory] = {"": root}

    def directory(path: str) -> _Directory:
        found = directories.get(path)
        if found is None:
            parent, _, name = path.rpartition("/")
            found = directories[path] = _Directory()
            _place(directory(parent), name, found, path)
        return found

    for path, entry in entries.items():
        parent, slash, name = path.rpartition("/")
        if slash and not parent:
            raise _unfit(path)
        _place(directory(parent), name, entry, path)
    return root


def _place(directory: _Directory, name: str, child: Entry | _Directory, path: str) -> None:
    if name in ("", ".", "..") or is_git_name(name) or "\0" in name or name in directory:
        raise _unfit(path)
    directory[name] = child


def _unfit(path: str) -> CodePilotError:
    return CodePilotError(FailureKind.POLICY_VIOLATION, f"a tree cannot hold the path {path!r}", path=shown(path))


_NAME_BYTES = 255


def shown(path: str) -> str:
    """A path as text that any encoder takes: undecodable bytes become `\\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_plain_name(name: str) -> bool:
    """True if a name names something in its directory and nothing elsewhere."""
    fits = len(name) <= 63 or len(name.encode("utf-8", "surrogateescape")) <= _NAME_BYTES
    return fits and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def split(path: str) -> list[str]:
    """The parts of a path that stays below its root; anything else is refused."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS, f"not a path inside the workspace: {path!r}", path=shown(path)
        )
    return parts


def leads_out(path: str, links: dict[str, str]) -> bool:
    """True if following a link could lead out of the tree or into its `.git`, by way of the tree's other links."""
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
    """The record behind a snapshot's id."""

    tree: str
    manifest: str
    mode: int


def encode_manifest(items: Iterable[tuple[str, Item]]) -> bytes:
    """Items must come sorted by name, so that equal directories have equal manifests."""
    return b"".join(
        b"%s %o %d %d %s %s\0"
        % (
            item.kind.encode(),
            item.mode,
            item.mtime_ns,
            item.size,
            item.oid.encode(),
            os.fsencode(name),
        )
        for name, item in items
    )


def decode_manifest(data: bytes) -> dict[str, Item]:
    """The entries of a manifest. One that leads elsewhere is refused: what an agent wrote may look like one."""
    items: dict[str, Item] = {}
    try:
        for row in data.split(b"\0")[:-1]:
            kind, mode, mtime_ns, size, oid, name = row.split(b" ", 5)
            items[os.fsdecode(name)] = Item(_kind(kind), int(mode, 8), int(mtime_ns), int(size), oid.decode())
    except ValueError:
        raise _bad_manifest() from None
    if not all(map(_fits, items.items())):
        raise _bad_manifest()
    return items


def encode_record(record: SnapshotRecord) -> bytes:
    return f"{_SNAPSHOT}\n{record.tree}\n{record.manifest}\n{record.mode:o}\n".encode()


def check_manifest(data: bytes) -> dict[str, Item]:
    """The entries of a manifest from elsewhere; one that `encode_manifest` did not write is refused."""
    items = decode_manifest(data)
    if encode_manifest(sorted(items.items())) != data:
        raise _bad_manifest()
    return items


def is_record(data: bytes) -> bool:
    """True if an object is a snapshot, or at least looks like one in every respect."""
    return len(data) < 300 and _RECORD.fullmatch(data) is not None


def decode_record(data: bytes) -> SnapshotRecord:
    if not is_record(data):
        raise CodePilotError(FailureKind.INTERNAL, "not a snapshot")
    _, tree, manifest, mode, _ = data.decode("ascii").split("\n")
    return SnapshotRecord(tree, manifest, int(mode, 8))


def _bad_manifest() -> CodePilotError:
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
