"""One bucket of an S3 server: requests that are tried three times, failures that name it and never its keys."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.address import Address
from codepilot.store.uploads import Upload, Uploads, uploads_of

if TYPE_CHECKING:
    from obstore.store import S3Store

TRIES = 3
PART_BYTES = 8 << 20
_PARALLEL_PARTS = 4
_BACKOFF_SEC = 0.1
_LINK_SEC = 7 * 24 * 3600
_STATUS = re.compile(r"(?:status code:|HTTP Error) (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")
_AGAIN = frozenset({408, 429})
_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_COPY_IF_NOT_EXISTS": "copy_if_not_exists",
}
T = TypeVar("T")


@dataclass(frozen=True)
class Patience:
    """How long to wait for one request, and for one that moves many bytes."""

    connect_sec: float = 5.0
    request_sec: float = 60.0
    bulk_sec: float = 600.0


PATIENCE = Patience()


@dataclass(frozen=True)
class Found:
    """What the server says about an object."""

    key: str
    size: int
    modified: int
    etag: str


class Bucket:
    """Objects under a prefix. Safe to use from any thread, not across a fork."""

    def __init__(self, single: S3Store, bulk: S3Store, place: str, prefix: str, uploads: Uploads | None) -> None:
        self._single = single
        self._bulk = bulk
        self._prefix = prefix
        self._uploads = uploads
        self.place = place

    @classmethod
    def open(cls, bucket: str, prefix: str, environ: Mapping[str, str], patience: Patience = PATIENCE) -> Bucket:
        """Look at the settings; nothing is sent."""
        address = Address.read(bucket, prefix, environ)
        try:
            from obstore.exceptions import BaseError
            from obstore.store import S3Store
        except ModuleNotFoundError as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The artifact store {address.place} needs a library that is not installed: {error.name}.",
                next_action="Install it into the same environment: pip install obstore",
            ) from error

        settings: dict[str, Any] = {"copy_if_not_exists": "multipart", "region": address.region}
        settings |= {name: environ[key] for key, name in _SETTINGS.items() if environ.get(key)}
        if address.endpoint:
            settings["endpoint"] = address.endpoint

        def made(seconds: float, retries: int) -> S3Store:
            return S3Store(
                bucket,
                prefix=prefix or None,
                client_options={
                    "allow_http": address.endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=patience.connect_sec),
                    "timeout": timedelta(seconds=seconds),
                },
                retry_config={
                    "max_retries": retries,
                    "backoff": {"init_backoff": timedelta(seconds=_BACKOFF_SEC)},
                    "retry_timeout": timedelta(seconds=240),
                },
                **settings,
            )

        uploads = uploads_of(bucket, address.endpoint, address.region, environ)
        try:
            with _no_panics():
                single, bulk = made(patience.request_sec, 0), made(patience.bulk_sec, TRIES - 1)
        except (BaseError, ValueError, _Panicked) as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The settings of the artifact store {address.place} are not understood: {_first_line(error)}",
                next_action="Correct or unset the AWS_* variable that has this value.",
            ) from error
        return cls(single, bulk, address.place, prefix, uploads)

    def create(self, key: str, data: bytes) -> bool:
        """Put an object that is not there yet; false if it is. Of many who try at once, one succeeds."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            self._tried("Writing", lambda: obstore.put(self._single, key, data, mode="create"))
        except AlreadyExistsError:
            return False
        return True

    def replace(self, key: str, data: bytes) -> None:
        import obstore

        self._tried("Writing", lambda: obstore.put(self._single, key, data, use_multipart=False))

    def upload(self, key: str, file: BinaryIO) -> None:
        """Put an object of any size in parts, each of which is tried three times."""
        import obstore

        self._tried(
            "Writing",
            lambda: obstore.put(
                self._bulk, key, file, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=_PARALLEL_PARTS
            ),
            tries=1,
        )

    def copy_new(self, source: str, key: str) -> bool:
        """Copy on the server to where nothing is yet; false if something is."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            self._tried("Copying", lambda: obstore.copy(self._bulk, source, key, overwrite=False), tries=1)
        except AlreadyExistsError:
            return False
        return True

    def copy(self, source: str, key: str) -> None:
        import obstore

        self._tried("Copying", lambda: obstore.copy(self._bulk, source, key), tries=1)

    def find(self, key: str) -> Found | None:
        import obstore

        try:
            return _found(self._tried("Looking at", lambda: obstore.head(self._single, key)))
        except FileNotFoundError:
            return None

    def read(self, key: str, start: int, end: int) -> tuple[bytes, int] | None:
        """The bytes from `start` to `end` and the object's whole size, or None if it is not there."""
        import obstore
        from obstore.exceptions import GenericError

        def read_once() -> tuple[bytes, int]:
            ranged: Any = {"range": (start, end)} if end > start else None
            try:
                got = obstore.get(self._single, key, options=ranged)
            except GenericError as error:
                if "status code: 416" in str(error):
                    return b"", int(obstore.head(self._single, key)["size"])
                raise
            size = int(got.meta["size"])
            return (bytes(got.bytes()) if end > start else b""), size

        try:
            return self._tried("Reading", read_once)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise self._unavailable("Reading", "there is no such bucket") from None
            return None

    def delete(self, key: str) -> None:
        """Removing what is not there is fine."""
        import obstore

        try:
            self._tried("Removing from", lambda: obstore.delete(self._single, key))
        except FileNotFoundError:
            return

    def listed(self, prefix: str) -> Iterator[Found]:
        import obstore

        pages = self._tried("Listing", lambda: iter(obstore.list(self._bulk, prefix, chunk_size=1000)), tries=1)
        while (page := self._tried("Listing", lambda: next(pages, None), tries=1)) is not None:
            yield from map(_found, page)

    def unfinished(self, prefix: str) -> list[Upload]:
        """Uploads in parts to keys below `prefix/` that were begun and never finished, as far as the server lists them.

        Other users of the bucket have uploads there too, and only they know which of them are dead.
        """
        if self._uploads is None:
            return []
        uploads, ours = self._uploads, self._whole("")
        begun = self._tried("Listing", lambda: list(uploads.begun(f"{ours}{prefix}/")))
        below = (one for one in begun if one.key.startswith(f"{ours}{prefix}/"))
        return [Upload(one.key.removeprefix(ours), one.id, one.begun) for one in below]

    def abort(self, upload: Upload) -> None:
        if self._uploads is not None:
            uploads = self._uploads
            self._tried("Removing from", lambda: uploads.abort(self._whole(upload.key), upload.id))

    def _whole(self, key: str) -> str:
        """A key as the server knows it."""
        return f"{self._prefix}/{key}" if self._prefix else key

    def link(self, key: str, seconds: int) -> str:
        import obstore

        if not 0 < seconds <= _LINK_SEC:
            raise CodePilotError(
                FailureKind.INVALID_SPEC, f"A link lasts between 1 and {_LINK_SEC} seconds, not {seconds}."
            )
        lasting = timedelta(seconds=seconds)
        return str(self._tried("Signing for", lambda: obstore.sign(self._single, "GET", key, lasting)))

    def _tried(self, doing: str, call: Callable[[], T], tries: int = TRIES) -> T:
        """Call, and again where that may help. What the object's absence or presence means is left to the caller."""
        from obstore.exceptions import AlreadyExistsError, BaseError

        for number in range(1, tries + 1):
            try:
                with _no_panics():
                    return call()
            except (AlreadyExistsError, FileNotFoundError):
                raise
            except (BaseError, OSError, ValueError, HTTPException, _Panicked) as error:
                reason, passing = _reason(error)
            if not passing or number == tries:
                break
            time.sleep(random.uniform(0.5, 1.5) * _BACKOFF_SEC * 3 ** (number - 1))
        raise self._unavailable(doing, reason, passing)

    def _unavailable(self, doing: str, reason: str, passing: bool = False) -> CodePilotError:
        """`passing` says that it may be well again by itself."""
        return CodePilotError(
            FailureKind.ARTIFACT_STORE_UNAVAILABLE,
            f"{doing} {self.place} failed: {reason}.",
            next_action="Check the server, the bucket and the AWS_* variables, then `codepilot resume`.",
            place=self.place,
            reason=reason,
            passing=passing,
        )


