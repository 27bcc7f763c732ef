"""The store: append events, project them and queue the next step, all in one transaction.

Every event enters through `_insert`. The stored `Run` may lie a bounded number of events behind the log while a
step works; `load` adds the missing ones, so what it returns is always the whole log's tale.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, exists, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from codepilot.core.contract import canonical_json
from codepilot.core.events import Event, EventDraft, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run, begin, evolve
from codepilot.core.task import TaskSpec
from codepilot.store.check import check_run
from codepilot.store.database import Database
from codepilot.store.projection import (
    CHANGES_ROWS,
    VIEW_SHAPE,
    event_columns,
    project_artifacts,
    project_steps,
    run_columns,
    view_columns,
)
from codepilot.store.records import event_id, no_run, plain_text, read_event, read_run_row, read_step_row
from codepilot.store.rows import Claim, LostLease, RunRow, StepRow, StepStatus
from codepilot.store.schema import events, leases, runs, steps, tasks, views
from codepilot.store.statements import (
    INSERT_EVENT,
    LENGTHEN_RUN,
    NEXT_STEP,
    NEXT_STEP_OF_RUN,
    RETURN_STEP,
    SELECT_HELD,
    SELECT_REQUESTS,
    SELECT_RUN,
    SELECT_RUN_LOCKED,
    TAKE_STEP,
    UPDATE_RUN,
    UPDATE_VIEW,
    status_is,
)
from codepilot.store.workers import WorkerLocks
from codepilot.telemetry import now_us

VIEW_LAG = 64
"""How many events the stored view of a run may lie behind its log."""


class Store:
    """Runs, steps and events of one database. Safe to use from any thread."""

    def __init__(self, database: Database, clock: Callable[[], int], workers: WorkerLocks) -> None:
        self._database = database
        self._clock = clock
        self._workers = workers

    @classmethod
    def open(cls, url_or_path: str | Path, *, clock: Callable[[], int] = now_us, locks: Path | None = None) -> Store:
        """Open the store, migrating it if need be. `locks` is where this machine's workers show that they live."""
        database = Database.open(url_or_path, locks)
        return cls(database, clock, WorkerLocks(database.locks))

    def close(self) -> None:
        """Let go of the database; workers registered here count as gone."""
        self._workers.close()
        self._database.close()

    # writing ----------------------------------------------------------------------------------------

    def create_run(self, run_id: str, drafts: Sequence[EventDraft]) -> list[Event]:
        """Begin a run with its first events; a second call with the same id returns those that exist."""
        try:
            return self._create(run_id, drafts)
        except CodePilotError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            return self._create(run_id, drafts)

    def append(self, claim: Claim, drafts: Sequence[EventDraft]) -> list[Event]:
        """Add events of a step at work. They survive a killed process, and a power cut from the next commit on."""
        with self._database.write(durable=False) as connection:
            held = SELECT_HELD.row(connection, _claim_params(claim))
            if held is None:
                raise LostLease(claim)
            last_seq, view_seq = held
            behind = last_seq + len(drafts) - view_seq
            if behind > VIEW_LAG or any(draft.type in CHANGES_ROWS for draft in drafts):
                return self._record(connection, self._current(connection, claim.run_id), drafts)
            added = self._place(claim.run_id, last_seq, drafts)
            if added:
                self._insert(connection, added)
                age = {"in_run": claim.run_id, "new_last_seq": added[-1].seq, "new_updated_at": added[-1].at}
                LENGTHEN_RUN.run(connection, age)
            return added

    def commit(self, claim: Claim, decide: Callable[[Run], Sequence[EventDraft]]) -> list[Event]:
        """Add what `decide` makes of the run, if the claim still holds. `decide` must not use the store."""
        with self._database.write(durable=True) as connection:
            if SELECT_HELD.row(connection, _claim_params(claim)) is None:
                raise LostLease(claim)
            run = self._current(connection, claim.run_id)
            return self._record(connection, run, decide(run))

    def control(self, run_id: str, decide: Callable[[Run], Sequence[EventDraft]]) -> list[Event]:
        """The same from outside a step: requests to pause, cancel or resume. No claim is needed."""
        with self._database.write(durable=True) as connection:
            run = self._current(connection, run_id, lock=True)
            return self._record(connection, run, decide(run))

    # scheduling -------------------------------------------------------------------------------------

    def claim(self, worker: str, run_id: str | None = None) -> Claim | None:
        """Take the oldest pending step of a run that is at work, or None. Registers the worker if need be."""
        if not self._workers.alive(worker):
            self.register_worker(worker)
        wanted = NEXT_STEP if run_id is None else NEXT_STEP_OF_RUN
        with self._database.write(durable=False) as connection:
            row = wanted.row(connection, {} if run_id is None else {"in_run": run_id})
            if row is None:
                return None
            claimed_run, step_id, attempt, fence, state = row
            claim = Claim(claimed_run, step_id, attempt, fence + 1, worker, State(state))
            taken = {"new_fence": claim.fence, "new_worker": worker, "new_claimed_at": self._clock()}
            TAKE_STEP.run(connection, {**_claim_params(claim), **taken})
            return claim

    def register_worker(self, worker: str) -> None:
        """Show that `worker` lives, until `release_worker`, `close` or the end of this process."""
        self._workers.hold(worker)
        now = self._clock()
        with self._database.write(durable=False) as connection:
            connection.execute(delete(leases).where(leases.c.worker == worker))
            connection.execute(
                insert(leases).values(
                    worker=worker, host=socket.gethostname(), pid=os.getpid(), started_at=now, beat_at=now
                )
            )

    def release_worker(self, worker: str) -> None:
        """The worker is done; steps it still holds may be reclaimed."""
        with self._database.write(durable=False) as connection:
            connection.execute(delete(leases).where(leases.c.worker == worker))
        self._workers.release(worker)

    def beat(self, worker: str) -> None:
        """Say when the worker was last seen, once a process however many steps it has."""
        with self._database.write(durable=False) as connection:
            connection.execute(update(leases).where(leases.c.worker == worker).values(beat_at=self._clock()))

    def worker_alive(self, worker: str) -> bool:
        return self._workers.alive(worker)

    def reclaim(self, run_id: str | None = None) -> list[str]:
        """Return the steps of dead workers to PENDING with a higher fence; the ids of those steps."""
        lost = select(steps.c.run_id, steps.c.step_id, steps.c.attempt, steps.c.fence, steps.c.worker, steps.c.state)
        lost = lost.where(status_is(StepStatus.RUNNING)).order_by(steps.c.queued_at)
        if run_id is not None:
            lost = lost.where(steps.c.run_id == run_id)
        with self._database.read() as connection:
            held = [Claim(*row[:5], State(row.state)) for row in connection.execute(lost)]
            known = set(connection.scalars(select(leases.c.worker)))
        dead = {worker for worker in known | {claim.worker for claim in held} if not self._workers.alive(worker)}
        if not dead:
            return []
        with self._database.write(durable=False) as connection:
            lost_claims = [claim for claim in held if claim.worker in dead]
            reclaimed = [c.step_id for c in lost_claims if RETURN_STEP.run(connection, _claim_params(c))]
            connection.execute(delete(leases).where(leases.c.worker.in_(sorted(dead))))
        for worker in dead:
            self._workers.bury(worker)
        return reclaimed

    # reading ----------------------------------------------------------------------------------------

    def load(self, run_id: str) -> Run:
        """The run as its whole log tells it, from the stored view and the few events after it."""
        with self._database.read() as connection:
            return self._current(connection, run_id)

    def find(self, prefix: str) -> str:
        """The id of the run that `prefix` names alone (`r-` may be left out); `last` is the newest."""
        newest = select(runs.c.run_id).order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
        wanted = prefix.strip().lower()
        with self._database.read() as connection:
            if wanted == "last":
                found = list(connection.scalars(newest.limit(1)))
            else:
                full = wanted if wanted.startswith("r-") else f"r-{wanted}"
                if connection.scalar(select(exists().where(runs.c.run_id == full))):
                    return full
                found = list(connection.scalars(newest.where(runs.c.run_id.startswith(full, autoescape=True)).limit(6)))
        if not found or not wanted:
            raise no_run(prefix)
        if len(found) > 1:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{prefix!r} names several runs: {', '.join(found[:5])}{', …' if len(found) > 5 else ''}.",
                next_action="Give more characters of the id; `codepilot history` lists them.",
            )
        return str(found[0])

    def history(self, limit: int = 50) -> list[RunRow]:
        """The newest runs first."""
        wanted = (
            runs.c.run_id,
            runs.c.state,
            runs.c.verdict,
            runs.c.goal,
            runs.c.repo,
            runs.c.created_at,
            runs.c.updated_at,
            runs.c.failure_kind,
        )
        with self._database.read() as connection:
            rows = connection.execute(
                select(*wanted).order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(limit)
            )
            return [read_run_row(row) for row in rows]

    def events(self, run_id: str, after: int = 0, step_id: str | None = None, limit: int | None = None) -> list[Event]:
        """The run's events in order, those after `after`; only one step's if `step_id` is given."""
        wanted = select(events).where(events.c.run_id == run_id, events.c.seq > after).order_by(events.c.seq)
        if step_id is not None:
            queued = select(func.min(steps.c.queued_seq)).where(steps.c.run_id == run_id, steps.c.step_id == step_id)
            wanted = wanted.where(events.c.step_id == step_id, events.c.seq >= queued.scalar_subquery())
        with self._database.read() as connection:
            return [read_event(row) for row in connection.execute(wanted.limit(limit))]

    def steps(self, run_id: str) -> list[StepRow]:
        """The run's steps, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(steps).where(steps.c.run_id == run_id).order_by(steps.c.queued_seq))
            return [read_step_row(row) for row in rows]

    def requested(self, run_id: str) -> tuple[bool, bool]:
        """Whether someone asked to pause and to cancel the run; cheap enough to poll."""
        with self._database.read() as connection:
            row = SELECT_REQUESTS.row(connection, {"in_run": run_id})
        if row is None:
            raise no_run(run_id)
        return bool(row[0]), bool(row[1])

    def check(self, run_id: str) -> None:
        """Prove that the log is gapless and that every stored view is what the log tells, or raise INTERNAL."""
        with self._database.read() as connection:
            rows = connection.execute(select(events).where(events.c.run_id == run_id).order_by(events.c.seq))
            log = [read_event(row) for row in rows]
            if not log:
                raise no_run(run_id)
            small = connection.execute(select(runs).where(runs.c.run_id == run_id)).one()._asdict()
            stored = connection.execute(select(views).where(views.c.run_id == run_id)).one()
            current = self._current(connection, run_id)
            statuses = connection.execute(select(steps).where(steps.c.run_id == run_id)).all()
        view = stored.view if stored.shape == VIEW_SHAPE else None
        check_run(log, small, (stored.seq, view), current, [read_step_row(row) for row in statuses])

    # the one way in ---------------------------------------------------------------------------------

    def _create(self, run_id: str, drafts: Sequence[EventDraft]) -> list[Event]:
        with self._database.write(durable=True) as connection:
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
                project_steps(connection, event)
            return added

    def _record(self, connection: Connection, run: Run, drafts: Sequence[EventDraft]) -> list[Event]:
        added = self._place(run.run_id, run.last_seq, drafts)
        if not added:
            return added
        self._insert(connection, added)
        for event in added:
            run = evolve(run, event)
            project_steps(connection, event)
        UPDATE_RUN.run(connection, {"in_run": run.run_id, **run_columns(run)})
        UPDATE_VIEW.run(connection, {"in_run": run.run_id, **view_columns(run)})
        return added

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

    def _current(self, connection: Connection, run_id: str, lock: bool = False) -> Run:
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


def _claim_params(claim: Claim) -> dict[str, Any]:
    return {
        "in_run": claim.run_id,
        "in_step": claim.step_id,
        "in_attempt": claim.attempt,
        "in_fence": claim.fence,
        "in_worker": claim.worker,
    }


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
