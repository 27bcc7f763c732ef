"""Moves trees and snapshots between object stores as a byte stream.

The stream is a gzipped ustar archive: first a title, then each object as `blob/<id>` or `tree/<id>`. Any `tar` lists
it. Equal objects give equal streams (for one build of zlib), and no more than a piece of an object is held in memory. A
reader accepts only the exact form that a writer here produces, up to a size limit.

A tree includes its blobs, its subtrees and the files kept for its submodules. A snapshot includes its tree and its
manifests with their files and links. `receive` checks that every object has the name it claims, that every tree and
manifest is well formed and leads nowhere outside, that every reference resolves and that nothing is superfluous; only
then do all objects become visible at once.
"""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace.base_index import carried_tree, keep_tree
from codepilot.workspace.pack import LARGE, Kind, PackWriter, object_id
from codepilot.workspace.trees import (
    DIRECTORY,
    GITLINK,
    SYMLINK,
    Entry,
    ItemKind,
    check_manifest,
    check_tree,
    decode_manifest,
    decode_record,
    decode_tree,
    is_record,
)

if TYPE_CHECKING:
    from codepilot.workspace.objects import ObjectStore


Role = Literal["blob", "link", "tree", "manifest", "snapshot"]
"""The role of an object for the one that refers to it; all but trees are stored as blobs."""

_FORMAT = "codepilot objects 1"
_OID = re.compile("[0-9a-f]{64}")
_ENTRIES, _BYTES, _DEPTH = 1_000_000, 16 << 30, 256
"""The largest size of a materialised root, in which one object may occur in any number of places."""
_LISTING_BYTES, _TARGET_BYTES = 32 << 20, 4095
"""How large one tree or manifest, and the target of a link, may be."""
_TREE_ROLES: dict[str, Role] = {DIRECTORY: "tree", SYMLINK: "link"}
_ITEM_ROLES: dict[ItemKind, Role] = {"d": "manifest", "f": "blob", "l": "link"}

Reference = tuple[Role, str]
Header = tuple[Kind, int]
"""Type and size of an object."""


