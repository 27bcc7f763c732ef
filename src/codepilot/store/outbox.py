"""Ends of runs that are to be notified: what is owed, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from sqlalchemy import select

from codepilot.core.events import EventDraft
from codepilot.store.database import Database
from codepilot.store.log import Log
from codepilot.store.rows import NotificationRow
from codepilot.store.schema import notifications
from codepilot.store.statements import PUT_OFF_NOTIFICATION, SELECT_OWED, SELECT_PENDING
from codepilot.store.tries import Tried, twice


class Outbox:
    def __init__(self, database: Database, log: Log, clock: Callable[[], int]) -> None:
        self._database = database
        self._log = log
        self._clock = clock

    def owed(self, but: Iterable[str] = (), limit: int = 50) -> list[NotificationRow]:
        """Some of what nobody has sent yet, the oldest first, but for these runs and those whose time has not come."""
        asked = {"in_but": json.dumps(dict.fromkeys(but)), "in_limit": limit}

        def look(_: Tried) -> list[NotificationRow]:
            with self._database.ask() as connection:
                now = self._database.now(connection, self._clock)
                return [NotificationRow(*row) for row in SELECT_OWED.rows(connection, {**asked, "in_now": now})]

        return twice(self._database, look)

    def of(self, run_id: str) -> list[NotificationRow]:
        """All of a run, in their order."""
        wanted = select(notifications).where(notifications.c.run_id == run_id).order_by(notifications.c.seq)

        def look(_: Tried) -> list[NotificationRow]:
            with self._database.look() as connection:
                return [NotificationRow(**row._mapping) for row in connection.execute(wanted)]

        return twice(self._database, look)

    def still(self, owed: NotificationRow) -> NotificationRow | None:
        """The same as it is now, if it is still owed."""

        def look(_: Tried) -> NotificationRow | None:
            with self._database.ask() as connection:
                row = SELECT_PENDING.row(connection, {"in_run": owed.run_id, "in_seq": owed.seq})
                return None if row is None else NotificationRow(*row)

        return twice(self._database, look)

    def put_off(self, owed: NotificationRow, seconds: float) -> None:
        """It was tried in vain: nobody tries it again for so long."""
        known = {"in_run": owed.run_id, "in_seq": owed.seq, "new_tries": owed.tries + 1}

        def write(_: Tried) -> None:
            with self._database.write(durable=False) as connection:
                until = self._database.now(connection, self._clock) + int(seconds * 1e6)
                PUT_OFF_NOTIFICATION.send(connection, {**known, "new_not_before": until})

        twice(self._database, write)

    def settle(self, owed: NotificationRow, settling: EventDraft) -> bool:
        """Record what became of it, unless somebody else has: then nothing is written, and the answer is no."""

        def write(tried: Tried) -> bool:
            with self._database.write(durable=True) as connection:
                run = self._log.locked(connection, owed.run_id)
                if self._log.committed(connection, tried) is not None:
                    return True
                if SELECT_PENDING.row(connection, {"in_run": owed.run_id, "in_seq": owed.seq}) is None:
                    return False
                self._log.record(connection, run, [settling], tried)
                return True

        return twice(self._database, write)
