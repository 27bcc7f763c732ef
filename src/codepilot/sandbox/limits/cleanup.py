"""The parent's side of the janitor: started once, told of everything that would outlive a `kill -9` of us."""

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
"""Blocked from its birth, so that neither Ctrl-C nor a polite end of our group takes it with us."""


class _Janitor:
    """At most one janitor process at a time; another one takes over if it is lost."""

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

    def tell(self, sign: bytes, record: bytes) -> None:
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
            raise CodePilotError(
                FailureKind.SANDBOX_UNAVAILABLE, f"nothing can be started to clean up after us: {error}"
            ) from error
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
        """It is dead or does not listen; were it to hear the pipe's end now, it would take us for dead."""
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
    """What our parent opened is its own to close; a copy of its pipe would hide its death."""
    global _janitor
    _janitor.forget()
    _janitor = _Janitor()


os.register_at_fork(after_in_child=_after_fork)


def mark() -> str:
    """The name to start launchers by; a janitor that ends all that carry it is there when this returns."""
    janitor = _janitor
    janitor.ready()
    return janitor.mark


def opened(kind: bytes, path: str) -> None:
    """Tell before it is made, so that there is no moment in which nobody knows."""
    _janitor.tell(b"+", kind + os.fsencode(path))


def closed(kind: bytes, path: str) -> None:
    _janitor.tell(b"-", kind + os.fsencode(path))


def make_directory(parent: Path, prefix: str) -> Path:
    """A directory that is removed should we be killed; those of owners that were killed with their janitor go first."""
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
