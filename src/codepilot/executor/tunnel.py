"""Connections of code on another machine to a service of this one, over one pair of streams.

The executor's side accepts connections and names them by numbers; this side opens one to the service for each. What is
sent travels in frames: the connection's number, what the frame is, the length, the bytes. Executors never dial out.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from codepilot.sandbox import Terminal
from codepilot.sandbox.limits import cleanup

_HEAD = struct.Struct(">IBI")
_OPEN, _DATA, _BROKEN = 0, 1, 2
"""A connection begins; bytes, of which none means the end of this direction; it broke."""
_CHUNK = 1 << 16
_WAITING = 256
"""How many frames may wait for a connection that does not read."""
_PATIENCE_SEC = 30.0
_MOST_CONNECTIONS = 256
"""A connection beyond these is closed."""
_BACKLOG = 128
_PREFIX = "codepilot-endpoint-"


class Carrier:
    """One end. Without `connect` it only carries connections that are added."""

    def __init__(self, source: BinaryIO, sink: BinaryIO, connect: Callable[[], socket.socket] | None = None) -> None:
        self._source = source
        self._sink = sink
        self._connect = connect
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._open: dict[int, _Carried] = {}
        self._number = 0

    def add(self, connection: socket.socket) -> None:
        """Carry a connection that was accepted here."""
        with self._lock:
            if len(self._open) >= _MOST_CONNECTIONS:
                connection.close()
                return
            self._number += 1
            carried = _Carried(self, self._number, connection)
            self._open[carried.number] = carried
        self.send(carried.number, _OPEN)
        carried.start()

    def run(self) -> None:
        """Hand on what comes from the other side, until it ends."""
        with contextlib.suppress(OSError, ValueError):
            while len(head := self._source.read(_HEAD.size)) == _HEAD.size:
                number, kind, length = _HEAD.unpack(head)
                if length > _CHUNK:
                    break
                data = self._source.read(length) if length else b""
                self._take(number, kind, data)
        self.close()

    def close(self) -> None:
        with self._lock:
            ended, self._open = list(self._open.values()), {}
        for carried in ended:
            carried.abort()

    def send(self, number: int, kind: int, data: bytes = b"") -> None:
        with contextlib.suppress(OSError, ValueError), self._sending:
            self._sink.write(_HEAD.pack(number, kind, len(data)) + data)
            self._sink.flush()

    def forget(self, number: int) -> None:
        with self._lock:
            self._open.pop(number, None)

    def _take(self, number: int, kind: int, data: bytes) -> None:
        if kind == _OPEN:
            self._answer(number)
            return
        with self._lock:
            carried = self._open.get(number)
        if carried is None:
            return
        if kind == _BROKEN or not carried.hand_on(data):
            self.forget(number)
            carried.abort()
            if kind != _BROKEN:
                self.send(number, _BROKEN)

    def _answer(self, number: int) -> None:
        try:
            if self._connect is None or len(self._open) >= _MOST_CONNECTIONS:
                raise OSError("only the other side opens connections, and not so many")
            connection = self._connect()
        except OSError:
            self.send(number, _BROKEN)
            return
        carried = _Carried(self, number, connection)
        with self._lock:
            self._open[number] = carried
        carried.start()


class _Carried:
    """One connection: a thread reads it, another writes what came for it."""

    def __init__(self, carrier: Carrier, number: int, connection: socket.socket) -> None:
        self.number = number
        self._carrier = carrier
        self._connection = connection
        self._frames: queue.Queue[bytes] = queue.Queue(_WAITING)
        self._halves = 2
        self._lock = threading.Lock()

    def start(self) -> None:
        for target in (self._read, self._write):
            threading.Thread(target=target, name="codepilot-tunnel", daemon=True).start()

    def hand_on(self, data: bytes) -> bool:
        """False if the connection has not read for too long."""
        try:
            self._frames.put(data, timeout=_PATIENCE_SEC)
        except queue.Full:
            return False
        return True

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(queue.Full):
            self._frames.put_nowait(b"")

    def _read(self) -> None:
        try:
            while data := self._connection.recv(_CHUNK):
                self._carrier.send(self.number, _DATA, data)
            self._carrier.send(self.number, _DATA)
        except OSError:
            self._carrier.send(self.number, _BROKEN)
        self._half_ended()

    def _write(self) -> None:
        try:
            while data := self._frames.get():
                self._connection.sendall(data)
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            self._carrier.send(self.number, _BROKEN)
        self._half_ended()

    def _half_ended(self) -> None:
        with self._lock:
            self._halves -= 1
            last = self._halves == 0
        if last:
            self._carrier.forget(self.number)
            self._connection.close()


class Tunnel:
    """This machine's end: every connection that comes is led to the service at `target`, which may move."""

    def __init__(self, source: BinaryIO, sink: BinaryIO, target: str) -> None:
        self.target = target
        self._carrier = Carrier(source, sink, self._connected)
        self._thread = threading.Thread(target=self._carrier.run, name="codepilot-tunnel", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self.target)
        except OSError:
            connection.close()
            raise
        return connection


class TunnelMouth:
    """The executor's end: a Unix socket for the sandbox, and streams like a process's that lead to the other end."""

    def __init__(self) -> None:
        self._home = cleanup.make_directory(Path(tempfile.gettempdir()).resolve(), _PREFIX)
        self.socket = self._home / "socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.socket))
        self.socket.chmod(0o600)
        self._listener.listen(_BACKLOG)
        self._inner, self._outer = socket.socketpair()
        self.stdin: BinaryIO = self._outer.makefile("wb")
        self.stdout: BinaryIO = self._outer.makefile("rb")
        self._carrier = Carrier(self._inner.makefile("rb"), self._inner.makefile("wb"))
        self._ended = threading.Event()
        for target in (self._accept, self._carry):
            threading.Thread(target=target, name="codepilot-tunnel", daemon=True).start()

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def limit(self) -> str | None:
        return None

    def stderr(self) -> bytes:
        return b""

    def stderr_tail(self) -> bytes:
        return b""

    def resize(self, terminal: Terminal) -> None:
        """It has no terminal."""

    def interrupt(self) -> None:
        """There is nothing to interrupt."""

    def wait(self, timeout_sec: float | None = None) -> int | None:
        return 0 if self._ended.wait(timeout_sec) else None

    def kill(self) -> None:
        """Close it, and every connection."""
        if self._ended.is_set():
            return
        self._ended.set()
        for one in (self._listener, self._inner, self._outer):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._carrier.close()
        cleanup.remove_directory(self._home)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._carrier.add(self._listener.accept()[0])

    def _carry(self) -> None:
        self._carrier.run()
        self.kill()
