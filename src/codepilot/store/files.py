"""Artifacts as files."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import FailureKind
from codepilot.store.artifacts import (
    LARGEST_BYTES,
    STALE_US,
    ArtifactDamaged,
    ArtifactMissing,
    Stored,
    too_large,
)
from codepilot.store.faults import disk_faults
from codepilot.store.home import leave_name, names_in

_UNAVAILABLE = FailureKind.ARTIFACT_STORE_UNAVAILABLE
_PIECE = 1 << 20
_HASH = re.compile("[0-9a-f]{64}")


class FileArtifacts:
    """Files under `root/sha256/ab/`. A file there is whole: it gets its name after it is synced.

    A put holds a shared lock on the directory and a removal an exclusive one, so that nothing is removed
    that was just found to be there.
    """

    def __init__(self, root: Path) -> None:
        self._root = root / "sha256"

    @property
    def place(self) -> str:
        return str(self._root.parent)

    def put(self, data: bytes, type: ArtifactType) -> ArtifactRef:
        ref = ArtifactRef(type=type, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        final = self.path(ref)
        with disk_faults(_UNAVAILABLE, f"Storing artifact {final}"):
            if not self._renewed(final, ref):
                with self._temporary() as (temporary, file):
                    file.write(data)
                    self._finish(temporary, file, final)
        return ref

    def get(self, ref: ArtifactRef) -> bytes:
        return b"".join(self.stream(ref))

    def put_stream(self, chunks: Iterable[bytes], type: ArtifactType, limit_bytes: int = LARGEST_BYTES) -> ArtifactRef:
        digest, size = hashlib.sha256(), 0
        with contextlib.ExitStack() as held:
            with disk_faults(_UNAVAILABLE, f"Storing an artifact in {self._root}"):
                temporary, file = held.enter_context(self._temporary())
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                if size > limit_bytes:
                    raise too_large(limit_bytes)
                with disk_faults(_UNAVAILABLE, f"Storing artifact {temporary}"):
                    file.write(chunk)
            ref = ArtifactRef(type=type, sha256=digest.hexdigest(), size_bytes=size)
            with disk_faults(_UNAVAILABLE, f"Storing artifact {self.path(ref)}"):
                self._finish(temporary, file, self.path(ref))
        return ref

    def stream(self, ref: ArtifactRef) -> Iterator[bytes]:
        path = self.path(ref)
        digest = hashlib.sha256()
        with disk_faults(_UNAVAILABLE, f"Reading artifact {path}"):
            try:
                file = path.open("rb", buffering=0)
            except FileNotFoundError:
                raise ArtifactMissing(ref, self.place) from None
        with file:
            if os.fstat(file.fileno()).st_size != ref.size_bytes:
                raise ArtifactDamaged(ref, self.place)
            left = ref.size_bytes
            while left:
                with disk_faults(_UNAVAILABLE, f"Reading artifact {path}"):
                    piece = file.read(min(left, _PIECE))
                if not piece:
                    break
                left -= len(piece)
                digest.update(piece)
                yield piece
        if digest.hexdigest() != ref.sha256:
            raise ArtifactDamaged(ref, self.place)

    def has(self, ref: ArtifactRef) -> bool:
        return self.path(ref).is_file()

    def link(self, ref: ArtifactRef, seconds: int) -> str | None:
        return None

    def stored(self) -> Iterator[Stored]:
        with disk_faults(_UNAVAILABLE, f"Listing {self._root}"):
            for directory, _, names in os.walk(self._root, onerror=_unless_gone):
                for name in names:
                    path = Path(directory, name)
                    with contextlib.suppress(FileNotFoundError):
                        if (found := self._stored(path)) is not None:
                            yield found

    def remove(self, one: Stored, unless_after: int) -> bool:
        path = self._root / one.name
        faults = disk_faults(_UNAVAILABLE, f"Removing {path}")
        with faults, contextlib.suppress(FileNotFoundError), _locked(path.parent, fcntl.LOCK_EX):
            if path.stat().st_mtime_ns // 1000 <= unless_after:
                path.unlink()
                return True
        return False

    def leave_name(self, store_id: str, place: str) -> None:
        with disk_faults(_UNAVAILABLE, f"Writing to {self.place}"):
            leave_name(self._root.parent, store_id, place)

    def names(self) -> dict[str, str]:
        with disk_faults(_UNAVAILABLE, f"Reading {self.place}"):
            return names_in(self._root.parent)

    def path(self, ref: ArtifactRef) -> Path:
        """Where the bytes lie, or would."""
        return self._root / ref.sha256[:2] / ref.sha256

    def _stored(self, path: Path) -> Stored | None:
        """What a file is to the store; nothing, if the store did not make it."""
        name = path.name
        left_over = name.startswith(".") and name.endswith(".tmp")
        if not left_over and not (_HASH.fullmatch(name) and path.parent.name == name[:2]):
            return None
        status = path.stat()
        where = str(path.relative_to(self._root))
        return Stored(where, None if left_over else name, status.st_size, status.st_mtime_ns // 1000)

    def _renewed(self, path: Path, ref: ArtifactRef) -> bool:
        """Whether the bytes are there already, and young from now on; a damaged file is written anew."""
        try:
            with _locked(path.parent, fcntl.LOCK_SH):
                data = path.read_bytes()
                if hashlib.sha256(data).hexdigest() != ref.sha256:
                    return False
                if path.stat().st_mtime_ns < time.time_ns() - STALE_US * 1000:
                    os.utime(path)
                return True
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[tuple[Path, BinaryIO]]:
        """A new file beside the artifacts; gone afterwards unless it got its name."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=self._root)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield Path(name), file
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _finish(self, temporary: Path, file: BinaryIO, final: Path) -> None:
        file.flush()
        os.fsync(file.fileno())
        final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(final.parent, fcntl.LOCK_SH):
            temporary.replace(final)
        for directory in (final.parent, self._root):
            _sync_directory(directory)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextlib.contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
