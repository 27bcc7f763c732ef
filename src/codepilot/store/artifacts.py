"""Bytes worth keeping, named by their hash, written once and verified whenever they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind

LARGEST_BYTES = 4 << 30
"""What one artifact may come to unless the caller says otherwise; S3 copies no more than 5 GiB at once."""
STALE_US = 3_600_000_000
"""Artifacts that are put again look younger than this afterwards, so that retention spares them."""


@dataclass(frozen=True)
class Stored:
    """Something that lies in the store: an artifact, or (without a hash) what a broken write left behind."""

    name: str
    sha256: str | None
    size_bytes: int
    modified: int
    """When it was last put, in microseconds."""


class Artifacts(Protocol):
    """One place serves one store: retention removes what that store does not name."""

    @property
    def place(self) -> str:
        """The directory or bucket, as messages name it."""
        ...

    def put(self, data: bytes, type: ArtifactType) -> ArtifactRef:
        """Keep `data`; when it returns, the bytes are durable."""
        ...

    def get(self, ref: ArtifactRef) -> bytes:
        """The bytes, proved to be those that were kept."""
        ...

    def put_stream(self, chunks: Iterable[bytes], type: ArtifactType, limit_bytes: int = LARGEST_BYTES) -> ArtifactRef:
        """Keep what the pieces add up to, in bounded memory; as durable as `put`."""
        ...

    def stream(self, ref: ArtifactRef) -> Iterator[bytes]:
        """The bytes in pieces, never more than were kept. Damage is noticed at the end: trust none before it."""
        ...

    def has(self, ref: ArtifactRef) -> bool: ...

    def link(self, ref: ArtifactRef, seconds: int) -> str | None:
        """A URL that lets anyone read the bytes for so long, if the store can make one."""
        ...

    def stored(self) -> Iterator[Stored]:
        """Everything that lies here, in no order."""
        ...

    def remove(self, one: Stored, unless_after: int) -> bool:
        """Remove it, unless it is gone or was put again after that time (microseconds)."""
        ...

    def leave_name(self, store_id: str, place: str) -> None:
        """Say that the store of that name, which is at `place`, keeps artifacts here."""
        ...

    def names(self) -> dict[str, str]:
        """The stores that keep artifacts here, and where each was when it said so."""
        ...


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
    """Other bytes lie there than those that were kept."""

    def __init__(self, ref: ArtifactRef, place: str) -> None:
        super().__init__(
            FailureKind.ARTIFACT_STORE_UNAVAILABLE,
            f"The artifact {ref.sha256} in {place} is damaged: its bytes do not have the hash it is named by.",
            next_action="Restore it from a backup, or run the task again.",
            sha256=ref.sha256,
            place=place,
        )


def too_large(limit_bytes: int) -> CodePilotError:
    return CodePilotError(
        FailureKind.POLICY_VIOLATION, f"An artifact is larger than {limit_bytes} bytes.", limit_bytes=limit_bytes
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
    if plain and url.scheme == "s3" and url.netloc and ":" not in url.netloc:
        from codepilot.store.bucket import Bucket
        from codepilot.store.objects import ObjectArtifacts

        return ObjectArtifacts(Bucket.open(url.netloc, path.strip("/"), environ))
    raise _no_place(text)


def _no_place(url: str) -> CodePilotError:
    """Says no more of the URL than its scheme: the rest may hold a password."""
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"A {url.partition('://')[0]!r} URL like this does not name an artifact store.",
        next_action="Give a directory or s3://BUCKET/PREFIX; credentials belong into the environment (AWS_*).",
    )
