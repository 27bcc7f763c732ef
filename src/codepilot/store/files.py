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
from codepilot.store.artifacts import MAX_BYTES, STALE_US, ArtifactDamaged, ArtifactMissing, Artifacts, Hasher, Stored
from codepilot.store.faults import disk_faults
from codepilot.store.home import leave_name, names_in

_UNAVAILABLE = FailureKind.ARTIFACT_STORE_UNAVAILABLE
_PIECE = 1 << 20
_HASH = re.compile("[0-9a-f]{64}")


class FileArtifacts(Artifacts):
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
        with disk_faults(_UNAVAILABLE, f"Storing artifact {self.path(ref)}"):
            renewed = self._renew(self.path(ref), ref)
        return ref if renewed else super().put(data, type)

    def put_stream(self, chunks: Iterable[bytes], type: ArtifactType, limit_bytes: int = MAX_BYTES) -> ArtifactRef:
        hasher = Hasher(limit_bytes)
        faults = _UNAVAILABLE, f"Storing an artifact in {self._root}"
        with contextlib.ExitStack() as held:
            with disk_faults(*faults):
                temporary, file = held.enter_context(self._temporary())
            for chunk in hasher.passing(chunks):
                with disk_faults(*faults):
                    file.write(chunk)
            ref = hasher.ref(type)
            with disk_faults(*faults):
                self._finish(temporary, file, self.path(ref))
        return ref

    def read_pieces(self, ref: ArtifactRef) -> Iterator[bytes]:
        path, left = self.path(ref), ref.size_bytes
        with disk_faults(_UNAVAILABLE, f"Reading artifact {path}"):
            try:
                file = path.open("rb", buffering=0)
            except FileNotFoundError:
                raise ArtifactMissing(ref, self.place) from None
        with file:
            if os.fstat(file.fileno()).st_size != left:
                raise ArtifactDamaged(ref, self.place)
            while left:
                with disk_faults(_UNAVAILABLE, f"Reading artifact {path}"):
                    piece = file.read(min(left, _PIECE))
                if not piece:
                    break
                left -= len(piece)
                yield piece

    def has(self, ref: ArtifactRef) -> bool:
        return self.path(ref).is_file()

    def stored(self) -> Iterator[Stored]:
        with disk_faults(_UNAVAILABLE, f"Listing {self._root}"):
            for directory, _, names in os.walk(self._root, onerror=_unless_gone):
                for name in names:
                    leftover = name.startswith(".") and name.endswith(".tmp")
                    if not leftover and not (_HASH.fullmatch(name) and Path(directory).name == name[:2]):
                        continue  # the store did not make it
                    path = Path(directory, name)
                    with contextlib.suppress(FileNotFoundError):
                        status, where = path.stat(), str(path.relative_to(self._root))
                        yield Stored(where, None if leftover else name, status.st_size, status.st_mtime_ns // 1000)

    def find(self, sha256: str) -> Stored | None:
        path = self._root / sha256[:2] / sha256
        with disk_faults(_UNAVAILABLE, f"Reading {path}"), contextlib.suppress(FileNotFoundError):
            status = path.stat()
            return Stored(str(path.relative_to(self._root)), sha256, status.st_size, status.st_mtime_ns // 1000)
        return None

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
        """The path of the artifact's file, whether or not it exists."""
        return self._root / ref.sha256[:2] / ref.sha256

    def _renew(self, path: Path, ref: ArtifactRef) -> bool:
        """Make an intact file look young. False if the file is missing or damaged: then it is written again."""
        with contextlib.suppress(FileNotFoundError), _locked(path.parent, fcntl.LOCK_SH):
            if hashlib.sha256(path.read_bytes()).hexdigest() == ref.sha256:
                if path.stat().st_mtime_ns < time.time_ns() - STALE_US * 1000:
                    os.utime(path)
                return True
        return False

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[tuple[Path, BinaryIO]]:
        """A new file next to the artifacts, removed on failure."""
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
            with _opened(directory) as descriptor:
                os.fsync(descriptor)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    with _opened(directory) as descriptor:
        fcntl.flock(descriptor, how)
        yield
