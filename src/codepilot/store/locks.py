"""Contract locks: which run may change the files of a lock, in each repository.

A run holds a lock while it is worked on, and for the length of a lease after its last event: events renew it. A lock
that another run takes over gets a higher fence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sqlalchemy import ColumnElement, Connection, FromClause, delete, exists, func, or_, select, update

from codepilot.core.events import TERMINAL
from codepilot.store.database import Database
from codepilot.store.rows import LockRow
from codepilot.store.schema import locks, runs, steps

NOBODY = ""
"""The holder of a lock that was given back; its row stays for the fence."""


class LockTable:
    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def take(
        self, repo: str, names: Collection[str], run_id: str, lease_us: int
    ) -> tuple[list[LockRow], list[LockRow]]:
        """Take all of these locks, or none: those taken now, and those that other runs hold."""

        def change(connection: Connection) -> tuple[list[LockRow], list[LockRow]]:
            now = self._database.now(connection, self._clock)
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"locks of {repo}"))))
            wanted = select(locks).where(locks.c.repo == repo, locks.c.name.in_(sorted(names)))
            found = {row.name: LockRow(**row._mapping) for row in connection.execute(wanted).all()}
            others = {row.run_id for row in found.values()} - {run_id}
            holding = _holding(connection, others, now - lease_us)
            held = [row for row in found.values() if row.run_id in holding]
            if held:
                return [], held
            mine = {name for name, row in found.items() if row.run_id == run_id}
            taken = [
                LockRow(repo, name, run_id, found[name].fence + 1 if name in found else 1, now)
                for name in sorted(set(names) - mine)
            ]
            for row in taken:
                connection.execute(delete(locks).where(locks.c.repo == repo, locks.c.name == row.name))
                connection.execute(locks.insert().values(**vars(row)))
            return taken, []

        return self._database.writing(change)

    def release(self, run_id: str) -> tuple[str, ...]:
        """Give back what a run holds; the names."""

        def change(connection: Connection) -> tuple[str, ...]:
            names = tuple(connection.scalars(select(locks.c.name).where(locks.c.run_id == run_id)).all())
            if names:
                connection.execute(update(locks).where(locks.c.run_id == run_id).values(run_id=NOBODY))
            return names

        return self._database.writing(change)

    def rows(self) -> list[LockRow]:
        """Every lock that a run has taken and not given back."""
        wanted = select(locks).where(locks.c.run_id != NOBODY).order_by(locks.c.repo, locks.c.name)
        return [LockRow(**row._mapping) for row in self._database.reading(lambda db: db.execute(wanted).all())]


def _holding(connection: Connection, run_ids: Collection[str], since: int) -> set[str]:
    """Those of the runs that still hold their locks: they, or parts of their plan, are at work or were since then."""
    if not run_ids:
        return set()
    parts = runs.alias()
    part = exists().where(parts.c.parent_run_id == runs.c.run_id, *_works(parts, since))
    working = select(runs.c.run_id).where(runs.c.run_id.in_(sorted(run_ids)), *_works(runs, since))
    waiting = select(runs.c.run_id).where(runs.c.run_id.in_(sorted(run_ids)), _goes_on(runs), part)
    return {*connection.scalars(working).all(), *connection.scalars(waiting).all()}


def _works(table: FromClause, since: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """A worker has the run, or it recorded something since then."""
    at_work = exists().where(steps.c.run_id == table.c.run_id, steps.c.status == "RUNNING")
    return _goes_on(table), or_(table.c.updated_at > since, at_work)


def _goes_on(table: FromClause) -> ColumnElement[bool]:
    return table.c.state.not_in(sorted(state.value for state in TERMINAL))
