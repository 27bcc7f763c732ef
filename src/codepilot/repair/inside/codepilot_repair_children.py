"""Forked children: each runs some jobs and says what came of them; none outlives its turn.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import json
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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Say = Callable[..., None]

MEMORY = 400 << 20
FIRST_SEC = 10.0
PAGE = 4 << 20
HEAD = struct.Struct("=Qd")
POLL_SEC = 0.02


class Board:
    """What a child has said and by when it must say more: memory shared with its parent, so that saying costs nothing.

    It holds what was said before a sudden end.
    """

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, PAGE)
        self.clear()

    def clear(self) -> None:
        self.read = HEAD.size
        HEAD.pack_into(self.memory, 0, HEAD.size, time.monotonic() + FIRST_SEC)

    def say(self, **message: Any) -> None:
        end, deadline = HEAD.unpack_from(self.memory)
        if "begin" in message:
            HEAD.pack_into(self.memory, 0, end, time.monotonic() + message["begin"])
            return
        data = json.dumps(message).encode() + b"\n"
        if end + len(data) > PAGE:
            os._exit(1)
        self.memory[end : end + len(data)] = data
        HEAD.pack_into(self.memory, 0, end + len(data), deadline)

    def heard(self) -> Iterator[dict[str, Any]]:
        """Messages that are new since the last time."""
        end = min(PAGE, HEAD.unpack_from(self.memory)[0])
        data, self.read = self.memory[self.read : end], max(self.read, end)
        for line in data.split(b"\n")[:-1]:
            yield json.loads(line)

    def late(self) -> bool:
        return bool(time.monotonic() > HEAD.unpack_from(self.memory)[1])


class Children:
    """Starts one child at a time. `closed` are descriptors that belong to the worker alone."""

    def __init__(self, closed: Sequence[int]) -> None:
        self.closed = closed
        self.board = Board()
        self.renewed = False
        self.killed = False

    def run(self, body: Callable[[Say, str], None], take: Callable[[dict[str, Any]], None]) -> None:
        """Call `body(say, folder)` in a child with a folder of its own, and hand what it says to `take`.

        Afterwards `renewed` tells that the child asked to be replaced, `killed` that it had to be ended.
        """
        reader, writer = os.pipe()
        folder = tempfile.mkdtemp(prefix="codepilot-")
        self.board.clear()
        pid = os.fork()
        if pid == 0:
            self._child(body, reader, writer, folder)
        os.close(writer)
        self.renewed, self.killed = False, False
        try:
            for message in self._listen(reader):
                if "renew" in message:
                    self.renewed = True
                else:
                    take(message)
        finally:
            os.close(reader)
            _bury(pid)
            shutil.rmtree(folder, ignore_errors=True)

    def _child(self, body: Callable[[Say, str], None], reader: int, writer: int, folder: str) -> None:
        status = 1
        try:
            os.setpgid(0, 0)
            for descriptor in (reader, *self.closed):
                os.close(descriptor)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 2)
            tempfile.tempdir = folder
            random.seed(0)
            _limit_memory()

            body(self.board.say, folder)
            status = 0
        finally:
            os._exit(status)

    def _listen(self, reader: int) -> Iterator[dict[str, Any]]:
        """The child's messages until it ends. Its own timer stops a test that overruns; one that is deaf is ended."""
        running = True
        while running:
            running = not select.select([reader], [], [], POLL_SEC)[0]
            yield from self.board.heard()
            if running and self.board.late():
                self.killed = True
                return


def _limit_memory() -> None:
    """A candidate that grows without end meets MemoryError before the whole sandbox meets its limit."""
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
    """The child, its group and whatever it left behind are ended and reaped."""
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except OSError:
            continue
    try:
        os.waitpid(pid, 0)
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except OSError:
        return
