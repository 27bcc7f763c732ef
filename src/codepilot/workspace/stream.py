"""Objects as a byte stream: a gzipped ustar archive whose every byte follows from what it holds.

A first member says what the stream is; each further one is an object, named `blob/<id>` or `tree/<id>`. Any `tar` can
list it. Promises: equal objects give equal streams (for one build of zlib); no more than a piece of an object is held
in memory; a reader accepts only what a writer here would have written: other headers, padding, endings or trailing
data are refused, as is a stream that unpacks to more than was allowed.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace.pack import Kind

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
    yield squeeze.compress(_member(TITLE, title))
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
                pass  # What nobody wanted must be passed over.
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


def _member(name: str, data: bytes) -> bytes:
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
