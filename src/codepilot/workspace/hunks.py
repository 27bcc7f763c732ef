"""A change as files and hunks that can be taken or left one by one, and the tree of what was taken.

A piece is the smallest part that is decided on: one run of changed lines, a mode, a rename, or a whole file that cannot
be divided (new, deleted, binary, a link). Pieces have ids that a person can type: `shop.py:2` is the second hunk of a
file, `shop.py:2.1` its first run of changed lines.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace.git import must_git
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.trees import EXECUTABLE, FILE, Entry, shown

FileChangeKind = Literal["added", "deleted", "modified", "renamed", "type"]

MODE, RENAME = "mode", "rename"
_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@ ?(.*)", re.DOTALL)
_NO_NEWLINE = b"\\ "


class Piece(NamedTuple):
    """What is decided on: a part of a file, or the whole file if `part` is empty."""

    path: str
    part: str = ""
    """`2`, `2.1`, `mode` or `rename`."""

    @property
    def id(self) -> str:
        return f"{shown(self.path)}:{self.part}" if self.part else shown(self.path)


@dataclass(frozen=True)
class Edit:
    """One run of removed and added lines. `at` is the index of its first line in the old file."""

    at: int
    removed: tuple[bytes, ...]
    added: tuple[bytes, ...]
    start: int
    end: int
    """The lines of the hunk that it consists of."""


@dataclass(frozen=True)
class Hunk:
    number: int
    old_start: int
    new_start: int
    heading: str
    """The function or section that the hunk is in, as git finds it."""
    lines: tuple[bytes, ...]
    """The lines of the diff with their first character; a last line without newline is followed by a note."""
    edits: tuple[Edit, ...]

    def part(self, number: int) -> tuple[bytes, ...]:
        """The lines of one edit with the context up to its neighbours; `number` counts from 1."""
        first = self.edits[number - 2].end if number > 1 else 0
        last = self.edits[number].start if number < len(self.edits) else len(self.lines)
        return self.lines[first:last]


@dataclass(frozen=True)
class ChangedFile:
    """One file of a change. A renamed file has both names."""

    path: str
    kind: FileChangeKind
    before: Entry | None
    after: Entry | None
    old_path: str = ""
    binary: bool = False
    hunks: tuple[Hunk, ...] = ()

    @property
    def name(self) -> str:
        """The path as text that can be printed and typed."""
        return shown(self.path)

    @property
    def whole(self) -> bool:
        """True if the file can only be taken or left as a whole."""
        regular = all(side.mode in (FILE, EXECUTABLE) for side in (self.before, self.after) if side is not None)
        return self.kind in ("added", "deleted", "type") or self.binary or not regular

    @property
    def mode_changed(self) -> bool:
        return self.before is not None and self.after is not None and self.before.mode != self.after.mode

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its pieces in order."""
        if self.whole:
            return (Piece(self.path),)
        found = [Piece(self.path, RENAME)] if self.kind == "renamed" else []
        if self.mode_changed:
            found.append(Piece(self.path, MODE))
        for hunk in self.hunks:
            found += self.of_hunk(hunk)
        return tuple(found)

    def of_hunk(self, hunk: Hunk) -> list[Piece]:
        """A hunk as one piece, or its parts."""
        if len(hunk.edits) == 1:
            return [Piece(self.path, str(hunk.number))]
        return [Piece(self.path, f"{hunk.number}.{part}") for part in range(1, len(hunk.edits) + 1)]


def changed_files(objects: ObjectStore, before: str, after: str) -> tuple[ChangedFile, ...]:
    """The change from one tree to another, file by file, renames found."""
    objects.diff(before, after)  # refuses a change that is too large to show
    options = ["-r", "-z", "--raw", "-p", "--full-index", "--no-abbrev", "-M", "--no-ext-diff", "--no-textconv"]
    output = must_git(["diff-tree", *options, "--no-color", "-U3", before, after], objects.path)
    return tuple(_files(output))


