"""Requests to a service: kept-alive connections, a few tries, and failures as the service meant them."""

from __future__ import annotations

import contextlib
import http.client
import random
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from codepilot.core.failures import CodePilotError, Failure, FailureKind

TRIES = 3
JSON = "application/json"
BYTES = "application/octet-stream"
_BACKOFF_SEC = 0.2
_MOST_WAIT_SEC = 30.0
_IDLE_SEC = 30.0
_KEPT = 16
_BUSY = 429
_AGAIN = (_BUSY, 500, 502, 503, 504)
_BUSY_SEC = 60.0
"""How long a service that is busy is asked again."""
_CHUNK = 1 << 16

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
    """An answer that is none."""

    def __init__(self, response: http.client.HTTPResponse, data: bytes) -> None:
        super().__init__(response.status)
        self.status = response.status
        self.retry_after = _seconds(response.getheader("Retry-After"))
        self.data = data


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
            self._port = parts.port
        except ValueError as error:
            raise CodePilotError(FailureKind.INVALID_SPEC, f"the executor's URL cannot be used: {error}") from error
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._host, self._prefix = parts.hostname, parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._token = token
        self._sleep = sleep
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def ask(self, ask: Ask) -> bytes:
        """The body of the answer, after a few tries if need be."""
        request_id = secrets.token_hex(8)
        return self._tried(lambda: self._once(ask, request_id), request_id, ask.tries)

    def _tried(self, act: Callable[[], Result], request_id: str, tries: int) -> Result:
        """What comes of an act within a few tries. That the service is busy is no failure: it is waited for."""
        failures, pauses, waited = 0, 0, 0.0
        while True:
            retry_after = 0.0
            try:
                return act()
            except ssl.SSLCertVerificationError as error:
                raise self._lost(str(error), request_id, "Use a certificate that this machine trusts.") from error
            except (OSError, http.client.HTTPException) as error:
                problem = self._lost(_said(error), request_id)
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

    def stream(self, path: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """An answer that is read as it comes, on a connection of its own. The caller closes both."""
        request_id = secrets.token_hex(8)
        try:
            connection, response = self._begin(path, request_id)
        except _Refused as refused:
            raise self._failure(refused.status, refused.data, request_id) from None
        connection.sock.settimeout(None)
        return connection, response

    def _begin(self, path: str, request_id: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._connect(60.0)
        try:
            connection.request("GET", self._prefix + path, headers=self._headers(request_id))
            response = connection.getresponse()
            if response.status >= 300:
                raise _Refused(response, response.read())
        except BaseException:
            connection.close()
            raise
        return connection, response

    def chunks(self, path: str, silent_sec: float = 60.0) -> Iterator[bytes]:
        """A long answer, piece by piece. It is asked for again until it begins; one that breaks off is lost."""
        request_id = secrets.token_hex(8)
        connection, response = self._tried(lambda: self._begin(path, request_id), request_id, TRIES)
        try:
            with contextlib.closing(connection), response:
                connection.sock.settimeout(silent_sec)
                while chunk := response.read1(_CHUNK):
                    yield chunk
                if response.length:
                    raise http.client.IncompleteRead(b"", response.length)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost(_said(error), request_id) from error

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _once(self, ask: Ask, request_id: str) -> bytes:
        connection = self._take(ask.timeout_sec)
        if connection is not None:
            try:
                return self._on(connection, ask, request_id)
            except (ConnectionError, http.client.BadStatusLine):
                self.close()  # The service closed it while it was idle; the others are no better.
        return self._on(self._connect(ask.timeout_sec), ask, request_id)

    def _on(self, connection: http.client.HTTPConnection, ask: Ask, request_id: str) -> bytes:
        try:
            response = _response(connection, ask, self._prefix + ask.path, self._headers(request_id))
            data = response.read()
            kept = not response.will_close
        except BaseException:
            connection.close()
            raise
        if kept:
            self._give(connection)
        else:
            connection.close()
        if response.status >= 300:
            raise _Refused(response, data)
        return data

    def _headers(self, request_id: str) -> dict[str, str]:
        headers = {"X-Request-Id": request_id}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _take(self, timeout_sec: float) -> http.client.HTTPConnection | None:
        """A kept connection that was used not long ago."""
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < _IDLE_SEC:
                    connection.sock.settimeout(timeout_sec)
                    return connection
                connection.close()
        return None

    def _give(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _KEPT:
                self._idle.append((time.monotonic(), connection))
                return
        connection.close()

    def _connect(self, timeout_sec: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=15.0, context=self._tls)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=15.0)
        connection.connect()
        connection.sock.settimeout(timeout_sec)
        _notice_death(connection.sock)
        return connection

    def _failure(self, status: int, data: bytes, request_id: str) -> CodePilotError:
        try:
            told = Failure.model_validate_json(data)
        except ValidationError:
            return self._lost(f"it answered with status {status}", request_id)
        error = CodePilotError(told.kind, told.message)
        own = "" if told.next_action == told.handling.next_action else told.next_action
        error.failure = told.model_copy(update={"next_action": own})
        return error

    def _lost(self, why: str, request_id: str, advice: str = "") -> CodePilotError:
        return CodePilotError(
            FailureKind.EXECUTOR_LOST,
            f"the executor at {self.url} cannot be used: {why}",
            advice or "Check that `codepilot executor` runs there, then try again.",
            url=self.url,
            request_id=request_id,
        )


def _response(
    connection: http.client.HTTPConnection, ask: Ask, path: str, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """Send and wait. A service that refuses a body in the middle has said why before it hung up."""
    body = ask.body() if callable(ask.body) else ask.body
    if body is not None:
        headers = {**headers, "Content-Type": ask.kind}
    try:
        connection.request(ask.method, path, body, headers, encode_chunked=callable(ask.body))
    except (BrokenPipeError, ConnectionResetError):
        if not callable(ask.body):
            raise
        return connection.getresponse()
    return connection.getresponse()


def _notice_death(sock: socket.socket) -> None:
    """Let the system find out when the other machine is gone without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _pause(attempt: int, retry_after: float) -> float:
    """Longer each time, never the same for two callers, and not before the service wants to be asked."""
    backoff: float = _BACKOFF_SEC * 2 ** min(attempt, 4) * (0.5 + random.random())
    return min(_MOST_WAIT_SEC, max(backoff, retry_after * (1 + random.random() / 4)))


def _seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isdecimal() and len(header) < 10 else 0.0


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
