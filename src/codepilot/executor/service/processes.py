"""Processes that callers speak to: input and output as bounded streams that can be taken up again at any offset."""

from __future__ import annotations

import asyncio
import contextlib
import io
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.protocol import Conflict
from codepilot.executor.service.admission import Busy
from codepilot.executor.wire import OpenEndpoint, ProcessState, StartRemote
from codepilot.sandbox import Process

_CHUNK = 1 << 16
_AHEAD = 1 << 20
"""How much output waits for its reader, and how much is kept for a reader that lost its connection."""
_INPUT = 1 << 20
_ENDED_KEPT = 256

Found = TypeVar("Found")


class Listeners:
    """Wakes coroutines from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def add(self) -> asyncio.Event:
        event = asyncio.Event()
        with self._lock:
            self._known[event] = asyncio.get_running_loop()
        return event

    def remove(self, event: asyncio.Event) -> None:
        with self._lock:
            del self._known[event]

    def wake(self) -> None:
        with self._lock:
            for event, loop in self._known.items():
                loop.call_soon_threadsafe(event.set)


class Output:
    """The output of a process from `_start` on."""

    def __init__(self) -> None:
        self._room = threading.Condition()
        self._data = bytearray()
        self._start = 0
        self._taken = 0
        self._ended = False

    def put(self, chunk: bytes) -> None:
        """Append a chunk; waits while the buffer is full."""
        with self._room:
            self._room.wait_for(lambda: self._ended or self._start + len(self._data) - self._taken < _AHEAD)
            self._data += chunk
            surplus = min(self._taken - self._start, len(self._data) - 2 * _AHEAD)
            if surplus > 0:
                del self._data[:surplus]
                self._start += surplus

    def end(self) -> None:
        """Nothing more will come."""
        with self._room:
            self._ended = True
            self._room.notify_all()

    def take(self, offset: int) -> tuple[bytes, bool]:
        """The output after an offset, and whether it is the last."""
        with self._room:
            here = offset - self._start
            if here < 0 or here > len(self._data):
                raise Conflict(f"the output at {offset} is gone or has not come yet", offset=offset)
            self._taken = max(self._taken, offset)
            self._room.notify_all()
            data = bytes(self._data[here : here + _CHUNK])
            return data, self._ended and here + len(data) == len(self._data)


class Input:
    """The input of a process. A thread writes it, so that a process that does not read delays no request."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._pending = bytearray()
        self.received = 0
        self._closed = False
        self._broken = False

    def put(self, data: bytes, offset: int, end: bool) -> int | None:
        """Append new input. Returns the total received, or None while the buffer is full."""
        with self._lock:
            if offset > self.received:
                raise Conflict(f"input is missing before {offset}", received=self.received)
            fresh = data[self.received - offset :]
            if (fresh or end) and self._broken:
                raise CodePilotError(FailureKind.TOOL_FAILED, "the process does not read any more", broken_pipe=True)
            if fresh and self._closed:
                raise Conflict("the input was ended before", received=self.received)
            if fresh and len(self._pending) > _INPUT:
                return None
            self._pending += fresh
            self.received += len(fresh)
            self._closed = self._closed or end
            self._lock.notify_all()
            return self.received

    def get(self) -> bytes:
        """The next piece for the process; empty at the end."""
        with self._lock:
            self._lock.wait_for(lambda: self._pending or self._closed or self._broken)
            piece = bytes(self._pending)
            self._pending.clear()
            return piece if not self._broken else b""

    def break_off(self) -> None:
        with self._lock:
            self._broken = True
            self._lock.notify_all()


