"""A private object store: blobs and trees by SHA-256 name, in a bare git repository of our own.

Objects are immutable and named by their content. A store survives the death of any process that uses it, and many
threads and processes may use one store at once. Everything read is verified. The store never walks a work tree, reads a
configuration, runs a filter, or writes into a repository it did not make.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import dirfd
from codepilot.workspace.git import last_line, must_git, run_git
from codepilot.workspace.pack import (
    LARGE,
    Kind,
    PackReader,
    PackWriter,
    begin_id,
    has_loose,
    loose_header,
    object_id,
    read_loose,
    write_loose,
)
from codepilot.workspace.patch_parts import KEPT_BYTES, NARROW, Change, ChangeKind, Pair, PatchParts
from codepilot.workspace.trees import (
    DIRECTORY,
    EXECUTABLE,
    FILE,
    GITLINK,
    Entry,
    decode_tree,
    differing_entries,
    encode_nested,
)

_CONFIG = (
    "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n"
    "[extensions]\n\tobjectformat = sha256\n[gc]\n\tauto = 0\n"
)
RECEIVED_BYTES = 4 << 30
"""How much a received stream may unpack to by default."""

DIFF_BYTES = 32 << 20
"""How much content the changed files of one diff may hold on both sides."""

_OID = re.compile("[0-9a-f]{64}")
_PATHS_BYTES, _PATCH_HEADER = 64 << 20, 200
_LOOSE_OBJECTS, _LOOSE_BYTES = 16, 16 << 20
_LARGE_PACK = 4096
_TREES_BYTES = 4 << 20
"""How much of the trees that were compared is kept."""
_APPLY_BYTES = 1 << 30
"""How much memory git may take to apply a patch: a few bytes of a binary patch can stand for any number."""


@dataclass(frozen=True)
class TreeDiff:
    """The exact difference between two trees, as git writes it."""

    patch: bytes
    changes: tuple[Change, ...]


class ObjectStore:
    """See the module. Use `open`; close it, or use it as a context manager."""

    def __init__(self, path: Path, alternates: tuple[ObjectStore, ...], durable: bool = True) -> None:
        self.path = path
        self.durable = durable
        self._objects = path / "objects"
        self._alternates = alternates
        self._packs: dict[str, PackReader] = {}
        self._large: list[PackReader] = []
        self._places: dict[str, PackReader] = {}
        self._scanned = False
        self._known: set[str] = set()
        self._trees: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path, alternates: Sequence[Path] = (), durable: bool = True) -> ObjectStore:
        """Open the store at `path`, making it if it is not there. `alternates` are stores to read from as well.

        A store that is not durable survives the death of a process, but not the loss of power.
        """
        path = path.absolute()
        if not (path / "HEAD").exists():
            _make(path)
        if alternates:
            _set_alternates(path, [Path(alternate).absolute() for alternate in alternates])
        return cls(path, tuple(cls.open(other) for other in _alternates_of(path)), durable)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of open files. The store may be used again afterwards."""
        with self._lock:
            self._packs.clear()
            self._places.clear()
            self._large.clear()
            self._scanned = False
        for alternate in self._alternates:
            alternate.close()

    def writer(self) -> Writer:
        """A batch of writes; the fast way to store many objects."""
        return Writer(self, self._objects)

    def has(self, oid: str) -> bool:
        if oid in self._known:
            return True
        found = self._has_here(oid) or any(alternate.has(oid) for alternate in self._alternates)
        if found:
            self._known.add(oid)
        return found

    def has_tree(self, tree: str) -> bool:
        """True if a tree is here with all it holds; objects are written before what refers to them, or with it."""
        if _OID.fullmatch(tree) is None:
            return False
        return (self.has(tree) or (self.refresh() and self.has(tree))) and self.kind(tree) == "tree"

    def kind(self, oid: str) -> Kind | None:
        """The type of an object, not verified; None if it is not here."""
        found = self.header(oid)
        return None if found is None else found[0]

    def header(self, oid: str) -> tuple[Kind, int] | None:
        """Type and size of an object, not verified; None if it is not here."""
        if not self._scanned:
            self._refresh_packs()
        pack = self._pack_of(oid)
        if pack is not None and (header := pack.header(oid)) is not None:
            return header
        found = loose_header(self._objects, oid)
        for alternate in self._alternates:
            found = found or alternate.header(oid)
        if found is None and self.has(oid):
            kind, data = self.read(oid)
            found = kind, len(data)
        return found

    def export(self, root: str, without: Sequence[str] = ()) -> Iterator[bytes]:
        """A tree or snapshot with all it holds, as a stream that `receive` takes; see `stream` for its form.

        What belongs to `without` (trees or snapshots the receiver has) is left out.
        """
        from codepilot.workspace.transfer import export

        return export(self, root, without)

    def receive(self, chunks: Iterable[bytes], limit_bytes: int = RECEIVED_BYTES) -> str:
        """Take in a stream of `export`; the root's name. A stream that is wrong in any way changes nothing.

        `limit_bytes` bounds what it may unpack to. Receiving again what is here already is fine.
        """
        from codepilot.workspace.transfer import receive

        return receive(self, chunks, limit_bytes).root

    def refresh(self) -> bool:
        """Look for objects that other processes packed since; true if there may be any."""
        found = [store._refresh_packs() for store in (self, *self._alternates)]
        return any(found)

    def read(self, oid: str) -> tuple[Kind, bytes]:
        """An object and its type, verified against its name."""
        found = self._read_anywhere(oid) or self._read_with_git(oid)
        if found is None:
            raise CodePilotError(FailureKind.INTERNAL, f"object {oid} is missing from {self.path}")
        if object_id(*found) != oid:
            raise CodePilotError(FailureKind.INTERNAL, f"object {oid} in {self.path} is corrupt")
        return found

    def stream(self, oid: str) -> Iterator[bytes]:
        """The content of an object in pieces; after the last one it is verified against its name."""
        header = self.header(oid)
        chunks = self._stream_anywhere(oid) if header is not None and header[1] > LARGE else None
        if header is None or chunks is None:
            yield self.read(oid)[1]
            return
        digest = begin_id(*header)
        for chunk in chunks:
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != oid:
            raise CodePilotError(FailureKind.INTERNAL, f"object {oid} in {self.path} is corrupt")

    def _stream_anywhere(self, oid: str) -> Iterator[bytes] | None:
        pack = self._pack_of(oid)
        found = None if pack is None else pack.stream(oid)
        for alternate in self._alternates:
            found = found or alternate._stream_anywhere(oid)
        return found

    def write_blob(self, data: bytes) -> str:
        with self.writer() as writer:
            return writer.add("blob", data)

    def write_blobs(self, blobs: Iterable[bytes]) -> list[str]:
        """Store many blobs at once; the iterable is consumed as a stream."""
        with self.writer() as writer:
            return [writer.add("blob", data) for data in blobs]

    def read_blob(self, oid: str) -> bytes:
        return self._read_kind(oid, "blob")

    def write_tree(self, entries: Mapping[str, Entry]) -> str:
        """Store a whole tree given by its files. The blobs must be there already."""
        with self.writer() as writer:
            return encode_nested(entries, lambda data: writer.add("tree", data))

    def read_tree(self, tree: str) -> dict[str, Entry]:
        """Every file, symbolic link and gitlink of a tree."""
        entries: dict[str, Entry] = {}
        pending = [("", tree)]
        while pending:
            prefix, oid = pending.pop()
            for name, (mode, child) in self.read_directory(oid).items():
                if mode == DIRECTORY:
                    pending.append((f"{prefix}{name}/", child))
                else:
                    entries[prefix + name] = Entry(mode, child)
        return entries

    def read_directory(self, tree: str) -> dict[str, Entry]:
        """One level of a tree; subdirectories have mode `40000`."""
        return decode_tree(self._read_kind(tree, "tree"))

    def changes(self, a: str, b: str) -> Iterator[tuple[str, Entry | None, Entry | None]]:
        """Every path that differs, with its entry on either side, in byte order of the paths."""
        found: list[tuple[str, Entry | None, Entry | None]] = []
        self._compare("", a, b, found, [_PATHS_BYTES])
        return iter(sorted(found, key=lambda change: os.fsencode(change[0])))

    def diff(self, a: str, b: str, known: PatchParts | None = None) -> TreeDiff:
        """The patch from tree `a` to tree `b`, and the list of what changed. A change above DIFF_BYTES is refused.

        With `known`, the parts of earlier patches that are the same are taken from there, and new ones kept.
        """
        found = list(self.changes(a, b))
        if not found:
            return TreeDiff(b"", ())
        sides = [side for _, before, after in found for side in (before, after) if side and side.mode != GITLINK]
        size = sum(_PATCH_HEADER + 6 * len(path) for path, _, _ in found)
        while sides and size <= DIFF_BYTES:
            size += (self.header(sides.pop().oid) or ("blob", 0))[1]
        if size > DIFF_BYTES:
            raise CodePilotError(
                FailureKind.POLICY_VIOLATION,
                f"the change is too large for a diff: {len(found)} files with more than {DIFF_BYTES >> 20} MiB",
                "Delete generated files, or work in a temporary directory outside the tree.",
                files=len(found),
                limit_bytes=DIFF_BYTES,
            )
        if known is not None and (made := self._from_parts(a, b, found, known)) is not None:
            return made
        changes = tuple(self._describe(*change) for change in found)
        patch = self._patch(a, b)
        if known is not None and len(patch) <= KEPT_BYTES:
            known.keep(found, changes, patch)
        return TreeDiff(patch, changes)

    def _from_parts(self, a: str, b: str, found: Sequence[Pair], known: PatchParts) -> TreeDiff | None:
        """The diff, of which only what is not known is made; None if it is to be made whole."""
        parts = {pair: known.get(pair) for pair in found}
        missing = [pair for pair, part in parts.items() if part is None]
        if len(missing) > NARROW:
            return None
        if missing:
            changes = [self._describe(*pair) for pair in missing]
            made = known.keep(missing, changes, self._patch(a, b, [path for path, _, _ in missing]))
            if made is None:
                return None
            parts |= made
        whole = [part for part in parts.values() if part is not None]
        return TreeDiff(b"".join(part.patch for part in whole), tuple(part.change for part in whole))

    def _patch(self, a: str, b: str, paths: Sequence[str] = ()) -> bytes:
        """What git writes about the difference, or about these paths of it."""
        options = ["-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv"]
        asked = ["diff-tree", *options, "--no-color", "-U3", a, b, "--", *paths]
        return must_git(asked, self.path, env={"GIT_LITERAL_PATHSPECS": "1"})

    def listing(self, a: str, b: str) -> TreeDiff:
        """What changed from tree `a` to tree `b`, without its patch; what is binary is not looked for."""
        changes = (self._describe(*change, look=False) for change in self.changes(a, b))
        return TreeDiff(b"", tuple(changes))

    def patch_for_sha1(self, a: str, b: str) -> bytes:
        """The same patch with the object names of a SHA-1 repository, so that `git apply` takes binary files there."""
        patch = self.diff(a, b).patch
        names: dict[bytes, bytes] = {b"0" * 64: b"0" * 40}
        for _, before, after in self.changes(a, b):
            for side in (before, after):
                if side and side.mode == GITLINK:
                    names[side.oid.encode()] = side.oid[:40].encode()
                elif side:
                    data = self.read_blob(side.oid)
                    digest = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False)
                    names[side.oid.encode()] = digest.hexdigest().encode()
        line = re.compile(rb"^index ([0-9a-f]{64})\.\.([0-9a-f]{64})", re.MULTILINE)
        return line.sub(lambda found: b"index %s..%s" % (names[found[1]], names[found[2]]), patch)

    def apply(self, tree: str, patch: bytes) -> str:
        """The tree that results from a patch. Nothing else changes; a patch that does not fit is refused whole."""
        if not patch.strip():
            return tree
        index = self.path / f"tmp_index_{secrets.token_hex(8)}"
        env = {"GIT_INDEX_FILE": str(index)}
        try:
            must_git(["read-tree", tree], self.path, env=env)
            options = ["--cached", "--whitespace=nowarn", "-"]
            done = run_git(["apply", *options], self.path, stdin=patch, env=env, memory_bytes=_APPLY_BYTES)
            if done.returncode != 0:
                raise _conflict(done.stderr)
            return must_git(["write-tree"], self.path, env=env).decode().strip()
        finally:
            index.unlink(missing_ok=True)
            index.with_name(index.name + ".lock").unlink(missing_ok=True)

    def _compare(
        self,
        prefix: str,
        a: str | None,
        b: str | None,
        found: list[tuple[str, Entry | None, Entry | None]],
        room: list[int],
    ) -> None:
        if a == b:
            return
        old, new = differing_entries(self._tree_bytes(a), self._tree_bytes(b))
        for name in old.keys() | new.keys():
            before, after = old.get(name), new.get(name)
            tree_before = before.oid if before and before.mode == DIRECTORY else None
            tree_after = after.oid if after and after.mode == DIRECTORY else None
            if tree_before or tree_after:
                self._compare(f"{prefix}{name}/", tree_before, tree_after, found, room)
            file_before = None if tree_before else before
            file_after = None if tree_after else after
            if file_before or file_after:
                room[0] -= len(prefix) + len(name) + _PATCH_HEADER
                if room[0] < 0:
                    raise CodePilotError(
                        FailureKind.POLICY_VIOLATION,
                        f"the change is too large: more than {len(found)} files with long paths",
                        "Delete generated files, or work in a temporary directory outside the tree.",
                    )
                found.append((prefix + name, file_before, file_after))

    def _tree_bytes(self, tree: str | None) -> bytes:
        """One level of a tree as it is stored; the last ones are kept, because checkpoints compare them again."""
        if tree is None:
            return b""
        kept = self._trees.get(tree)
        if kept is None:
            kept = self._read_kind(tree, "tree")
            with self._lock:
                if sum(map(len, self._trees.values())) + len(kept) > _TREES_BYTES:
                    self._trees.clear()
                self._trees[tree] = kept
        return kept

    def _describe(self, path: str, before: Entry | None, after: Entry | None, *, look: bool = True) -> Change:
        kind: ChangeKind
        if before is None:
            kind = "added"
        elif after is None:
            kind = "deleted"
        else:
            kind = "mode" if before.oid == after.oid else "modified"
        sides = [side for side in (before, after) if side and side.mode in (FILE, EXECUTABLE)]
        binary = look and any(b"\0" in next(self.stream(side.oid), b"")[:8000] for side in sides)
        modes = before.mode if before else None, after.mode if after else None
        found = self.header(after.oid) if after and after.mode != GITLINK else None
        size = found[1] if found else 0
        return Change(path, kind, *modes, binary, before.oid if before else "", after.oid if after else "", size)

    def _read_kind(self, oid: str, wanted: Kind) -> bytes:
        kind, data = self.read(oid)
        if kind != wanted:
            raise CodePilotError(FailureKind.INTERNAL, f"object {oid} is a {kind}, not a {wanted}")
        return data

    def _read_anywhere(self, oid: str) -> tuple[Kind, bytes] | None:
        found = self._search_packs(oid) or read_loose(self._objects, oid)
        if found is None:
            for alternate in self._alternates:
                found = found or alternate._read_anywhere(oid)
        if found is None and self._refresh_packs():
            found = self._search_packs(oid)
        return found

    def _read_with_git(self, oid: str) -> tuple[Kind, bytes] | None:
        """For objects in packs that some maintenance has deltified."""
        if not re.fullmatch("[0-9a-f]{64}", oid):
            return None
        output = must_git(["cat-file", "--batch"], self.path, stdin=f"{oid}\n".encode())
        header, _, rest = output.partition(b"\n")
        fields = header.decode().split(" ")
        if len(fields) != 3:
            return None
        for kind in ("blob", "tree"):
            if fields[1] == kind:
                return kind, rest[: int(fields[2])]
        return None

    def _search_packs(self, oid: str) -> tuple[Kind, bytes] | None:
        pack = self._pack_of(oid)
        return None if pack is None else pack.read(oid)

    def _pack_of(self, oid: str) -> PackReader | None:
        """Where an object is packed. Every snapshot may make a pack, so there can be very many small ones."""
        return self._places.get(oid) or next((pack for pack in list(self._large) if oid in pack), None)

    def _has_here(self, oid: str) -> bool:
        if not self._scanned:
            self._refresh_packs()
        return self._pack_of(oid) is not None or has_loose(self._objects, oid)

    def _refresh_packs(self) -> bool:
        """Look for packs that appeared since; true if there are any."""
        with self._lock:
            self._scanned = True
            directory = self._objects / "pack"
            try:
                names = os.listdir(directory)  # noqa: PTH208 (asked often)
            except FileNotFoundError:
                names = []
            ours = [name for name in names if name.startswith("pack-") and name.endswith(".idx")]
            fresh = [directory / name for name in ours if name.removesuffix(".idx") not in self._packs]
            for index in fresh:
                pack = PackReader.of(index)
                if pack is None:
                    continue
                self._packs[index.stem] = pack
                if len(pack) > _LARGE_PACK:
                    self._large.append(pack)
                else:
                    self._places.update(dict.fromkeys(pack, pack))
            return bool(fresh)


