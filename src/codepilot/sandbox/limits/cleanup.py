"""Starts the janitor and reports to it everything that would outlive a `kill -9` of this process."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
from functools import cache
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.interpreter import base_python
from codepilot.sandbox.standalone import janitor
from codepilot.sandbox.standalone.janitor import DIRECTORY, GROUP

__all__ = ["DIRECTORY", "GROUP", "closed", "make_directory", "mark", "opened", "remove_directory"]

_SOURCE = Path(janitor.__file__)
_DEAF = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
"""Blocked from its start, so that neither Ctrl-C nor SIGTERM to our process group ends the janitor."""


class _Janitor:
    """Runs at most one janitor process, and starts another if it is lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[bytes] = set()
        self._pid: int | None = None
        self._pipe: int | None = None
        self.mark = f"codepilot-{secrets.token_hex(8)}"

    def ready(self) -> None:
        with self._lock:
            if self._pipe is None:
                self._start()

    def report(self, sign: bytes, record: bytes) -> None:
        with self._lock:
            (self._open.add if sign == b"+" else self._open.discard)(record)
            if self._pipe is None:
                self._start()
            elif not self._write(sign + record):
                self._stop()
                self._start()

    def _start(self) -> None:
        python = os.fspath(base_python())
        read, write = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            self._pid = os.posix_spawn(
                python,
                [python, "-I", "-S", os.fspath(_SOURCE), self.mark],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, read, 0),
                    (os.POSIX_SPAWN_DUP2, null, 1),
                    (os.POSIX_SPAWN_DUP2, null, 2),
                ],
                setsigmask=_DEAF,
            )
        except OSError as error:
            os.close(write)
            raise CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, f"the janitor cannot be started: {error}") from error
        finally:
            os.close(read)
            os.close(null)
        self._pipe = write
        os.set_blocking(write, False)
        for record in self._open:
            self._write(b"+" + record)

    def _write(self, record: bytes) -> bool:
        """Records are shorter than PIPE_BUF, so they go whole or not at all."""
        assert self._pipe is not None
        try:
            return os.write(self._pipe, record + b"\0") > 0
        except (BrokenPipeError, BlockingIOError):
            return False

    def _stop(self) -> None:
        """Kill a janitor that is dead or stuck before closing its pipe: it takes the end of the pipe for our death."""
        assert self._pid is not None and self._pipe is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self.forget()

    def forget(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
        self._pid = self._pipe = None


_janitor = _Janitor()


def _after_fork() -> None:
    """Forget what the parent process opened: a copy of its pipe would hide its death."""
    global _janitor
    _janitor.forget()
    _janitor = _Janitor()


os.register_at_fork(after_in_child=_after_fork)


def mark() -> str:
    """The name that launchers start under. A janitor that ends them runs when this returns."""
    janitor = _janitor
    janitor.ready()
    return janitor.mark


def opened(kind: bytes, path: str) -> None:
    """Report a path before it is made, so that the janitor never misses one."""
    _janitor.report(b"+", kind + os.fsencode(path))


def closed(kind: bytes, path: str) -> None:
    _janitor.report(b"-", kind + os.fsencode(path))


def make_directory(parent: Path, prefix: str) -> Path:
    """Make a directory that the janitor removes if we are killed. Directories of dead owners are removed first."""
    _sweep(os.fspath(parent), prefix)
    path = parent / f"{prefix}{janitor.owner()}-{secrets.token_hex(4)}"
    opened(DIRECTORY, os.fspath(path))
    path.mkdir(0o700)
    return path


@cache
def _sweep(parent: str, prefix: str) -> None:
    janitor.sweep_directories(parent, prefix)


def remove_directory(directory: Path) -> None:
    if janitor.remove_directory(os.fspath(directory)):
        closed(DIRECTORY, os.fspath(directory))
