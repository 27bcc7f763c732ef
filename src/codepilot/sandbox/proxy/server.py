"""The only way out of a sandbox: an HTTP proxy on a Unix socket that lets requests to allowed hosts through.

It runs on the host, in threads. What comes from inside is hostile: one strict request per connection, everything
bounded. A name is resolved once, and the address that was judged is the one that is connected to. For CONNECT the
host is judged by its name; TLS inside the tunnel is between the client and the server.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.proxy.exchange import Exchange, ProxyConnection, Refused, Spent
from codepilot.sandbox.proxy.request import Malformed, Request, parse
from codepilot.sandbox.proxy.rules import DEFAULT_PORTS, Allowlist, Credential, literal, resolve

if TYPE_CHECKING:
    import ssl

_ACCEPT_SEC = 0.2
_CLOSE_SEC = 2.0
_ADDRESSES = 4
_UNKNOWN = "?"


class Seen(Protocol):
    """Called for every request, from the thread that serves it. `why` is empty for an allowed one."""

    def __call__(self, host: str, port: int, method: str, allowed: bool, why: str) -> None: ...


@dataclass(frozen=True)
class Bounds:
    """Bounds on what code inside can make the proxy do."""

    head_bytes: int = 32 << 10
    head_sec: float = 10.0
    connect_sec: float = 10.0
    idle_sec: float = 120.0
    connections: int = 64
    total_bytes: int = 4 << 30
    records: int = 200
    records_sec: float = 10.0


class Proxy:
    """Listens at `path` from its making until `close`. The directory around the socket is the user's alone."""

    def __init__(
        self,
        path: Path,
        hosts: Sequence[str],
        *,
        credentials: Sequence[Credential] = (),
        seen: Seen | None = None,
        bounds: Bounds | None = None,
        resolve: Callable[[str, int], list[str]] = resolve,
        private: bool = False,
    ) -> None:
        self.path = path.absolute()
        self.bounds = bounds or Bounds()
        self._allowed = Allowlist(hosts, private=private)
        self._credentials = tuple(credentials)
        self._records = _Records(seen, self.bounds)
        self._resolve = resolve
        self._tls: ssl.SSLContext | None = None
        self._left = self.bounds.total_bytes
        self._lock = threading.Lock()
        self._slots = threading.Semaphore(self.bounds.connections)
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self._listener = _listen(self.path)
        self._accepting = threading.Thread(target=self._accept, name="codepilot-proxy", daemon=True)
        self._accepting.start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every connection and remove the socket. A name being looked up is not waited for long."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads = list(self._threads)
            for known in (self._listener, *self._open):
                with contextlib.suppress(OSError):  # the plain socket's: TLS would first forget that it is TLS
                    socket.socket.shutdown(known, socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()
        deadline = time.monotonic() + _CLOSE_SEC
        for thread in filter(threading.Thread.is_alive, threads):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _accept(self) -> None:
        """Take connections while there is room; more wait in the socket's queue."""
        while not self._closed:
            if not self._slots.acquire(timeout=_ACCEPT_SEC):
                continue
            try:
                client, _ = self._listener.accept()
            except OSError:
                self._slots.release()
                if not self._closed:
                    time.sleep(_ACCEPT_SEC)
                continue
            thread = threading.Thread(target=self._serve, args=(client,), name="codepilot-proxied", daemon=True)
            with self._lock:
                self._threads.add(thread)
            try:
                thread.start()
            except RuntimeError:  # the machine has no thread left; the client may try again
                client.close()
                self._forget(thread)

    def _serve(self, client: socket.socket) -> None:
        """Serve one connection to its end."""
        try:
            with contextlib.suppress(OSError, Spent), contextlib.ExitStack() as opened:
                self._hold(opened, client)
                self._answer(ProxyConnection(client, self.bounds.idle_sec), opened)
        finally:
            self._forget(threading.current_thread())

    def _forget(self, thread: threading.Thread) -> None:
        self._slots.release()
        with self._lock:
            self._threads.discard(thread)

    def _hold(self, opened: contextlib.ExitStack, connection: socket.socket) -> None:
        """Have a connection closed in the end, and ended by `close` before."""
        opened.callback(connection.close)
        with self._lock:
            if self._closed:
                raise ConnectionAbortedError
            self._open.add(connection)
        opened.callback(self._let_go, connection)

    def _let_go(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.discard(connection)

    def _answer(self, client: ProxyConnection, opened: contextlib.ExitStack) -> None:
        host, port, method = _UNKNOWN, 0, _UNKNOWN
        try:
            head = client.until(b"\r\n\r\n", self.bounds.head_bytes, self.bounds.head_sec)
            if head is None:
                return
            request = parse(head)
            host, port, method = request.host, request.port, request.method
            server, extra = self._reach(request, opened)
            self._records.add(host, port, method, True, "")
            exchange = Exchange(client, server, self._spend)
            if request.tunnel:
                exchange.tunnel()
            else:
                exchange.ask(request, extra)
        except Malformed as error:
            self._records.add(host, port, method, False, str(error))
            client.refuse(400, f"the request is refused: {error}")
        except Refused as error:
            self._records.add(host, port, method, False, str(error))
            client.refuse(error.status, str(error))

    def _reach(
        self, request: Request, opened: contextlib.ExitStack
    ) -> tuple[ProxyConnection, tuple[tuple[str, str], ...]]:
        """The server of a request that may be made, and the headers to add to it."""
        credential = self._credential(request)
        port = credential.port(request.port) if credential else request.port
        addresses = self._judge(request, port)
        extra = _secret(credential) if credential else ()
        server = self._connect(request.host, port, addresses, opened)
        if credential is not None and credential.tls:
            server = self._secured(request.host, server, opened)
        return ProxyConnection(server, self.bounds.idle_sec), extra

    def _credential(self, request: Request) -> Credential | None:
        if request.tunnel:
            return None
        return next((one for one in self._credentials if one.matches(request.host, request.port)), None)

    def _judge(self, request: Request, port: int) -> list[str]:
        """The addresses that may be connected to for a request."""
        host = request.host
        if request.method == "TRACE":
            raise Refused(403, "TRACE is not let through")
        if self._left <= 0:
            raise Refused(403, f"this run has used up its {self.bounds.total_bytes} bytes of network")
        rules = self._allowed.rules(host, port)
        if not rules:
            named = host if port in DEFAULT_PORTS else f"{host}:{port}"
            raise Refused(403, f"{named} is not among the hosts this run may reach: {self._allowed.summary}")
        try:
            found = self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise Refused(502, f"{host} is allowed, but its address is not known") from error
        addresses = [(text, literal(text.partition("%")[0])) for text in found]
        good = [text for text, address in addresses if address and any(rule.permits(address) for rule in rules)]
        if not good:
            raise Refused(403, f"{host} is allowed, but its address is not one on the internet")
        return good[:_ADDRESSES]

    def _connect(self, host: str, port: int, addresses: Sequence[str], opened: contextlib.ExitStack) -> socket.socket:
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            server = socket.socket(family, socket.SOCK_STREAM)
            self._hold(opened, server)
            server.settimeout(self.bounds.connect_sec)
            with contextlib.suppress(OSError):
                server.connect((address, port))
                return server
        raise Refused(502, f"{host} is allowed, but does not answer at port {port}")

    def _secured(self, host: str, server: socket.socket, opened: contextlib.ExitStack) -> socket.socket:
        import ssl  # few runs have credentials, and every command starts by importing this room

        with self._lock:
            self._tls = self._tls or ssl.create_default_context()
        try:
            secured = self._tls.wrap_socket(server, server_hostname=host, do_handshake_on_connect=False)
            self._hold(opened, secured)
            secured.do_handshake()
        except OSError as error:
            raise Refused(502, f"{host} is allowed, but no secure connection to it can be made") from error
        return secured

    def _spend(self, count: int) -> None:
        with self._lock:
            self._left -= count
            if self._left < 0:
                raise Spent


class _Records:
    """Reports requests at a bounded rate. The next record counts those left out."""

    def __init__(self, seen: Seen | None, bounds: Bounds) -> None:
        self._seen = seen
        self._bounds = bounds
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._count = 0

    def add(self, host: str, port: int, method: str, allowed: bool, why: str) -> None:
        if self._seen is None:
            return
        with self._lock:
            left_out = 0
            if time.monotonic() - self._begun >= self._bounds.records_sec:
                left_out = max(0, self._count - self._bounds.records)
                self._begun, self._count = time.monotonic(), 0
            self._count += 1
            if self._count > self._bounds.records:
                return
        note = f" ({left_out} requests before it were not recorded)" if left_out else ""
        self._seen(host, port, method, allowed, why + note)


def _secret(credential: Credential) -> tuple[tuple[str, str], ...]:
    value = credential.value()
    if value is None:
        raise Refused(502, f"the credential for {credential.host} is not set on the host")
    return ((credential.header, value),)


def _listen(path: Path) -> socket.socket:
    """A socket at a path of any length: the kernel takes 107 bytes, so it is named through its directory."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fchmod(directory, 0o700)
        path.unlink(missing_ok=True)
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        listener.close()
        raise CodePilotError(
            FailureKind.SANDBOX_UNAVAILABLE, f"the network proxy cannot listen: {error.strerror}"
        ) from error
    finally:
        os.close(directory)
    return listener