class Writer:
    """A batch of new objects: a few become loose files, many become one pack. Objects already stored cost nothing.

    Nothing is promised to be readable before the batch has been left without an error.
    """

    def __init__(self, store: ObjectStore, objects: Path) -> None:
        self._store = store
        self._objects = objects
        self._pending: dict[str, tuple[Kind, bytes]] = {}
        self._bytes = 0
        self._added: set[str] = set()
        self._pack: PackWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        elif self._pack is not None:
            self._pack.abandon()

    def add(self, kind: Kind, data: bytes) -> str:
        """Name the object and store it unless it is there."""
        oid = object_id(kind, data)
        if self._has(oid):
            return oid
        self._added.add(oid)
        if self._pack is not None:
            self._pack.add(oid, kind, data)
            return oid
        self._pending[oid] = (kind, data)
        self._bytes += len(data)
        if len(self._pending) > _LOOSE_OBJECTS or self._bytes > _LOOSE_BYTES:
            self._begun_pack()
        return oid

    def add_file(self, fd: int, size: int) -> tuple[str, int]:
        """Store what an open file holds; the name and size of its blob. A large one is read piece by piece."""
        if size <= LARGE:
            data = dirfd.read_all(fd, size)
            return self.add("blob", data), len(data)
        oid = self._begun_pack().add_stream("blob", size, dirfd.read_chunks(fd, size), self._has)
        self._added.add(oid)
        return oid, size

    def _has(self, oid: str) -> bool:
        return oid in self._added or self._store.has(oid)

    def _begun_pack(self) -> PackWriter:
        if self._pack is None:
            self._pack = PackWriter(self._objects, self._store.durable)
            for waiting, (kind, data) in self._pending.items():
                self._pack.add(waiting, kind, data)
            self._pending.clear()
        return self._pack

    def _finish(self) -> None:
        for oid, (kind, data) in self._pending.items():
            write_loose(self._objects, oid, kind, data, self._store.durable)
        if self._pack is not None:
            self._pack.finish()
            self._store._refresh_packs()
        self._store._known.update(self._added)


