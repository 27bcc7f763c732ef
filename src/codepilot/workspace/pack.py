"""Reads and writes git's two object containers: loose objects and packs without deltas.

Content read is checked against its name. Content written appears under its final name complete or not at all. For
deltified packs, which only other programs write, the caller asks git.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal
from weakref import WeakValueDictionary

from codepilot.workspace import dirfd

Kind = Literal["blob", "tree", "commit", "tag"]

_CODES: dict[Kind, int] = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
_KINDS: dict[int, Kind] = {code: kind for kind, code in _CODES.items()}
_OID = 32
_HEAD = struct.Struct(">4sII")
_LEVEL = 1
_SMALL, _WRAPPED = 4 << 10, 64 << 10
_MAPS: WeakValueDictionary[tuple[int, int], mmap.mmap] = WeakValueDictionary()
_MAPPING = threading.Lock()


LARGE = 8 << 20
"""Objects above this size are never held in memory whole."""
STEP = 1 << 20


def begin_id(kind: Kind, size: int) -> hashlib._Hash:
    """The hash of an object's header; its content is to be added."""
    return hashlib.sha256(b"%s %d\0" % (kind.encode(), size))


def object_id(kind: Kind, data: bytes) -> str:
    """The SHA-256 name git gives to an object."""
    digest = begin_id(kind, len(data))
    digest.update(data)
    return digest.hexdigest()


def file_id(fd: int, size: int) -> str:
    """The name of the blob that the first `size` bytes of an open file would be."""
    digest = begin_id("blob", size)
    for chunk in dirfd.read_chunks(fd, size):
        digest.update(chunk)
    return digest.hexdigest()


def read_loose(objects: Path, oid: str) -> tuple[Kind, bytes] | None:
    """A loose object, or None where there is none. An empty file (a machine lost power) counts as none."""
    try:
        with open(f"{objects}/{oid[:2]}/{oid[2:]}", "rb") as file:  # noqa: PTH123 (asked once per object)
            raw = file.read()
    except FileNotFoundError:
        return None
    if not raw:
        return None
    header, _, data = zlib.decompress(raw).partition(b"\0")
    kind = _kind_named(header.split(b" ", 1)[0].decode())
    return kind, data


def loose_header(objects: Path, oid: str) -> tuple[Kind, int] | None:
    """Type and size of a loose object, without its content; None as for `read_loose`."""
    try:
        with open(f"{objects}/{oid[:2]}/{oid[2:]}", "rb") as file:  # noqa: PTH123 (asked once per object)
            unpacking = zlib.decompressobj()
            plain = b""
            while b"\0" not in plain and (raw := file.read(64)):
                plain += unpacking.decompress(raw)
    except FileNotFoundError:
        return None
    if not plain:
        return None
    kind, _, size = plain.partition(b"\0")[0].partition(b" ")
    return _kind_named(kind.decode()), int(size)


def has_loose(objects: Path, oid: str) -> bool:
    path = f"{objects}/{oid[:2]}/{oid[2:]}"
    try:
        return os.access(path, os.F_OK) and os.stat(path).st_size > 0  # noqa: PTH116 (asked once per object)
    except FileNotFoundError:
        return False


def write_loose(objects: Path, oid: str, kind: Kind, data: bytes, durable: bool = True) -> None:
    """Write one object under a temporary name, then rename."""
    directory = objects / oid[:2]
    temporary = directory / f"tmp_obj_{secrets.token_hex(8)}"
    packed = _squeezed(b"%s %d\0" % (kind.encode(), len(data)) + data, durable)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o444)
    except FileNotFoundError:
        directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(temporary, flags, 0o444)
    try:
        write_all(fd, packed)
    finally:
        os.close(fd)
    temporary.rename(directory / oid[2:])


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _squeezed(data: bytes, durable: bool) -> bytes:
    """Compressed data; what is small needs no large window, which takes longer to set up than to use.

    What need not last, and is no larger than a source file, is only wrapped: that saves more time than room.
    """
    level = _LEVEL if durable or len(data) > _WRAPPED else 0
    if level and len(data) > _SMALL:
        return zlib.compress(data, level)
    squeeze = zlib.compressobj(level, zlib.DEFLATED, 12, 5)
    return squeeze.compress(data) + squeeze.flush()


def _kind_named(name: str) -> Kind:
    for kind in _CODES:
        if kind == name:
            return kind
    raise ValueError(f"unknown object type {name!r}")


