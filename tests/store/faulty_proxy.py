"""A loopback proxy that spoils connections by plan: what a network and an overloaded server do to a client."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_UNAVAILABLE = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s"
)
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Signature=sig tester not-a-secret</Message></Error>"


@dataclass(frozen=True)
class Fault:
    """What happens to one connection: it is answered 503, held back, or cut after so many bytes of either direction."""

    status: bool = False
    hold_sec: float = 0.0
    cut_request: int | None = None
    cut_reply: int | None = None


@dataclass
class FaultyProxy:
    """Connections meet the plan's faults in turn, afterwards `always` if given."""

    target: tuple[str, int]
    plan: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    on_bytes: tuple[int, Callable[[], None]] | None = None
    """Called once when so many bytes have been sent towards the server."""
    connections: int = 0
    sent: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator[FaultyProxy]:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        accepting = threading.Thread(target=self._accept, daemon=True)
        accepting.start()
        try:
            yield self
        finally:
            self._over.set()
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            accepting.join()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                fault = self.plan.pop(0) if self.plan else self.always
            threading.Thread(target=self._serve, args=(client, fault or Fault()), daemon=True).start()

    def _serve(self, client: socket.socket, fault: Fault) -> None:
        with client, contextlib.suppress(OSError):
            if fault.hold_sec:
                self._over.wait(fault.hold_sec)
                return
            if fault.status:
                client.recv(1 << 16)
                client.sendall(_UNAVAILABLE % (len(_SLOW_DOWN), _SLOW_DOWN))
                client.shutdown(socket.SHUT_WR)
                while client.recv(1 << 16):
                    pass
                return
            with socket.create_connection(self.target) as server:
                back = threading.Thread(target=self._pump, args=(server, client, fault.cut_reply, None), daemon=True)
                back.start()
                self._pump(client, server, fault.cut_request, self._count)
                back.join()

    def _pump(
        self, source: socket.socket, sink: socket.socket, cut: int | None, count: Callable[[int], None] | None
    ) -> None:
        moved = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                moved += len(data)
                if count is not None:
                    count(len(data))
                if cut is not None and moved > cut:
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count(self, size: int) -> None:
        with self._lock:
            self.sent += size
            call = None
            if self.on_bytes is not None and self.sent >= self.on_bytes[0]:
                call, self.on_bytes = self.on_bytes[1], None
        if call is not None:
            call()
