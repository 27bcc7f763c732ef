"""Which workers live: each holds a lock on a file of its own, and a free lock means a dead worker."""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import disk_faults

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TRIES = 50
_PAUSE_SEC = 0.02


class WorkerLocks:
    """The lock files of one machine's workers. The kernel frees a lock when its process dies, however it dies."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, int] = {}
        self._guard = threading.Lock()

    def hold(self, worker: str) -> None:
        """Show `worker` as alive until `release` or the end of this process."""
        with self._guard:
            if worker in self._held:
                return
            with disk_faults(FailureKind.STORE_UNAVAILABLE, f"Locking for worker {worker}"):
                for _ in range(_TRIES):
                    taken = self._take(worker)
                    if taken is not None:
                        self._held[worker] = taken
                        return
                    time.sleep(_PAUSE_SEC)
        raise CodePilotError(
            FailureKind.STORE_UNAVAILABLE,
            f"A worker named {worker} is already at work.",
            next_action="Give every worker a name of its own.",
            path=self._path(worker),
        )

    def release(self, worker: str) -> None:
        with self._guard:
            held = self._held.pop(worker, None)
            if held is not None:
                self._path(worker).unlink(missing_ok=True)
                os.close(held)

    def alive(self, worker: str) -> bool:
        try:
            probe = os.open(self._path(worker), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(probe, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(probe)
        return False

    def bury(self, worker: str) -> None:
        """Remove a dead worker's file."""
        try:
            held = self._take(worker, create=False)
        except FileNotFoundError:
            return
        if held is not None:
            self._path(worker).unlink(missing_ok=True)
            os.close(held)

    def close(self) -> None:
        for worker in list(self._held):
            self.release(worker)

    def _take(self, worker: str, create: bool = True) -> int | None:
        """The exclusive lock on the file that the worker's path names now, if it is free."""
        path = self._path(worker)
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_ino == path.stat().st_ino:
                taken, file = file, -1
                return taken
        except (BlockingIOError, FileNotFoundError):
            return None
        finally:
            if file >= 0:
                os.close(file)
        return None

    def _path(self, worker: str) -> Path:
        if not _NAME.fullmatch(worker):
            raise CodePilotError(FailureKind.INVALID_SPEC, f"{worker!r} cannot be the name of a worker.")
        return self._directory / f"{worker}.lock"
