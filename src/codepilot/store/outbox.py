"""Ends of runs that are to be notified: what is owed, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import select

from codepilot.core.events import EventDraft
from codepilot.store.database import Database
from codepilot.store.log import Log
from codepilot.store.rows import NotificationRow
from codepilot.store.schema import notifications
from codepilot.store.statements import SELECT_OWED, SELECT_PENDING
from codepilot.store.tries import Tried, twice


class Outbox:
    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._log = log

    def owed(self, but: Iterable[str] = (), limit: int = 50) -> list[NotificationRow]:
        """Some of what nobody has sent yet, the oldest first, but for these runs."""
        asked = {"in_but": json.dumps(dict.fromkeys(but)), "in_limit": limit}

        def look(_: Tried) -> list[NotificationRow]:
            with self._database.ask() as connection:
                return [NotificationRow(*row) for row in SELECT_OWED.rows(connection, asked)]

        return twice(self._database, look)

    def of(self, run_id: str) -> list[NotificationRow]:
        """All of a run, in their order."""
        wanted = select(notifications).where(notifications.c.run_id == run_id).order_by(notifications.c.seq)

        def look(_: Tried) -> list[NotificationRow]:
            with self._database.look() as connection:
                return [NotificationRow(**row._mapping) for row in connection.execute(wanted)]

        return twice(self._database, look)

    def is_owed(self, owed: NotificationRow) -> bool:
        """Whether it is still."""

        def look(_: Tried) -> bool:
            with self._database.ask() as connection:
                return SELECT_PENDING.row(connection, {"in_run": owed.run_id, "in_seq": owed.seq}) is not None

        return twice(self._database, look)

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
