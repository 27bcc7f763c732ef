"""The one way in: events get their place, are inserted and projected within one transaction.

The stored `Run` may lag a bounded number of events behind the log; `current` folds the missing ones, so it always
returns what the whole log says.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection, and_, bindparam, insert, select

from codepilot.core.events import TERMINAL, WAITING, Event, EventDraft, EventType, StepQueued, StepStarted
from codepilot.core.run import Run, evolve
from codepilot.store.database import Database
from codepilot.store.projection import (
    SCHEMA_DIGEST,
    RunProjection,
    StoredRow,
    event_columns,
    run_columns,
    upsert,
    view_columns,
)
from codepilot.store.rows import (
    Claim,
    ClaimedStep,
    LostLease,
    StepStatus,
    Unreadable,
    Written,
    begun_by,
    event_id,
    no_run,
    read_event,
)
from codepilot.store.schema import INSERTS, events, runs, steps, views

_MOST_HELD = 256
VIEW_LAG = 64
"""The stored view of a run is written anew whenever its log passes a multiple of this many events."""

Decision = Callable[[Run], Sequence[EventDraft]]
Work = Callable[[Connection], Written]

RUN_AND_VIEW = (runs.c.last_seq, views.c.seq, views.c.schema_digest, views.c.view)
"""The result of `Log.fold_newer`: the whole run."""

HELD = and_(
    steps.c.run_id == bindparam("of_run"),
    steps.c.step_id == bindparam("of_step"),
    steps.c.attempt == bindparam("of_attempt"),
    steps.c.fence == bindparam("of_fence"),
    steps.c.worker == bindparam("of_worker"),
    steps.c.status == StepStatus.RUNNING,
)
"""That the claim of these parameters (`claim_params`) still holds."""

_runs_and_views = select(*RUN_AND_VIEW).join_from(runs, views, views.c.run_id == runs.c.run_id)
_select_run = _runs_and_views.where(runs.c.run_id == bindparam("of_run"))
_select_run_locked = _select_run.with_for_update(of=runs)
_select_held = (
    select(runs.c.last_seq, *steps.columns)
    .join_from(runs, steps, steps.c.run_id == runs.c.run_id)
    .where(HELD)
    .with_for_update(of=[runs, steps])
)
_lock_run = select(runs.c.run_id).where(runs.c.run_id == bindparam("of_run")).with_for_update()
_lock_held = select(steps.c.run_id).where(HELD).with_for_update()
_select_events = (
    select(events)
    .where(events.c.run_id == bindparam("of_run"), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
)
_insert_run = {
    name: make(runs).on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    for name, make in INSERTS.items()
}


class Log:
    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self.clock = clock
        self._held_runs: OrderedDict[Claim, Run] = OrderedDict()
        """The run as the last transaction of each claim left it. A log only grows: what is missing is folded on top."""

    # writing ----------------------------------------------------------------------------------------

    def create(self, run_id: str, drafts: Sequence[EventDraft], worker: str | None) -> Written:
        """See `Store.create_run`."""

        def work(connection: Connection) -> Written:
            claim = _next_claim(run_id, worker, drafts)
            added = self._place(run_id, 0, _with_start(drafts, claim))
            projection = RunProjection()
            for event in added:
                projection.fold(event)
            made = connection.execute(_insert_run[connection.dialect.name], run_columns(projection.folded))
            if made.rowcount == 0:
                return Written(self.whole(connection, run_id))
            connection.execute(insert(events), [event_columns(event) for event in added])
            projection.save(connection)
            upsert(connection, views, [view_columns(projection.folded)])
            return _written(added, claim, projection.folded)

        return self.transact(work, notify=worker is None)

    def append(self, claim: Claim, drafts: Sequence[EventDraft]) -> list[Event]:
        """See `Store.append`."""

        def work(connection: Connection) -> Written:
            run, step = self._held(connection, claim)
            return self.record(connection, run, drafts, step=step)

        added = self.transact(work, durable=False).events
        before = self._held_runs.get(claim)
        if before is not None and added and before.last_seq == added[0].seq - 1:
            self._held_runs[claim] = reduce(evolve, added, before)
        return added

    def commit(self, claim: Claim, decide: Decision, claim_next: bool) -> Written:
        """See `Store.commit`."""

        def work(connection: Connection) -> Written:
            run, step = self._held(connection, claim)
            return self.record(connection, run, decide(run), claim.worker if claim_next else None, step)

        written = self.transact(work, notify=not claim_next)
        self._held_runs.pop(claim, None)
        return written

    def control(self, run_id: str, decide: Decision, claim: Work = lambda connection: Written([])) -> Written:
        """See `Store.control`; `claim` is called in the same transaction."""

        def work(connection: Connection) -> Written:
            run = self.current(connection, run_id, lock=True)
            written = self.record(connection, run, decide(run))
            return Written(written.events, claim(connection).claimed)

        return self.transact(work, notify=True)

    def transact(self, work: Work, *, durable: bool = True, notify: bool = False) -> Written:
        """Run `work` in one transaction, exactly once, and return its result.

        When the server was lost in the commit, the second try looks for the events of the first: if they are in the
        log, it landed and `work` is not done again.
        """
        tried = Written([])

        def attempt() -> Written:
            nonlocal tried
            with self._database.write(durable=durable, notify=notify) as connection:
                landed = self._landed(connection, tried)
                if landed is not None:
                    return landed
                tried = Written([])
                tried = work(connection)
                return tried

        written = self._database.with_retry(attempt)
        if written.claimed is not None:
            self._held_runs[written.claimed.claim] = written.claimed.run
            while len(self._held_runs) > _MOST_HELD:
                with suppress(KeyError):  # another thread was quicker
                    self._held_runs.popitem(last=False)
        return written

    def record(
        self,
        connection: Connection,
        run: Run,
        drafts: Sequence[EventDraft],
        worker: str | None = None,
        step: StoredRow | None = None,
    ) -> Written:
        """Add events to the run and store what follows from them; `worker` claims the step that they queue last.

        `step` is the row of the run's open step, if it has been read and locked.
        """
        claim = _next_claim(run.run_id, worker, drafts)
        added = self._place(run.run_id, run.last_seq, _with_start(drafts, claim))
        if not added:
            return Written([])
        projection = RunProjection(run, step)
        projection.load(connection, added)
        for event in added:
            projection.fold(event)
        connection.execute(insert(events), [event_columns(event) for event in added])
        folded = projection.folded
        upsert(connection, runs, [run_columns(folded)])
        if run.last_seq // VIEW_LAG != folded.last_seq // VIEW_LAG or folded.state in TERMINAL | WAITING:
            upsert(connection, views, [view_columns(folded)])
        projection.save(connection)
        return _written(added, claim, folded)

    def begin_step(self, connection: Connection, claim: Claim, row: Sequence[Any], step: StoredRow) -> Written:
        """Record that the claimed step begins. `row` holds the `RUN_AND_VIEW` of its run, `step` its own row."""
        run = self.fold_newer(connection, claim.run_id, row)
        written = self.record(connection, run, [_started(claim)], step=step)
        return Written([], ClaimedStep(claim, written.events, evolve(run, written.events[0])))

    # reading ----------------------------------------------------------------------------------------

    def whole(self, connection: Connection, run_id: str, after: int = 0) -> list[Event]:
        """Every event of the run after that place; none if there is no such run."""
        rows = connection.execute(_select_events, {"of_run": run_id, "after": after}).all()
        return [read_event(row) for row in rows]  # not while reading: an unfinished read would outlive a rollback

    def current(self, connection: Connection, run_id: str, *, lock: bool = False) -> Run:
        """The run as its whole log says; with `lock`, nobody changes it before this transaction ends."""
        row = connection.execute(_select_run_locked if lock else _select_run, {"of_run": run_id}).first()
        if row is None:
            raise no_run(run_id)
        return self.fold_newer(connection, run_id, row)

    def _held(self, connection: Connection, claim: Claim) -> tuple[Run, StoredRow]:
        """The run and the step of a claim that still holds, both locked; raises `LostLease` otherwise.

        Locks the run, then the step, as everybody does who locks both: nobody waits in a circle.
        """
        row = connection.execute(_select_held, claim_params(claim)).first()
        if row is None:
            self._held_runs.pop(claim, None)
            raise LostLease(claim)
        last_seq, *values = row
        step = dict(zip(steps.columns.keys(), values, strict=True))
        run = self._held_runs.get(claim)
        if run is None or run.last_seq > last_seq:
            return self.current(connection, claim.run_id), step
        if run.last_seq < last_seq:
            run = reduce(evolve, self.whole(connection, claim.run_id, run.last_seq), run)
        return run, step

    def _landed(self, connection: Connection, tried: Written) -> Written | None:
        """The events of an earlier try whose commit landed, without a claim that was lost since then.

        The try may still be committing: it holds its run's lock until it is done. The events are compared whole,
        because another transaction may have got the same places in the log, or the same claim.
        """
        begun = tried.claimed
        placed = [*tried.events, *(begun.events if begun else ())]
        if not placed:
            return None
        run_id, first, last = placed[0].run_id, placed[0].seq, placed[-1].seq
        connection.execute(_lock_run, {"of_run": run_id})
        wanted = select(events).where(events.c.run_id == run_id, events.c.seq.between(first, last))
        found = connection.execute(wanted.order_by(events.c.seq)).all()
        if [tuple(row) for row in found] != [tuple(event_columns(event).values()) for event in placed]:
            return None
        if begun is None:
            return tried
        held = connection.execute(_lock_held, claim_params(begun.claim)).first()
        return tried if held else Written(tried.events)

    def fold_newer(self, connection: Connection, run_id: str, row: Sequence[Any]) -> Run:
        """The run, from the columns `RUN_AND_VIEW` and the events after its view."""
        last_seq, view_seq, digest, view = row
        run = _read_view(view) if digest == SCHEMA_DIGEST else None
        if run is None or last_seq != view_seq:
            for event in self.whole(connection, run_id, 0 if run is None else view_seq):
                run = begun_by(event) if run is None else evolve(run, event)
        if run is None:
            raise Unreadable(run_id, "its log", ValueError("it is empty"))
        return run

    def _place(self, run_id: str, last_seq: int, drafts: Sequence[EventDraft]) -> list[Event]:
        """Give the drafts their places in the log."""
        now = self.clock()
        return [
            Event.placed(draft, event_id=event_id(run_id, seq), seq=seq, run_id=run_id, at=now)
            for seq, draft in enumerate(drafts, start=last_seq + 1)
        ]


def claim_params(claim: Claim) -> dict[str, Any]:
    return {
        "of_run": claim.run_id,
        "of_step": claim.step_id,
        "of_attempt": claim.attempt,
        "of_fence": claim.fence,
        "of_worker": claim.worker,
    }


def _read_view(view: str) -> Run | None:
    """None if it is damaged: the log is the authority."""
    try:
        return Run.model_validate_json(view)
    except ValidationError:
        return None


def _next_claim(run_id: str, worker: str | None, drafts: Sequence[EventDraft]) -> Claim | None:
    """The worker's claim on the step that these events queue last."""
    queued = drafts[-1] if worker is not None and drafts else None
    if worker is None or queued is None or not isinstance(queued.data, StepQueued) or queued.step_id is None:
        return None
    return Claim(run_id, queued.step_id, queued.attempt, 1, worker, queued.data.state)


def _started(claim: Claim) -> EventDraft:
    data = StepStarted(worker=claim.worker, fence=claim.fence)
    return EventDraft(type=EventType.STEP_STARTED, data=data, step_id=claim.step_id, attempt=claim.attempt)


def _with_start(drafts: Sequence[EventDraft], claim: Claim | None) -> Sequence[EventDraft]:
    return drafts if claim is None else [*drafts, _started(claim)]


def _written(added: list[Event], claim: Claim | None, run: Run) -> Written:
    return Written(added) if claim is None else Written(added[:-1], ClaimedStep(claim, added[-1:], run))
