"""Trees as git stores them: the entries of a directory, encoded and decoded, and nested from plain paths.

Promises: no tree made here can hold a path that leads elsewhere (`..`, an absolute path), into a `.git`, or through a
file. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import is_git_name
from codepilot.workspace.paths import is_plain_name, shown

FILE, EXECUTABLE, SYMLINK, GITLINK, DIRECTORY = "100644", "100755", "120000", "160000", "40000"
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
