"""The gateway's server: HTTP on a Unix socket, one thread a connection, replies passed through as they come."""

from __future__ import annotations

import hmac
import http.client
import logging
import secrets
import shutil
import socket
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from types import TracebackType
from typing import Any, Self

from codepilot.models.gateway.endpoint import Dialect
from codepilot.models.gateway.meter import CallRefused, Meter
from codepilot.models.gateway.passing import Passing, Refused
from codepilot.models.gateway.refusals import Why, refusal
from codepilot.models.gateway.routes import SERVED, Route, dialect_of, key_of, route
from codepilot.models.gateway.upstream import Upstream, Upstreams
from codepilot.telemetry.redact import redact

MOST_CONNECTIONS = 64
MOST_BODY = 32 << 20
"""The size of one request's body; the providers take no larger one."""
MOST_BODIES = 64 << 20
"""The size of all bodies in memory at a time."""
WRITE_SEC = 0.2
"""How often a write to a client that does not read looks whether the gateway is closed."""
LINGER_SEC = 1.0
_COUNT_SPELLING = frozenset("0123456789")

_log = logging.getLogger(__name__)


class Gateway:
    """Serves between `with` and its end. When the block is left, every call is over and its usage is reported."""

    def __init__(
        self,
        upstreams: Iterable[Upstream],
        meter: Meter,
        *,
        clean: Callable[[str], str] = redact,
        timeout_sec: float = 300.0,
    ) -> None:
        self.token = f"cpk-{secrets.token_hex(24)}"
        """What programs inside send in place of a key."""
        self.meter = meter
        self.clean = clean
        self.upstreams = Upstreams({one.dialect: one for one in upstreams}, timeout_sec)
        self.closing = threading.Event()
        self.room = _Room(MOST_BODIES)
        self._home = Path(tempfile.mkdtemp(prefix="codepilot-model-"))
        self.socket = self._home / "socket"
        self._server = _Server(str(self.socket), self)
        self.socket.chmod(0o600)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="model gateway")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the calls in flight and wait until each has reported what it used."""
        self.closing.set()
        self.room.close()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.drop()
        self._server.server_close()
        self.upstreams.close()
        shutil.rmtree(self._home, ignore_errors=True)


class _Server(ThreadingMixIn, UnixStreamServer):
    daemon_threads = False
    block_on_close = True
    request_queue_size = 64

    def __init__(self, path: str, gateway: Gateway) -> None:
        self.gateway = gateway
        self._connections: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(path, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._guard:
            if len(self._connections) >= MOST_CONNECTIONS or self.gateway.closing.is_set():
                return False
            self._connections.add(request)
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._connections.discard(request)
        super().shutdown_request(request)

    def drop(self) -> None:
        with self._guard:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.exception("a request to the model gateway failed")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "codepilot-model-gateway"
    sys_version = ""
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            super().handle()

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        """Some programs look so whether the address answers."""
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _serve(self) -> None:
        gateway = self.server.gateway
        sent = {name.lower(): text for name, text in self.headers.items()}
        dialect = dialect_of(self.path, sent)
        try:
            way = self._way(dialect, sent)
            with self._body(sent) as body:
                Passing(self.command, way, gateway, sent, body).run(self)
        except Refused as refused:
            self.refuse(dialect, refused.why, str(refused))

    def _way(self, dialect: Dialect, sent: Mapping[str, str]) -> Route:
        gateway = self.server.gateway
        if not hmac.compare_digest(key_of(self.path, sent).encode(), gateway.token.encode()):
            raise Refused("key", "This is CodePilot's model gateway, and the key is not the one of this session.")
        found = route(self.command, self.path, sent)
        if found is None:
            shown = f"{self.command} {self.path.partition('?')[0][:100]}"
            raise Refused("path", f"CodePilot's model gateway does not serve {shown}, only {SERVED}.")
        if found.dialect not in gateway.upstreams.by_dialect:
            raise Refused("key", f"CodePilot has no key for the {found.dialect} API.")
        return found

    @contextmanager
    def _body(self, sent: Mapping[str, str]) -> Iterator[bytes]:
        if self.command != "POST":
            yield b""
            return
        size = sent.get("content-length", "")
        chunked = sent.get("transfer-encoding", "").lower() == "chunked"
        if chunked == bool(size) or (size and not (set(size) <= _COUNT_SPELLING and len(size) < 12)):
            raise Refused("request", "The request has no length, or two.")
        most = MOST_BODY if chunked else int(size)
        if most > MOST_BODY:
            raise Refused("size", f"The request is longer than {MOST_BODY} bytes.")
        packing = sent.get("content-encoding", "identity").lower()
        with self.server.gateway.room.take(most if packing == "identity" else MOST_BODY):
            body = self._chunks() if chunked else self.rfile.read(most)
            if not chunked and len(body) < most:
                raise ConnectionResetError
            yield _unpacked(body, packing)

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = self.rfile.readline(100).split(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError:
                raise ConnectionResetError from None
            if size < 0 or len(body) + size > MOST_BODY:
                raise Refused("size", f"The request is longer than {MOST_BODY} bytes.")
            if not size:
                while self.rfile.readline(8192).strip():
                    pass
                return bytes(body)
            body += self.rfile.read(size)
            self.rfile.readline(10)

    # What `Passing` answers with.

    def refuse(self, dialect: Dialect, why: Why, message: str) -> None:
        status, headers, body = refusal(dialect, why, message)
        self.close_connection = True
        self.reply(status, {**headers, "connection": "close"}, body)
        self._linger()

    def _linger(self) -> None:
        """Read what is left of a refused request: a socket that is closed before loses the refusal."""
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(LINGER_SEC)
        read = 0
        while read < MOST_BODY and (piece := self.connection.recv(1 << 16)):
            read += len(piece)

    def reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.begin(status, {**headers, "content-length": str(len(body))})
        self.write(body)

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} {http.client.responses.get(status, 'Status')}"]
        lines += [f"{name}: {text}" for name, text in headers.items() if "\r" not in text and "\n" not in text]
        self.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))

    def write(self, data: bytes) -> None:
        """Write all of it, however slowly it is read: a frozen program reads again when it is thawed."""
        left = memoryview(data)
        self.connection.settimeout(WRITE_SEC)
        try:
            while left:
                with suppress(TimeoutError):
                    left = left[self.connection.send(left) :]
                    continue
                if self.server.gateway.closing.is_set():
                    raise ConnectionResetError
        finally:
            self.connection.settimeout(None)

    def gone(self) -> bool:
        """True if nobody reads the reply any more."""
        if self.server.gateway.closing.is_set():
            return True
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


class _Room:
    """Bytes of memory that requests share."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._changed = threading.Condition()
        self._closed = False

    @contextmanager
    def take(self, size: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._left >= size)
            if self._closed:
                raise ConnectionResetError
            self._left -= size
        try:
            yield
        finally:
            with self._changed:
                self._left += size
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "deflate"):
        raise Refused("request", f"CodePilot's model gateway does not read requests packed by {encoding[:20]}.")
    unpacking = zlib.decompressobj(wbits=47 if encoding == "gzip" else 15)
    try:
        unpacked = unpacking.decompress(body, MOST_BODY)
    except zlib.error:
        raise Refused("request", f"The request is not {encoding}.") from None
    if unpacking.unconsumed_tail:
        raise Refused("size", f"The request is longer than {MOST_BODY} bytes.")
    return unpacked


__all__ = ["CallRefused", "Gateway"]
