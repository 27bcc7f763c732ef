"""A process on the other side of HTTP, with streams like a local one's."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

import httpx2

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.remote_http import BYTES, TRIES, Ask, Http
from codepilot.executor.wire import ProcessState, Resize, Signal, WaitRemote
from codepilot.sandbox import Terminal

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_BUFFER = 1 << 16
_PIECE = 1 << 20
_WAIT_SEC = 20.0
_AGAIN_SEC = 0.2


class _Output(io.RawIOBase):
    """Its standard output. A lost connection resumes at its offset."""

    def __init__(self, http: Http, path: str) -> None:
        self._http = http
        self._path = path
        self._offset = 0
        self._lock = threading.Lock()
        self._response: httpx2.Response | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._rest = b""
        self._stopped = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        for left in reversed(range(TRIES)):
            try:
                if not self._rest:
                    self._connect()
                    self._rest = next(self._chunks, b"")
                data, self._rest = self._rest[: len(view)], self._rest[len(view) :]
                view[: len(data)] = data
                self._offset += len(data)
                return len(data)
            except (OSError, ValueError, httpx2.TransportError, httpx2.StreamError) as error:
                self._drop()
                if self._stopped:
                    return 0
                if not left:
                    raise ConnectionError(f"the executor's output was lost: {error}") from error
                time.sleep(_AGAIN_SEC * (TRIES - left))
        return 0

    def _connect(self) -> None:
        """Open the stream; empty if the process no longer exists."""
        with self._lock:
            if self._stopped:
                self._chunks = iter(())
            elif self._response is None:
                try:
                    self._response = self._http.stream(f"{self._path}/read?offset={self._offset}")
                except CodePilotError as error:
                    if error.kind is not FailureKind.PATH_NOT_FOUND:
                        raise ConnectionError(str(error)) from error
                    self._chunks = iter(())
                else:
                    self._chunks = self._response.iter_raw()

    def _drop(self) -> None:
        with self._lock:
            response, self._response = self._response, None
        if response is not None:
            response.close()

    def stop(self) -> None:
        """End the stream and wake its reader."""
        self._stopped = True
        with self._lock:
            response = self._response
        if response is not None:
            with contextlib.suppress(OSError):  # the plain socket's: TLS's own shutdown would drop TLS first
                connection = response.extensions["network_stream"].get_extra_info("socket")
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def close(self) -> None:
        if not self.closed:
            self.stop()
            self._drop()
        super().close()


class _Input(io.RawIOBase):
    """Its standard input. Each write names its offset, so that a repeated one is not delivered twice."""

    def __init__(self, http: Http, path: str) -> None:
        self._http = http
        self._path = path
        self._offset = 0
        self.ended = False

    def writable(self) -> bool:
        return True

    def write(self, buffer: ReadableBuffer) -> int:
        data = bytes(memoryview(buffer).cast("B")[:_PIECE])
        try:
            self._http.ask(Ask("POST", f"{self._path}/write?offset={self._offset}", data, BYTES))
        except CodePilotError as error:
            if error.failure.details.get("broken_pipe") or error.kind is FailureKind.PATH_NOT_FOUND:
                raise BrokenPipeError(str(error)) from error
            raise ConnectionError(str(error)) from error
        self._offset += len(data)
        return len(data)

    def close(self) -> None:
        """End the input. Failing to reach a process that is gone is not an error."""
        if not self.closed and not self.ended:
            self.ended = True
            path = f"{self._path}/write?offset={self._offset}&end=true"
            with contextlib.suppress(CodePilotError):
                self._http.ask(Ask("POST", path, b"", BYTES, timeout_sec=10.0, tries=1))
        super().close()


class RemoteProcess:
    """The `Process` of `RemoteExecutor`."""

    def __init__(self, http: Http, name: str) -> None:
        self._http = http
        self.name = name
        self._path = f"/process/{name}"
        self._last: ProcessState | None = None
        self._output = _Output(http, self._path)
        self._input = _Input(http, self._path)
        self.stdout = cast(BinaryIO, io.BufferedReader(self._output, _BUFFER))
        self.stdin = cast(BinaryIO, io.BufferedWriter(self._input, _BUFFER))

    @property
    def running(self) -> bool:
        return self._state().running

    @property
    def limit(self) -> str | None:
        return self._state().limit

    def stderr(self) -> bytes:
        """What it has written to standard error; nothing if it ended with an earlier service."""
        try:
            return self._http.ask(Ask("GET", f"{self._path}/stderr"))
        except CodePilotError as error:
            if error.kind is not FailureKind.PATH_NOT_FOUND:
                raise
            return b""

    def stderr_tail(self) -> bytes:
        return self._state().stderr_tail

    def resize(self, terminal: Terminal) -> None:
        self._http.ask(Ask("POST", f"{self._path}/resize", Resize(terminal=terminal).model_dump_json().encode()))

    def interrupt(self) -> None:
        if self.running:
            self._http.ask(Ask("POST", f"{self._path}/signal", Signal().model_dump_json().encode()))

    def kill(self) -> None:
        """End the whole tree and wait until it is gone."""
        self._input.ended = True
        self._output.stop()
        if self._last is None:
            self._ask(Ask("POST", f"{self._path}/kill"))
        for stream in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                stream.close()

    def wait(self, timeout_sec: float | None = None) -> int | None:
        """The exit code, or None if it has not ended in time or was killed."""
        deadline = None if timeout_sec is None else time.monotonic() + timeout_sec
        while True:
            left = _WAIT_SEC if deadline is None else max(0.0, min(_WAIT_SEC, deadline - time.monotonic()))
            state = self._last or self._ask(
                Ask("POST", f"{self._path}/wait", WaitRemote(timeout_sec=left).model_dump_json().encode())
            )
            if not state.running:
                return state.exit_code
            if deadline is not None and time.monotonic() >= deadline:
                return None

    def _state(self) -> ProcessState:
        return self._last or self._ask(Ask("GET", self._path))

    def _ask(self, ask: Ask) -> ProcessState:
        """The process's state. A process that the service does not know ended with an earlier service."""
        try:
            state = ProcessState.model_validate_json(self._http.ask(ask))
        except CodePilotError as error:
            if error.kind is not FailureKind.PATH_NOT_FOUND:
                raise
            state = ProcessState(process=self.name, running=False)
        if not state.running:
            self._last = state
        return state