# Reading git's output -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Raw:
    """One record of git's raw output."""

    status: str
    before: Entry | None
    after: Entry | None
    old_path: str
    path: str


def _files(output: bytes) -> Iterator[ChangedFile]:
    records, patch = _raw_records(output)
    blocks = iter(_blocks(patch))
    for record in records:
        block = next(blocks, [])
        if record.status == "T":  # git writes a deletion and an addition
            next(blocks, None)
            yield ChangedFile(record.path, "type", record.before, record.after)
            continue
        binary = any(line.startswith((b"Binary files ", b"GIT binary patch")) for line in block[:12])
        kind = _kind(record.status)
        old_path = record.old_path if kind == "renamed" else ""
        hunks = tuple(_hunks(block))
        yield ChangedFile(record.path, kind, record.before, record.after, old_path, binary, hunks)


def _kind(status: str) -> FileChangeKind:
    return {"A": "added", "D": "deleted", "R": "renamed"}.get(status, "modified")  # type: ignore[return-value]


def _raw_records(output: bytes) -> tuple[list[_Raw], bytes]:
    """The records, and the patch that follows them."""
    records, position = [], 0
    while output[position : position + 1] == b":":
        end = output.index(b"\0", position)
        old_mode, new_mode, old, new, status = output[position + 1 : end].decode().split(" ")
        position, paths = end + 1, []
        for _ in range(2 if status[0] in "RC" else 1):
            end = output.index(b"\0", position)
            paths.append(os.fsdecode(output[position:end]))
            position = end + 1
        records.append(_Raw(status[0], _entry(old_mode, old), _entry(new_mode, new), paths[0], paths[-1]))
    return records, output[position:].removeprefix(b"\0")


def _entry(mode: str, oid: str) -> Entry | None:
    return None if mode == "000000" else Entry(mode, oid)


def _blocks(patch: bytes) -> Iterator[list[bytes]]:
    """The lines of each file. The lines of a hunk are counted, so that no content is taken for a header."""
    block: list[bytes] = []
    lines = iter(patch.split(b"\n"))
    for line in lines:
        if line.startswith(b"diff --git "):
            if block:
                yield block
            block = []
        block.append(line)
        if (found := _HUNK.fullmatch(line)) is not None:
            block.extend(_counted_lines(lines, _count(found[2]), _count(found[4])))
    if any(block):
        yield block


def _count(text: bytes | None) -> int:
    return 1 if text is None else int(text)


def _counted_lines(lines: Iterator[bytes], old: int, new: int) -> Iterator[bytes]:
    while old > 0 or new > 0:
        line = next(lines, None)
        if line is None:
            return
        yield line
        old -= line[:1] in (b" ", b"-")
        new -= line[:1] in (b" ", b"+")


def _hunks(block: Sequence[bytes]) -> Iterator[Hunk]:
    number = place = 0
    while place < len(block):
        found = _HUNK.fullmatch(block[place])
        place += 1
        if found is None:
            continue
        number += 1
        old, new = _count(found[2]), _count(found[4])
        body = list(_counted_lines(iter(block[place:]), old, new))
        place += len(body)
        if place < len(block) and block[place].startswith(_NO_NEWLINE):
            body.append(block[place])
            place += 1
        old_start, new_start = int(found[1]), int(found[3])
        heading = found[5].decode("utf-8", "backslashreplace")
        first = old_start - 1 if old else old_start
        yield Hunk(number, old_start, new_start, heading, tuple(body), tuple(_edits(body, first)))


def _edits(body: Sequence[bytes], at: int) -> Iterator[Edit]:
    """The runs of changed lines; `at` is the index of the hunk's first line in the old file."""
    place = 0
    while place < len(body):
        if body[place][:1] not in (b"-", b"+"):
            at += body[place][:1] != b"\\"
            place += 1
            continue
        start = place
        removed: list[bytes] = []
        added: list[bytes] = []
        while place < len(body) and body[place][:1] in (b"-", b"+", b"\\"):
            if body[place][:1] != b"\\":
                bare = body[place + 1 : place + 2] and body[place + 1].startswith(_NO_NEWLINE)
                line = body[place][1:] + (b"" if bare else b"\n")
                (removed if body[place][:1] == b"-" else added).append(line)
            place += 1
        yield Edit(at, tuple(removed), tuple(added), start, place)
        at += len(removed)


