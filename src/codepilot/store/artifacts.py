"""Artifacts: bytes named by their hash, written once and verified whenever they are read."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind

MAX_BYTES = 4 << 30
"""The limit of one artifact unless the caller names another; S3 copies no more than 5 GiB at once."""
STALE_US = 3_600_000_000
"""An artifact that is put again looks younger than this afterwards, so that retention spares it."""


@dataclass(frozen=True)
class Stored:
    """An object of the store: an artifact, or (without a hash) the remains of a broken write."""

    name: str
    sha256: str | None
    size_bytes: int
    modified: int
    """When it was last put, in microseconds."""


class Artifacts(ABC):
    """One place serves one store: retention removes what that store does not name."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The directory or bucket, as messages name it."""

    @abstractmethod
    def put_stream(self, chunks: Iterable[bytes], type: ArtifactType, limit_bytes: int = MAX_BYTES) -> ArtifactRef:
        """Store the joined chunks in bounded memory; when it returns, the bytes are durable."""

    @abstractmethod
    def read_pieces(self, ref: ArtifactRef) -> Iterator[bytes]:
        """The stored bytes in pieces, unverified; damaged if their number differs from the artifact's."""

    @abstractmethod
    def has(self, ref: ArtifactRef) -> bool: ...

    def link(self, ref: ArtifactRef, seconds: int) -> str | None:
        """A URL that lets anyone read the bytes for so long; None if the store cannot make one."""
        return None

    @abstractmethod
    def stored(self) -> Iterator[Stored]:
        """Every artifact and every broken write, in no order."""

    @abstractmethod
    def find(self, sha256: str) -> Stored | None:
        """The artifact of that hash, if it is there."""

    @abstractmethod
    def remove(self, one: Stored, unless_after: int) -> bool:
        """Remove it, unless it is gone or was put again after that time (microseconds)."""

    @abstractmethod
    def leave_name(self, store_id: str, place: str) -> None:
        """Record that the store of that id, which is at `place`, keeps artifacts here."""

    @abstractmethod
    def names(self) -> dict[str, str]:
        """The ids of the stores that keep artifacts here, and where each was when it recorded that."""

    def put(self, data: bytes, type: ArtifactType) -> ArtifactRef:
        """Store `data`; when it returns, the bytes are durable."""
        return self.put_stream((data,), type, len(data))

    def get(self, ref: ArtifactRef) -> bytes:
        """The verified bytes."""
        return b"".join(self.stream(ref))

    def stream(self, ref: ArtifactRef) -> Iterator[bytes]:
        """The bytes in pieces, never more than were stored. Damage is found at the end: trust none before it."""
        digest = hashlib.sha256()
        for piece in self.read_pieces(ref):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != ref.sha256:
            raise ArtifactDamaged(ref, self.place)


class Hasher:
    """Hashes and limits an artifact while it passes."""

    def __init__(self, limit_bytes: int) -> None:
        self._digest = hashlib.sha256()
        self._limit_bytes = limit_bytes
        self.size = 0

    def passing(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._digest.update(chunk)
            self.size += len(chunk)
            if self.size > self._limit_bytes:
                message = f"An artifact is larger than {self._limit_bytes} bytes."
                raise CodePilotError(FailureKind.POLICY_VIOLATION, message, limit_bytes=self._limit_bytes)
            yield chunk

    def ref(self, type: ArtifactType) -> ArtifactRef:
        return ArtifactRef(type=type, sha256=self._digest.hexdigest(), size_bytes=self.size)


class ArtifactMissing(CodePilotError):
    """The store answers, and does not have it."""

    def __init__(self, ref: ArtifactRef, place: str) -> None:
        super().__init__(
            FailureKind.ARTIFACT_STORE_UNAVAILABLE,
            f"The artifact {ref.sha256} is not in {place}.",
            next_action="Check that this is the store that the run used; if it is, run the task again.",
            sha256=ref.sha256,
            place=place,
        )


class ArtifactDamaged(CodePilotError):
    """The store has other bytes than those that were put."""

    def __init__(self, ref: ArtifactRef, place: str) -> None:
        super().__init__(
            FailureKind.ARTIFACT_STORE_UNAVAILABLE,
            f"The artifact {ref.sha256} in {place} is damaged: its bytes do not have the hash it is named by.",
            next_action="Restore it from a backup, or run the task again.",
            sha256=ref.sha256,
            place=place,
        )


def open_artifacts(url_or_path: str | Path, environ: Mapping[str, str]) -> Artifacts:
    """Artifacts at a path, a `file://` URL or `s3://bucket/prefix`; the key to a bucket comes from `environ` alone."""
    from codepilot.store.files import FileArtifacts

    text = str(url_or_path)
    if isinstance(url_or_path, Path) or "://" not in text:
        return FileArtifacts(Path(text).expanduser().absolute())
    try:
        url = urlsplit(text)
        path = unquote(url.path, errors="strict")
    except ValueError as error:
        raise _no_place(text) from error
    plain = not (url.username or url.password or url.query or url.fragment or "\0" in path)
    if plain and url.scheme == "file" and url.netloc in ("", "localhost") and path.startswith("/"):
        return FileArtifacts(Path(path))
    if not (plain and url.scheme == "s3" and url.netloc and ":" not in url.netloc):
        raise _no_place(text)
    try:
        from codepilot.store.objects import Bucket, ObjectArtifacts
    except ModuleNotFoundError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The artifact store s3://{url.netloc} needs a library that is not installed: {error.name}.",
            next_action="Install it into the same environment: pip install obstore",
        ) from error
    return ObjectArtifacts(Bucket.open(url.netloc, path.strip("/"), environ))


def _no_place(url: str) -> CodePilotError:
    """Shows only the URL's scheme: the rest may hold a password."""
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"A {url.partition('://')[0]!r} URL like this does not name an artifact store.",
        next_action="Give a directory or s3://BUCKET/PREFIX; credentials belong into the environment (AWS_*).",
    )
