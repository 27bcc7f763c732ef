"""One writer at a time among all processes: a file lock that queues, where SQLite's own retries starve a writer."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import disk_faults


class WriterLock:
    """Held for the length of one write transaction. Not re-entrant."""

    def __init__(self, path: Path, timeout_sec: float = 30.0) -> None:
        self._path = path
        self._timeout_sec = timeout_sec
        self._threads = threading.Lock()
        self._file = -1

    @contextmanager
    def hold(self) -> Iterator[None]:
        if not self._threads.acquire(timeout=self._timeout_sec):
            raise self._held_by("a thread of this process")
        try:
            self._lock()
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def close(self) -> None:
        """Close the lock file, unless a thread here holds it for too long. The next holder opens it again."""
        if self._threads.acquire(timeout=self._timeout_sec):
            self._close_file()
            self._threads.release()

    def _close_file(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _lock(self) -> None:
        if self._file < 0:
            with disk_faults(FailureKind.STORE_UNAVAILABLE, f"Opening {self._path}"):
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._wait(self._file)

    def _wait(self, file: int) -> None:
        """Wait in the kernel's queue, but not for ever behind a stopped process.

        After the timeout `file` is closed: the waiting thread then gets the lock of a file that nobody has open, and
        the kernel frees it at once.
        """
        got = threading.Event()

        def wait() -> None:
            fcntl.flock(file, fcntl.LOCK_EX)
            got.set()

        threading.Thread(target=wait, name="writer-lock", daemon=True).start()
        try:
            if not got.wait(self._timeout_sec):
                raise self._held_by("another process")
        except BaseException:
            self._close_file()
            raise

    def _held_by(self, holder: str) -> CodePilotError:
        return CodePilotError(
            FailureKind.STORE_UNAVAILABLE,
            f"The database is locked: {holder} has held {self._path} for {self._timeout_sec:g} s.",
            next_action="Look for a stopped codepilot process (`ps`), continue or end it, then try again.",
            path=self._path,
        )