@dataclass(frozen=True)
class Title:
    """The first member of a stream: its root, and what it builds on."""

    root: str
    role: Role
    needs: tuple[str, ...] = ()
    submodules: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        fields = {
            "format": _FORMAT,
            "needs": list(self.needs),
            "role": self.role,
            "root": self.root,
            "submodules": dict(self.submodules),
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Title:
        try:
            fields = json.loads(data)
            title = cls(fields["root"], fields["role"], tuple(fields["needs"]), fields["submodules"])
            names = [title.root, *title.needs, *title.submodules.keys(), *title.submodules.values()]
            fits = all(_OID.fullmatch(name) for name in names) and title.role in ("tree", "snapshot")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            fits = False
        if not fits or title.encode() != data:
            raise refused("it does not say what it is")
        return title


@dataclass(frozen=True)
class Claims:
    """Claims of trees and manifests about objects, checked once all objects are known."""

    gitlinks: set[str] = field(default_factory=set)
    sizes: set[tuple[str, int]] = field(default_factory=set)


def export(store: ObjectStore, root: str, without: Sequence[str] = ()) -> Iterator[bytes]:
    """See `ObjectStore.export`."""
    left_out = set(_reachable(store, [(_role(store, name), name) for name in without]))
    role = _role(store, root)
    submodules: dict[str, str] = {}
    found = list(_reachable(store, [(role, root)], left_out, submodules))
    title = Title(root, role, tuple(sorted(set(without))), submodules)
    there = {oid for _, oid in left_out}
    names = dict.fromkeys(oid for _, oid in found if oid not in there)
    return write_stream(title.encode(), (_member(store, oid) for oid in names))


def receive(store: ObjectStore, chunks: Iterable[bytes], limit_bytes: int, role: Role | None = None) -> Title:
    """See `ObjectStore.receive`; with a `role`, nothing else is taken."""
    store.refresh()
    reader = StreamReader(chunks, limit_bytes)
    title = Title.decode(reader.title())
    if role not in (None, title.role):
        raise refused(f"it holds a {title.role}, not a {role}")
    for name in title.needs:
        if not store.has(name):
            raise CodePilotError(
                FailureKind.PATH_NOT_FOUND,
                f"the object stream builds on {name}, which is not here",
                "Send that tree first, or the whole of it.",
                needs=name,
            )
    quarantine = PackWriter(store.path / "objects", store.durable)
    try:
        arrived = _arrived(store, reader, quarantine)
        _check(store, quarantine, title, arrived)
        if len(quarantine):
            quarantine.finish()
        else:
            quarantine.abandon()
    except BaseException:
        quarantine.abandon()
        raise
    store.refresh()
    for gitlink, tree in title.submodules.items():
        keep_tree(store, gitlink, tree)
    return title


def _arrived(store: ObjectStore, reader: StreamReader, quarantine: PackWriter) -> dict[str, Header]:
    """Take every object whose name is its hash; those that are here already are not kept twice."""
    arrived: dict[str, Header] = {}
    for kind, oid, size, chunks in reader.members():
        if oid in arrived:
            raise refused("an object comes twice")
        if kind == "tree" and size > _LISTING_BYTES:
            raise too_much(f"a tree of {size} bytes")
        if _take(store, quarantine, kind, oid, size, chunks) != oid:
            raise refused(f"an object is not what its name {oid} says")
        arrived[oid] = (kind, size)
    return arrived


def _take(store: ObjectStore, quarantine: PackWriter, kind: Kind, oid: str, size: int, chunks: Iterable[bytes]) -> str:
    if size > LARGE:
        return quarantine.add_stream(kind, size, chunks, store.has)
    data = b"".join(chunks)
    found = object_id(kind, data)
    if found == oid and not store.has(oid):
        quarantine.add(oid, kind, data)
    return found


def _check(store: ObjectStore, quarantine: PackWriter, title: Title, arrived: Mapping[str, Header]) -> None:
    """Follow every reference from the root; all must lead somewhere, and none may be left over."""
    roots: list[Reference] = [(title.role, title.root), *(("tree", tree) for tree in title.submodules.values())]
    graph: dict[Reference, list[Reference]] = {}
    sizes: dict[str, int] = {}
    claims = Claims()
    pending, entries = list(roots), 0
    while pending:
        role, oid = node = pending.pop()
        if node in graph:
            continue
        kind, sizes[oid] = arrived.get(oid) or store.header(oid) or (None, 0)
        if kind != ("tree" if role == "tree" else "blob"):
            raise refused(f"it lacks the {role} {oid}")
        graph[node] = []
        if role == "blob":
            continue
        if sizes[oid] > _LISTING_BYTES:
            raise too_much(f"a {role} of {sizes[oid]} bytes")
        data = (quarantine.read(oid) or store.read(oid))[1]
        trusted = role == "tree" and oid not in arrived
        graph[node] = _tree_references(decode_tree(data)) if trusted else _references(role, data, claims)
        pending.extend(graph[node])
        entries += len(graph[node])
        if entries > _ENTRIES:
            raise too_much(f"more than {_ENTRIES} entries")
    if arrived.keys() - sizes.keys():
        raise refused("it holds objects that nothing refers to")
    if title.submodules.keys() - claims.gitlinks:
        raise refused("it holds submodules that nothing refers to")
    if any(sizes[oid] != size for oid, size in claims.sizes):
        raise refused("a manifest is wrong about a file's size")
    _weigh(graph, sizes, roots)


def _references(role: Role, data: bytes, claims: Claims) -> list[Reference]:
    """The references of a well-formed object, and its claims about them; a malformed object is refused."""
    if role == "tree":
        entries = check_tree(data)
        claims.gitlinks.update(entry.oid for entry in entries.values() if entry.mode == GITLINK)
        return _tree_references(entries)
    if role == "manifest":
        items = check_manifest(data).values()
        claims.sizes.update((item.oid, item.size) for item in items if item.kind == "f")
        return [(_ITEM_ROLES[item.kind], item.oid) for item in items]
    if role == "link":
        if not 0 < len(data) <= _TARGET_BYTES or b"\0" in data:
            raise refused("a symbolic link has no target that a file system takes")
        return []
    if not is_record(data):
        raise refused("its root is not a snapshot")
    record = decode_record(data)
    return [("tree", record.tree), ("manifest", record.manifest)]


def _tree_references(entries: Mapping[str, Entry]) -> list[Reference]:
    return [(_TREE_ROLES.get(mode, "blob"), oid) for mode, oid in entries.values() if mode != GITLINK]


def _weigh(
    graph: Mapping[Reference, Sequence[Reference]], sizes: Mapping[str, int], roots: Iterable[Reference]
) -> None:
    """Refuse what would be laid out without end, though every object of it is small."""
    weights: dict[Reference, tuple[int, int, int]] = {}
    pending, entered = list(roots), set[Reference]()
    while pending:
        node = pending[-1]
        below = [child for child in graph[node] if child[0] in ("tree", "manifest")]
        if node not in entered:
            entered.add(node)
            pending.extend(child for child in below if child not in weights)
            continue
        pending.pop()
        if node in weights:
            continue
        found = [weights[child] for child in below]
        entries = len(graph[node]) + sum(weight[0] for weight in found)
        size = sum(sizes[oid] for role, oid in graph[node] if role == "blob") + sum(weight[1] for weight in found)
        depth = 1 + max((weight[2] for weight in found), default=0)
        if entries > _ENTRIES or size > _BYTES or depth > _DEPTH:
            raise too_much(f"laid out it has more than {_ENTRIES} entries, {_BYTES} bytes or {_DEPTH} levels")
        weights[node] = (entries, size, depth)


def _reachable(
    store: ObjectStore,
    roots: Iterable[tuple[Role, str]],
    left_out: Set[tuple[Role, str]] = frozenset(),
    submodules: dict[str, str] | None = None,
) -> Iterator[tuple[Role, str]]:
    """Everything that belongs to the roots but what is left out. Submodules found on the way are noted."""
    pending = list(roots)
    seen = set(pending)
    while pending:
        role, oid = pending.pop()
        yield role, oid
        references: list[tuple[Role, str]] = []
        if role == "snapshot":
            record = decode_record(store.read_blob(oid))
            references = [("manifest", record.manifest), ("tree", record.tree)]
        elif role == "manifest":
            items = decode_manifest(store.read_blob(oid)).values()
            references = [("manifest" if item.kind == "d" else "blob", item.oid) for item in items]
        elif role == "tree":
            for entry in store.read_directory(oid).values():
                if entry.mode != GITLINK:
                    references.append(("tree" if entry.mode == DIRECTORY else "blob", entry.oid))
                elif tree := carried_tree(store, entry.oid):
                    references.append(("tree", tree))
                    if submodules is not None:
                        submodules[entry.oid] = tree
        for reference in reversed(references):
            if reference not in seen and reference not in left_out:
                seen.add(reference)
                pending.append(reference)


def _role(store: ObjectStore, oid: str) -> Role:
    kind, data = store.read(oid)
    if kind == "tree":
        return "tree"
    if kind == "blob" and is_record(data):
        return "snapshot"
    raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, f"{oid} is neither a tree nor a snapshot")


