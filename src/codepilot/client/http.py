"""HTTP to a service: problems become failures, reads are tried again, streams go on where they broke."""

from __future__ import annotations

import ipaddress
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2

from codepilot.core.failures import CodePilotError, Failure, FailureKind

TRIES = 3
SILENT_SEC = 60.0
"""A stream sends something every 15 seconds."""
_AGAIN = frozenset({429, 502, 503, 504})
_MOST_WAIT_SEC = 10.0


class Http:
    """Thread-safe."""

    def __init__(
        self, url: str, token: str | None, *, plain_http: bool = False, transport: httpx2.BaseTransport | None = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                "The service's URL must be http://HOST:PORT or https://HOST.",
                "Give the address that `codepilot serve` printed, without its /login part.",
            )
        if token is not None and not (token.isascii() and token.isprintable() and token):
            raise CodePilotError(FailureKind.INVALID_SPEC, "The service's token has characters that no header takes.")
        if parts.scheme == "http" and not plain_http and not _is_here(parts.hostname):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The token would travel unencrypted to {parts.hostname}.",
                "Use https://, or set CODEPILOT_PLAIN_HTTP=1 on a network that you trust.",
            )
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx2.Client(
            base_url=self.url, headers=headers, timeout=SILENT_SEC, trust_env=False, transport=transport
        )

    def close(self) -> None:
        self._client.close()

    def get(self, place: str, **query: object) -> Any:
        return self._document(self._tried("GET", place, TRIES, params=_given(query)))

    def read(self, place: str, **query: object) -> bytes:
        return self._tried("GET", place, TRIES, params=_given(query)).content

    def post(self, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        """A request that is not tried again, unless an idempotency key makes that safe."""
        tries = TRIES if headers and "Idempotency-Key" in headers else 1
        return self._document(self._tried("POST", path, tries, json={} if body is None else body, headers=headers))

    def put(self, path: str, chunks: Iterable[bytes]) -> None:
        headers = {"Content-Type": "application/octet-stream"}
        self._tried("PUT", path, 1, content=chunks, headers=headers)

    def events(self, path: str, after: int) -> Iterator[tuple[str, str, str]]:
        """Server-sent events as id, type and data; a comment of the server is ("", "", "").

        Ends with the stream. A broken connection is a failure that may be tried again from the last id.
        """
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        try:
            with self._client.stream("GET", path, headers=headers) as response:
                if response.status_code == 204:
                    return
                if response.status_code != 200:
                    response.read()
                    raise failure_of(response)
                yield from _parsed(response.iter_lines())
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def _tried(self, method: str, path: str, tries: int, **more: Any) -> httpx2.Response:
        if not path.startswith("/"):
            raise CodePilotError(FailureKind.INTERNAL, f"The token of {self.url} is sent nowhere else.")
        for left in reversed(range(tries)):
            try:
                response = self._client.request(method, path, **more)
            except httpx2.TransportError as error:
                if not left:
                    raise self._unreachable(error) from error
                time.sleep(0.2)
                continue
            if response.status_code < 300:
                return response
            if not left or response.status_code not in _AGAIN:
                raise failure_of(response)
            given = response.headers.get("retry-after", "")
            time.sleep(min(float(given) if given.isdecimal() else 0.5, _MOST_WAIT_SEC))
        raise AssertionError("the loop returns or raises")

    def _document(self, response: httpx2.Response) -> Any:
        try:
            return json.loads(response.content)
        except (ValueError, RecursionError) as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"What answers at {self.url} is no CodePilot service, or a page in front of it.",
                "Check CODEPILOT_URL; a proxy that asks people to sign in has to let tokens pass.",
            ) from error

    def _unreachable(self, error: Exception) -> CodePilotError:
        return CodePilotError(
            FailureKind.STORE_UNAVAILABLE,
            f"The service {self.url} does not answer: {error}.",
            "Check CODEPILOT_URL, and that `codepilot serve` runs there.",
        )


def failure_of(response: httpx2.Response) -> CodePilotError:
    """The failure that a problem reports."""
    try:
        problem = response.json()
        failure = Failure(
            kind=FailureKind(problem["kind"]), message=problem["detail"], next_action=problem["nextAction"]
        )
    except (ValueError, KeyError, TypeError):
        failure = Failure(
            kind=FailureKind.INTERNAL, message=f"The service answered {response.status_code} without a reason."
        )
    if response.status_code == 401:
        failure = failure.model_copy(update={"next_action": "Set CODEPILOT_TOKEN to a token of the service."})
    return CodePilotError.of(failure)


def segment(text: str) -> str:
    """Text as one part of a path."""
    return quote(text, safe="")


def _given(query: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _parsed(lines: Iterator[str]) -> Iterator[tuple[str, str, str]]:
    number, kind, data = "", "", ""
    for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            number = value
        elif name == "event":
            kind = value
        elif name == "data":
            data = value
        elif not line:
            yield number, kind, data
            number, kind, data = "", "", ""


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
