"""Properties of the store as a whole: its id, and its limit of running steps."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable

from sqlalchemy import Connection, select

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.database import Database
from codepilot.store.schema import insert_into, meta

FRESH_SEC = 2.0
"""For so long the limit is not read again: a claim does not read it each time."""

_STORE_ID = "store_id"
_MOST_RUNNING = "most_running"
_NO_LIMIT = "0"

_log = logging.getLogger(__name__)


def store_id(database: Database) -> str:
    """The store's id, made at the first request."""
    return kept_value(database, _STORE_ID, lambda: secrets.token_hex(8))


def kept_value(database: Database, key: str, make: Callable[[], str]) -> str:
    """The value of a key, made at the first request; the same for everyone who asks."""
    while (found := database.reading(lambda db: _read(db, key))) is None:
        database.writing(lambda db: _keep(db, key, make()))
    return found


class Limit:
    """How many steps may run at a time on the whole store, for all workers together."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: int | None = None
        self._asked_at: float | None = None

    def most_running(self) -> int | None:
        """The limit as it was a moment ago, if there is one; a change by another process is logged."""
        asked, now = self._asked_at, time.monotonic()
        if asked is None or now - asked >= FRESH_SEC:
            found = _number(self._stored())
            if asked is not None and found != self._known:
                _log.warning("%s; it was %s", in_words(found), self._known or _NO_LIMIT)
            self._known, self._asked_at = found, now
        return self._known

    def set(self, most: int | None) -> None:
        """For all workers of the store, from the next time that they read it."""
        value = _NO_LIMIT if most is None else str(most)
        before = self._stored()
        if before != value:
            self._database.writing(lambda db: _set(db, _MOST_RUNNING, value))
            _log.warning("%s; it was %s", in_words(most), before)
        self._known, self._asked_at = most, time.monotonic()

    def _stored(self) -> str:
        return self._database.reading(lambda db: _read(db, _MOST_RUNNING)) or _NO_LIMIT


def in_words(most: int | None) -> str:
    return "no limit of running steps" if most is None else f"at most {most} running step(s) on the whole store"


def _number(value: str) -> int | None:
    if not (value.isascii() and value.isdecimal()):
        raise CodePilotError(
            FailureKind.INTERNAL,
            f"The store's limit of running steps is {value!r}, which is no number.",
            next_action="Set it anew: codepilot worker --most-running N.",
        )
    return int(value) or None


def _read(connection: Connection, key: str) -> str | None:
    return connection.scalar(select(meta.c.value).where(meta.c.key == key))


def _keep(connection: Connection, key: str, value: str) -> None:
    connection.execute(insert_into(connection, meta).values(key=key, value=value).on_conflict_do_nothing())


def _set(connection: Connection, key: str, value: str) -> None:
    new = insert_into(connection, meta).values(key=key, value=value)
    connection.execute(new.on_conflict_do_update(index_elements=["key"], set_={"value": value}))
