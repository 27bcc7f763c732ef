"""A receiver of notifications on this machine: a real HTTP server that records what it is sent and answers as asked."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG, DRIP, DROP = -1, -2, -3
"""Instead of a status: never answer, answer a byte now and then, close the connection without a word."""


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers["Idempotency-Key"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """`answers` are given one by one, the last of them from then on."""

    url: str
    answers: list[int] = field(default_factory=lambda: [200])
    retry_after: str | None = None
    received: list[Received] = field(default_factory=list)
    most_at_once: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    _at_once: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def note(self, received: Received) -> int:
        with self._guard:
            self.received.append(received)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def leave(self) -> None:
        with self._guard:
            self._at_once -= 1

    @property
    def keys(self) -> list[str]:
        return [received.key for received in self.received]


@contextlib.contextmanager
def receiver(
    path: str = "/hook",
    answers: list[int] | None = None,
    tls: ssl.SSLContext | None = None,
    delay_sec: float = 0.0,
) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = found.note(Received(self.path, dict(self.headers), body))
            try:
                found.over.wait(delay_sec)
                self._answer(status)
            finally:
                found.leave()

        def do_GET(self) -> None:
            found.note(Received(self.path, dict(self.headers), b""))
            found.leave()

        def _answer(self, status: int) -> None:
            with contextlib.suppress(OSError):
                if status == HANG:
                    found.over.wait(60)
                elif status == DRIP:
                    while not found.over.wait(0.2):
                        self.connection.sendall(b"H" if self.connection.fileno() >= 0 else b"")
                elif status == DROP:
                    self.connection.shutdown(socket.SHUT_RDWR)
                else:
                    self.send_response(status)
                    self.send_header("Location", "/elsewhere")
                    if found.retry_after is not None:
                        self.send_header("Retry-After", found.retry_after)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    place = f"https://localhost:{server.server_port}" if tls else f"http://127.0.0.1:{server.server_port}"
    found = Receiver(f"{place}{path}", answers or [200])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.over.set()
        server.shutdown()
        thread.join(10)
        server.server_close()
