"""Artifacts as objects of a bucket on an S3 server."""

from __future__ import annotations

import http.client
import ipaddress
import os
import random
import re
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, BinaryIO, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError
from obstore.store import S3Store

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.artifacts import MAX_BYTES, STALE_US, ArtifactDamaged, ArtifactMissing, Artifacts, Hasher, Stored
from codepilot.store.faults import disk_faults
from codepilot.store.home import NAMES
from codepilot.telemetry import now_us

TRIES = 3
DIRECT_BYTES = 8 << 20
"""How much one read asks for, and up to which size a write comes from memory."""
TIMEOUT_SEC = 60.0
_CONNECT_SEC = 5.0
_PAGE = 1000
_ANSWER = 4096
_BACKOFF_SEC = 0.1
_LINK_SEC = 7 * 24 * 3600
_STATUS = re.compile(r"(?:status code:|HTTP Error) (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_RETRYABLE = frozenset({408, 409, 429})

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_REGION = re.compile(r"[A-Za-z0-9._-]+")
_PLAIN = r"[A-Za-z0-9._~!$&'()*+,;=:%-]"
_ENDPOINT = re.compile(
    rf"(?P<scheme>https?)://(?:{_PLAIN}*@)?"
    r"(?P<server>(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{0,5}))?)"
    rf"(?:/(?:{_PLAIN}|[/@])*)?"
)
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_FINAL = "sha256"
_KEY = re.compile(f"{_FINAL}/([0-9a-f]{{2}})/(\\1[0-9a-f]{{62}})")
T = TypeVar("T")


class ObjectArtifacts(Artifacts):
    """Objects `sha256/ab/…`, each written by one conditional request: it is there whole or not at all.

    A stream is spooled on this machine first: its hash gives the name, and an object that exists is not sent again.
    """

    def __init__(self, bucket: Bucket, clock: Callable[[], int] = now_us) -> None:
        self._bucket = bucket
        self._clock = clock

    @property
    def place(self) -> str:
        return self._bucket.place

    def put_stream(self, chunks: Iterable[bytes], type: ArtifactType, limit_bytes: int = MAX_BYTES) -> ArtifactRef:
        hasher = Hasher(limit_bytes)
        with tempfile.SpooledTemporaryFile(max_size=DIRECT_BYTES) as file:
            for chunk in hasher.passing(chunks):
                with disk_faults(FailureKind.ARTIFACT_STORE_UNAVAILABLE, "Spooling an artifact"):
                    file.write(chunk)
            file.seek(0)
            ref = hasher.ref(type)
            small = ref.size_bytes <= DIRECT_BYTES
            self._put(ref, file.read() if small else cast(BinaryIO, file), send_first=small)
        return ref

    def read_pieces(self, ref: ArtifactRef) -> Iterator[bytes]:
        for start in range(0, ref.size_bytes or 1, DIRECT_BYTES):
            got = self._bucket.read(_key(ref.sha256), start, min(start + DIRECT_BYTES, ref.size_bytes))
            if got is None:
                raise ArtifactMissing(ref, self.place)
            piece, size = got
            if size != ref.size_bytes:
                raise ArtifactDamaged(ref, self.place)
            yield piece

    def has(self, ref: ArtifactRef) -> bool:
        return self._bucket.find(_key(ref.sha256)) is not None

    def link(self, ref: ArtifactRef, seconds: int) -> str | None:
        return self._bucket.link(_key(ref.sha256), seconds)

    def stored(self) -> Iterator[Stored]:
        for found in self._bucket.listed(_FINAL):
            if named := _KEY.fullmatch(found.name):
                yield replace(found, sha256=named[2])

    def find(self, sha256: str) -> Stored | None:
        found = self._bucket.find(_key(sha256))
        return None if found is None else replace(found, sha256=sha256)

    def remove(self, one: Stored, unless_after: int) -> bool:
        found = self._bucket.find(one.name)
        if found is None or found.modified > unless_after:
            return False
        self._bucket.delete(one.name)
        return True

    def leave_name(self, store_id: str, place: str) -> None:
        self._bucket.put(f"{NAMES}/{store_id}", place.encode(), create=True)

    def names(self) -> dict[str, str]:
        listed = self._bucket.listed(NAMES)
        found = {one.name.rpartition("/")[2]: self._bucket.read(one.name, 0, one.size_bytes) for one in listed}
        return {name: got[0].decode("utf-8", "replace") for name, got in found.items() if got is not None}

    def _put(self, ref: ArtifactRef, body: bytes | BinaryIO, send_first: bool) -> None:
        """Look before sending a large body; a small one is sent at once and refused if it is there."""
        key = _key(ref.sha256)
        found = None if send_first else self._bucket.find(key)
        if found is None and self._bucket.put(key, body, create=True):
            return
        found = found or self._bucket.find(key)
        if found is None or not self._may_stay(found, ref):
            self._bucket.put(key, body, create=False)

    def _may_stay(self, found: Stored, ref: ArtifactRef) -> bool:
        """True if the object is intact and too new for retention."""
        if found.size_bytes != ref.size_bytes or found.modified <= self._clock() - STALE_US:
            return False
        try:
            return all(piece is not None for piece in self.stream(ref))
        except (ArtifactDamaged, ArtifactMissing):
            return False


class Bucket:
    """Objects under a prefix. Requests are tried three times; failures name the bucket and never its keys.

    Safe to use from any thread, not across a fork.
    """

    def __init__(self, store: S3Store, place: str, timeout_sec: float = TIMEOUT_SEC) -> None:
        self._store = store
        self._timeout_sec = timeout_sec
        self.place = place
        """The address as messages show it: an endpoint may hold a user and a password."""

    @classmethod
    def open(cls, bucket: str, prefix: str, environ: Mapping[str, str], timeout_sec: float = TIMEOUT_SEC) -> Bucket:
        """Check the settings; nothing is sent."""
        place, endpoint, region = _address(bucket, prefix, environ)
        settings: dict[str, Any] = {name[4:].lower(): environ[name] for name in _KEYS if environ.get(name)}
        if endpoint:
            settings["endpoint"] = endpoint
        try:
            with _no_panics():
                store = S3Store(
                    bucket,
                    prefix=prefix or None,
                    region=region,
                    client_options={
                        "allow_http": endpoint.startswith("http://"),
                        "connect_timeout": timedelta(seconds=min(timeout_sec, _CONNECT_SEC)),
                        "timeout": timedelta(seconds=timeout_sec),
                    },
                    retry_config={"max_retries": 0},
                    **settings,
                )
        except (BaseError, ValueError, _Panicked) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise _invalid(
                f"The settings of the artifact store {place} are not understood: {reason}.",
                "Correct or unset the AWS_* variable that has this value.",
            ) from error
        return cls(store, place, timeout_sec)

    def put(self, key: str, body: bytes | BinaryIO, *, create: bool) -> bool:
        """Put a whole object. With `create`, false if there is one already: of many who try at once, one succeeds."""
        try:
            if isinstance(body, bytes):
                mode: Any = "create" if create else "overwrite"
                self._try("Writing", lambda: obstore.put(self._store, key, body, mode=mode, use_multipart=False))
            else:
                self._try("Writing", lambda: self._upload(key, body, create))
        except AlreadyExistsError:
            return False
        return True

    def _upload(self, key: str, file: BinaryIO, create: bool) -> None:
        """One request from a file of any size; the client library would read all of it into memory."""
        url = obstore.sign(self._store, "PUT", key, timedelta(hours=1))
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        if create:
            headers["If-None-Match"] = "*"
        request = urllib.request.Request(url, data=file, method="PUT", headers=headers)
        try:
            urllib.request.urlopen(request, timeout=self._timeout_sec).close()
        except urllib.error.HTTPError as error:
            with error:
                if create and error.code == http.client.PRECONDITION_FAILED:
                    raise AlreadyExistsError(key) from None
                raise OSError(f"HTTP Error {error.code} {error.read(_ANSWER).decode(errors='replace')}") from None

    def find(self, key: str) -> Stored | None:
        try:
            return _stored(self._try("Looking at", lambda: obstore.head(self._store, key)))
        except FileNotFoundError:
            return None

    def read(self, key: str, start: int, end: int) -> tuple[bytes, int] | None:
        """The bytes from `start` to `end` and the object's whole size, or None if it is not there."""

        def read_once() -> tuple[bytes, int]:
            ranged: Any = {"range": (start, end)} if end > start else None
            try:
                got = obstore.get(self._store, key, options=ranged)
            except GenericError as error:
                if "status code: 416" in str(error):
                    return b"", int(obstore.head(self._store, key)["size"])
                raise
            size = int(got.meta["size"])
            return (bytes(got.bytes()) if end > start else b""), size

        try:
            return self._try("Reading", read_once)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise self._unavailable("Reading", "there is no such bucket", False) from None
            return None

    def delete(self, key: str) -> None:
        """Removing what is not there is fine."""
        with suppress(FileNotFoundError):
            self._try("Removing from", lambda: obstore.delete(self._store, key))

    def listed(self, prefix: str) -> Iterator[Stored]:
        """A page is one request, so that a failure repeats only that page."""
        last: str | None = None

        def page() -> list[Any]:
            return list(next(obstore.list(self._store, prefix, offset=last, chunk_size=_PAGE), ()))

        while found := self._try("Listing", page):
            yield from map(_stored, found)
            last = found[-1]["path"]

    def link(self, key: str, seconds: int) -> str:
        if not 0 < seconds <= _LINK_SEC:
            raise _invalid(f"A link lasts between 1 and {_LINK_SEC} seconds, not {seconds}.")
        lasting = timedelta(seconds=seconds)
        return str(self._try("Signing for", lambda: obstore.sign(self._store, "GET", key, lasting)))

    def _try(self, doing: str, call: Callable[[], T]) -> T:
        """Call, and again where that may help. The caller handles an object that is absent or exists already."""
        for number in range(1, TRIES + 1):
            try:
                with _no_panics():
                    return call()
            except (AlreadyExistsError, FileNotFoundError):
                raise
            except (BaseError, OSError, ValueError, http.client.HTTPException, _Panicked) as error:
                reason, passing = _reason(error)
            if not passing or number == TRIES:
                break
            time.sleep(random.uniform(0.5, 1.5) * _BACKOFF_SEC * 3 ** (number - 1))
        raise self._unavailable(doing, reason, passing)

    def _unavailable(self, doing: str, reason: str, passing: bool) -> CodePilotError:
        """`passing` is whether waiting may help."""
        return CodePilotError(
            FailureKind.ARTIFACT_STORE_UNAVAILABLE,
            f"{doing} {self.place} failed: {reason}.",
            next_action="Check the server, the bucket and the AWS_* variables, then `codepilot resume`.",
            place=self.place,
            reason=reason,
            passing=passing,
        )


def _address(bucket: str, prefix: str, environ: Mapping[str, str]) -> tuple[str, str, str]:
    """The place as messages show it, the endpoint (Amazon's if empty) and the region.

    The client library panics on an address that is no URI, so that is refused before a request is made.
    """
    parts = set(prefix.split("/")) if prefix else set()
    if not _BUCKET.fullmatch(bucket) or not prefix.isprintable() or parts & {"", ".", ".."}:
        raise _invalid(
            f"{bucket!r} with {prefix!r} cannot be a bucket and the prefix of its keys.",
            "Give s3://BUCKET or s3://BUCKET/PREFIX: a bucket of letters, digits, '.', '_' and '-', "
            "and a prefix without control characters, '//', '.' and '..'.",
        )
    place, encrypted = f"s3://{bucket}/{prefix}".rstrip("/"), True
    variable = "AWS_ENDPOINT_URL_S3" if environ.get("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
    if endpoint := environ.get(variable, ""):
        found = _ENDPOINT.fullmatch(endpoint)
        if found is None or not _is_server(found["host"], found["port"]):
            raise _invalid(
                f"{variable} does not name a server.",
                "Set it to https://HOST or https://HOST:PORT, with a port from 1 to 65535.",
            )
        place += f" at {found['scheme']}://{found['server']}"
        encrypted = found["scheme"] == "https" or found["host"].lower() in _LOOPBACK
    if not any(environ.get(name) for name in _CREDENTIALS):
        raise _invalid(
            f"There are no credentials for the artifact store {place} in the environment.",
            "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    for name in _KEYS:
        if not environ.get(name, "").isprintable():
            raise _invalid(
                f"{name} has a line break or another control character in it.",
                f"Set {name} to the key alone, without a line break at its end.",
            )
    if not encrypted and environ.get("AWS_ALLOW_HTTP", "").lower() not in ("1", "true", "yes"):
        raise _invalid(
            f"The connection to the artifact store {place} would not be encrypted.",
            "Use an https:// endpoint, or set AWS_ALLOW_HTTP=true.",
        )
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if not _REGION.fullmatch(region):
        raise _invalid(
            f"{region!r} cannot be the region of the artifact store {place}.",
            "Set AWS_REGION to a name like us-east-1.",
        )
    return place, endpoint, region


def _is_server(host: str, port: str | None) -> bool:
    with suppress(ValueError):
        if host.startswith("["):
            ipaddress.IPv6Address(host[1:-1])
        return not port or 0 < int(port) < 1 << 16
    return False


def _invalid(message: str, next_action: str = "") -> CodePilotError:
    return CodePilotError(FailureKind.INVALID_SPEC, message, next_action=next_action)


class _Panicked(Exception):
    """The client library broke down over its input, and would again."""


@contextmanager
def _no_panics() -> Iterator[None]:
    """The library's panics are no `Exception`s, and their class cannot be imported: they would end a whole thread."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _Panicked(str(error)) from None


def _stored(meta: Any) -> Stored:
    modified: datetime = meta["last_modified"]
    return Stored(meta["path"], None, int(meta["size"]), int(modified.timestamp() * 1_000_000))


def _reason(error: Exception) -> tuple[str, bool]:
    """A client error in words that hold no key or signature, and whether waiting may help."""
    if isinstance(error, _Panicked):
        return "the client library broke down", False
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        number = int(status[1])
        return f"the server answered {number}{f' {code[1]}' if code else ''}", number >= 500 or number in _RETRYABLE
    if "builder error" in text or type(error).__name__ in ("InvalidPathError", "NotSupportedError"):
        return "the settings do not make a request", False
    if "TimedOut" in text or "Timeout" in text or "timed out" in text:
        return "the server did not answer in time", True
    if "kind: Connect" in text:
        return "no connection to the server", True
    broken = ("HTTP error", "kind: Request", "kind: Decode", "kind: Body")
    if isinstance(error, OSError | http.client.HTTPException) or any(mark in text for mark in broken):
        return "the connection broke", True
    return f"the client gave up ({type(error).__name__})", True


def _key(sha256: str) -> str:
    return f"{_FINAL}/{sha256[:2]}/{sha256}"