def _member(store: ObjectStore, oid: str) -> Member:
    header = store.header(oid)
    if header is None:
        raise CodePilotError(FailureKind.INTERNAL, f"object {oid} is missing from {store.path}")
    return Member(header[0], oid, header[1], store.stream(oid))


OBJECT_BYTES: Final = 512 << 20
"""The largest object that travels."""
OBJECTS: Final = 500_000
TITLE: Final = "codepilot-objects"

_BLOCK: Final = 512
_TITLE_BYTES: Final = 8 << 20
_STEP: Final = 1 << 20
_LEVEL: Final = 1
_GZIP: Final = 31
_NAME: Final = re.compile(r"(blob|tree)/([0-9a-f]{64})")
_KINDS: Final[dict[str, Kind]] = {"blob": "blob", "tree": "tree"}


class Member(NamedTuple):
    """One object of a stream, its name not yet proved."""

    kind: Kind
    oid: str
    size: int
    chunks: Iterable[bytes]


def write_stream(title: bytes, members: Iterable[Member]) -> Iterator[bytes]:
    """The stream of a title and objects, in pieces."""
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    yield squeeze.compress(_encoded_member(TITLE, title))
    for kind, oid, size, chunks in members:
        if size > OBJECT_BYTES:
            raise CodePilotError(
                FailureKind.POLICY_VIOLATION, f"an object of {size} bytes is too large to send", oid=oid
            )
        for plain in itertools.chain((_header(f"{kind}/{oid}", size),), chunks, (bytes(-size % _BLOCK),)):
            if piece := squeeze.compress(plain):
                yield piece
    yield squeeze.compress(bytes(2 * _BLOCK)) + squeeze.flush()


