"""The outbox: ends of runs that are to be posted to a webhook, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import select

from codepilot.core.events import EventDraft
from codepilot.store.database import Database
from codepilot.store.log import Log
from codepilot.store.rows import NotificationRow
from codepilot.store.schema import notifications
from codepilot.store.statements import LEASE_NOTIFICATION, PUT_OFF_NOTIFICATION, SELECT_PENDING, SELECT_PENDING_DUE
from codepilot.store.tries import Tried, twice


class Outbox:
    def __init__(self, database: Database, log: Log, clock: Callable[[], int]) -> None:
        self._database = database
        self._log = log
        self._clock = clock

    def pending(self, limit: int = 50) -> list[NotificationRow]:
        """Pending rows, the oldest first, but for runs with a row that is leased or put off."""

        def look(_: Tried) -> list[NotificationRow]:
            with self._database.ask() as connection:
                asked = {"in_now": self._database.now(connection, self._clock), "in_limit": limit}
                return [NotificationRow(*row) for row in SELECT_PENDING_DUE.rows(connection, asked)]

        return twice(self._database, look)

    def of(self, run_id: str) -> list[NotificationRow]:
        """The rows of one run, in their order."""
        wanted = select(notifications).where(notifications.c.run_id == run_id).order_by(notifications.c.seq)

        def look(_: Tried) -> list[NotificationRow]:
            with self._database.look() as connection:
                return [NotificationRow(**row._mapping) for row in connection.execute(wanted)]

        return twice(self._database, look)

    def lease(self, row: NotificationRow, seconds: float) -> NotificationRow | None:
        """The row, for one attempt that takes less than `seconds`; None if it is settled, leased or put off."""
        known = {"in_run": row.run_id, "in_seq": row.seq, "in_tries": row.tries}

        def write(_: Tried) -> NotificationRow | None:
            with self._database.write(durable=False) as connection:
                now = self._database.now(connection, self._clock)
                leased = replace(row, tries=row.tries + 1, not_before=now + int(seconds * 1e6))
                new = {"in_now": now, "new_tries": leased.tries, "new_not_before": leased.not_before}
                return leased if LEASE_NOTIFICATION.send(connection, {**known, **new}).touched else None

        return twice(self._database, write)

    def put_off(self, row: NotificationRow, seconds: float) -> None:
        """The attempt on a leased row failed: nobody tries it again for so long."""
        known = {"in_run": row.run_id, "in_seq": row.seq, "in_tries": row.tries}

        def write(_: Tried) -> None:
            with self._database.write(durable=False) as connection:
                until = self._database.now(connection, self._clock) + int(seconds * 1e6)
                PUT_OFF_NOTIFICATION.send(connection, {**known, "new_not_before": until})

        twice(self._database, write)

    def settle(self, row: NotificationRow, settling: EventDraft) -> bool:
        """Record the outcome, unless another sender has: then nothing is written, and the answer is False."""

        def write(tried: Tried) -> bool:
            with self._database.write(durable=True) as connection:
                run = self._log.locked(connection, row.run_id)
                if self._log.committed(connection, tried) is not None:
                    return True
                if SELECT_PENDING.row(connection, {"in_run": row.run_id, "in_seq": row.seq}) is None:
                    return False
                self._log.record(connection, run, [settling], tried)
                return True

        return twice(self._database, write)
