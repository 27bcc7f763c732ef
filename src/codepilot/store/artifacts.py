"""Bytes worth keeping, named by their hash, written once and verified whenever they are read."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import disk_faults

_UNAVAILABLE = FailureKind.ARTIFACT_STORE_UNAVAILABLE
_PIECE = 1 << 20


class Artifacts(Protocol):
    def put(self, data: bytes, type: ArtifactType) -> ArtifactRef:
        """Keep `data`; when it returns, the bytes are durable."""
        ...

    def get(self, ref: ArtifactRef) -> bytes:
        """The bytes, proved to be those that were kept."""
        ...

    def put_stream(self, chunks: Iterable[bytes], type: ArtifactType) -> ArtifactRef:
        """Keep what the pieces add up to, however large; as durable as `put`."""
        ...

    def stream(self, ref: ArtifactRef) -> Iterator[bytes]:
        """The bytes in pieces. Damage is noticed at the end, so trust none of them before it."""
        ...

    def has(self, ref: ArtifactRef) -> bool: ...


class FileArtifacts:
    """Artifacts as files under `root/sha256/ab/`. A file there is whole: it gets its name after it is synced."""

    def __init__(self, root: Path) -> None:
        self._root = root / "sha256"

    def put(self, data: bytes, type: ArtifactType) -> ArtifactRef:
        ref = ArtifactRef(type=type, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        final = self.path(ref)
        with disk_faults(_UNAVAILABLE, f"Storing artifact {final}"):
            if not self._whole(final, ref):
                self._write(final, data)
        return ref

    def get(self, ref: ArtifactRef) -> bytes:
        path = self.path(ref)
        with disk_faults(_UNAVAILABLE, f"Reading artifact {path}"):
            data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise _damaged(path)
        return data

    def put_stream(self, chunks: Iterable[bytes], type: ArtifactType) -> ArtifactRef:
        with disk_faults(_UNAVAILABLE, f"Storing an artifact in {self._root}"):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=self._root)
        temporary = Path(name)
        digest, size = hashlib.sha256(), 0
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    digest.update(chunk)
                    size += len(chunk)
                    with disk_faults(_UNAVAILABLE, f"Storing artifact {temporary}"):
                        file.write(chunk)
                ref = ArtifactRef(type=type, sha256=digest.hexdigest(), size_bytes=size)
                with disk_faults(_UNAVAILABLE, f"Storing artifact {temporary}"):
                    file.flush()
                    os.fsync(file.fileno())
            with disk_faults(_UNAVAILABLE, f"Storing artifact {self.path(ref)}"):
                self._rename(temporary, self.path(ref))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return ref

    def stream(self, ref: ArtifactRef) -> Iterator[bytes]:
        path = self.path(ref)
        digest = hashlib.sha256()
        with disk_faults(_UNAVAILABLE, f"Reading artifact {path}"):
            file = path.open("rb")
        with file:
            while True:
                with disk_faults(_UNAVAILABLE, f"Reading artifact {path}"):
                    piece = file.read(_PIECE)
                if not piece:
                    break
                digest.update(piece)
                yield piece
        if digest.hexdigest() != ref.sha256:
            raise _damaged(path)

    def has(self, ref: ArtifactRef) -> bool:
        return self.path(ref).is_file()

    def path(self, ref: ArtifactRef) -> Path:
        """Where the bytes lie, or would."""
        return self._root / ref.sha256[:2] / ref.sha256

    def _whole(self, path: Path, ref: ArtifactRef) -> bool:
        """Whether the bytes are there already; a damaged file is written anew."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return False
        return hashlib.sha256(data).hexdigest() == ref.sha256

    def _write(self, final: Path, data: bytes) -> None:
        folder = final.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._rename(Path(temporary), final)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _rename(self, temporary: Path, final: Path) -> None:
        final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.replace(final)
        for directory in (final.parent, self._root):
            _sync_directory(directory)


def _damaged(path: Path) -> CodePilotError:
    return CodePilotError(
        _UNAVAILABLE,
        f"The artifact {path} is damaged: its bytes do not have the hash it is named by.",
        next_action="Restore the file from a backup, or run the task again.",
        path=path,
    )


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
