"""Forked children: each runs some jobs and sends the results; none outlives its turn.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import random
import resource
import select
import shutil
import signal
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Send = Callable[..., None]

MEMORY = 240 << 20
"""What one child may take in addition to what it began with: two of them, the workers and the host stay below 1 GiB."""
FIRST_SEC = 10.0
PAGE = 4 << 20
HEAD = struct.Struct("=Qdd")
"""The offset of the next message, and the deadline for it: by the clock, and in processor seconds of the child."""
POLL_SEC = 0.02
RENEW = b'{"renew": true}\n'


class Board:
    """A child's messages and the deadline of the next one, in memory shared with its parent, so that sending is cheap.

    Messages sent before a crash are kept.
    """

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, PAGE)
        self.clear()

    def clear(self) -> None:
        self.read = HEAD.size
        HEAD.pack_into(self.memory, 0, HEAD.size, time.monotonic() + FIRST_SEC, math.inf)

    def send(self, **message: Any) -> None:
        end, deadline, used = HEAD.unpack_from(self.memory)
        if "begin" in message:
            used = time.process_time() + message["cpu"] if "cpu" in message else math.inf
            HEAD.pack_into(self.memory, 0, end, time.monotonic() + message["begin"], used)
            return
        data = json.dumps(message).encode() + b"\n"
        if end + len(data) > PAGE - len(RENEW):
            # Full: a new child sends the rest. A message that does not fit an empty board ends the child.
            if end == HEAD.size:
                os._exit(1)
            self.memory[end : end + len(RENEW)] = RENEW
            HEAD.pack_into(self.memory, 0, end + len(RENEW), deadline, used)
            os._exit(0)
        self.memory[end : end + len(data)] = data
        HEAD.pack_into(self.memory, 0, end + len(data), deadline, used)

    def sent(self) -> Iterator[dict[str, Any]]:
        """Messages since the last call."""
        end = min(PAGE, HEAD.unpack_from(self.memory)[0])
        data, self.read = self.memory[self.read : end], max(self.read, end)
        for line in data.split(b"\n")[:-1]:
            yield json.loads(line)

    def late(self, pid: int) -> bool:
        """True if the next message is overdue: an endless computation is noticed sooner than a sleeping child."""
        _, deadline, used = HEAD.unpack_from(self.memory)
        return bool(time.monotonic() > deadline or (used < math.inf and _used(pid) > used))


class Turn:
    """The work of one child, and how it ended."""

    def __init__(self, body: Callable[[Send, str], None], take: Callable[[dict[str, Any]], None]) -> None:
        self.body = body
        self.take = take
        self.renewed = False
        """The child asked to be replaced."""
        self.killed = False
        """It had to be ended."""
        self.shared = False
        """Another child ran at the same time."""


class Child:
    """A running turn."""

    def __init__(self, turn: Turn, board: Board, closed: Sequence[int]) -> None:
        self.turn, self.board = turn, board
        self.reader, writer = os.pipe()
        self.folder = tempfile.mkdtemp(prefix="codepilot-")
        board.clear()
        self.pid = os.fork()
        if self.pid == 0:
            self._live(writer, closed)
        os.close(writer)

    def _live(self, writer: int, closed: Sequence[int]) -> None:
        status = 1
        try:
            os.setpgid(0, 0)
            for descriptor in (self.reader, *closed):
                os.close(descriptor)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 2)
            tempfile.tempdir = self.folder
            random.seed(0)
            _limit_memory()

            self.turn.body(self.board.send, self.folder)
            status = 0
        finally:
            os._exit(status)

    def listen(self) -> None:
        for message in self.board.sent():
            if "renew" in message:
                self.turn.renewed = True
            else:
                self.turn.take(message)

    def end(self) -> None:
        os.close(self.reader)
        _bury(self.pid)
        shutil.rmtree(self.folder, ignore_errors=True)


class Children:
    """Starts children, some at a time. `closed` are descriptors that belong to the worker alone."""

    def __init__(self, closed: Sequence[int], places: int) -> None:
        self.closed = closed
        self.boards = [Board() for _ in range(places)]

    @property
    def places(self) -> int:
        return len(self.boards)

    def run(self, body: Callable[[Send, str], None], take: Callable[[dict[str, Any]], None]) -> Turn:
        """Call `body(send, folder)` in a child with its own temporary folder, and pass its messages to `take`."""
        turn = Turn(body, take)
        waiting = [turn]
        for _ in self.each(lambda: waiting.pop() if waiting else None, 1):
            continue
        return turn

    def each(self, following: Callable[[], Any], places: int) -> Iterator[Any]:
        """Run each turn that `following` returns in a child, `places` at a time, and yield the turns as they end.

        When `following` returns None it is asked again after the next turn has ended.
        """
        running: list[Child] = []
        try:
            while True:
                self._fill(running, following, places)
                if not running:
                    _reap()
                    return
                ended = select.select([child.reader for child in running], [], [], POLL_SEC)[0]
                for child in list(running):
                    child.listen()
                    over = child.reader in ended
                    # Its own timer stops a test that overruns; a child that does not react is killed.
                    if over or child.board.late(child.pid):
                        child.turn.killed = not over
                        running.remove(child)
                        child.end()
                        yield child.turn
        finally:
            for child in running:
                child.end()

    def _fill(self, running: list[Child], following: Callable[[], Any], places: int) -> None:
        while len(running) < min(places, self.places):
            turn = following()
            if turn is None:
                return
            used = [child.board for child in running]
            running.append(Child(turn, next(board for board in self.boards if board not in used), self.closed))
            if len(running) > 1:
                for child in running:
                    child.turn.shared = True


def _used(pid: int) -> float:
    """Processor seconds of another process (see `clock_getcpuclockid`)."""
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _limit_memory() -> None:
    """Let a candidate that allocates without end get a MemoryError before the sandbox reaches its limit."""
    kind, used = resource.RLIMIT_AS, 0
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123 - runs in every child
            used = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        # Landlock hides /proc. What is resident bounds the private memory, which this limit counts.
        kind, used = resource.RLIMIT_DATA, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    hard = resource.getrlimit(kind)[1]
    limit = used + MEMORY
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _bury(pid: int) -> None:
    """Kill and reap the child and its process group."""
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except OSError:
            continue
    try:
        os.waitpid(pid, 0)
    except OSError:
        return


def _reap() -> None:
    """Reap orphans that this process inherited from its children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except OSError:
        return
