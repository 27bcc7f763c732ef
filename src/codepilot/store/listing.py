"""Lists of runs: filtered pages, the runs of a task, and which runs changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import and_, func, or_, select, tuple_

from codepilot.core.events import Event, EventType
from codepilot.core.memory import MemoryRecalled
from codepilot.store.database import Database
from codepilot.store.rows import (
    RunChange,
    RunFilter,
    RunRow,
    StepRow,
    StepStatus,
    read_event,
    read_run_row,
    read_step_row,
)
from codepilot.store.schema import events, runs, steps

NEWEST_TURNS = 2_000
"""Turns of a run whose calls are counted."""

_ROW = (
    runs.c.run_id,
    runs.c.state,
    runs.c.verdict,
    runs.c.goal,
    runs.c.repo,
    runs.c.created_at,
    runs.c.updated_at,
    runs.c.failure_kind,
)


@dataclass(frozen=True)
class Tally:
    """What the log of one run says of tools and memory."""

    calls: Mapping[tuple[str, str], int]
    """How often a tool was called, by its name and the call's status."""
    asked: int
    """How often the run asked for memories of failures and patterns."""
    found: int
    """How often there were some."""


class Listing:
    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, wanted: RunFilter, limit: int) -> list[RunRow]:
        """The newest runs first, without child runs."""
        query = select(*_ROW).where(runs.c.parent_run_id.is_(None))
        query = query.order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(limit)
        if wanted.states:
            query = query.where(runs.c.state.in_([state.value for state in wanted.states]))
        for column, value in ((runs.c.verdict, wanted.verdict), (runs.c.repo, wanted.repo)):
            if value:
                query = query.where(column == value)
        if wanted.task_id:
            query = query.where(runs.c.task_id == wanted.task_id)
        if wanted.goal:
            query = query.where(runs.c.goal.icontains(wanted.goal, autoescape=True))
        if wanted.before is not None:
            query = query.where(tuple_(runs.c.created_at, runs.c.run_id) < tuple_(*wanted.before))
        return [read_run_row(row) for row in self._database.reading(lambda db: db.execute(query).all())]

    def changes(self, run_ids: Sequence[str] = (), since: int | None = None) -> list[RunChange]:
        """The progress of these runs; with `since`, of every run that changed at that time or later, oldest first."""
        query = select(runs.c.run_id, runs.c.state, runs.c.updated_at, runs.c.last_seq)
        query = query.where(runs.c.run_id.in_(run_ids) if since is None else runs.c.updated_at >= since)
        query = query.order_by(runs.c.updated_at, runs.c.run_id)
        return [RunChange(*row) for row in self._database.reading(lambda db: db.execute(query).all())]

    def steps_at_work(self) -> list[StepRow]:
        """The steps that workers hold, of all runs."""
        held = select(steps).where(steps.c.status == StepStatus.RUNNING.value).order_by(steps.c.claimed_at)
        return [read_step_row(row) for row in self._database.reading(lambda db: db.execute(held).all())]

    def retries(self, run_ids: Sequence[str]) -> dict[str, int]:
        """How many steps of these runs were tried again, by state."""
        again = (steps.c.run_id.in_(run_ids), steps.c.attempt > 1)
        counted = select(steps.c.state, func.count()).where(*again).group_by(steps.c.state)
        return {
            str(state): int(number) for state, number in self._database.reading(lambda db: db.execute(counted).all())
        }

    def of_types(self, run_ids: Sequence[str], types: Sequence[EventType]) -> list[Event]:
        """The events of these types in these runs, in the order of their times."""
        named = (events.c.run_id.in_(run_ids), events.c.type.in_([kind.value for kind in types]))
        query = select(events).where(*named).order_by(events.c.at, events.c.run_id, events.c.seq)
        return [read_event(row) for row in self._database.reading(lambda db: db.execute(query).all())]

    def tally(self, run_id: str) -> Tally:
        """What the newest turns of a run called, and how often it asked for memories."""
        called = and_(events.c.type == EventType.TURN_FINISHED.value, events.c.data.contains('"calls":[{'))
        wanted = or_(called, events.c.type == EventType.MEMORY_RECALLED.value)
        query = select(events.c.type, events.c.data).where(events.c.run_id == run_id, wanted)
        newest = query.order_by(events.c.seq.desc()).limit(NEWEST_TURNS)
        calls: Counter[tuple[str, str]] = Counter()
        asked = found = 0
        for kind, data in self._database.reading(lambda db: db.execute(newest).all()):
            if kind == EventType.TURN_FINISHED.value:
                calls.update((call["skill"], call["status"]) for call in json.loads(data)["calls"])
                continue
            recalled = MemoryRecalled.model_validate_json(data)
            if recalled.kind != "quirk":
                asked += 1
                found += any(item.memory.kind == recalled.kind for item in recalled.found)
        return Tally(calls, asked, found)
