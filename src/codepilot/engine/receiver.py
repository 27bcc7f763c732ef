"""The one whom ends of runs are notified to: a single POST over HTTP, within a time that holds whatever it does."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote, urlsplit

from codepilot import __version__


class Unanswered(Exception):
    """There was no answer; the text says why, and nothing of the URL."""


@dataclass(frozen=True)
class Answer:
    status: int
    retry_after: str | None = None
    """As the receiver wrote it."""


class Receiver:
    """Redirects are not followed, proxies not asked; of what it says only the status and `Retry-After` are read."""

    def __init__(self, url: str) -> None:
        """Of a URL in which there is no `mistake_in`."""
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._tls else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if "@" in parts.netloc else ""
        port = f":{parts.port}" if parts.port else ""
        self.place = f"{parts.scheme}://{f'[{self._host}]' if ':' in self._host else self._host}{port}"
        """All of the URL that may be shown."""

    def post(self, key: str, body: bytes, seconds: float) -> Answer:
        """Its answer. Nothing is sent any more once the time is over."""
        deadline = time.monotonic() + seconds
        try:
            with contextlib.closing(self._connect(deadline)) as sock, _cut(sock, deadline):
                return self._ask(self._secured(sock), key, body)
        except (OSError, ValueError, http.client.HTTPException) as error:
            late = isinstance(error, TimeoutError) or time.monotonic() >= deadline
            raise Unanswered(f"not within {seconds:g} s" if late else _said(error)) from None

    def _ask(self, sock: socket.socket, key: str, body: bytes) -> Answer:
        connection = http.client.HTTPConnection(self._host, self._port)
        connection.sock = sock
        with contextlib.closing(connection):
            connection.request("POST", self._target, body, self._headers(key))
            response = connection.getresponse()
            return Answer(response.status, response.headers.get("Retry-After"))

    def _headers(self, key: str) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "User-Agent": f"codepilot/{__version__}",
            "Connection": "close",
        }
        if self._login:
            headers["Authorization"] = f"Basic {base64.b64encode(self._login.encode()).decode()}"
        return headers

    def _connect(self, deadline: float) -> socket.socket:
        """To the first of its addresses that answers; all of them share the time."""
        problem: OSError = TimeoutError()
        for family, kind, protocol, _, address in self._addresses(deadline):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(left)
                sock.connect(address)
            except OSError as error:
                sock.close()
                problem = error
            else:
                return sock
        raise problem

    def _addresses(self, deadline: float) -> list[Any]:
        """Asked for in a thread of its own: a resolver takes the time that it likes."""
        found: list[list[Any] | Exception] = []

        def ask() -> None:
            try:
                found.append(socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM))
            except (OSError, ValueError) as error:
                found.append(error)

        asking = threading.Thread(target=ask, name="resolver", daemon=True)
        asking.start()
        asking.join(max(0.0, deadline - time.monotonic()))
        if not found:
            raise TimeoutError
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def _secured(self, sock: socket.socket) -> socket.socket:
        """The same connection, encrypted if it has to be. The plain one stays open: it is what is cut."""
        if not self._tls:
            return sock.dup()
        secured = self._context.wrap_socket(sock.dup(), server_hostname=self._host, do_handshake_on_connect=False)
        try:
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise
        return secured

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context()


@contextlib.contextmanager
def _cut(sock: socket.socket, deadline: float) -> Iterator[None]:
    """End the connection when the time is over, at whatever it is: one that drips bytes would never be too slow."""

    def cut() -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
