"""The one way in: events are placed, inserted and projected within one transaction.

The stored `Run` may lie a bounded number of events behind the log while a step works; `current` adds the missing
ones, so what it returns is always the whole log's tale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from codepilot.core.contract import canonical_json
from codepilot.core.events import TERMINAL, WAITING, Event, EventDraft, EventType, StepStarted
from codepilot.core.run import Run, begin, evolve
from codepilot.core.task import TaskSpec
from codepilot.store.beside import expect_asked, project_beside
from codepilot.store.notifications import project_notifications
from codepilot.store.projection import (
    CHANGES_ROWS,
    VIEW_SHAPE,
    birth_columns,
    event_columns,
    expect_one,
    project_steps,
    run_columns,
    view_columns,
)
from codepilot.store.queue import claim_params
from codepilot.store.records import begun_by, event_id, no_run, plain_text, read_event
from codepilot.store.rows import Claim, ClaimedStep, Unreadable
from codepilot.store.statements import (
    EXPECT_HELD,
    INSERT_EVENT,
    INSERT_RUN,
    INSERT_TASK,
    INSERT_VIEW,
    INSERT_WORKSPACE,
    LENGTHEN_RUN,
    SELECT_EVENTS,
    SELECT_HELD,
    SELECT_HELD_RUN,
    SELECT_NEWER_THAN_VIEW,
    SELECT_PLACED,
    SELECT_RUN,
    SELECT_RUN_LOCKED,
    UPDATE_RUN,
    UPDATE_VIEW,
)
from codepilot.store.tries import Tried

VIEW_LAG = 64
"""How many events the stored view of a run may lie behind its log: it is written anew at each multiple."""


class Log:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    # writing ----------------------------------------------------------------------------------------

    def create(
        self,
        connection: Connection,
        run_id: str,
        drafts: Sequence[EventDraft],
        tried: Tried,
        heir: Claim | None = None,
    ) -> tuple[list[Event], Run]:
        """Begin a run that does not exist; `heir` takes its first step."""
        added = tried.placed = self._place(run_id, 0, drafts)
        run = begin(added[0])
        for event in added[1:]:
            run = evolve(run, event)
        INSERT_TASK.send(connection, task_columns(run.task, run.created_at))
        INSERT_RUN.send(connection, {**birth_columns(run), **run_columns(run)})
        INSERT_VIEW.send(connection, {"run_id": run_id, **view_columns(run)})
        INSERT_WORKSPACE.send(connection, {"run_id": run_id})
        self._insert(connection, added)
        _project(connection, added, run.task.priority, heir=heir)
        if run.task.notify:
            project_notifications(connection, added)
        return added, run

    def extend(
        self,
        connection: Connection,
        run_id: str,
        last_seq: int,
        drafts: Sequence[EventDraft],
        tried: Tried,
    ) -> list[Event]:
        """Add events without rewriting the view, where it may lag and no row but the run's length changes."""
        if _view_due(last_seq, len(drafts)) or any(draft.type in CHANGES_ROWS for draft in drafts):
            return self.record(connection, self.current(connection, run_id), drafts, tried)[0]
        added = tried.placed = self._place(run_id, last_seq, drafts)
        if added:
            self._insert(connection, added)
            age = {"in_run": run_id, "new_last_seq": added[-1].seq, "new_updated_at": added[-1].at}
            LENGTHEN_RUN.send(connection, age)
        return added

    def record(
        self,
        connection: Connection,
        run: Run,
        drafts: Sequence[EventDraft],
        tried: Tried,
        held: Claim | None = None,
        heir: Claim | None = None,
    ) -> tuple[list[Event], Run]:
        """Add events and everything that follows from them. The step of `held` is open; `heir` takes the next one."""
        added = tried.placed = self._place(run.run_id, run.last_seq, drafts)
        if not added:
            return added, run
        view_due = _view_due(run.last_seq, len(added))
        for event in added:
            run = evolve(run, event)
        self._insert(connection, added, heir)
        UPDATE_RUN.send(connection, {"in_run": run.run_id, **run_columns(run)})
        if view_due or run.state in TERMINAL | WAITING:
            UPDATE_VIEW.send(connection, {"in_run": run.run_id, **view_columns(run)})
        _project(connection, added, run.task.priority, held, heir)
        if run.task.notify:
            project_notifications(connection, added)
        return added, run

    def start(self, connection: Connection, claim: Claim, row: Sequence[Any]) -> ClaimedStep:
        """Record that the claim's step begins.

        `row` is the run's, as `SELECT_RUN` gives it.
        """
        run = self._told(connection, claim.run_id, row, None)
        added = self.extend(connection, claim.run_id, run.last_seq, [started(claim)], Tried())
        return ClaimedStep(claim, added, evolve(run, added[0]))

    # reading ----------------------------------------------------------------------------------------

    def whole(self, connection: Connection, run_id: str) -> list[Event]:
        """Every event of the run, none if there is no such run."""
        return [read_event(row) for row in SELECT_EVENTS.rows(connection, {"in_run": run_id, "in_after": 0})]

    def current(self, connection: Connection, run_id: str) -> Run:
        """The whole log's tale."""
        row = SELECT_RUN.row(connection, {"in_run": run_id})
        return self._told(connection, run_id, row, None)

    def locked(self, connection: Connection, run_id: str) -> Run:
        """The same, which nobody changes before this transaction ends."""
        return self._told(connection, run_id, SELECT_RUN_LOCKED.row(connection, {"in_run": run_id}), None)

    def held(self, connection: Connection, claim: Claim, known: Run | None) -> Run | None:
        """The same, of the claim's run; None if the claim is lost. What is `known` of it is not read again."""
        if known is not None:
            row = SELECT_HELD.row(connection, claim_params(claim))
            if row is None:
                return None
            if row[0] == known.last_seq:
                return known
        asked = SELECT_HELD_RUN.send(connection, claim_params(claim))
        newer = SELECT_NEWER_THAN_VIEW.send(connection, {"in_run": claim.run_id})
        found, rest = asked.rows(), newer.rows()
        if not found:
            return None
        # Whoever had the run's lock before us may have written its view anew between our two questions.
        follows = bool(rest) and rest[0][1] == found[0][1] + 1
        return self._told(connection, claim.run_id, found[0], rest if follows else None)

    def expect(self, connection: Connection, claim: Claim, known: Run) -> None:
        """Let the whole transaction fail (`is_stale`) unless the claim holds and its run is as it is known.

        On a server only: nothing waits for the answer.
        """
        EXPECT_HELD.send(connection, {**claim_params(claim), "in_seq": known.last_seq})

    def committed(self, connection: Connection, tried: Tried) -> list[Event] | None:
        """What an earlier try has placed, if it came into the log. The run must have been locked before."""
        placed = list(tried.placed)
        if not placed:
            return None
        place = {"in_run": placed[0].run_id, "in_first": placed[0].seq, "in_last": placed[-1].seq}
        found = [tuple(row) for row in SELECT_PLACED.rows(connection, place)]
        return placed if found == [tuple(event_columns(event).values()) for event in placed] else None

    def _told(
        self, connection: Connection, run_id: str, row: Sequence[Any] | None, newer: Iterable[Sequence[Any]] | None
    ) -> Run:
        if row is None:
            raise no_run(run_id)
        last_seq, view_seq, shape, view = row
        run = _read_view(view) if shape == VIEW_SHAPE else None
        if run is not None and last_seq == view_seq:
            return run
        if run is None or newer is None:
            told = 0 if run is None else view_seq
            newer = SELECT_EVENTS.rows(connection, {"in_run": run_id, "in_after": told})
        for event in map(read_event, newer):
            run = begun_by(event) if run is None else evolve(run, event)
        if run is None:
            raise Unreadable(run_id, "its log", ValueError("it is empty"))
        return run

    def _place(self, run_id: str, last_seq: int, drafts: Sequence[EventDraft]) -> list[Event]:
        """Give the drafts their places in the log."""
        now = self._clock()
        return [
            Event.placed(draft, event_id=event_id(run_id, seq), seq=seq, run_id=run_id, at=now)
            for seq, draft in enumerate(drafts, start=last_seq + 1)
        ]

    def _insert(self, connection: Connection, added: Sequence[Event], heir: Claim | None = None) -> None:
        INSERT_EVENT.send(connection, *(event_columns(event) for event in added))
        for sent, event in project_beside(connection, added, held_by=heir.worker if heir else None):
            expect_asked(sent, event)


