"""Artifacts as objects of a bucket."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.artifacts import (
    LARGEST_BYTES,
    STALE_US,
    ArtifactDamaged,
    ArtifactMissing,
    Stored,
    too_large,
)
from codepilot.store.bucket import PART_BYTES, Bucket, Found
from codepilot.store.faults import disk_faults
from codepilot.store.home import NAMES
from codepilot.store.uploads import Upload
from codepilot.telemetry import now_us

_DIRECT_BYTES = PART_BYTES
"""Up to here an artifact is one request, straight to its name."""
_FINAL, _TEMPORARY = "sha256", "tmp"
_UPLOAD = "?uploadId="
_KEY = re.compile(f"{_FINAL}/([0-9a-f]{{2}})/(\\1[0-9a-f]{{62}})")


class ObjectArtifacts:
    """Objects `sha256/ab/…`, each made once. What is not one request comes by way of `tmp/…`, and a copy on the server.

    A stream is spooled on this machine first: its hash says where it belongs, and that it need not be sent at all if
    it is there.
    """

    def __init__(self, bucket: Bucket, spool: Path | None = None, clock: Callable[[], int] = now_us) -> None:
        self._bucket = bucket
        self._spool = spool
        self._clock = clock

    @property
    def place(self) -> str:
        return self._bucket.place

    def put(self, data: bytes, type: ArtifactType) -> ArtifactRef:
        ref = ArtifactRef(type=type, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))
        if len(data) <= _DIRECT_BYTES:
            self._put_small(ref, data)
        else:
            self._put_large(ref, io.BytesIO(data))
        return ref

    def get(self, ref: ArtifactRef) -> bytes:
        return b"".join(self.stream(ref))

    def put_stream(self, chunks: Iterable[bytes], type: ArtifactType, limit_bytes: int = LARGEST_BYTES) -> ArtifactRef:
        digest, size = hashlib.sha256(), 0
        faults = FailureKind.ARTIFACT_STORE_UNAVAILABLE, "Spooling an artifact"
        with tempfile.SpooledTemporaryFile(
            max_size=_DIRECT_BYTES, dir=str(self._spool) if self._spool else None
        ) as file:
            for chunk in chunks:
                digest.update(chunk)
                size += len(chunk)
                if size > limit_bytes:
                    raise too_large(limit_bytes)
                with disk_faults(*faults):
                    file.write(chunk)
            file.seek(0)
            ref = ArtifactRef(type=type, sha256=digest.hexdigest(), size_bytes=size)
            if size <= _DIRECT_BYTES:
                self._put_small(ref, file.read())
            else:
                self._put_large(ref, file)
        return ref

    def stream(self, ref: ArtifactRef) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for start in range(0, ref.size_bytes or 1, PART_BYTES):
            got = self._bucket.read(_key(ref.sha256), start, min(start + PART_BYTES, ref.size_bytes))
            if got is None:
                raise ArtifactMissing(ref, self.place)
            piece, size = got
            if size != ref.size_bytes:
                raise ArtifactDamaged(ref, self.place)
            digest.update(piece)
            yield piece
        if digest.hexdigest() != ref.sha256:
            raise ArtifactDamaged(ref, self.place)

    def has(self, ref: ArtifactRef) -> bool:
        return self._bucket.find(_key(ref.sha256)) is not None

    def link(self, ref: ArtifactRef, seconds: int) -> str | None:
        return self._bucket.link(_key(ref.sha256), seconds)

    def stored(self) -> Iterator[Stored]:
        for found in self._bucket.listed(_FINAL):
            if named := _KEY.fullmatch(found.key):
                yield Stored(found.key, named[2], found.size, found.modified)
        for found in self._bucket.listed(_TEMPORARY):
            yield Stored(found.key, None, found.size, found.modified)
        final = (upload for upload in self._bucket.unfinished(_FINAL) if _KEY.fullmatch(upload.key))
        for upload in (*final, *self._bucket.unfinished(_TEMPORARY)):
            yield Stored(f"{upload.key}{_UPLOAD}{upload.id}", None, 0, upload.begun)

    def remove(self, one: Stored, unless_after: int) -> bool:
        key, _, upload = one.name.partition(_UPLOAD)
        if upload and one.modified <= unless_after:
            self._bucket.abort(Upload(key, upload, one.modified))
            return True
        found = self._bucket.find(one.name)
        if found is None or found.modified > unless_after:
            return False
        self._bucket.delete(one.name)
        return True

    def leave_name(self, store_id: str, place: str) -> None:
        self._bucket.create(f"{NAMES}/{store_id}", place.encode())

    def names(self) -> dict[str, str]:
        found = {Path(one.key).name: self._bucket.read(one.key, 0, one.size) for one in self._bucket.listed(NAMES)}
        return {name: got[0].decode("utf-8", "replace") for name, got in found.items() if got is not None}

    def _put_small(self, ref: ArtifactRef, data: bytes) -> None:
        key = _key(ref.sha256)
        if self._bucket.create(key, data):
            return
        found = self._bucket.find(key)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if found is None or not (self._is_young(found, ref) and (found.etag == md5 or self._is_whole(ref))):
            self._bucket.replace(key, data)

    def _put_large(self, ref: ArtifactRef, file: IO[bytes]) -> None:
        key = _key(ref.sha256)
        found = self._bucket.find(key)
        if found is not None and self._is_young(found, ref) and self._is_whole(ref):
            return
        temporary = f"{_TEMPORARY}/{secrets.token_hex(16)}"
        try:
            self._bucket.upload(temporary, cast(BinaryIO, file))
            if found is not None or (not self._bucket.copy_new(temporary, key) and not self._is_whole(ref)):
                self._bucket.copy(temporary, key)
        finally:
            # Retention removes what cannot be removed now, and a failure above is the one to report.
            with contextlib.suppress(CodePilotError):
                self._bucket.delete(temporary)

    def _is_young(self, found: Found, ref: ArtifactRef) -> bool:
        """Whether what lies there may stay as it is: of the right size, and too new for retention to look at."""
        return found.size == ref.size_bytes and found.modified > self._clock() - STALE_US

    def _is_whole(self, ref: ArtifactRef) -> bool:
        """Whether the server has the very bytes, by reading them."""
        try:
            for _ in self.stream(ref):
                pass
        except (ArtifactDamaged, ArtifactMissing):
            return False
        return True


def _key(sha256: str) -> str:
    return f"{_FINAL}/{sha256[:2]}/{sha256}"
