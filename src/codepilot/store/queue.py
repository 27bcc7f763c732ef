"""Which worker has which step: steps are claimed by workers, and returned when their worker is dead or silent for too
long. A claim whose step was given to another worker can write nothing more.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    select,
    update,
)

from codepilot.core.events import TERMINAL, WAITING, State
from codepilot.store.database import Database
from codepilot.store.liveness import Liveness
from codepilot.store.log import HELD, RUN_AND_VIEW, Log, claim_params
from codepilot.store.meta import Limit
from codepilot.store.rows import OPEN, Claim, ClaimedStep, Requests, StepStatus, Unreadable, Written, member
from codepilot.store.schema import insert_into, leases, runs, steps, views


@dataclass(frozen=True)
class Lease:
    """How often a worker says that it lives, and after which silence it counts as dead; each worker sets its own."""

    beat_sec: float = 30.0
    stale_sec: float = 90.0


LEASE = Lease()

QUARANTINE_SEC = 60.0
MOST_QUARANTINED = 100
"""`claim_next` gives up after meeting so many unreadable runs, so that its worker can look whether it is to stop."""
_LOOK_AGAIN_SEC = 0.2
_HOST = socket.gethostname()

_log = logging.getLogger(__name__)


def _literals(values: Iterable[str]) -> list[ColumnElement[str]]:
    """Constants as SQL text: with parameters the engines would not see that a partial index fits."""
    return [literal_column(f"'{value}'") for value in sorted(values)]


_pending = steps.c.status.in_(_literals([StepStatus.PENDING]))
_running = steps.c.status.in_(_literals([StepStatus.RUNNING]))
_open = steps.c.status.in_(_literals(OPEN))
_active = runs.c.state.not_in(_literals(TERMINAL | WAITING))
"""Steps of runs that are paused or blocked wait for a person, not for a worker."""
_not_quarantined = steps.c.run_id.not_in(bindparam("quarantined", expanding=True))
_urgency = (steps.c.priority.desc(), steps.c.queued_at, steps.c.step_id)
_with_runs = steps.join(runs, runs.c.run_id == steps.c.run_id)

_has_lease = exists().where(leases.c.worker == bindparam("of_worker"))
_next_step = (
    select(*RUN_AND_VIEW, *steps.columns, _has_lease)
    .select_from(_with_runs.join(views, views.c.run_id == steps.c.run_id))
    .where(_pending, _active)
    .order_by(*_urgency)
    .limit(1)
    .with_for_update(of=[steps, runs], skip_locked=True)
)
_next_of_all = _next_step.where(_not_quarantined)
_next_of_run = _next_step.where(steps.c.run_id == bindparam("of_run"))
_claims_of_worker = (
    select(
        *(steps.c.run_id, steps.c.step_id, steps.c.attempt, steps.c.fence, steps.c.state),
        *(runs.c.pause_requested, runs.c.cancel_requested),
    )
    .select_from(_with_runs)
    .where(_running, steps.c.worker == bindparam("of_worker"))
)
_count = select(func.count())
_return_step = update(steps).where(HELD).values(status=StepStatus.PENDING.value, fence=steps.c.fence + 1, worker=None)


class Queue:
    def __init__(
        self, database: Database, liveness: Liveness, log: Log, clock: Callable[[], int], lease: Lease = LEASE
    ) -> None:
        self._database = database
        self._liveness = liveness
        self._events = log
        self._clock = clock
        self.lease = lease
        self.limit = Limit(database)
        self._quarantined: dict[str, None] = {}
        self._quarantined_at = 0.0
        self._take_queued: set[str] = set()

    # claims -----------------------------------------------------------------------------------------

    def require(self, worker: str) -> None:
        """Only a worker that is known to live may claim steps."""
        if not self._liveness.holds(worker):
            self.register(worker)

    def claim_next(self, worker: str, run_id: str | None) -> ClaimedStep | None:
        """See `Store.claim_next`. A run that cannot be read is quarantined: it keeps no worker from the others."""
        limit = self.limit.most_running() if run_id is None else None
        for _ in range(MOST_QUARANTINED):
            try:
                return self._events.transact(lambda db: self.claim(db, worker, run_id, limit), durable=False).claimed
            except Unreadable as error:
                if run_id is not None:
                    raise
                self.quarantine(error.run_id)
                _log.error("quarantined: %s", error, extra={"run_id": error.run_id})
        return None

    def claim(self, connection: Connection, worker: str, run_id: str | None, limit: int | None = None) -> Written:
        """Begin the oldest pending step of the highest priority; only while fewer than `limit` run."""
        if limit is not None:
            self._database.exclude(connection)  # so that two claims cannot both be the last
            if connection.execute(_count.select_from(steps).where(_running)).scalar_one() >= limit:
                return Written([])
        row = connection.execute(*self._wanted(worker, run_id)).first()
        if row is None:
            return Written([])
        view, values, has_lease = row[: len(RUN_AND_VIEW)], row[len(RUN_AND_VIEW) : -1], row[-1]
        step = dict(zip(steps.columns.keys(), values, strict=True))
        claim = _claim_of(step, worker)
        if not has_lease:
            self._beat(connection, worker)
        return self._events.begin_step(connection, claim, view, step)

    def give_back(self, claim: Claim) -> None:
        """Let others have the step, if the claim still holds."""
        self._return([claim_params(claim)], {})

    def held_claims(self, worker: str) -> dict[Claim, Requests]:
        """The steps that the worker holds, as the store knows, and what is asked of their runs; cheap."""
        rows = self._database.reading(lambda db: db.execute(_claims_of_worker, {"of_worker": worker}).all())
        return {
            Claim(row.run_id, row.step_id, row.attempt, row.fence, worker, state): Requests(
                bool(row.pause_requested), bool(row.cancel_requested)
            )
            for row in rows
            if isinstance(state := member(State, row.state), State)  # no worker of this version can hold another
        }

    def at_work(self, run_id: str) -> bool:
        """True if a worker holds a step of the run; raises if a step has a status that this version does not know."""
        wanted = select(steps.c.step_id, steps.c.status).where(steps.c.run_id == run_id)
        found = {row.status: row.step_id for row in self._database.reading(lambda db: db.execute(wanted).all())}
        if StepStatus.RUNNING in found:
            return True
        for status, step_id in found.items():
            if not isinstance(member(StepStatus, status), StepStatus):
                raise Unreadable(run_id, f"step {step_id}", ValueError(f"{status!r} is no status known here"))
        return False

    def most_urgent(self) -> int | None:
        """The highest priority of a pending step, if there is one."""
        wanted = select(steps.c.priority).select_from(_with_runs).where(_pending, _active, _not_quarantined)
        asked = {"quarantined": self.quarantined()}
        return self._database.reading(lambda db: db.execute(wanted.order_by(*_urgency).limit(1), asked).scalar())

    def idle(self) -> bool:
        """True if no step is pending or running, except in quarantined runs."""
        return self._counted(_count.select_from(_with_runs).where(_open, _active, _not_quarantined)) == 0

    def quarantine(self, run_id: str) -> None:
        """Claim no step of this run for a while: it cannot be read here."""
        self._quarantined_at = time.monotonic()
        self._quarantined[run_id] = None

    def quarantined(self) -> list[str]:
        """The runs that cannot be read here. They may have been repaired: a while after the last one was found, all are
        tried again. One by one, the first of many would be back before the last is found.
        """
        if self._quarantined and time.monotonic() - self._quarantined_at >= QUARANTINE_SEC:
            self._quarantined = {}
        return list(self._quarantined.copy())

    def depth(self) -> int:
        """How many steps are pending."""
        return self._counted(_count.select_from(_with_runs).where(_pending, _active))

    def running(self) -> int:
        """How many steps are running."""
        return self._counted(_count.select_from(steps).where(_running))

    def full(self) -> bool:
        """True if the store is at its limit of running steps."""
        limit = self.limit.most_running()
        return limit is not None and self.running() >= limit

    def over_limit(self) -> bool:
        """True if the store is over it: the limit was lowered, or a run was claimed by its name."""
        limit = self.limit.most_running()
        return limit is not None and self.running() > limit

    def _wanted(self, worker: str, run_id: str | None) -> tuple[Select[Any], dict[str, Any]]:
        if run_id is not None:
            return _next_of_run, {"of_worker": worker, "of_run": run_id}
        quarantined = self.quarantined()
        if quarantined:
            return _next_of_all, {"of_worker": worker, "quarantined": quarantined}
        return _next_step, {"of_worker": worker}

    def _counted(self, counted: Select[Any]) -> int:
        asked = {"quarantined": self.quarantined()}
        return int(self._database.reading(lambda db: db.execute(counted, asked).scalar_one()))

    # workers ----------------------------------------------------------------------------------------

    def register(self, worker: str, takes_queued: bool = False) -> None:
        """Show that `worker` lives, until `release`, the store's end or the end of this process."""
        if takes_queued:
            self._take_queued.add(worker)
        self._database.with_retry(lambda: self._liveness.hold(worker))
        self.beat(worker)

    def release(self, worker: str) -> None:
        """The worker is done; steps it still holds may be reclaimed."""
        ended = delete(leases).where(leases.c.worker == worker)
        try:
            self._database.writing(lambda db: db.execute(ended), durable=False)
        finally:
            self._liveness.release(worker)

    def beat(self, worker: str) -> None:
        """Record that the worker lives: once for a process, however many steps it has."""
        self._database.writing(lambda db: self._beat(db, worker), durable=False)

    def alive(self, worker: str) -> bool:
        return self._database.with_retry(lambda: not self._liveness.free([worker]))

    def reclaim(self, run_id: str | None = None, *, wait: bool = False) -> list[str]:
        """Return the steps of dead workers to PENDING with a higher fence; the ids of those steps.

        With `wait`, look at suspects again until it is certain whether they live.
        """
        while True:
            held, beats, stale = self._database.reading(lambda db: self._look(db, run_id))
            known = {*beats, *(step["of_worker"] for step in held)}
            dead, unsure = self._database.with_retry(lambda: self._liveness.judge(known))  # noqa: B023
            if not (wait and unsure):
                break
            time.sleep(_LOOK_AGAIN_SEC)
        lost = [step for step in held if step["of_worker"] in dead | stale]
        gone = {worker: beats[worker] for worker in sorted(dead | stale) if worker in beats}
        reclaimed = self._return(lost, gone) if lost or gone else []
        self._grant({step["of_worker"] for step in held} - set(beats) - dead)
        for worker in dead - stale:
            self._liveness.bury(worker)
        return reclaimed

    def _look(
        self, connection: Connection, run_id: str | None
    ) -> tuple[list[dict[str, Any]], dict[str, int], set[str]]:
        """The running steps as `claim_params` has them, each worker's last beat, and the workers that are stale."""
        columns = (
            steps.c.run_id.label("of_run"),
            steps.c.step_id.label("of_step"),
            steps.c.attempt.label("of_attempt"),
            steps.c.fence.label("of_fence"),
            steps.c.worker.label("of_worker"),
        )
        at_work = select(*columns).where(_running).order_by(steps.c.run_id)
        if run_id is not None:
            at_work = at_work.where(steps.c.run_id == run_id)
        held = [dict(row) for row in connection.execute(at_work).mappings()]
        rows = connection.execute(select(leases.c.worker, leases.c.beat_at, leases.c.stale_us)).all()
        now = self._database.now(connection, self._clock)
        beats = {row.worker: row.beat_at for row in rows}
        return held, beats, {row.worker for row in rows if row.beat_at < now - row.stale_us}

    def _return(self, held: Sequence[dict[str, Any]], gone: dict[str, int]) -> list[str]:
        """Return those steps that are still `held`; leases of workers that were seen since then stay."""

        def change(connection: Connection) -> list[str]:
            returned = [step["of_step"] for step in held if connection.execute(_return_step, step).rowcount]
            for worker, beat in gone.items():
                seen = (leases.c.worker == worker) & (leases.c.beat_at == beat)
                connection.execute(delete(leases).where(seen))
            return returned

        return self._database.writing(change, durable=False, notify=True)

    def _grant(self, workers: Iterable[str]) -> None:
        """A worker with a step and a lock but no lease is given one, so that it can go stale."""

        def change(connection: Connection) -> None:
            for worker in sorted(workers):
                lease = self._lease_from_now(connection, worker)
                granted = insert_into(connection, leases).values(worker=worker, host="", pid=0, **lease)
                connection.execute(granted.on_conflict_do_nothing())

        if workers:
            self._database.writing(change, durable=False)

    def _beat(self, connection: Connection, worker: str) -> None:
        lease = self._lease_from_now(connection, worker)
        beat = insert_into(connection, leases).values(worker=worker, host=_HOST, pid=os.getpid(), **lease)
        new = {name: lease[name] for name in ("beat_at", "stale_us", "takes_queued")}
        connection.execute(beat.on_conflict_do_update(index_elements=["worker"], set_=new))

    def _lease_from_now(self, connection: Connection, worker: str) -> dict[str, int]:
        now = self._database.now(connection, self._clock)
        takes_queued = worker in self._take_queued
        stale_us = int(self.lease.stale_sec * 1e6)
        return {"started_at": now, "beat_at": now, "stale_us": stale_us, "takes_queued": takes_queued}


def _claim_of(step: Mapping[str, Any], worker: str) -> Claim:
    """The worker's claim on a pending step."""
    run_id, step_id = step["run_id"], step["step_id"]
    try:
        return Claim(run_id, step_id, step["attempt"], step["fence"] + 1, worker, State(step["state"]))
    except ValueError as error:
        raise Unreadable(run_id, f"step {step_id}", error) from error
