"""Running one command to its end under limits: capped output, wall clock, memory, processes, disk, cancel."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from threading import Event
from typing import IO, BinaryIO, Literal, cast

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.limits import usage
from codepilot.sandbox.limits.disk import DiskWatch
from codepilot.sandbox.limits.tree import Launch, Tree
from codepilot.sandbox.spec import CommandResult, Limits, Terminal

TICK = 0.025
DISK_TICK = 0.5
COUNT_TICK = 0.005
_COUNT_SHARE = 40
"""Counting every 5 ms takes at most a 40th of the time. A fork bomb doubles in less than a tick."""
_CHUNK = 1 << 16
_FEW = 10
"""In a tree of at most so many processes, what they write is read every tick."""
_IDLE_TICK = 0.1
_TAIL_BYTES = 1 << 16
_FILE_TOO_LARGE = 128 + signal.SIGXFSZ
FLOOD = 16
"""Output beyond the limit is left out of the result; this many times the limit ends the command."""


class Capture:
    """The head and the tail of a stream of any length."""

    def __init__(self, limit: int) -> None:
        self._half = max(1, limit // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:
            del self._tail[: -self._half]

    @property
    def truncated(self) -> bool:
        return self.total > 2 * self._half

    def bytes(self) -> bytes:
        if not self.truncated:
            return bytes(self._head + self._tail)
        tail = self._tail[-self._half :]
        left_out = self.total - len(self._head) - len(tail)
        return bytes(self._head) + b"\n[... %d bytes left out ...]\n" % left_out + bytes(tail)


class Watchdog:
    """Names the first limit that a tree breaks."""

    def __init__(self, tree: Tree, limits: Limits) -> None:
        self._tree = tree
        self._limits = limits
        self._deadline = tree.now() + limits.wall_sec
        self._disk = DiskWatch(tree.watched, limits.disk_bytes, tree.disk_account) if tree.watched else None
        self._next_disk = time.monotonic() + DISK_TICK
        self._last: usage.Usage | None = None
        self._too_many = False
        self.next_count = time.monotonic() + COUNT_TICK
        self.changed = True

    def breach(self) -> str | None:
        now = time.monotonic()
        if self._tree.now() >= self._deadline:
            return "wall"
        if broken := self._tree.breach():
            return broken
        most = self._limits.processes + self._tree.helpers
        used = usage.measure(self._tree.root, self._limits.memory_bytes, most)
        self.changed, self._last = used != self._last, used
        if used.memory_bytes + self._tree.held_by_files() > self._limits.memory_bytes:
            return "memory"
        if used.processes > most or used.threads > self._limits.tasks:
            self._too_many = True
            return "processes"
        if self._disk is not None and used.processes <= _FEW:
            self._disk.note(self._tree.root)
        if self._disk is not None and (now >= self._next_disk or self._disk.urgent):
            self._next_disk = now + DISK_TICK
            if not self._disk.idle and self._disk.exceeded(self._tree.root):
                return "disk"
        return None

    def over_process_limit(self) -> bool:
        """True if there are too many processes. Cheap enough to run between full checks."""
        started = time.monotonic()
        if started < self.next_count:
            return False
        most = self._limits.processes + self._tree.helpers
        tasks = self._tree.tasks()
        found = (tasks is None or tasks > most) and len(usage.descendants(self._tree.root, most)) > most
        ended = time.monotonic()
        self.next_count = ended + max(COUNT_TICK, _COUNT_SHARE * (ended - started))
        self._too_many = self._too_many or found
        return found

    def note(self) -> None:
        """Record what a tree has written before it is ended. A fork bomb is not measured: it would grow."""
        if self._disk is not None and self._too_many:
            self._disk.forget()
        elif self._disk is not None:
            self._disk.note(self._tree.root)

    def at_end(self) -> str | None:
        """The limit that a tree broke between the last check and its end.

        Call this before the launcher is reaped: /proc still shows what it wrote.
        """
        return "disk" if self._disk is not None and self._disk.exceeded(self._tree.popen.pid, ended=True) else None


class Supervision:
    """Watches one tree until it ends or must be ended, and captures its output."""

    def __init__(
        self,
        tree: Tree,
        limits: Limits,
        captures: dict[str, Capture],
        stopped: Callable[[], bool],
        stdin: bytes | None = None,
    ) -> None:
        """`captures` are for `stdout` and `stderr`. Without `stdin` the caller writes it; with it, nobody else may."""
        self._tree = tree
        self._captures = captures
        self._stopped = stopped
        self._flood = FLOOD * limits.output_bytes if stdin is not None else math.inf
        self._input = memoryview(stdin or b"")
        self._watchdog = Watchdog(tree, limits)
        self._longest_tick = TICK if stdin is not None else _IDLE_TICK
        self._busy = True
        self._selector = selectors.DefaultSelector()
        self._pipes = {name: _pipe(tree, name) for name in captures}
        for name, pipe in self._pipes.items():
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, name)
        if stdin is not None:
            self._pipes["stdin"] = _pipe(tree, "stdin")
            os.set_blocking(tree.stdin, False)
            self._selector.register(tree.stdin, selectors.EVENT_WRITE, "stdin")
        self._wake_read, self._wake_write = os.pipe()
        self._wake_lock = threading.Lock()
        self._selector.register(self._wake_read, selectors.EVENT_READ, "wake")
        self._exit_fd = os.pidfd_open(tree.popen.pid) if hasattr(os, "pidfd_open") else None
        if self._exit_fd is not None:
            self._selector.register(self._exit_fd, selectors.EVENT_READ, "exit")

    def watch(self) -> str | None:
        """Wait until the command ends (None) or must be ended (the reason). Polls slower while nothing changes."""
        tick, due = TICK, time.monotonic() + TICK / 2
        while True:
            until = min(due, self._watchdog.next_count) if self._busy else due
            ready = [str(key.data) for key, _ in self._selector.select(max(0.0, until - time.monotonic()))]
            for name in ready:
                self._serve(name)
            if "exit" in ready:
                return self._watchdog.at_end()
            if self._exit_fd is None and self._tree.popen.poll() is not None:
                return None
            if self._stopped():
                return "cancel"
            if max(capture.total for capture in self._captures.values()) > self._flood:
                return "output"
            if self._busy and self._watchdog.over_process_limit():
                return "processes"
            if "wake" in ready:
                tick, due = TICK, min(due, time.monotonic() + TICK)
            if time.monotonic() >= due:
                if breach := self._watchdog.breach():
                    return breach
                tick = TICK if self._watchdog.changed else min(self._longest_tick, tick * 2)
                due = time.monotonic() + tick

    def wake(self, busy: bool = True) -> None:
        """Look now, and from now on as often as a tree needs that works or is idle."""
        with self._wake_lock:
            self._busy = busy
            if busy and self._wake_write >= 0:
                os.write(self._wake_write, b".")

    def end(self) -> None:
        """End the tree, and read what is left in the pipes: every writer is gone then."""
        self._watchdog.note()
        self._tree.reap()
        for name, capture in self._captures.items():
            before = -1
            while capture.total > before:
                before = capture.total
                self._read(name)
        self._selector.close()
        with self._wake_lock:
            os.close(self._wake_write)
            self._wake_write = -1
        os.close(self._wake_read)
        if self._exit_fd is not None:
            os.close(self._exit_fd)
        for pipe in self._pipes.values():
            with contextlib.suppress(OSError):
                pipe.close()

    def _serve(self, name: str) -> None:
        if name == "stdin":
            self._feed()
        elif name == "wake":
            os.read(self._wake_read, 64)
        elif name != "exit" and not self._read(name):
            self._selector.unregister(self._pipes[name])

    def _feed(self) -> None:
        try:
            self._input = self._input[os.write(self._tree.stdin, self._input[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._input = self._input[:0]
        if not self._input:
            self._selector.unregister(self._pipes["stdin"])
            self._pipes["stdin"].close()

    def _read(self, name: str) -> bool:
        try:
            chunk = os.read(self._pipes[name].fileno(), _CHUNK)
        except BlockingIOError:
            return True
        self._captures[name].add(chunk)
        return bool(chunk)


def _pipe(tree: Tree, name: str) -> IO[bytes]:
    pipe: IO[bytes] = getattr(tree.popen, name)
    return pipe


def run(launch: Launch, limits: Limits, stdin: bytes = b"", cancel: Event | None = None) -> CommandResult:
    """Run a tree to its end. No process of it is left when this returns or raises."""
    started = launch.now()
    tree = Tree(launch)
    stdout, stderr = Capture(limits.output_bytes), Capture(limits.output_bytes)
    stopped = cancel.is_set if cancel is not None else lambda: False
    supervision = Supervision(tree, limits, {"stdout": stdout, "stderr": stderr}, stopped, stdin)
    try:
        reason = supervision.watch()
    finally:
        supervision.end()
    reason = reason or tree.breach()
    code = tree.exit_code(stderr.bytes()) if reason is None else None
    if code == _FILE_TOO_LARGE:
        reason, code = "file", None
    return CommandResult(
        status=_status(reason, code),
        exit_code=code,
        stdout=stdout.bytes(),
        stderr=stderr.bytes(),
        limit=None if reason == "cancel" else reason,
        duration_ms=(tree.now() - started) * 1000,
        truncated=stdout.truncated or stderr.truncated,
    )


def _status(reason: str | None, code: int | None) -> Literal["ok", "error", "timeout", "limit", "interrupted"]:
    if reason is None:
        return "ok" if code == 0 else "error"
    if reason == "cancel":
        return "interrupted"
    return "timeout" if reason == "wall" else "limit"


class SupervisedProcess:
    """The `Process` of every level. Only the watching thread ends the tree, so nothing is reaped twice."""

    def __init__(self, launch: Launch, limits: Limits, ended: Callable[[], None] = lambda: None) -> None:
        self._tree = Tree(launch)
        self._when_ended = ended
        self.stdin = cast(BinaryIO, self._tree.popen.stdin)
        self.stdout = cast(BinaryIO, self._tree.popen.stdout)
        self._stderr = Capture(limits.output_bytes)
        self._killed = False
        self._supervision = Supervision(self._tree, limits, {"stderr": self._stderr}, lambda: self._killed)
        self._limit: str | None = None
        self._exit_code: int | None = None
        self._ended = threading.Event()
        try:
            threading.Thread(target=self._watch, name="codepilot-watch", daemon=True).start()
        except RuntimeError as error:  # no thread can be started
            self._killed = True
            self._watch()
            self.kill()
            raise CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, f"the sandbox cannot be watched: {error}") from error

    @property
    def running(self) -> bool:
        return not self._ended.is_set() and self._tree.popen.poll() is None

    @property
    def pid(self) -> int | None:
        """The command's pid on the host."""
        return self._tree.main()

    @property
    def limit(self) -> str | None:
        return self._limit or self._tree.breach()

    def stderr(self) -> bytes:
        return self._stderr.bytes()

    def stderr_tail(self) -> bytes:
        return self._stderr.bytes()[-_TAIL_BYTES:]

    def resize(self, terminal: Terminal) -> None:
        if not self._tree.resize(terminal.rows, terminal.columns):
            raise CodePilotError(
                FailureKind.TOOL_INVALID_ARGS, "the process has no terminal", "Start it with tty, a terminal's size."
            )

    def expect(self, busy: bool) -> None:
        """Say whether the process works from now on. An idle one is checked less often."""
        self._supervision.wake(busy)

    def interrupt(self) -> None:
        if not self._ended.is_set():
            self._tree.signal(signal.SIGINT)

    def kill(self) -> None:
        self._killed = True
        self._supervision.wake()
        self._ended.wait()
        for pipe in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def wait(self, timeout_sec: float | None = None) -> int | None:
        """The exit code, or None if it has not ended in time or was killed."""
        self._ended.wait(timeout_sec)
        return self._exit_code

    def _watch(self) -> None:
        reason: str | None = "cancel"
        try:
            reason = self._supervision.watch()
            self._limit = None if reason == "cancel" else reason
        finally:
            self._supervision.end()
            self._limit = self.limit
            if reason is None and self._limit is None:
                with contextlib.suppress(CodePilotError):
                    self._exit_code = self._tree.exit_code(self._stderr.bytes())
            try:
                self._when_ended()
            finally:
                self._ended.set()
