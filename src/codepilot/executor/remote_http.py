"""An HTTP client for the service: kept-alive connections, retries, and the service's own failures."""

from __future__ import annotations

import random
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import ValidationError

from codepilot.core.failures import CodePilotError, Failure, FailureKind

TRIES = 3
JSON = "application/json"
BYTES = "application/octet-stream"
_BACKOFF_SEC = 0.2
_MOST_WAIT_SEC = 30.0
_CONNECT_SEC = 15.0
_BUSY = 429
_AGAIN = (_BUSY, 500, 502, 503, 504)
_BUSY_SEC = 60.0
"""How long a request to a busy service is retried."""
_NOTICE_DEATH = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)] + [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    if hasattr(socket, name)
]
"""Keep-alive probes notice when the other machine has vanished."""

Result = TypeVar("Result")
Body = bytes | Callable[[], Iterable[bytes]] | None
"""Bytes, or how to make a stream of them anew for each try."""


@dataclass(frozen=True)
class Ask:
    """One request. `timeout_sec` is how long the service may be silent."""

    method: str
    path: str
    body: Body = None
    kind: str = JSON
    timeout_sec: float = 60.0
    tries: int = TRIES


class _Refused(Exception):
    """A response that reports a failure."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(response.status_code)
        self.status = response.status_code
        self.retry_after = _seconds(response.headers.get("Retry-After"))
        self.data = response.read()


class Http:
    """Thread-safe. A connection is used by one request at a time and kept for the next."""

    def __init__(self, url: str, token: str | None, sleep: Callable[[float], None] = time.sleep) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                "the executor's URL must be http://HOST:PORT or https://HOST:PORT",
                "Give the address that `codepilot executor` printed, and the token in CODEPILOT_EXECUTOR_TOKEN.",
            )
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise CodePilotError(FailureKind.INVALID_SPEC, "the executor's token has characters that no header takes")
        try:
            _ = parts.port
        except ValueError as error:
            raise CodePilotError(FailureKind.INVALID_SPEC, f"the executor's URL cannot be used: {error}") from error
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._sleep = sleep
        self._transport = httpx2.HTTPTransport(
            verify=ssl.create_default_context() if parts.scheme == "https" else False,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=30.0),
            socket_options=_NOTICE_DEATH,
        )
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token is not None else {})
        self._client = httpx2.Client(transport=self._transport, headers=headers, trust_env=False)

    def ask(self, ask: Ask) -> bytes:
        """The body of the answer, with retries."""
        request_id = secrets.token_hex(8)

        def once() -> bytes:
            response = self._begin(ask, request_id)
            try:
                return response.read()
            finally:
                response.close()

        return self._tried(once, request_id, ask.tries)

    def stream(self, path: str) -> httpx2.Response:
        """A response to be read as it comes, with no limit on silence. The caller closes it."""
        request_id = secrets.token_hex(8)
        try:
            return self._begin(Ask("GET", path), request_id, silent_sec=None)
        except _Refused as refused:
            raise self._failure(refused.status, refused.data, request_id) from None

    def chunks(self, path: str, silent_sec: float = 60.0) -> Iterator[bytes]:
        """Yield a long response. It is retried until it begins; one that breaks off is lost."""
        request_id = secrets.token_hex(8)
        begin = Ask("GET", path)
        response = self._tried(lambda: self._begin(begin, request_id, silent_sec), request_id, TRIES)
        try:
            yield from response.iter_raw()
        except httpx2.TransportError as error:
            raise self._lost(_reason(error), request_id) from error
        finally:
            response.close()

    def close(self) -> None:
        self._transport.close()

    def _begin(self, ask: Ask, request_id: str, silent_sec: float | None = -1.0) -> httpx2.Response:
        """A response whose body is still to be read; `silent_sec` is how long that may pause."""
        body: Any = ask.body() if callable(ask.body) else ask.body
        headers = {"X-Request-Id": request_id} | ({"Content-Type": ask.kind} if body is not None else {})
        silent = ask.timeout_sec if silent_sec == -1.0 else silent_sec
        timeout = httpx2.Timeout(silent, connect=_CONNECT_SEC, pool=_CONNECT_SEC)
        request = self._client.build_request(
            ask.method, self.url + ask.path, content=body, headers=headers, timeout=timeout
        )
        response = self._client.send(request, stream=True)
        if response.status_code >= 300:
            try:
                raise _Refused(response)
            finally:
                response.close()
        return response

    def _tried(self, act: Callable[[], Result], request_id: str, tries: int) -> Result:
        """Call `act` with retries. Busy is not counted as a failure; it is waited for."""
        failures, pauses, waited = 0, 0, 0.0
        while True:
            retry_after = 0.0
            try:
                return act()
            except httpx2.TransportError as error:
                if "CERTIFICATE_VERIFY_FAILED" in str(error):
                    advice = "Use a certificate that this machine trusts."
                    raise self._lost(str(error), request_id, advice) from error
                problem = self._lost(_reason(error), request_id)
                failures += 1
            except _Refused as refused:
                problem, retry_after = self._failure(refused.status, refused.data, request_id), refused.retry_after
                if refused.status not in _AGAIN:
                    raise problem from None
                failures += refused.status != _BUSY
            pause = _pause(pauses, retry_after)
            if failures >= tries or tries == 1 or waited + pause > _BUSY_SEC + failures * _MOST_WAIT_SEC:
                raise problem
            self._sleep(pause)
            pauses, waited = pauses + 1, waited + pause

    def _failure(self, status: int, data: bytes, request_id: str) -> CodePilotError:
        try:
            failure = Failure.model_validate_json(data)
        except ValidationError:
            return self._lost(f"it answered with status {status}", request_id)
        error = CodePilotError(failure.kind, failure.message)
        own = "" if failure.next_action == failure.handling.next_action else failure.next_action
        error.failure = failure.model_copy(update={"next_action": own})
        return error

    def _lost(self, why: str, request_id: str, advice: str = "") -> CodePilotError:
        return CodePilotError(
            FailureKind.EXECUTOR_LOST,
            f"the executor at {self.url} cannot be used: {why}",
            advice or "Check that `codepilot executor` runs there, then try again.",
            url=self.url,
            request_id=request_id,
        )


def _pause(attempt: int, retry_after: float) -> float:
    """Exponential backoff with jitter, and at least the service's Retry-After."""
    backoff: float = _BACKOFF_SEC * 2 ** min(attempt, 4) * (0.5 + random.random())
    return min(_MOST_WAIT_SEC, max(backoff, retry_after * (1 + random.random() / 4)))


def _seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isdecimal() and len(header) < 10 else 0.0


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
