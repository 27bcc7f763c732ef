"""Which workers live: each holds a lock for as long as its process does, and a free lock means a dead worker.

On one machine the lock is on a file, with a database server it is a session's (`sessions`). A heartbeat, kept
elsewhere, shows those that hold their lock and do nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import disk_faults

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TRIES = 50
_PAUSE_SEC = 0.02


class Liveness(Protocol):
    def hold(self, worker: str) -> None:
        """Show `worker` as alive until `release` or the end of this process."""
        ...

    def holds(self, worker: str) -> bool:
        """True if it was shown as alive here."""
        ...

    def release(self, worker: str) -> None: ...

    def free(self, workers: Iterable[str]) -> set[str]:
        """Those of `workers` whose lock is free at this moment."""
        ...

    def judge(self, workers: Iterable[str]) -> tuple[set[str], set[str]]:
        """Those of `workers` who are dead, and those of whom it is not yet certain."""
        ...

    def bury(self, worker: str) -> None:
        """Remove what a dead worker left."""
        ...

    def close(self) -> None: ...


class FileLocks:
    """The lock files of one machine's workers. The kernel frees a lock when its process dies, however it dies."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, int] = {}
        self._guard = threading.Lock()

    def hold(self, worker: str) -> None:
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
        raise name_taken(worker)

    def holds(self, worker: str) -> bool:
        return worker in self._held

    def release(self, worker: str) -> None:
        with self._guard:
            held = self._held.pop(worker, None)
            if held is not None:
                self._path(worker).unlink(missing_ok=True)
                os.close(held)

    def free(self, workers: Iterable[str]) -> set[str]:
        return {worker for worker in workers if not self._alive(worker)}

    def judge(self, workers: Iterable[str]) -> tuple[set[str], set[str]]:
        return self.free(workers), set()

    def bury(self, worker: str) -> None:
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

    def _alive(self, worker: str) -> bool:
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
        return self._directory / f"{plain_name(worker)}.lock"


def plain_name(worker: str) -> str:
    if not _NAME.fullmatch(worker):
        raise CodePilotError(FailureKind.INVALID_SPEC, f"{worker!r} cannot be the name of a worker.")
    return worker


def name_taken(worker: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.STORE_UNAVAILABLE,
        f"A worker named {worker} is already at work.",
        next_action="Give every worker a name of its own.",
    )