class PackWriter:
    """Collects objects into one pack with its index. Nothing is visible before `finish`."""

    def __init__(self, objects: Path, durable: bool = True) -> None:
        self._durable = durable
        self._directory = objects / "pack"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._temporary = self._directory / f"tmp_pack_{secrets.token_hex(8)}"
        self._file = self._temporary.open("xb")
        self._file.write(_HEAD.pack(b"PACK", 2, 0))
        self._offset = _HEAD.size
        self._entries: dict[bytes, tuple[int, int]] = {}
        self._map: mmap.mmap | None = None

    def add(self, oid: str, kind: Kind, data: bytes) -> None:
        raw = _entry_header(_CODES[kind], len(data)) + _squeezed(data, self._durable)
        self._entries[bytes.fromhex(oid)] = (self._offset, zlib.crc32(raw))
        self._file.write(raw)
        self._offset += len(raw)

    def add_stream(self, kind: Kind, size: int, chunks: Iterable[bytes], known: Callable[[str], bool]) -> str:
        """Add an object of `size` bytes piece by piece and return its name. One that is `known` is not kept."""
        start, crc = self._offset, 0
        digest, squeeze = begin_id(kind, size), zlib.compressobj(_LEVEL)
        pieces = (squeeze.compress(chunk) for chunk in _hashed(chunks, digest))
        try:
            for raw in itertools.chain((_entry_header(_CODES[kind], size),), pieces, (squeeze.flush() for _ in "1")):
                crc = zlib.crc32(raw, crc)
                self._file.write(raw)
                self._offset += len(raw)
        except BaseException:
            self._roll_back(start)
            raise
        oid = digest.hexdigest()
        if bytes.fromhex(oid) in self._entries or known(oid):
            self._roll_back(start)
        else:
            self._entries[bytes.fromhex(oid)] = (start, crc)
        return oid

    def _roll_back(self, offset: int) -> None:
        self._unmap()
        self._file.seek(offset)
        self._file.truncate()
        self._offset = offset

    def __len__(self) -> int:
        return len(self._entries)

    def read(self, oid: str) -> tuple[Kind, bytes] | None:
        """An object added before; None if it was not."""
        place = self._entries.get(bytes.fromhex(oid))
        if place is None:
            return None
        self._file.flush()
        if self._map is None or len(self._map) < self._offset:
            self._unmap()
            self._map = _mapped(self._temporary)
        return _read_entry(self._map, place[0])

    def finish(self) -> None:
        """Seal the pack: count, checksum and index, renamed index last."""
        self._unmap()
        self._file.seek(0)
        self._file.write(_HEAD.pack(b"PACK", 2, len(self._entries)))
        self._file.flush()
        with self._temporary.open("rb") as content:
            checksum = hashlib.file_digest(content, "sha256").digest()
        self._file.seek(0, os.SEEK_END)
        self._file.write(checksum)
        self._file.flush()
        self._sync(self._file.fileno())
        self._file.close()
        index = self._index(checksum)
        temporary_index = self._temporary.with_name(self._temporary.name + "_idx")
        with temporary_index.open("xb") as file:
            file.write(index)
            file.flush()
            self._sync(file.fileno())
        name = f"pack-{checksum.hex()}"
        self._temporary.chmod(0o444)
        temporary_index.chmod(0o444)
        self._temporary.rename(self._directory / f"{name}.pack")
        temporary_index.rename(self._directory / f"{name}.idx")

    def _sync(self, fd: int) -> None:
        if self._durable:
            os.fsync(fd)

    def abandon(self) -> None:
        self._unmap()
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None

    def _index(self, checksum: bytes) -> bytes:
        ordered = sorted(self._entries.items())
        fanout = [0] * 256
        for oid, _ in ordered:
            fanout[oid[0]] += 1
        for first in range(1, 256):
            fanout[first] += fanout[first - 1]
        large = [offset for _, (offset, _) in ordered if offset >= 1 << 31]
        places: list[int] = []
        far = 0
        for _, (offset, _) in ordered:
            if offset >= 1 << 31:
                places.append((1 << 31) | far)
                far += 1
            else:
                places.append(offset)
        body = b"".join(
            (
                b"\377tOc" + struct.pack(">I", 2),
                struct.pack(">256I", *fanout),
                b"".join(oid for oid, _ in ordered),
                struct.pack(f">{len(ordered)}I", *(crc for _, (_, crc) in ordered)),
                struct.pack(f">{len(places)}I", *places),
                struct.pack(f">{len(large)}Q", *large),
                checksum,
            )
        )
        return body + hashlib.sha256(body).digest()


def _hashed(chunks: Iterable[bytes], digest: hashlib._Hash) -> Iterator[bytes]:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _entry_header(code: int, size: int) -> bytes:
    byte = (code << 4) | (size & 15)
    size >>= 4
    header = bytearray()
    while size:
        header.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    header.append(byte)
    return bytes(header)


