"""Advisory locks of a session with a PostgreSQL server, which frees them when it loses the session.

A session that is lost while its worker lives is made anew at once by a thread that watches it, and takes its locks
again. A lock must be seen free for a while before its worker counts as dead, longer when the server has just started.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from codepilot.store.faults import Interrupted, database_failure
from codepilot.store.liveness import name_taken, plain_name

MISSED_SEC = 3.0
"""A session of ours that was cut off may hold a lock for a moment: a busy server takes so long to miss it."""
_LOOK_SEC = 0.05
GRACE_SEC = 1.0
START_GRACE_SEC = 3.0
"""For so long after a server's start, workers may still be reconnecting to take their locks again."""

_LOCK_CLASS = 0x636F6470
_WATCH_SEC = 5.0
_RETURN_SEC = 0.1
_TRY_LOCK = "SELECT pg_try_advisory_lock(%s, %s)"
_UNLOCK = "SELECT pg_advisory_unlock(%s, %s)"
_HELD = (
    "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = %s "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_UPTIME = "SELECT EXTRACT(EPOCH FROM clock_timestamp() - pg_postmaster_start_time())::float"

Answer = TypeVar("Answer")


def open_session(engine: Engine) -> Any:
    """A connection of the driver's, apart from those that are shared, in which every statement stands alone."""
    connection = engine.raw_connection()
    session: Any = connection.dbapi_connection
    connection.detach()
    session.autocommit = True
    return session


class SessionLocks:
    """The locks of this process's workers. Safe to use from any thread."""

    def __init__(self, engine: Engine, place: str) -> None:
        self._engine = engine
        self._place = place
        self._driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._session: Any = None
        self._held: set[str] = set()
        self._locked: set[str] = set()
        """Those of `_held` whose lock the session has."""
        self._suspected: dict[str, float] = {}
        self._guard = threading.Lock()
        self._keeper: threading.Thread | None = None
        self._closed = False
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def hold(self, worker: str) -> None:
        plain_name(worker)
        with self._guard:
            if worker in self._held:
                return
            if self._keeper is None:
                keeper = threading.Thread(target=self._keep, name="store-locks", daemon=True)
                keeper.start()
                self._keeper = keeper
            deadline = time.monotonic() + MISSED_SEC
            while not self._in_session(lambda session: _lock(session, worker)):
                if time.monotonic() > deadline:
                    raise name_taken(worker)
                time.sleep(_LOOK_SEC)
            self._held.add(worker)
            self._locked.add(worker)

    def holds(self, worker: str) -> bool:
        return worker in self._held

    def release(self, worker: str) -> None:
        with self._guard:
            if worker in self._held:
                self._held.discard(worker)
                self._locked.discard(worker)
                with contextlib.suppress(Interrupted):  # a session that is lost has no locks
                    self._in_session(lambda session: session.execute(_UNLOCK, (_LOCK_CLASS, _key(worker))))

    def free(self, workers: Iterable[str]) -> set[str]:
        with self._guard:
            return self._free(workers)[0]

    def judge(self, workers: Iterable[str]) -> tuple[set[str], set[str]]:
        with self._guard:
            free, uptime = self._free(workers)
            now = time.monotonic()
            self._suspected = {worker: self._suspected.get(worker, now) for worker in free}
            if uptime < START_GRACE_SEC:
                return set(), free
            dead = {worker for worker, since in self._suspected.items() if now - since >= GRACE_SEC}
            return dead, free - dead

    def bury(self, worker: str) -> None:
        """The server has done it."""

    def close(self) -> None:
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self._held.clear()
            self._drop()
            os.write(self._wake, b"!")
        if self._keeper is not None:
            self._keeper.join(_WATCH_SEC)
        os.close(self._wake)
        os.close(self._woken)

    def _free(self, workers: Iterable[str]) -> tuple[set[str], float]:
        def ask(session: Any) -> tuple[set[int], float]:
            return {key for (key,) in session.execute(_HELD, (_LOCK_CLASS,))}, session.execute(_UPTIME).fetchone()[0]

        held, uptime = self._in_session(ask)
        return {worker for worker in workers if _key(worker) not in held}, uptime

    # the session: under the guard ---------------------------------------------------------------------

    def _in_session(self, ask: Callable[[Any], Answer]) -> Answer:
        try:
            self._return()
            return ask(self._session)
        except (DBAPIError, self._driver_error) as error:
            self._drop()
            raise database_failure(getattr(error, "orig", None) or error, self._place) from error

    def _return(self) -> None:
        """A session, and in it the locks of all who are held."""
        if self._session is None:
            self._session = open_session(self._engine)
            os.write(self._wake, b"!")
        for worker in self._held - self._locked:
            if _lock(self._session, worker):
                self._locked.add(worker)

    def _drop(self) -> None:
        session, self._session = self._session, None
        self._locked.clear()
        if session is not None:
            session.close()

    # the thread that watches it -----------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._closed:
            session = self._session
            watched = [self._woken] if session is None or session.closed else [self._woken, session]
            with contextlib.suppress(OSError, ValueError):  # the session was closed meanwhile
                if self._woken in select.select(watched, [], [], _WATCH_SEC if session else _RETURN_SEC)[0]:
                    os.read(self._woken, 4096)
            with self._guard:
                if not self._closed:
                    self._look_after()

    def _look_after(self) -> None:
        try:
            if self._session is not None:
                self._session.pgconn.consume_input()
            self._return()
        except (DBAPIError, self._driver_error):
            self._drop()


def _lock(session: Any, worker: str) -> bool:
    return bool(session.execute(_TRY_LOCK, (_LOCK_CLASS, _key(worker))).fetchone()[0])


def _key(worker: str) -> int:
    """31 bits: PostgreSQL shows its signed keys as unsigned ones."""
    return int.from_bytes(hashlib.sha256(worker.encode()).digest()[:4]) & 0x7FFFFFFF