def _view_due(last_seq: int, added: int) -> bool:
    return last_seq // VIEW_LAG != (last_seq + added) // VIEW_LAG


def started(claim: Claim) -> EventDraft:
    data = StepStarted(worker=claim.worker, fence=claim.fence)
    return EventDraft.of(EventType.STEP_STARTED, data, claim.step_id, claim.attempt)


def _read_view(view: str) -> Run | None:
    """One that was damaged is no better than none: the log is the authority."""
    try:
        return Run.model_validate_json(view)
    except ValidationError:
        return None


def _project(
    connection: Connection,
    added: Sequence[Event],
    priority: int,
    held: Claim | None = None,
    heir: Claim | None = None,
) -> None:
    """All are sent before the first answer is asked for; of a step that is known to be open, none is."""
    known_open = {(held.step_id, held.attempt)} if held else set()
    unsure = []
    for event in added:
        sent = project_steps(connection, event, priority, heir)
        if sent is None:
            continue
        if (event.step_id, event.attempt) in known_open:
            known_open.clear()
        else:
            unsure.append((sent, event))
    for sent, event in unsure:
        expect_one(sent, event)


def task_columns(task: TaskSpec, now: int) -> dict[str, Any]:
    """A task may have several runs; it is recorded with the first."""
    return {
        "task_id": task.task_id,
        "kind": task.kind.value,
        "goal": plain_text(task.goal.natural),
        "repo": plain_text(task.repo),
        "ref": task.ref,
        "spec": canonical_json(task),
        "created_at": now,
    }