class Served:
    """One process. Two threads move its streams; they end with it."""

    def __init__(self, request: StartRemote | OpenEndpoint, process: Process) -> None:
        self.request = request
        self.process = process
        self.output = Output()
        self.input = Input()
        self.news = Listeners()
        self.ended = False
        for target in (self._read, self._write):
            threading.Thread(target=target, name="codepilot-served", daemon=True).start()

    def _read(self) -> None:
        stdout = self.process.stdout
        assert isinstance(stdout, io.BufferedReader)
        with contextlib.suppress(OSError, ValueError):  # It may be closed while it is read.
            while chunk := stdout.read1(_CHUNK):
                self.output.put(chunk)
                self.news.wake()
        self.output.end()
        self.news.wake()
        self.process.wait()
        self._end()

    def _end(self) -> None:
        self.ended = True
        self.input.break_off()
        self.news.wake()

    def _write(self) -> None:
        try:
            while piece := self.input.get():
                self.process.stdin.write(piece)
                self.process.stdin.flush()
                self.news.wake()
            self.process.stdin.close()
        except (OSError, ValueError):
            self.input.break_off()
            self.news.wake()

    def kill(self) -> None:
        """End it, and hold no place for it once this returns."""
        self.output.end()
        self.process.kill()
        self._end()

    def state(self) -> ProcessState:
        process, running = self.process, not self.ended and self.process.running
        return ProcessState(
            process=self.request.process,
            running=running,
            exit_code=None if running else process.wait(0),
            limit=process.limit,
            stderr_tail=process.stderr_tail(),
        )

    async def read(self, offset: int) -> AsyncIterator[bytes]:
        """The output from an offset to its end, as it comes."""
        event = self.news.add()
        try:
            while True:
                event.clear()
                data, last = self.output.take(offset)
                if data:
                    offset += len(data)
                    yield data
                elif last:
                    return
                else:
                    await event.wait()
        finally:
            self.news.remove(event)

    async def write(self, data: bytes, offset: int, end: bool, patience_sec: float) -> int:
        received = await self._until(lambda: self.input.put(data, offset, end), patience_sec)
        if received is None:
            raise Busy("the process does not read its earlier input")
        return received

    async def wait(self, timeout_sec: float) -> ProcessState:
        await self._until(lambda: self.ended or None, timeout_sec)
        return self.state()

    async def _until(self, ask: Callable[[], Found | None], timeout_sec: float) -> Found | None:
        """The first result of `ask` that is not None; None after the time."""
        event = self.news.add()
        try:
            async with asyncio.timeout(timeout_sec):
                while (answer := ask()) is None:
                    await event.wait()
                    event.clear()
                return answer
        except TimeoutError:
            return None
        finally:
            self.news.remove(event)


class Processes:
    """All running processes, and the last states of ended ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Future[Served]] = OrderedDict()

    def start(self, request: StartRemote | OpenEndpoint, start: Callable[[], Process]) -> Served:
        """Start a process once. A repeated request with the same name gives the same process."""
        with self._lock:
            known = self._known.get(request.process)
            if known is None:
                self._make_room()
                mine: Future[Served] = Future()
                self._known[request.process] = mine
        if known is not None:
            served = known.result()
            if served.request != request:
                raise Conflict(f"the process {request.process} was started as another one")
            return served
        try:
            served = Served(request, start())
        except BaseException as error:
            with self._lock:
                del self._known[request.process]
            mine.set_exception(error)
            raise
        mine.set_result(served)
        return served

    def get(self, name: str) -> Served:
        with self._lock:
            known = self._known.get(name)
        if known is None or not known.done() or known.exception() is not None:
            raise CodePilotError(FailureKind.PATH_NOT_FOUND, f"there is no process {name} here", process=name)
        return known.result()

    @contextlib.contextmanager
    def ending(self, workspace: str, *, endpoints: bool = False) -> Iterator[None]:
        """Kill the processes of a workspace after the block, so that none waits for a reader."""
        with self._lock:
            known = [one.result() for one in self._known.values() if one.done() and one.exception() is None]
        kinds = (StartRemote, OpenEndpoint) if endpoints else StartRemote
        here = [one for one in known if one.request.workspace == workspace and isinstance(one.request, kinds)]
        yield
        for served in here:
            if not served.ended:
                served.kill()

    def running(self) -> int:
        with self._lock:
            return sum(not _ended(known) for known in self._known.values())

    def _make_room(self) -> None:
        ended = [name for name, known in self._known.items() if _ended(known)]
        for name in ended[: max(0, len(ended) - _ENDED_KEPT)]:
            del self._known[name]
        if len(self._known) - len(ended) >= self._most:
            raise Busy(f"{self._most} processes are running already", next_action="End one, or ask again later.")


def _ended(known: Future[Served]) -> bool:
    return known.done() and known.exception() is None and known.result().ended
