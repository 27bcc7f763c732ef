"""A long-lived confined process: spoken to over its pipes, watched by a thread until it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import BinaryIO, cast

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.spec import Limits
from codepilot.sandbox.supervisor import TICK, Capture, Watchdog
from codepilot.sandbox.tree import Launch, Tree
from codepilot.sandbox.waiting import readable

_IDLE_TICK = 0.1
_TAIL_BYTES = 1 << 16


class SupervisedProcess:
    """The `Process` of every level. The watching thread alone ends the tree, so nothing is reaped twice."""

    def __init__(self, launch: Launch, limits: Limits) -> None:
        self._tree = Tree(launch)
        popen = self._tree.popen
        assert popen.stdin is not None and popen.stdout is not None and popen.stderr is not None
        self.stdin = cast(BinaryIO, popen.stdin)
        self.stdout = cast(BinaryIO, popen.stdout)
        self._stderr_fd = popen.stderr.fileno()
        self._stderr = Capture(_TAIL_BYTES)
        self._watchdog = Watchdog(self._tree, limits)
        self._limit: str | None = None
        self._exit_code: int | None = None
        self._ended = threading.Event()
        self._wake_read, self._wake_write = os.pipe()
        self._wake_lock = threading.Lock()
        try:
            threading.Thread(target=self._watch, name="codepilot-watch", daemon=True).start()
        except RuntimeError as error:  # there is no room for another thread
            self._wake()
            self._watch()
            self.kill()
            raise CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, f"the sandbox cannot be watched: {error}") from error

    @property
    def running(self) -> bool:
        return not self._ended.is_set() and self._tree.popen.poll() is None

    @property
    def pid(self) -> int | None:
        """The command itself, as the host counts processes."""
        return self._tree.main()

    @property
    def limit(self) -> str | None:
        return self._limit or self._tree.breach()

    def stderr_tail(self) -> bytes:
        return self._stderr.bytes()

    def interrupt(self) -> None:
        if not self._ended.is_set():
            self._tree.signal(signal.SIGINT)

    def kill(self) -> None:
        self._wake()
        self._ended.wait()
        for pipe in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def wait(self, timeout_sec: float | None = None) -> int | None:
        """The exit code, or None if it has not ended in time or was killed."""
        self._ended.wait(timeout_sec)
        return self._exit_code

    def _wake(self) -> None:
        with self._wake_lock:
            if self._wake_write >= 0:
                os.close(self._wake_write)
                self._wake_write = -1

    def _watch(self) -> None:
        killed = False
        try:
            killed = self._attend()
        finally:
            self._watchdog.note()
            self._tree.reap()
            self._read_stderr_to_end()
            self._limit = self.limit
            if not killed and self._limit is None:
                with contextlib.suppress(CodePilotError):
                    self._exit_code = self._tree.exit_code(self._stderr.bytes())
            self._wake()
            os.close(self._wake_read)
            assert self._tree.popen.stderr is not None
            self._tree.popen.stderr.close()
            self._ended.set()

    def _attend(self) -> bool:
        """Until the process has ended (False) or must be ended (True). Polls slower while nothing changes."""
        exit_fd = os.pidfd_open(self._tree.popen.pid) if hasattr(os, "pidfd_open") else None
        watched = [fd for fd in (self._stderr_fd, self._wake_read, exit_fd) if fd is not None]
        tick = TICK
        due = time.monotonic() + tick
        try:
            while True:
                ready = readable(watched, due - time.monotonic())
                if self._wake_read in ready:
                    return True
                if self._stderr_fd in ready and not self._read_stderr():
                    watched.remove(self._stderr_fd)
                if self._tree.popen.poll() is not None:
                    return False
                if time.monotonic() < due and exit_fd not in ready and self._stderr_fd in ready:
                    continue
                self._limit = self._watchdog.breach()
                if self._limit is not None:
                    return True
                tick = TICK if self._watchdog.changed else min(_IDLE_TICK, tick * 2)
                due = time.monotonic() + tick
        finally:
            if exit_fd is not None:
                os.close(exit_fd)

    def _read_stderr(self) -> bool:
        chunk = os.read(self._stderr_fd, 1 << 16)
        self._stderr.add(chunk)
        return bool(chunk)

    def _read_stderr_to_end(self) -> None:
        """Every writer is gone, so the pipe ends."""
        os.set_blocking(self._stderr_fd, False)
        with contextlib.suppress(BlockingIOError):
            while self._read_stderr():
                pass