def _make(path: Path) -> None:
    """Build the repository under a temporary name, then rename: it is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp-{secrets.token_hex(6)}")
    for directory in ("objects/pack", "objects/info", "refs/heads"):
        (temporary / directory).mkdir(parents=True)
    (temporary / "config").write_text(_CONFIG)
    (temporary / "HEAD").write_text("ref: refs/heads/none\n")
    try:
        temporary.rename(path)
    except OSError:
        shutil.rmtree(temporary)
        if not (path / "HEAD").exists():
            raise


def _set_alternates(path: Path, alternates: Sequence[Path]) -> None:
    lines = [os.fsencode(alternate / "objects") for alternate in alternates]
    if any(b"\n" in line or line[:1] in (b'"', b"#") for line in lines):
        raise CodePilotError(FailureKind.INTERNAL, "an object store's path may not hold a line break")
    content = b"".join(line + b"\n" for line in lines)
    file = path / "objects" / "info" / "alternates"
    if file.exists() and file.read_bytes() == content:
        return
    temporary = file.with_name(f"alternates.tmp-{secrets.token_hex(6)}")
    temporary.write_bytes(content)
    temporary.rename(file)


def _alternates_of(path: Path) -> list[Path]:
    try:
        content = (path / "objects" / "info" / "alternates").read_bytes()
    except FileNotFoundError:
        return []
    return [Path(os.fsdecode(line)).parent for line in content.split(b"\n") if line]


def _conflict(stderr: bytes) -> CodePilotError:
    """Say which file and hunk refused, in git's own words."""
    text = stderr.decode("utf-8", "replace")
    errors = [line.removeprefix("error: ") for line in text.splitlines() if line.startswith(("error:", "fatal:"))]
    where = re.search(r"patch failed: (.+):(\d+)$", text, re.MULTILINE)
    message = "; ".join(errors[:6]) or last_line(stderr) or "git could not read the patch"
    return CodePilotError(
        FailureKind.PATCH_CONFLICT,
        f"the patch does not apply: {message}",
        file=where[1] if where else None,
        line=int(where[2]) if where else None,
        git=text[-2000:],
    )
