"""The outbox: ends of runs that are to be posted to a webhook, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, literal_column, select, update

from codepilot.core.events import EventDraft
from codepilot.store.database import Database
from codepilot.store.log import Log
from codepilot.store.projection import PENDING
from codepilot.store.rows import NotificationRow, Written
from codepilot.store.schema import notifications

_pending = notifications.c.state == literal_column(f"'{PENDING}'")


class Outbox:
    def __init__(self, database: Database, log: Log, clock: Callable[[], int]) -> None:
        self._database = database
        self._log = log
        self._clock = clock

    def pending(self, limit: int = 50) -> list[NotificationRow]:
        """Pending rows, the oldest first, but for runs with a row that is leased or put off."""
        later = notifications.alias("later")
        put_off = select(later.c.run_id).where(later.c.state == literal_column(f"'{PENDING}'"))

        def ask(connection: Connection) -> list[NotificationRow]:
            now = self._database.now(connection, self._clock)
            due = notifications.c.run_id.not_in(put_off.where(later.c.not_before > now))
            wanted = select(notifications).where(_pending, due)
            in_order = wanted.order_by(notifications.c.at, notifications.c.run_id, notifications.c.seq)
            return [NotificationRow(**row._mapping) for row in connection.execute(in_order.limit(limit)).all()]

        return self._database.reading(ask)

    def of(self, run_id: str) -> list[NotificationRow]:
        """The rows of one run, in their order."""
        wanted = select(notifications).where(notifications.c.run_id == run_id).order_by(notifications.c.seq)
        rows = self._database.reading(lambda db: db.execute(wanted).all())
        return [NotificationRow(**row._mapping) for row in rows]

    def lease(self, row: NotificationRow, seconds: float) -> NotificationRow | None:
        """The row, for one attempt that takes less than `seconds`; None if it is settled, leased or put off."""
        leased: NotificationRow | None = None

        def change(connection: Connection) -> NotificationRow | None:
            nonlocal leased
            if leased is not None and self._stored(connection, row) == leased:
                return leased  # the try whose answer was lost has landed
            now = self._database.now(connection, self._clock)
            free = notifications.c.not_before.is_(None) | (notifications.c.not_before <= now)
            leased = replace(row, tries=row.tries + 1, not_before=now + int(seconds * 1e6))
            taken = update(notifications).where(_attempt(row), free)
            new = {"tries": leased.tries, "not_before": leased.not_before}
            return leased if connection.execute(taken.values(new)).rowcount else None

        return self._database.writing(change, durable=False)

    def put_off(self, row: NotificationRow, seconds: float) -> None:
        """The attempt on a leased row failed: nobody tries it again for so long."""

        def change(connection: Connection) -> None:
            until = self._database.now(connection, self._clock) + int(seconds * 1e6)
            connection.execute(update(notifications).where(_attempt(row)).values(not_before=until))

        self._database.writing(change, durable=False)

    def settle(self, row: NotificationRow, settling: EventDraft) -> bool:
        """Record the outcome, unless another sender has: then nothing is written, and the answer is False."""

        def work(connection: Connection) -> Written:
            run = self._log.current(connection, row.run_id, lock=True)
            stored = self._stored(connection, row)
            if stored is None or stored.state != PENDING:
                return Written([])
            return self._log.record(connection, run, [settling])

        return bool(self._log.transact(work).events)

    def _stored(self, connection: Connection, row: NotificationRow) -> NotificationRow | None:
        found = connection.execute(select(notifications).where(_is(row))).first()
        return None if found is None else NotificationRow(**found._mapping)


def _is(row: NotificationRow) -> ColumnElement[bool]:
    return (notifications.c.run_id == row.run_id) & (notifications.c.seq == row.seq)


def _attempt(row: NotificationRow) -> ColumnElement[bool]:
    """The row, if it is still pending and nobody has tried it since."""
    return _is(row) & _pending & (notifications.c.tries == row.tries)