class PackReader:
    """A pack and its index, mapped into memory."""

    def __init__(self, index: Path) -> None:
        self.name = index.stem
        self._index = _mapped(index)
        self._pack = _mapped(index.with_suffix(".pack"))
        if self._index[:8] != b"\377tOc\0\0\0\2":
            raise ValueError(f"{index.name} is not a version 2 pack index")
        self._fanout: tuple[int, ...] = struct.unpack_from(">256I", self._index, 8)
        self._count = self._fanout[255]
        self._names = 8 + 1024
        self._offsets = self._names + self._count * (_OID + 4)

    @classmethod
    def of(cls, index: Path) -> PackReader | None:
        """The pack of an index; None if it is gone, or was damaged when the machine lost power."""
        try:
            return cls(index)
        except (FileNotFoundError, ValueError, struct.error):
            return None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        names = self._index[self._names : self._names + self._count * _OID].hex()
        return (names[start : start + 2 * _OID] for start in range(0, len(names), 2 * _OID))

    def __contains__(self, oid: str) -> bool:
        return self._find(bytes.fromhex(oid)) is not None

    def read(self, oid: str) -> tuple[Kind, bytes] | None:
        """The object; None if it is not here or is stored as a delta."""
        position = self._find(bytes.fromhex(oid))
        if position is None:
            return None
        return _read_entry(self._pack, self._offset(position))

    def stream(self, oid: str) -> Iterator[bytes] | None:
        """The content of an object in pieces; None as for `read`."""
        position = self._find(bytes.fromhex(oid))
        if position is None:
            return None
        kind, _, start = _read_header(self._pack, self._offset(position))
        return None if kind is None else _inflated(self._pack, start)

    def header(self, oid: str) -> tuple[Kind, int] | None:
        """Type and size of an object, without its content; None as for `read`."""
        position = self._find(bytes.fromhex(oid))
        if position is None:
            return None
        kind, size, _ = _read_header(self._pack, self._offset(position))
        return None if kind is None else (kind, size)

    def _name(self, position: int) -> bytes:
        start = self._names + position * _OID
        return self._index[start : start + _OID]

    def _offset(self, position: int) -> int:
        (offset,) = struct.unpack_from(">I", self._index, self._offsets + 4 * position)
        if offset < 1 << 31:
            return int(offset)
        far = self._offsets + 4 * self._count + 8 * (offset & 0x7FFFFFFF)
        return int(struct.unpack_from(">Q", self._index, far)[0])

    def _find(self, oid: bytes) -> int | None:
        low = self._fanout[oid[0] - 1] if oid[0] else 0
        high = self._fanout[oid[0]]
        while low < high:
            middle = (low + high) // 2
            name = self._name(middle)
            if name < oid:
                low = middle + 1
            elif name > oid:
                high = middle
            else:
                return middle
        return None


def _read_header(pack: mmap.mmap, offset: int) -> tuple[Kind | None, int, int]:
    """Type (None for a delta), size, and where the content of the object at a place of a pack begins."""
    byte = pack[offset]
    kind = _KINDS.get((byte >> 4) & 7)
    size, shift = byte & 15, 4
    while byte & 0x80:
        offset += 1
        byte = pack[offset]
        size |= (byte & 0x7F) << shift
        shift += 7
    return kind, size, offset + 1


def _read_entry(pack: mmap.mmap, offset: int) -> tuple[Kind, bytes] | None:
    """The object at a place of a pack; None if it is a delta."""
    kind, size, position = _read_header(pack, offset)
    if kind is None:
        return None
    inflate = zlib.decompressobj()
    parts: list[bytes] = []
    while not inflate.eof and position < len(pack):
        step = max(size + 64, 4096)
        parts.append(inflate.decompress(pack[position : position + step]))
        position += step
    return kind, b"".join(parts)


def _inflated(pack: mmap.mmap, position: int) -> Iterator[bytes]:
    """The content at a place of a pack, a bounded piece at a time. Pages already read are given back."""
    inflate = zlib.decompressobj()
    while not inflate.eof and position < len(pack):
        pending = pack[position : position + STEP]
        while pending and not inflate.eof:
            yield inflate.decompress(pending, STEP)
            pending = inflate.unconsumed_tail
        first = position - position % mmap.PAGESIZE
        pack.madvise(mmap.MADV_DONTNEED, first, min(position + STEP, len(pack)) - first)
        position += STEP


def _mapped(path: Path) -> mmap.mmap:
    """A file as memory. Each map keeps a descriptor, so all readers of a file share one; it ends with the last."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        with _MAPPING:
            found = _MAPS.get((status.st_dev, status.st_ino))
            if found is None:
                found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                _MAPS[status.st_dev, status.st_ino] = found
        return found
