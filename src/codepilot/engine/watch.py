"""Watches a step from the side: requests from other processes, and budgets that run out while it works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

from codepilot.core.decide import exhausted, over_budget
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run
from codepilot.store import Claim, LostLease, Store
from codepilot.telemetry import now_us

POLL_SEC = 0.25


class StopRequested(Exception):
    """The step was asked to stop at a safe point."""


class Leaving(Exception):
    """The worker goes away; the step is for another to go on with."""


class Watch:
    """Polls for pause, cancel and spent budgets while a step is open, and interrupts what is in flight.

    A pause lets an agent's action finish; a cancel, a spent budget and a lost claim do not. Whatever is started after
    that is interrupted as well, so that a step which goes on regardless comes to its end. A store that is away stops
    nothing: what cannot be written then will say so.
    """

    def __init__(
        self,
        store: Store,
        run: Run,
        claim: Claim,
        interrupt: Callable[[], None],
        leaving: threading.Event,
        *,
        pause_interrupts: bool,
    ) -> None:
        self._store = store
        self._run = run
        self._claim = claim
        self._interrupt = interrupt
        self._leaving = leaving
        self._pause_interrupts = pause_interrupts
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, name=f"watch-{run.run_id}", daemon=True)
        self.lost: LostLease | None = None
        self.paused = False
        self.cancelled = False
        self.spent: Failure | None = None

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def follow(self, run: Run) -> None:
        """Budgets are counted on the run as its events leave it."""
        self._run = run

    @property
    def leaving(self) -> bool:
        return self._leaving.is_set()

    @property
    def stopped(self) -> bool:
        return self.paused or self.cancelled or self.leaving or self.spent is not None

    def checkpoint(self) -> None:
        """A safe point: raises if the step must stop here."""
        self._look()
        if self.lost is not None:
            raise self.lost
        if self.stopped:
            raise StopRequested

    def seconds_left(self) -> float:
        """What remains of the step's and the run's wall clock, whichever is less."""
        budget = self._run.task.budget
        open_sec = self._open_sec()
        run_left = budget.wall_sec * self._run.grants - self._run.spent.wall_us / 1e6 - open_sec
        return max(0.0, min(run_left, budget.step_wall_sec - open_sec))

    def _poll(self) -> None:
        while not self._done.wait(POLL_SEC):
            self._look()
            urgent = self.cancelled or self.leaving or self.spent is not None or self.lost is not None
            if urgent or (self.paused and self._pause_interrupts):
                self._interrupt()

    def _look(self) -> None:
        self.spent = self.spent or self._over()
        try:
            self.paused, self.cancelled = self._store.requested(self._run.run_id)
            if self.lost is None and not self._store.queue.holds(self._claim):
                self.lost = LostLease(self._claim)
        except CodePilotError as error:
            if error.kind is not FailureKind.STORE_UNAVAILABLE:
                raise

    def _over(self) -> Failure | None:
        limit, used = self._run.task.budget.step_wall_sec, self._open_sec()
        return exhausted(self._run, now_us()) or (over_budget("step_wall_sec", used, limit) if used >= limit else None)

    def _open_sec(self) -> float:
        return (now_us() - (self._run.step_open_since or now_us())) / 1e6
