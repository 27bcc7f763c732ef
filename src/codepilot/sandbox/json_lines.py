"""A client for a process that answers in JSON lines. What the process writes is hostile input: bounded and checked.

Bounds: the length of a line, the bytes that wait unread, the bytes that answer one request, and the time to answer.
"""

from __future__ import annotations

import json
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Protocol

TICK = 0.2
"""Seconds between two calls of a waiting caller's `tick`."""
_STRUCTURE_BYTES = 1 << 20
_UNBOUNDED = 1 << 62


class ProtocolError(Exception):
    """The process wrote something that is not a JSON object, or more than it may."""


class ProcessEnded(Exception):
    """The process closed its output or no longer reads its input."""


class Pipes(Protocol):
    """The part of a `Process` that the client uses."""

    stdin: BinaryIO
    stdout: BinaryIO


class JsonLinesClient:
    """Requests to and messages from one process.

    A thread reads the output, so that any stream works, a remote process's too. It stops at the first line that is
    longer than `max_line` and when more than `max_unread` bytes wait. `max_total` bounds everything that follows one
    request. `finished` is set while nothing more is expected: after a line that begins with `final`, and at the end.
    """

    def __init__(
        self,
        process: Pipes,
        max_line: int,
        max_unread: int,
        max_total: int = _UNBOUNDED,
        final: bytes | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Deadlines are of the clock `now`."""
        self.finished = threading.Event()
        self._stdin, self._stdout = process.stdin, process.stdout
        self._max_line, self._max_unread, self._max_total = max_line, max_unread, max_total
        self._final = final
        self._now = now
        self._lines: deque[bytes] = deque()
        self._unread = self._total = 0
        self._ended = False
        self._broken = ""
        self._changed = threading.Condition()
        try:
            threading.Thread(target=self._read, name="codepilot-json-lines", daemon=True).start()
        except RuntimeError as error:
            raise ProcessEnded(f"nothing can read its output: {error}") from error

    def ask(self, message: Mapping[str, Any], deadline: float) -> None:
        """Send a request. The bytes that answer it are counted anew."""
        self._total = 0
        self.finished.clear()
        if self._ended:
            self.finished.set()
        self.send(json.dumps(message).encode() + b"\n", deadline)

    def send(self, data: bytes, deadline: float) -> None:
        """Write all of `data`. A process that does not read raises TimeoutError at the deadline."""
        send_all(self._stdin, data, deadline, self._now)

    def receive(self, deadline: float, tick: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The next message. `tick` is called while waiting and may raise; TimeoutError at the deadline."""
        while True:
            tick()
            with self._changed:
                left = deadline - self._now()
                if left <= 0:
                    raise TimeoutError("it did not answer in time")
                if not self._lines and not self._ended:
                    self._changed.wait(min(left, TICK))
                if self._lines:
                    line = self._lines.popleft()
                    self._unread -= len(line)
                    break
                if self._ended:
                    raise ProtocolError(self._broken) if self._broken else ProcessEnded("it ended")
        self._total += len(line)
        if self._total > self._max_total:
            raise ProtocolError(f"it sent more than {self._max_total} bytes in answer to one request")
        return parse_object(line)

    def _read(self) -> None:
        broken = ""
        try:
            while not broken and (line := self._stdout.readline(self._max_line + 1)):
                with self._changed:
                    self._unread += len(line)
                    if len(line) > self._max_line:
                        broken = f"it sent a line of more than {self._max_line} bytes"
                    elif self._unread > self._max_unread:
                        broken = f"it sent more than {self._max_unread} bytes that were not read yet"
                    elif line.endswith(b"\n"):
                        self._lines.append(line)
                        if self._final is not None and line.startswith(self._final):
                            self.finished.set()
                    self._changed.notify_all()
        except (OSError, ValueError):
            pass  # the stream was closed while it was read
        finally:
            with self._changed:
                self._ended, self._broken = True, broken
                self.finished.set()
                self._changed.notify_all()


def send_all(stdin: BinaryIO, data: bytes, deadline: float, now: Callable[[], float] = time.monotonic) -> None:
    """Write all of `data`. A process that does not read raises TimeoutError at the deadline, by the clock `now`."""
    try:
        fd = stdin.fileno()
    except (OSError, ValueError):  # a stream without a descriptor, or a closed one
        fd = None
    try:
        if fd is None:
            stdin.write(data)
            stdin.flush()
        else:
            _write(fd, data, deadline, now)
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:
        raise ProcessEnded("it does not read its input") from error


def _write(fd: int, data: bytes, deadline: float, now: Callable[[], float]) -> None:
    os.set_blocking(fd, False)
    rest = memoryview(data)
    ready = select.poll()
    ready.register(fd, select.POLLOUT)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            left = deadline - now()
            if left <= 0:
                raise TimeoutError("it does not read its input") from None
            ready.poll(min(left, 0.5) * 1000)


def parse_object(line: bytes) -> dict[str, Any]:
    """One JSON object. A line of nothing but brackets takes twenty times its size in memory, so it is refused."""
    if len(line) > _STRUCTURE_BYTES and _structure(line) > _STRUCTURE_BYTES:
        raise ProtocolError("it sent a message with too many parts")
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProtocolError("it sent something that is not JSON") from error
    if not isinstance(message, dict):
        raise ProtocolError("it sent something that is not a JSON object")
    return message


def _structure(line: bytes) -> int:
    """Count the bytes outside strings; each string counts as one. Counting stops beyond the bound."""
    line = line.replace(rb"\\", b"").replace(rb"\"", b"")
    found = start = 0
    while found <= _STRUCTURE_BYTES:
        opened = line.find(b'"', start)
        if opened < 0:
            return found + len(line) - start
        found += opened - start + 1
        closed = line.find(b'"', opened + 1)
        if closed < 0:
            return found
        start = closed + 1
    return found
