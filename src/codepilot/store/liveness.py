"""Which workers live: each holds a lock for as long as its process does, and a free lock means a dead worker.

On one machine the lock is on a file, on a database server it is the session's. A heartbeat, kept elsewhere, tells
of those that hold their lock and do nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import DBAPIError

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import database_failure, disk_faults

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TRIES = 50
_PAUSE_SEC = 0.02
_LOCK_CLASS = 0x636F6470

Answer = TypeVar("Answer")


class Liveness(Protocol):
    grace_sec: float
    """How long a lock must be seen free before its worker counts as dead: a lost connection is taken up again."""

    def hold(self, worker: str) -> None:
        """Show `worker` as alive until `release` or the end of this process."""
        ...

    def holds(self, worker: str) -> bool:
        """Whether it was shown as alive here."""
        ...

    def release(self, worker: str) -> None: ...

    def dead(self, workers: Iterable[str]) -> set[str]:
        """Those of `workers` whose lock is free."""
        ...

    def bury(self, worker: str) -> None:
        """Remove what a dead worker left."""
        ...

    def close(self) -> None: ...


class FileLocks:
    """The lock files of one machine's workers. The kernel frees a lock when its process dies, however it dies."""

    grace_sec = 0.0

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
        raise _taken(worker)

    def holds(self, worker: str) -> bool:
        return worker in self._held

    def release(self, worker: str) -> None:
        with self._guard:
            held = self._held.pop(worker, None)
            if held is not None:
                self._path(worker).unlink(missing_ok=True)
                os.close(held)

    def dead(self, workers: Iterable[str]) -> set[str]:
        return {worker for worker in workers if not self._alive(worker)}

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
        return self._directory / f"{_plain(worker)}.lock"


class ServerLocks:
    """Advisory locks of one session with a PostgreSQL server, which frees them when it loses the session."""

    grace_sec = 1.0

    def __init__(self, engine: Engine, place: str) -> None:
        self._engine = engine
        self._place = place
        self._session: Connection | None = None
        self._held: set[str] = set()
        self._guard = threading.Lock()

    def hold(self, worker: str) -> None:
        _plain(worker)
        with self._guard:
            if worker in self._held:
                return
            if not self._ask(_TRY_LOCK, worker):
                raise _taken(worker)
            self._held.add(worker)

    def holds(self, worker: str) -> bool:
        return worker in self._held

    def release(self, worker: str) -> None:
        with self._guard:
            if worker in self._held:
                self._held.discard(worker)
                self._ask(_UNLOCK, worker)

    def dead(self, workers: Iterable[str]) -> set[str]:
        with self._guard:
            held = self._in_session(lambda session: set(session.scalars(_HELD, {"class": _LOCK_CLASS})))
        return {worker for worker in workers if _key(worker) not in held}

    def bury(self, worker: str) -> None:
        """The server has done it."""

    def close(self) -> None:
        with self._guard:
            self._held.clear()
            self._drop()

    def _ask(self, statement: TextClause, worker: str) -> bool:
        values = {"class": _LOCK_CLASS, "key": _key(worker)}
        return bool(self._in_session(lambda session: session.scalar(statement, values)))

    def _in_session(self, ask: Callable[[Connection], Answer]) -> Answer:
        """A session that was lost is made anew, and takes the locks again that it held."""
        try:
            return ask(self._session or self._connect())
        except DBAPIError:
            self._drop()
        try:
            return ask(self._connect())
        except DBAPIError as error:
            self._drop()
            raise database_failure(error.orig or error, self._place) from error

    def _connect(self) -> Connection:
        session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        session.detach()
        for worker in self._held:
            session.scalar(_TRY_LOCK, {"class": _LOCK_CLASS, "key": _key(worker)})
        self._session = session
        return session

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


_TRY_LOCK = text("SELECT pg_try_advisory_lock(:class, :key)")
_UNLOCK = text("SELECT pg_advisory_unlock(:class, :key)")
_HELD = text(
    "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = :class "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def _key(worker: str) -> int:
    """31 bits: PostgreSQL shows its signed keys as unsigned ones."""
    return int.from_bytes(hashlib.sha256(worker.encode()).digest()[:4]) & 0x7FFFFFFF


def _plain(worker: str) -> str:
    if not _NAME.fullmatch(worker):
        raise CodePilotError(FailureKind.INVALID_SPEC, f"{worker!r} cannot be the name of a worker.")
    return worker


def _taken(worker: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.STORE_UNAVAILABLE,
        f"A worker named {worker} is already at work.",
        next_action="Give every worker a name of its own.",
    )