def refused(why: str) -> CodePilotError:
    """A stream that is not what it should be."""
    return CodePilotError(
        FailureKind.TOOL_INVALID_ARGS, f"the object stream is refused: {why}", "Send it again from its source."
    )


class StreamReader:
    """Takes a stream apart. Everything it yields is only as trustworthy as the stream."""

    def __init__(self, chunks: Iterable[bytes], limit_bytes: int) -> None:
        self._source = _inflated(chunks, limit_bytes)
        self._buffer = bytearray()

    def title(self) -> bytes:
        """The first member; to be asked for first."""
        name, size = self._header()
        if name != TITLE or size > _TITLE_BYTES:
            raise refused("it does not begin as one")
        title = self._take(size)
        self._padding(size)
        return title

    def members(self) -> Iterator[Member]:
        """All objects; having come to the end, nothing of the stream is left."""
        count = 0
        while True:
            name, size = self._header()
            if not name:
                break
            found = _NAME.fullmatch(name)
            if found is None:
                raise refused("a member is not named as an object")
            count += 1
            if size > OBJECT_BYTES or count > OBJECTS:
                raise too_much(f"at most {OBJECTS} objects of {OBJECT_BYTES} bytes")
            pieces = self._pieces(size)
            yield Member(_KINDS[found[1]], found[2], size, pieces)
            for _ in pieces:
                pass  # Skip what the caller did not read.
            self._padding(size)
        if self._take(_BLOCK).strip(b"\0") or self._buffer or next(self._source, b""):
            raise refused("something follows its end")

    def _header(self) -> tuple[str, int]:
        """Name and size of the next member; an empty name at the end."""
        block = self._take(_BLOCK)
        if not block.strip(b"\0"):
            return "", 0
        try:
            name, size = block[:100].rstrip(b"\0").decode("ascii"), int(block[124:135], 8)
        except ValueError:
            raise refused("a header cannot be read") from None
        if size < 0 or block != _header(name, size):
            raise refused("a header is not as it is written here")
        return name, size

    def _padding(self, size: int) -> None:
        if self._take(-size % _BLOCK).strip(b"\0"):
            raise refused("its padding is not empty")

    def _pieces(self, size: int) -> Iterator[bytes]:
        while size > 0:
            piece = self._take(min(size, _STEP))
            size -= len(piece)
            yield piece

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            piece = next(self._source, b"")
            if not piece:
                raise refused("it ends early")
            self._buffer += piece
        taken = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return taken


def too_much(what: str) -> CodePilotError:
    return CodePilotError(FailureKind.POLICY_VIOLATION, f"the object stream is too large: {what}")


def _inflated(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Unpack, never more than `limit` bytes, nor from more than that."""
    inflate = zlib.decompressobj(_GZIP)
    taken = given = 0
    for chunk in chunks:
        taken += len(chunk)
        if taken > limit + _STEP:
            raise too_much(f"more than {limit} bytes")
        pending = chunk
        while pending:
            if inflate.eof:
                raise refused("something follows its end")
            try:
                piece = inflate.decompress(pending, _STEP)
            except zlib.error:
                raise refused("it cannot be unpacked") from None
            pending = inflate.unconsumed_tail or inflate.unused_data
            given += len(piece)
            if given > limit:
                raise too_much(f"it unpacks to more than {limit} bytes")
            if piece:
                yield piece
    if not inflate.eof:
        raise refused("it ends early")


def _encoded_member(name: str, data: bytes) -> bytes:
    return b"".join((_header(name, len(data)), data, bytes(-len(data) % _BLOCK)))


def _header(name: str, size: int) -> bytes:
    """A ustar header of a plain file that belongs to nobody and was made at no time."""
    fields = b"".join(
        (
            name.encode("ascii").ljust(100, b"\0"),
            b"0000444\0",
            b"0000000\0" * 2,
            b"%011o\0" % size,
            b"00000000000\0",
            b" " * 8,
            b"0",
            bytes(100),
            b"ustar\x0000",
            bytes(64),
            b"0000000\0" * 2,
            bytes(167),
        )
    )
    return fields[:148] + b"%06o\0 " % sum(fields) + fields[156:]
