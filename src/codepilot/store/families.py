"""Runs and their child runs: which wait for each other, and which must stop because their parent did."""

from __future__ import annotations

from sqlalchemy import select

from codepilot.core.events import TERMINAL, WAITING, State
from codepilot.store.database import Database
from codepilot.store.rows import member
from codepilot.store.schema import runs

_parent, _child = runs.alias("parent"), runs.alias("child")
_pairs = _child.join(_parent, _parent.c.run_id == _child.c.parent_run_id)
_ENDED = [state.value for state in TERMINAL]
_RESTING = [state.value for state in TERMINAL | WAITING]


class Families:
    def __init__(self, database: Database) -> None:
        self._database = database

    def children_of(self, run_id: str) -> dict[str, State]:
        """The states of a run's children by their ids, oldest first; those that only another version knows are left
        out."""
        wanted = select(runs.c.run_id, runs.c.state).where(runs.c.parent_run_id == run_id)
        rows = self._database.reading(lambda db: db.execute(wanted.order_by(runs.c.created_at, runs.c.run_id)).all())
        return {row.run_id: state for row in rows if isinstance(state := member(State, row.state), State)}

    def blocked_parents(self) -> list[str]:
        """The runs with children that are blocked, whatever they wait for."""
        wanted = select(_parent.c.run_id).distinct().select_from(_pairs)
        blocked = wanted.where(_child.c.parent_run_id.is_not(None), _parent.c.state == State.BLOCKED.value)
        return self._database.reading(lambda db: list(db.scalars(blocked)))

    def to_cancel(self) -> list[str]:
        """The children that go on although their parent has ended."""
        wanted = select(_child.c.run_id).select_from(_pairs).where(_child.c.parent_run_id.is_not(None))
        left = wanted.where(_child.c.state.not_in(_ENDED), _parent.c.state.in_(_ENDED))
        return self._database.reading(lambda db: list(db.scalars(left)))

    def to_pause(self) -> list[str]:
        """The children at work, or queued, whose parent is paused and who are not asked to pause yet."""
        wanted = select(_child.c.run_id).select_from(_pairs).where(_child.c.parent_run_id.is_not(None))
        active = wanted.where(_child.c.state.not_in(_RESTING), _child.c.pause_requested.is_(False))
        return self._database.reading(lambda db: list(db.scalars(active.where(_parent.c.state == State.PAUSED.value))))
