"""Bytes worth keeping, named by their hash, written once and verified whenever they are read."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Protocol

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import disk_faults

_UNAVAILABLE = FailureKind.ARTIFACT_STORE_UNAVAILABLE


class Artifacts(Protocol):
    def put(self, data: bytes, type: ArtifactType) -> ArtifactRef:
        """Keep `data`; when it returns, the bytes are durable."""
        ...

    def get(self, ref: ArtifactRef) -> bytes:
        """The bytes, proved to be those that were kept."""
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
            raise CodePilotError(
                _UNAVAILABLE,
                f"The artifact {path} is damaged: its bytes do not have the hash it is named by.",
                next_action="Restore the file from a backup, or run the task again.",
                path=path,
            )
        return data

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
            Path(temporary).replace(final)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        for directory in (folder, self._root):
            _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
