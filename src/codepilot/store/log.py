"""The one way in: events are placed, inserted and projected within one transaction.

The stored `Run` may lie a bounded number of events behind the log while a step works; `current` adds the missing
ones, so what it returns is always the whole log's tale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, exists, insert, select

from codepilot.core.contract import canonical_json
from codepilot.core.events import Event, EventDraft
from codepilot.core.run import Run, begin, evolve
from codepilot.core.task import TaskSpec
from codepilot.store.projection import (
    CHANGES_ROWS,
    VIEW_SHAPE,
    event_columns,
    project_artifacts,
    project_steps,
    run_columns,
    view_columns,
)
from codepilot.store.records import event_id, no_run, plain_text, read_event
from codepilot.store.schema import events, runs, tasks, views
from codepilot.store.statements import (
    INSERT_EVENT,
    LENGTHEN_RUN,
    SELECT_RUN,
    SELECT_RUN_LOCKED,
    UPDATE_RUN,
    UPDATE_VIEW,
)

VIEW_LAG = 64
"""How many events the stored view of a run may lie behind its log."""


class Log:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    def create(self, connection: Connection, run_id: str, drafts: Sequence[EventDraft]) -> list[Event]:
        """Begin a run; those events that exist already are returned instead."""
        existing = connection.execute(select(events).where(events.c.run_id == run_id).order_by(events.c.seq)).all()
        if existing:
            return [read_event(row) for row in existing]
        added = self._place(run_id, 0, drafts)
        run = begin(added[0])
        for event in added[1:]:
            run = evolve(run, event)
        _insert_task(connection, run.task, run.created_at)
        columns = {"goal": plain_text(run.task.goal.natural), "repo": plain_text(run.task.repo)}
        connection.execute(
            insert(runs).values(
                run_id=run_id, task_id=run.task.task_id, created_at=run.created_at, **columns, **run_columns(run)
            )
        )
        connection.execute(insert(views).values(run_id=run_id, **view_columns(run)))
        self._insert(connection, added)
        for event in added:
            project_steps(connection, event, run.task.priority)
        return added

    def extend(
        self, connection: Connection, run_id: str, last_seq: int, view_seq: int, drafts: Sequence[EventDraft]
    ) -> list[Event]:
        """Add events without rewriting the view, where it may lag and no row but the run's length changes."""
        behind = last_seq + len(drafts) - view_seq
        if behind > VIEW_LAG or any(draft.type in CHANGES_ROWS for draft in drafts):
            return self.record(connection, self.current(connection, run_id), drafts)[0]
        added = self._place(run_id, last_seq, drafts)
        if added:
            self._insert(connection, added)
            age = {"in_run": run_id, "new_last_seq": added[-1].seq, "new_updated_at": added[-1].at}
            LENGTHEN_RUN.run(connection, age)
        return added

    def record(self, connection: Connection, run: Run, drafts: Sequence[EventDraft]) -> tuple[list[Event], Run]:
        """Add events and everything that follows from them; also the run as they leave it."""
        added = self._place(run.run_id, run.last_seq, drafts)
        if not added:
            return added, run
        self._insert(connection, added)
        for event in added:
            run = evolve(run, event)
            project_steps(connection, event, run.task.priority)
        UPDATE_RUN.run(connection, {"in_run": run.run_id, **run_columns(run)})
        UPDATE_VIEW.run(connection, {"in_run": run.run_id, **view_columns(run)})
        return added, run

    def current(self, connection: Connection, run_id: str, lock: bool = False) -> Run:
        row = (SELECT_RUN_LOCKED if lock else SELECT_RUN).row(connection, {"in_run": run_id})
        if row is None:
            raise no_run(run_id)
        last_seq, view_seq, shape, view = row
        run = Run.model_validate_json(view) if shape == VIEW_SHAPE else None
        if run is not None and last_seq == view_seq:
            return run
        told = 0 if run is None else view_seq
        newer = select(events).where(events.c.run_id == run_id, events.c.seq > told).order_by(events.c.seq)
        for event in map(read_event, connection.execute(newer)):
            run = begin(event) if run is None else evolve(run, event)
        if run is None:
            raise no_run(run_id)
        return run

    def _place(self, run_id: str, last_seq: int, drafts: Sequence[EventDraft]) -> list[Event]:
        """Give the drafts their places in the log."""
        now = self._clock()
        return [
            Event(
                type=draft.type,
                data=draft.data,
                step_id=draft.step_id,
                attempt=draft.attempt,
                artifacts=draft.artifacts,
                event_id=event_id(run_id, seq),
                seq=seq,
                run_id=run_id,
                at=now,
            )
            for seq, draft in enumerate(drafts, start=last_seq + 1)
        ]

    def _insert(self, connection: Connection, added: Sequence[Event]) -> None:
        INSERT_EVENT.run(connection, *(event_columns(event) for event in added))
        project_artifacts(connection, added)


def _insert_task(connection: Connection, task: TaskSpec, now: int) -> None:
    """A task may have several runs; it is recorded with the first."""
    if connection.scalar(select(exists().where(tasks.c.task_id == task.task_id))):
        return
    connection.execute(
        insert(tasks).values(
            task_id=task.task_id,
            kind=task.kind.value,
            goal=plain_text(task.goal.natural),
            repo=plain_text(task.repo),
            ref=task.ref,
            spec=canonical_json(task),
            created_at=now,
        )
    )
