"""Who works on what: steps are claimed by workers, and given back when their worker is dead or has said nothing
for too long. A claim that was given to another can write nothing more.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, select

from codepilot.core.events import State
from codepilot.store.database import Database
from codepilot.store.limit import Limit
from codepilot.store.liveness import Liveness
from codepilot.store.prepared import Prepared
from codepilot.store.records import member
from codepilot.store.rows import Claim, Requests, StepStatus, Unreadable
from codepilot.store.schema import leases, steps
from codepilot.store.statements import (
    BEAT,
    COUNT_OPEN,
    COUNT_OPEN_BUT,
    COUNT_PENDING,
    COUNT_RUNNING,
    END_LEASE,
    END_LEASE_SEEN,
    GRANT_LEASE,
    MOST_URGENT,
    NEXT_STEP,
    NEXT_STEP_BUT,
    NEXT_STEP_OF_RUN,
    RETURN_STEP,
    SELECT_LEASE,
    SELECT_STANDING,
    TAKE_STEP,
    status_is,
)
from codepilot.store.tries import Tried, twice


@dataclass(frozen=True)
class Lease:
    """How often a worker says that it lives, and after which silence it counts as dead: for all, by what it says."""

    beat_sec: float = 30.0
    stale_sec: float = 90.0


LEASE = Lease()

PASSED_OVER_SEC = 60.0
NOBODY = "{}"


class Queue:
    def __init__(self, database: Database, liveness: Liveness, clock: Callable[[], int], lease: Lease = LEASE) -> None:
        self._database = database
        self._liveness = liveness
        self._clock = clock
        self.lease = lease
        self.limit = Limit(database)
        self._unreadable: dict[str, None] = {}
        self._passed_at = 0.0

    # claims -----------------------------------------------------------------------------------------

    def require(self, worker: str) -> None:
        """Whoever takes steps is known to live."""
        if not self._liveness.holds(worker):
            self.register(worker)

    def take(
        self, connection: Connection, worker: str, run_id: str | None, most_running: int | None
    ) -> tuple[Claim, Sequence[Any]] | None:
        """Take the oldest pending step of the highest priority, and what is stored of its run.

        With `most_running`, only while fewer are at work.
        """
        if most_running is not None and self._running(connection) >= most_running:
            return None
        lease = SELECT_LEASE.send(connection, {"in_worker": worker})
        row = self._next(connection, run_id)
        if row is None:
            return None
        claim = _claimed(row, worker)
        taken = {"new_fence": claim.fence, "new_worker": worker, "new_claimed_at": self._clock()}
        TAKE_STEP.send(connection, {**claim_params(claim), **taken})
        if not lease.rows():
            self._beat(connection, worker)
        return claim, row[5:]

    def give_back(self, claim: Claim) -> None:
        """Let others have the step, if the claim still holds."""
        self._returned([claim_params(claim)], {})

    def held_claims(self, worker: str) -> dict[Claim, Requests]:
        """The steps that the worker has, as far as the store knows, and what is asked of their runs; cheap."""

        def look(_: Tried) -> dict[Claim, Requests]:
            with self._database.ask() as connection:
                rows = SELECT_STANDING.rows(connection, {"in_worker": worker})
            return {
                Claim(run, step, attempt, fence, worker, known): Requests(bool(pause), bool(cancel))
                for run, step, attempt, fence, state, pause, cancel in rows
                if isinstance(known := member(State, state), State)  # nobody here can be at work on another
            }

        return twice(self._database, look)

    def at_work(self, run_id: str) -> bool:
        """Whether a worker has a step of the run. It is not guessed: a status that is not known here is refused."""
        wanted = select(steps.c.step_id, steps.c.status).where(steps.c.run_id == run_id)

        def look(_: Tried) -> dict[str, str]:
            with self._database.look() as connection:
                return {row.status: row.step_id for row in connection.execute(wanted)}

        found = twice(self._database, look)
        if StepStatus.RUNNING in found:
            return True
        for status, step_id in found.items():
            if not isinstance(member(StepStatus, status), StepStatus):
                raise Unreadable(run_id, f"step {step_id}", ValueError(f"{status!r} is no status known here"))
        return False

    def most_urgent(self) -> int | None:
        """The highest priority of a step that waits for a worker, if one does."""
        but = {"in_but": self.quarantined()}

        def look(_: Tried) -> int | None:
            with self._database.ask() as connection:
                row = MOST_URGENT.row(connection, but)
            return None if row is None else int(row[0])

        return twice(self._database, look)

    def idle(self) -> bool:
        """Whether no step waits or is at work, but for those that are passed over."""
        passed_over = self.quarantined()
        if passed_over != NOBODY:
            return self._count(COUNT_OPEN_BUT, {"in_but": passed_over}) == 0
        return self._count(COUNT_OPEN) == 0

    def quarantine(self, run_id: str) -> None:
        """Take no step of this run for a while: it cannot be read here."""
        self._passed_at = time.monotonic()
        self._unreadable[run_id] = None

    def quarantined(self) -> str:
        """The ids of runs that are, as statements take them. Somebody may have mended them: a while after the last
        one was found, all are tried again. One by one, the first of many would be back before the last is found.
        """
        if not self._unreadable:
            return NOBODY
        if time.monotonic() - self._passed_at >= PASSED_OVER_SEC:
            self._unreadable = {}
        return json.dumps(self._unreadable.copy())

    def depth(self) -> int:
        """How many steps wait."""
        return self._count(COUNT_PENDING)

    def running(self) -> int:
        """How many steps are at work."""
        return self._count(COUNT_RUNNING)

    def full(self) -> bool:
        """Whether as many steps are at work as the store's limit allows, if it has one."""
        limit = self.limit.most_running()
        return limit is not None and self.running() >= limit

    def crowded(self) -> bool:
        """Whether more are: it was lowered, or somebody works on a run that was asked for by name."""
        limit = self.limit.most_running()
        return limit is not None and self.running() > limit

    def _next(self, connection: Connection, run_id: str | None) -> Sequence[Any] | None:
        if run_id is not None:
            return NEXT_STEP_OF_RUN.row(connection, {"in_run": run_id})
        passed_over = self.quarantined()
        if passed_over != NOBODY:
            return NEXT_STEP_BUT.row(connection, {"in_but": passed_over})
        return NEXT_STEP.row(connection, {})

    def _count(self, counted: Prepared, values: Mapping[str, Any] = MappingProxyType({})) -> int:
        def look(_: Tried) -> int:
            with self._database.ask() as connection:
                row = counted.row(connection, values)
                return int(row[0]) if row else 0

        return twice(self._database, look)

    def _running(self, connection: Connection) -> int:
        """Counted by one claimer at a time, so that two cannot both be the last."""
        self._database.exclude(connection)
        row = COUNT_RUNNING.row(connection, {})
        return int(row[0]) if row else 0

    # workers ----------------------------------------------------------------------------------------

    def register(self, worker: str) -> None:
        """Show that `worker` lives, until `release`, the store's end or the end of this process."""
        twice(self._database, lambda _: self._liveness.hold(worker))
        self.beat(worker)

    def release(self, worker: str) -> None:
        """The worker is done; steps it still holds may be reclaimed."""

        def forget(_: Tried) -> None:
            with self._database.write(durable=False) as connection:
                END_LEASE.send(connection, {"in_worker": worker})

        try:
            twice(self._database, forget)
        finally:
            self._liveness.release(worker)

    def beat(self, worker: str) -> None:
        """Say when the worker was last seen, once a process however many steps it has."""

        def beat(_: Tried) -> None:
            with self._database.write(durable=False) as connection:
                self._beat(connection, worker)

        twice(self._database, beat)

    def alive(self, worker: str) -> bool:
        return twice(self._database, lambda _: not self._liveness.free([worker]))

    def reclaim(self, run_id: str | None = None, *, wait: bool = False) -> list[str]:
        """Return the steps of dead workers to PENDING with a higher fence; the ids of those steps.

        With `wait`, suspects are looked at again until it is certain whether they live.
        """
        while True:
            held, beats, stale = twice(self._database, lambda _: self._look(run_id))
            known = {*beats, *(step["in_worker"] for step in held)}
            dead, unsure = twice(self._database, lambda _: self._liveness.judge(known))  # noqa: B023
            if not (wait and unsure):
                break
            time.sleep(_LOOK_AGAIN_SEC)
        lost = [step for step in held if step["in_worker"] in dead | stale]
        gone = {worker: beats[worker] for worker in sorted(dead | stale) if worker in beats}
        reclaimed = self._returned(lost, gone) if lost or gone else []
        self._grant({step["in_worker"] for step in held} - set(beats) - dead)
        for worker in dead - stale:
            self._liveness.bury(worker)
        return reclaimed

    def _look(self, run_id: str | None) -> tuple[list[dict[str, Any]], dict[str, int], set[str]]:
        """The steps at work as `claim_params` has them, when workers were last seen, and who was not for too long."""
        columns = (
            steps.c.run_id.label("in_run"),
            steps.c.step_id.label("in_step"),
            steps.c.attempt.label("in_attempt"),
            steps.c.fence.label("in_fence"),
            steps.c.worker.label("in_worker"),
        )
        at_work = select(*columns).where(status_is(StepStatus.RUNNING)).order_by(steps.c.run_id)
        if run_id is not None:
            at_work = at_work.where(steps.c.run_id == run_id)
        with self._database.read() as connection:
            held = [dict(row) for row in connection.execute(at_work).mappings()]
            rows = connection.execute(select(leases.c.worker, leases.c.beat_at, leases.c.stale_us)).all()
            now = self._database.now(connection, self._clock)
        beats = {row.worker: row.beat_at for row in rows}
        return held, beats, {row.worker for row in rows if row.beat_at < now - row.stale_us}

    def _returned(self, held: Sequence[Mapping[str, Any]], gone: Mapping[str, int]) -> list[str]:
        """Those steps that were still `held`, returned; leases of workers that were seen since then stay."""

        def give(_: Tried) -> list[str]:
            with self._database.write(durable=False, rings=True) as connection:
                sent = [(step["in_step"], RETURN_STEP.send(connection, step)) for step in held]
                for worker, beat in gone.items():
                    END_LEASE_SEEN.send(connection, {"in_worker": worker, "in_beat_at": beat})
                return [step_id for step_id, one in sent if one.touched]

        return twice(self._database, give)

    def _grant(self, workers: Iterable[str]) -> None:
        """A worker with a step and a lock but no lease is given one, so that it can go stale."""

        def grant(_: Tried) -> None:
            with self._database.write(durable=False) as connection:
                lease = self._lease_now(connection)
                for worker in sorted(workers):
                    GRANT_LEASE.send(connection, {"worker": worker, **lease})

        if workers:
            twice(self._database, grant)

    def _beat(self, connection: Connection, worker: str) -> None:
        me = {"worker": worker, "host": _HOST, "pid": os.getpid()}
        BEAT.send(connection, {**me, **self._lease_now(connection)})

    def _lease_now(self, connection: Connection) -> dict[str, int]:
        """A lease from now on, as long as they are here."""
        return {"now": self._database.now(connection, self._clock), "stale_us": int(self.lease.stale_sec * 1e6)}


_HOST = socket.gethostname()
_LOOK_AGAIN_SEC = 0.2


def _claimed(row: Sequence[Any], worker: str) -> Claim:
    run_id, step_id, attempt, fence, state = row[:5]
    try:
        return Claim(run_id, step_id, attempt, fence + 1, worker, State(state))
    except ValueError as error:
        raise Unreadable(run_id, f"step {step_id}", error) from error


def claim_params(claim: Claim) -> dict[str, Any]:
    return {
        "in_run": claim.run_id,
        "in_step": claim.step_id,
        "in_attempt": claim.attempt,
        "in_fence": claim.fence,
        "in_worker": claim.worker,
    }