class _Panicked(Exception):
    """The client library broke down over what it was given, and would again."""


@contextmanager
def _no_panics() -> Iterator[None]:
    """The library's panics are no `Exception`s, and their class cannot be imported: they would end a whole thread."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise _Panicked(str(error)) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".") + "."


def _found(meta: Any) -> Found:
    modified: datetime = meta["last_modified"]
    etag = (meta["e_tag"] or "").strip('"')
    return Found(meta["path"], int(meta["size"]), int(modified.timestamp() * 1_000_000), etag)


def _reason(error: Exception) -> tuple[str, bool]:
    """What a client error says, in words that hold no key or signature, and whether it may pass by itself."""
    if isinstance(error, _Panicked):
        return "the client library broke down", False
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        number = int(status[1])
        return f"the server answered {number}{f' {code[1]}' if code else ''}", number >= 500 or number in _AGAIN
    if "builder error" in text or type(error).__name__ in ("InvalidPathError", "NotSupportedError"):
        return "the settings do not make a request", False
    if "TimedOut" in text or "Timeout" in text:
        return "the server did not answer in time", True
    if "kind: Connect" in text:
        return "no connection to the server", True
    if "HTTP error" in text or "kind: Request" in text or "kind: Decode" in text or "kind: Body" in text:
        return "the connection broke", True
    return f"the client gave up ({type(error).__name__})", True
