"""Who works on what: steps are claimed by workers, and given back when their worker is dead or has said nothing
for too long. A claim that was given to another can write nothing more.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from codepilot.core.events import State
from codepilot.store.database import Database
from codepilot.store.liveness import Liveness
from codepilot.store.rows import Claim, StepStatus
from codepilot.store.schema import leases, steps
from codepilot.store.statements import (
    COUNT_RUNNING,
    NEXT_STEP,
    NEXT_STEP_OF_RUN,
    RETURN_STEP,
    TAKE_STEP,
    status_is,
)


@dataclass(frozen=True)
class Lease:
    """How often a worker says that it lives, and after which silence it counts as dead."""

    beat_sec: float = 30.0
    stale_sec: float = 90.0


class Queue:
    def __init__(
        self, database: Database, liveness: Liveness, clock: Callable[[], int], lease: Lease = Lease()
    ) -> None:
        self._database = database
        self._liveness = liveness
        self._clock = clock
        self._suspected: dict[str, float] = {}
        self.lease = lease

    # claims -----------------------------------------------------------------------------------------

    def claim(self, worker: str, run_id: str | None = None, most_running: int | None = None) -> Claim | None:
        """Take the oldest pending step of the highest priority. With `most_running`, only while fewer are at work."""
        if not self._liveness.holds(worker):
            self.register(worker)
        wanted = NEXT_STEP if run_id is None else NEXT_STEP_OF_RUN
        with self._database.write(durable=False) as connection:
            if most_running is not None and self._running(connection) >= most_running:
                return None
            row = wanted.row(connection, {} if run_id is None else {"in_run": run_id})
            if row is None:
                return None
            claimed_run, step_id, attempt, fence, state = row
            claim = Claim(claimed_run, step_id, attempt, fence + 1, worker, State(state))
            self.take(connection, claim)
            return claim

    def take(self, connection: Connection, claim: Claim) -> None:
        taken = {"new_fence": claim.fence, "new_worker": claim.worker, "new_claimed_at": self._clock()}
        TAKE_STEP.run(connection, {**claim_params(claim), **taken})

    def give_back(self, claim: Claim) -> bool:
        """Let others have the step; whether the claim still held."""
        with self._database.write(durable=False) as connection:
            return bool(RETURN_STEP.run(connection, claim_params(claim)))

    def depth(self) -> int:
        """How many steps wait."""
        with self._database.read() as connection:
            return int(connection.scalar(select(func.count()).where(status_is(StepStatus.PENDING))) or 0)

    def _running(self, connection: Connection) -> int:
        """Counted by one claimer at a time, so that two cannot both be the last."""
        self._database.exclude(connection)
        row = COUNT_RUNNING.row(connection, {})
        return int(row[0]) if row else 0

    # workers ----------------------------------------------------------------------------------------

    def register(self, worker: str) -> None:
        """Show that `worker` lives, until `release`, the store's end or the end of this process."""
        self._liveness.hold(worker)
        self.beat(worker)

    def release(self, worker: str) -> None:
        """The worker is done; steps it still holds may be reclaimed."""
        with self._database.write(durable=False) as connection:
            connection.execute(delete(leases).where(leases.c.worker == worker))
        self._liveness.release(worker)

    def beat(self, worker: str) -> None:
        """Say when the worker was last seen, once a process however many steps it has."""
        with self._database.write(durable=False) as connection:
            now = self._database.now(connection, self._clock)
            beaten = connection.execute(update(leases).where(leases.c.worker == worker).values(beat_at=now))
            if beaten.rowcount == 0:
                row = {"worker": worker, "host": socket.gethostname(), "pid": os.getpid()}
                connection.execute(insert(leases).values(**row, started_at=now, beat_at=now))

    def alive(self, worker: str) -> bool:
        return not self._liveness.dead([worker])

    def reclaim(self, run_id: str | None = None, *, wait: bool = False) -> list[Claim]:
        """Return the steps of dead workers to PENDING with a higher fence; the claims that they had.

        With `wait`, suspects are looked at again until it is certain whether they live.
        """
        held, beats, stale = self._look(run_id)
        dead = self._dead({*beats, *(claim.worker for claim in held)}) | stale
        while wait and self._suspected:
            time.sleep(self._liveness.grace_sec / 4)
            dead |= self._dead(self._suspected)
        if not dead:
            return []
        with self._database.write(durable=False) as connection:
            lost = [claim for claim in held if claim.worker in dead]
            reclaimed = [claim for claim in lost if RETURN_STEP.run(connection, claim_params(claim))]
            for worker in sorted(dead):
                unchanged = (leases.c.worker == worker, leases.c.beat_at == beats.get(worker, 0))
                connection.execute(delete(leases).where(*unchanged))
        for worker in dead - stale:
            self._liveness.bury(worker)
        return reclaimed

    def _look(self, run_id: str | None) -> tuple[list[Claim], dict[str, int], set[str]]:
        """The steps at work, when their workers were last seen, and who of them was not for too long."""
        columns = (steps.c.run_id, steps.c.step_id, steps.c.attempt, steps.c.fence, steps.c.worker, steps.c.state)
        at_work = select(*columns).where(status_is(StepStatus.RUNNING)).order_by(steps.c.queued_at)
        if run_id is not None:
            at_work = at_work.where(steps.c.run_id == run_id)
        with self._database.read() as connection:
            held = [Claim(*row[:5], State(row.state)) for row in connection.execute(at_work)]
            beats = {row.worker: row.beat_at for row in connection.execute(select(leases.c.worker, leases.c.beat_at))}
            horizon = self._database.now(connection, self._clock) - int(self.lease.stale_sec * 1e6)
        return held, beats, {worker for worker, beat in beats.items() if beat < horizon}

    def _dead(self, workers: Iterable[str]) -> set[str]:
        """Those whose lock has been free for long enough; the others that lack one are suspected."""
        now, free = time.monotonic(), self._liveness.dead(list(workers))
        self._suspected = {worker: self._suspected.get(worker, now) for worker in free}
        dead = {worker for worker, since in self._suspected.items() if now - since >= self._liveness.grace_sec}
        for worker in dead:
            del self._suspected[worker]
        return dead


def claim_params(claim: Claim) -> dict[str, Any]:
    return {
        "in_run": claim.run_id,
        "in_step": claim.step_id,
        "in_attempt": claim.attempt,
        "in_fence": claim.fence,
        "in_worker": claim.worker,
    }
