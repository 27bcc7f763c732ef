"""How many steps may be at work at a time: a property of the store, so that no worker can miss it."""

from __future__ import annotations

import logging
import time

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.database import Database
from codepilot.store.statements import SELECT_META, SET_META
from codepilot.store.tries import Tried, twice

FRESH_SEC = 2.0
"""How long the limit is believed to be as it was: whoever takes a step does not ask for it each time."""

_KEY = "most_running"
_NONE = "0"

_log = logging.getLogger(__name__)


class Limit:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: int | None = None
        self._asked_at: float | None = None

    def most_running(self) -> int | None:
        """The limit as it was a moment ago, if there is one; that another has changed it is logged."""
        asked, now = self._asked_at, time.monotonic()
        if asked is None or now - asked >= FRESH_SEC:
            found = _number(twice(self._database, self._ask))
            if asked is not None and found != self._known:
                _log.warning("%s; it was %s", in_words(found), self._known or _NONE)
            self._known, self._asked_at = found, now
        return self._known

    def set(self, most: int | None) -> None:
        """For all workers of the store, from their next look at it on."""
        value = _NONE if most is None else str(most)

        def write(_: Tried) -> None:
            with self._database.write(durable=True) as connection:
                SET_META.send(connection, {"key": _KEY, "value": value})

        before = twice(self._database, self._ask)
        if before != value:
            twice(self._database, write)
            _log.warning("%s; it was %s", in_words(most), before)
        self._known, self._asked_at = most, time.monotonic()

    def _ask(self, _: Tried) -> str:
        with self._database.ask() as connection:
            row = SELECT_META.row(connection, {"in_key": _KEY})
        return str(row[0]) if row else _NONE


def _number(value: str) -> int | None:
    if not (value.isascii() and value.isdecimal()):
        raise CodePilotError(
            FailureKind.INTERNAL,
            f"The store's limit of steps at work is {value!r}, which is no number.",
            next_action="Set it anew: codepilot worker --most-running N.",
        )
    return int(value) or None


def in_words(most: int | None) -> str:
    return "no limit of steps at work" if most is None else f"at most {most} step(s) at work on the whole store"