# Choosing -------------------------------------------------------------------------------------------


def selected(files: Sequence[ChangedFile], wanted: str) -> tuple[Piece, ...]:
    """The pieces that `FILE`, `FILE:HUNK` or a piece's id names. A name that fits several is refused."""
    found: dict[tuple[Piece, ...], None] = {}
    for file in files:
        names = {file.name, file.path, shown(file.old_path), file.old_path} - {""}
        if wanted in names:
            found[file.pieces] = None
        name, _, part = wanted.rpartition(":")
        if name in names and not file.whole:
            of_hunk = [piece for piece in file.pieces if piece.part == part or piece.part.split(".")[0] == part]
            found.update({tuple(of_hunk): None} if of_hunk else {})
    if len(found) > 1:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{wanted!r} names several parts of the change.",
            next_action="Review this change on a terminal.",
        )
    if not found:
        raise _no_such_piece(files, wanted)
    return next(iter(found))


def _no_such_piece(files: Sequence[ChangedFile], wanted: str) -> CodePilotError:
    names = [file.name for file in files]
    name = wanted if wanted in names else wanted.rpartition(":")[0]
    ids = next(([piece.id for piece in file.pieces] for file in files if file.name == name), names)
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"The change has no {wanted!r}.",
        next_action=f"Use one of: {', '.join(ids[:12])}{', …' if len(ids) > 12 else ''}.",
    )


def remaining_tree(objects: ObjectStore, before: str, files: Sequence[ChangedFile], accepted: Set[Piece]) -> str:
    """The tree `before` with the accepted pieces and no others."""
    entries = objects.read_tree(before)
    for file in files:
        if file.before is not None and not accepted.isdisjoint(file.pieces):
            entries.pop(file.old_path or file.path, None)
    for file in files:
        if not accepted.isdisjoint(file.pieces):
            _lay(objects, entries, file, accepted)
    try:
        return objects.write_tree(entries)
    except CodePilotError as error:
        if error.kind is not FailureKind.POLICY_VIOLATION:
            raise
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"What was accepted does not fit together: {error.failure.message}.",
            next_action="A path is a file on one side of the change and a directory on the other: take both or none.",
        ) from error


def _lay(objects: ObjectStore, entries: dict[str, Entry], file: ChangedFile, accepted: Set[Piece]) -> None:
    if file.whole:
        if file.after is not None:
            entries[file.path] = file.after
        return
    assert file.before is not None and file.after is not None
    named = file.kind != "renamed" or Piece(file.path, RENAME) in accepted
    path = file.path if named else file.old_path
    mode = file.after.mode if Piece(file.path, MODE) in accepted else file.before.mode
    taken = {
        edit.at: edit
        for hunk in file.hunks
        for piece, edit in zip(file.of_hunk(hunk), hunk.edits, strict=True)
        if piece in accepted
    }
    oid = file.before.oid
    if taken:
        oid = objects.write_blob(edited(objects.read_blob(oid), taken))
    entries[path] = Entry(mode, oid)


def edited(content: bytes, edits: Mapping[int, Edit]) -> bytes:
    """The old content with some edits. Edits that do not fit it are a defect."""
    lines = content.split(b"\n")
    old = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    new: list[bytes] = []
    place = 0
    for at in sorted(edits):
        edit = edits[at]
        if at < place or tuple(old[at : at + len(edit.removed)]) != edit.removed:
            raise CodePilotError(FailureKind.INTERNAL, f"A hunk does not fit its file at line {at + 1}.")
        new += [*old[place:at], *edit.added]
        place = at + len(edit.removed)
    return b"".join([*new, *old[place:]])
