"""Activity: the live workers, and whether a run that has not ended is queued, at work or interrupted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from codepilot.core.events import TERMINAL, WAITING
from codepilot.store.database import Database
from codepilot.store.liveness import Liveness
from codepilot.store.rows import OPEN, Activity, StepStatus, WorkerRow
from codepilot.store.schema import leases, runs, steps

_RESTING = [state.value for state in TERMINAL | WAITING]


class Activities:
    def __init__(self, database: Database, liveness: Liveness, clock: Callable[[], int]) -> None:
        self._database = database
        self._liveness = liveness
        self._clock = clock

    def workers(self) -> list[WorkerRow]:
        """The workers that live, oldest first: their lock is held, and their last heartbeat is recent."""
        rows, now = self._database.reading(self._leases)
        return self._living(rows, now)

    def of(self, run_ids: Collection[str]) -> dict[str, Activity]:
        """The activity of those runs that have neither ended nor wait."""
        wanted = (
            select(steps.c.run_id, steps.c.status, steps.c.worker, steps.c.claimed_at)
            .join(runs, runs.c.run_id == steps.c.run_id)
            .where(steps.c.run_id.in_(run_ids), steps.c.status.in_([status.value for status in OPEN]))
            .where(runs.c.state.not_in(_RESTING))
        )

        def ask(connection: Connection) -> tuple[Sequence[Any], Sequence[Any], int]:
            return connection.execute(wanted).all(), *self._leases(connection)

        found, rows, now = self._database.reading(ask)
        if not found:
            return {}
        living = self._living(rows, now, {row.worker for row in found if row.worker})
        names, served = {one.worker for one in living}, any(one.takes_queued for one in living)
        return {row.run_id: _activity(row, names, served) for row in found}

    def ended_before(self, horizon: int) -> list[str]:
        """The runs that ended, and to which nothing happened since `horizon`; oldest first, without child runs."""
        ended = runs.c.state.in_([state.value for state in TERMINAL])
        wanted = (
            select(runs.c.run_id)
            .where(ended, runs.c.updated_at <= horizon, runs.c.parent_run_id.is_(None))
            .order_by(runs.c.updated_at)
        )
        return self._database.reading(lambda db: list(db.scalars(wanted)))

    def _leases(self, connection: Connection) -> tuple[Sequence[Any], int]:
        rows = connection.execute(select(leases).order_by(leases.c.started_at, leases.c.worker)).all()
        return rows, self._database.now(connection, self._clock)

    def _living(self, rows: Sequence[Any], now: int, holders: Iterable[str] = ()) -> list[WorkerRow]:
        """The workers that live. Only its lock shows it of a `holder` that has not sent its first heartbeat."""
        leased: Mapping[str, Any] = {row.worker: row for row in rows}
        names = {*leased, *holders}
        dead, _ = self._database.with_retry(lambda: self._liveness.judge(names))
        beating = [row for row in rows if row.worker not in dead and row.beat_at >= now - row.stale_us]
        found = [WorkerRow(row.worker, row.host, row.pid, row.beat_at, bool(row.takes_queued)) for row in beating]
        return found + [WorkerRow(name, "", 0, now, False) for name in sorted(names - dead - leased.keys())]


def _activity(step: Any, living: set[str], served: bool) -> Activity:
    if step.status == StepStatus.RUNNING:
        return Activity.WORKING if step.worker in living else Activity.INTERRUPTED
    returned = step.claimed_at is not None
    return Activity.INTERRUPTED if returned and not served else Activity.QUEUED
