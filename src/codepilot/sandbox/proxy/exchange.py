"""One allowed connection of the proxy: a request and its answer, or a tunnel."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable

from codepilot.sandbox.proxy.request import Malformed, Request, answer_head, chunk_size

_CHUNK = 1 << 16
_TICK_SEC = 1.0
_ANSWER_HEAD_BYTES = 64 << 10
_LINGER_SEC = 1.0
_LINGER_BYTES = 1 << 20


class Refused(Exception):
    """A request is refused. The text is shown to the client."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Spent(Exception):
    """All the bytes that the proxy may carry are used up."""


class ProxyConnection:
    """A connected socket, read in parts of a known size, that counts what comes in and never waits forever."""

    def __init__(self, connection: socket.socket, idle_sec: float) -> None:
        self.socket = connection
        self.idle_sec = idle_sec
        self.spend: Callable[[int], None] = lambda count: None
        self._held = b""
        connection.settimeout(idle_sec)

    def read(self, most: int = _CHUNK) -> bytes:
        """Some bytes; none at the end."""
        if self._held:
            given, self._held = self._held[:most], self._held[most:]
            return given
        chunk = self.socket.recv(min(most, _CHUNK))
        self.spend(len(chunk))
        return chunk

    def until(self, mark: bytes, most: int, seconds: float) -> bytes | None:
        """The bytes before `mark`, which is consumed; None if the stream ends before any byte."""
        deadline = time.monotonic() + seconds
        found, looked = bytearray(), 0
        try:
            while (end := found.find(mark, max(0, looked - len(mark)))) < 0:
                looked = len(found)
                if len(found) > most:
                    raise Malformed("it is too long")
                self.socket.settimeout(max(0.001, deadline - time.monotonic()))
                chunk = self.read()
                if not chunk and found:
                    raise Malformed("it ends too soon")
                if not chunk:
                    return None
                found += chunk
        except TimeoutError:
            raise Malformed("it comes too slowly") from None
        finally:
            self.socket.settimeout(self.idle_sec)
        if end > most:
            raise Malformed("it is too long")
        self._held = bytes(found[end + len(mark) :]) + self._held
        return bytes(found[:end])

    def wait(self, idle: Callable[[], float]) -> None:
        """Until there is something to read, or nothing has moved for too long."""
        if self._held:
            return
        ready = select.poll()
        ready.register(self.socket, select.POLLIN)
        while not ready.poll(1000 * min(_TICK_SEC, self.idle_sec / 4)):
            if idle() > self.idle_sec:
                raise TimeoutError

    def write(self, data: bytes) -> None:
        self.socket.sendall(data)

    def refuse(self, status: int, why: str) -> None:
        """An answer in one line, in the status too, as that is what most programs show."""
        body = f"{why}\n".encode("ascii", "replace")
        head = f"HTTP/1.1 {status} {why}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        self.write(head.encode("ascii", "replace") + b"Connection: close\r\n\r\n" + body)
        self.linger()

    def linger(self) -> None:
        """Read what the other end still sends: a connection closed over unread bytes takes the answer with it."""
        self.socket.shutdown(socket.SHUT_WR)
        deadline, read = time.monotonic() + _LINGER_SEC, 0
        self._held = b""
        while read < _LINGER_BYTES and (left := deadline - time.monotonic()) > 0:
            self.socket.settimeout(left)
            chunk = self.read()
            if not chunk:
                return
            read += len(chunk)

    def end(self) -> None:
        """Shut the plain socket down, which wakes waiters at both ends. (TLS's own shutdown would drop TLS first.)"""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Exchange:
    """Both ends of what was let through."""

    def __init__(self, client: ProxyConnection, server: ProxyConnection, spend: Callable[[int], None]) -> None:
        self._client = client
        self._server = server
        client.spend = server.spend = spend
        self._moved = time.monotonic()

    def tunnel(self) -> None:
        """Carry bytes both ways, one thread each, until both ends have ended or nothing moves for too long."""
        self._client.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        outward = threading.Thread(
            target=self._pump, args=(self._client, self._server), name="codepilot-proxied", daemon=True
        )
        outward.start()
        try:
            self._pump(self._server, self._client)
        finally:
            outward.join()

    def _pump(self, source: ProxyConnection, sink: ProxyConnection) -> None:
        try:
            while True:
                source.wait(lambda: time.monotonic() - self._moved)
                chunk = source.read()
                self._moved = time.monotonic()
                if not chunk:
                    break
                sink.write(chunk)
            sink.socket.shutdown(socket.SHUT_WR)
        except (OSError, Spent):
            source.end()
            sink.end()

    def ask(self, request: Request, extra: tuple[tuple[str, str], ...]) -> None:
        """Carry one request and its answer. Nothing that follows the request's declared body is sent on."""
        self._server.write(request.head(extra))
        if request.expects_continue and request.length != 0:
            self._client.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.length is None:
            self._send_chunks()
        else:
            self._copy(self._client, self._server, request.length)
        try:
            head, length = self._answer(request.method)
        except Malformed as error:
            raise Refused(502, f"{request.host} gives no answer that can be passed on") from error
        self._client.write(head)
        if length is None:
            while chunk := self._server.read():
                self._client.write(chunk)
        else:
            self._copy(self._server, self._client, length)
        self._client.linger()

    def _send_chunks(self) -> None:
        size = -1
        while size != 0:
            line = self._client.until(b"\r\n", 16, self._client.idle_sec)
            size = chunk_size(line or b"")
            self._server.write(b"%x\r\n" % size)
            self._copy(self._client, self._server, size)
            if self._client.until(b"\r\n", 0, self._client.idle_sec) is None:
                raise Malformed("it ends too soon")
            self._server.write(b"\r\n")

    def _copy(self, source: ProxyConnection, sink: ProxyConnection, count: int) -> None:
        while count > 0:
            chunk = source.read(min(count, _CHUNK))
            if not chunk:
                raise ConnectionAbortedError
            sink.write(chunk)
            count -= len(chunk)

    def _answer(self, method: str) -> tuple[bytes, int | None]:
        """The head of the final answer, for one exchange, and how long its body is if that can be known."""
        while True:
            head = self._server.until(b"\r\n\r\n", _ANSWER_HEAD_BYTES, self._server.idle_sec)
            if head is None:
                raise Malformed("there is none")
            status, text, length = answer_head(head)
            if status >= 200:
                return text, 0 if method == "HEAD" or status in (204, 304) else length
