"""Lists of runs: filtered pages, the runs of a task, and which runs changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from sqlalchemy import func, select, tuple_

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
"""Turns whose calls are counted."""

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

    def tool_calls(self, run_ids: Sequence[str]) -> dict[str, dict[str, int]]:
        """How often the newest turns of these runs called each tool, by the calls' status."""
        turns = (events.c.run_id.in_(run_ids), events.c.type == EventType.TURN_FINISHED.value)
        called = select(events.c.data).where(*turns, events.c.data.contains('"calls":[{'))
        newest = called.order_by(events.c.at.desc()).limit(NEWEST_TURNS)
        found: dict[str, Counter[str]] = {}
        for data in self._database.reading(lambda db: list(db.scalars(newest))):
            for call in json.loads(data)["calls"]:
                found.setdefault(call["skill"], Counter())[call["status"]] += 1
        return {skill: dict(statuses) for skill, statuses in found.items()}

    def recalls(self, run_ids: Sequence[str]) -> tuple[int, int]:
        """How often these runs asked for memories, and how often some were found."""
        asked = select(events.c.data).where(
            events.c.run_id.in_(run_ids), events.c.type == EventType.MEMORY_RECALLED.value
        )
        found = self._database.reading(lambda db: list(db.scalars(asked)))
        asked_for = [one for one in map(MemoryRecalled.model_validate_json, found) if one.kind != "quirk"]
        return len(asked_for), sum(any(item.memory.kind == one.kind for item in one.found) for one in asked_for)
