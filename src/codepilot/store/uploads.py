"""Uploads in parts that were begun and never finished: no key shows them, yet they take space.

The client library cannot name them, so the two requests that can are signed here (AWS Signature Version 4).
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

_LARGEST_REPLY = 8 << 20
_EMPTY = hashlib.sha256(b"").hexdigest()
_NOT_TOLD = frozenset({400, 403, 404, 405, 501})
_TIMEOUT_SEC = 60.0


@dataclass(frozen=True)
class Upload:
    """An unfinished upload, and when it was begun (microseconds)."""

    key: str
    id: str
    begun: int


@dataclass(frozen=True)
class Uploads:
    """The unfinished uploads of a bucket at `base`, an URL that the keys follow."""

    base: str
    region: str
    key: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)

    def begun(self, prefix: str) -> Iterator[Upload]:
        """Those under a prefix; none, if the server does not tell or we may not ask."""
        place = {"key-marker": "", "upload-id-marker": ""}
        while True:
            try:
                page = self._ask("GET", "", {"uploads": "", "prefix": prefix, **{k: v for k, v in place.items() if v}})
            except urllib.error.HTTPError as error:
                if error.code in _NOT_TOLD:
                    return
                raise
            root = _parsed(page)
            for one in root.iterfind("{*}Upload"):
                begun = datetime.fromisoformat(_text(one, "Initiated"))
                yield Upload(_text(one, "Key"), _text(one, "UploadId"), int(begun.timestamp() * 1_000_000))
            place = {"key-marker": _text(root, "NextKeyMarker"), "upload-id-marker": _text(root, "NextUploadIdMarker")}
            if _text(root, "IsTruncated") != "true" or not any(place.values()):
                return

    def abort(self, key: str, upload_id: str) -> None:
        """Aborting what is not there is fine."""
        try:
            self._ask("DELETE", key, {"uploadId": upload_id})
        except urllib.error.HTTPError as error:
            if error.code != http.client.NOT_FOUND:
                raise

    def _ask(self, method: str, key: str, query: Mapping[str, str]) -> bytes:
        asked = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in sorted(query.items()))
        url = urlsplit(f"{self.base}/{quote(key, safe='/-_.~')}" if key else self.base)
        path = url.path or "/"
        headers = self._signed(method, url.netloc, path, asked, datetime.now(UTC))
        request = urllib.request.Request(f"{url.scheme}://{url.netloc}{path}?{asked}", method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SEC) as reply:
            return bytes(reply.read(_LARGEST_REPLY))

    def _signed(self, method: str, host: str, path: str, query: str, now: datetime) -> dict[str, str]:
        moment, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        headers = {"host": host, "x-amz-content-sha256": _EMPTY, "x-amz-date": moment}
        if self.token:
            headers["x-amz-security-token"] = self.token
        names = ";".join(headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = "\n".join([method, path, query, lines, names, _EMPTY])
        scope = f"{day}/{self.region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(request.encode()).hexdigest()])
        signing = f"AWS4{self.secret}".encode()
        for part in (day, self.region, "s3", "aws4_request"):
            signing = hmac.digest(signing, part.encode(), "sha256")
        signature = hmac.digest(signing, text.encode(), "sha256").hex()
        credential = f"Credential={self.key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return {**headers, "authorization": f"AWS4-HMAC-SHA256 {credential}"}


def uploads_of(bucket: str, endpoint: str, region: str, environ: Mapping[str, str]) -> Uploads | None:
    """The unfinished uploads of a bucket, if the environment holds a key to sign with."""
    key, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        return None
    hosted = environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true"
    base = endpoint.rstrip("/") if endpoint else f"https://s3.{region}.amazonaws.com"
    if not (endpoint and hosted):
        base += f"/{bucket}"
    return Uploads(base, region, key, secret, environ.get("AWS_SESSION_TOKEN", ""))


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")


def _parsed(page: bytes) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(page)
    except ElementTree.ParseError as error:
        raise ValueError("the list of uploads is no XML") from error


def _text(node: ElementTree.Element, name: str) -> str:
    return node.findtext(f"{{*}}{name}") or ""
