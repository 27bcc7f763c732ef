"""The monitor: one thread per worker process that watches the open steps and the leases of all workers.

It sends heartbeats, interrupts steps that are cancelled, paused or out of budget, returns the steps of dead workers to
the queue, resumes parked runs that are due, and looks after child runs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from codepilot.core.decide import decide_due
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run
from codepilot.core.spending import must_stop, tighter_clock
from codepilot.engine.plan.families import look_after
from codepilot.store import Claim, LostLease, Requests, Store, Unreadable
from codepilot.telemetry import METRICS, now_us

POLL_SEC = 0.25
"""How often open steps are checked."""
REAP_SEC = 0.5
"""How often the steps of dead workers and parked runs are looked for."""
STUCK_POLLS = 120
"""How often a step that must stop at once is checked (for half a minute) before it counts as stuck."""
HEALTHY_SEC = 5.0
"""A store that has not answered for so long counts as away."""

_log = logging.getLogger(__name__)
_reclaimed = METRICS.counter("codepilot_step_heartbeat_reclaim_total", "Steps taken from dead workers.")


class StopRequested(Exception):
    """The step was asked to stop at a safe point."""


class OpenStep:
    """True if an open step must stop, and why.

    A pause lets an agent's action finish; a cancel, a spent budget and a lost lease do not. What the step starts after
    that is interrupted as well. A store that is away stops nothing: the next write will fail.
    """

    def __init__(
        self,
        store: Store,
        run: Run,
        claim: Claim,
        interrupt: Callable[[], None],
        aborting: threading.Event,
        *,
        pause_interrupts: bool,
    ) -> None:
        self._store = store
        self.run = run
        """The run after the step's latest event: budgets are counted on it."""
        self.claim = claim
        self._interrupt = interrupt
        self._interrupting: threading.Thread | None = None
        self._aborting = aborting
        self._pause_interrupts = pause_interrupts
        self.lost: LostLease | None = None
        self.paused = False
        self.cancelled = False
        self.spent: Failure | None = None
        self.ignored_polls = 0
        """How often the step was still running although it must stop at once."""

    @property
    def aborted(self) -> bool:
        """True if the worker gives its steps back."""
        return self._aborting.is_set()

    @property
    def stopped(self) -> bool:
        return self.paused or self.cancelled or self.aborted or self.spent is not None

    @property
    def urgent(self) -> bool:
        """True if an action in flight must not be waited for."""
        return self.cancelled or self.aborted or self.spent is not None or self.lost is not None

    @property
    def stuck(self) -> bool:
        return self.ignored_polls >= STUCK_POLLS

    def raise_if_stopped(self) -> None:
        """A safe point: raises if the step must stop here."""
        try:
            held = self._store.queue.held_claims(self.claim.worker)
        except CodePilotError as error:
            if error.kind is not FailureKind.STORE_UNAVAILABLE:
                raise
            held = None
        self.update(held)
        if self.lost is not None:
            raise self.lost
        if self.stopped:
            raise StopRequested

    def seconds_left(self) -> float:
        """The seconds left for the step or the run, the smaller of both."""
        return tighter_clock(self.run, now_us()).left

    def update(self, held: Mapping[Claim, Requests] | None) -> None:
        """Check the budget's clocks and the worker's claims as the store has them (None if the store is away)."""
        self.spent = self.spent or must_stop(self.run, now_us())
        if held is None:
            return
        requests = held.get(self.claim)
        if requests is None:
            self.lost = self.lost or LostLease(self.claim)
        else:
            interrupted = self.paused and self._interrupting is not None
            self.paused, self.cancelled = requests.pause or interrupted, requests.cancel

    def interrupt_if_stopped(self) -> None:
        """Interrupt what is in flight if it must not be waited for, without holding up other steps."""
        busy = self._interrupting is not None and self._interrupting.is_alive()
        if not busy and (self.urgent or (self.paused and self._pause_interrupts)):
            thread = threading.Thread(target=self._interrupt, name="interrupt", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no room for another thread: a delay is better than no interruption
                self._interrupt()
            else:
                self._interrupting = thread

    def join(self) -> None:
        """Wait for an interruption that is under way: it must not hit the next step."""
        if self._interrupting is not None:
            self._interrupting.join()


class StepMonitor:
    """Registers the worker and runs the monitor thread between `with` and its end."""

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        self._worker = worker
        self.takes_queued = False
        """True if the worker is one of a pool, which takes any queued run."""
        self._claims: dict[int, Claim] = {}
        """What each slot's thread works on."""
        self._steps: set[OpenStep] = set()
        self._orphans: set[Claim] = set()
        self._guard = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._answered = time.monotonic()
        self._beaten = _boot_time()
        self._reaped = 0.0

    def __enter__(self) -> StepMonitor:
        try:
            self._store.register_worker(self._worker, self.takes_queued)
        except CodePilotError as error:
            if error.kind is not FailureKind.STORE_UNAVAILABLE:
                raise
            _log.warning("%s is not registered, the store is away: %s", self._worker, error)
        self._stop.clear()
        self._thread = threading.Thread(target=self._loop, name=f"monitor-{self._worker}", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            self._store.release_worker(self._worker)
        except CodePilotError as away:
            _log.warning("%s is not released, the store is away: %s", self._worker, away)

    @property
    def healthy(self) -> bool:
        """True if the store has answered lately."""
        return time.monotonic() - self._answered < HEALTHY_SEC

    def hold(self, claim: Claim) -> None:
        """This thread works on the claim, until `let_go`. Claims that no thread holds are given back."""
        self._claims[threading.get_ident()] = claim

    def let_go(self) -> None:
        del self._claims[threading.get_ident()]

    def stuck_threads(self) -> set[int]:
        """Threads whose step ignores a stop: other workers take the step, and the pool does not wait for the thread."""
        stuck = self._stuck()
        return {thread for thread, claim in self._claims.copy().items() if claim in stuck}

    @contextmanager
    def watching(self, step: OpenStep) -> Iterator[None]:
        with self._guard:
            self._steps.add(step)
        try:
            yield
        finally:
            step.join()  # still watched: a thread that hangs in it counts as stuck
            with self._guard:
                self._steps.discard(step)
            step.join()

    def _stuck(self) -> set[Claim]:
        with self._guard:
            return {step.claim for step in self._steps if step.stuck}

    def _loop(self) -> None:
        while not self._stop.wait(min(POLL_SEC, self._store.queue.lease.beat_sec)):
            try:
                self._poll()
                self._answered = time.monotonic()
            except CodePilotError as error:
                _log.warning("the store does not answer: %s", error)
            except Exception:  # noqa: BLE001 - a worker without a monitor would lose all its steps
                _log.exception("a poll of %s's monitor failed", self._worker)

    def _poll(self) -> None:
        reaping = time.monotonic() - self._reaped >= REAP_SEC
        with self._guard:
            steps = set(self._steps)
        held: dict[Claim, Requests] | None = None
        try:
            if steps or reaping:
                held = self._store.queue.held_claims(self._worker)
        finally:
            self._check(steps, held)
        lease = self._store.queue.lease
        # A worker that wakes from the machine's sleep beats before it judges, or it would reclaim its own steps.
        if _boot_time() - self._beaten >= lease.beat_sec:
            self._store.beat(self._worker)
            self._beaten = _boot_time()
        if reaping and held is not None:
            self._give_back_orphans(held)
            _reclaimed.inc(len(self._store.reclaim()))
            self._unpark()
            look_after(self._store)
            self._reaped = time.monotonic()

    def _check(self, steps: set[OpenStep], held: Mapping[Claim, Requests] | None) -> None:
        """Only steps that are still open: an ended one is no longer held, and is not to be interrupted."""
        with self._guard:
            for step in steps & self._steps:
                step.update(held)
                step.interrupt_if_stopped()
                step.ignored_polls += step.urgent

    def _give_back_orphans(self, held: Mapping[Claim, Requests]) -> None:
        """Give back claims that no thread works on, or a stuck one: the answer to a claim was lost, or its work failed
        where nothing could be written. They must be found twice, since a claim may be on its way to its thread."""
        orphans = set(held) - (set(self._claims.copy().values()) - self._stuck())
        for claim in orphans & self._orphans:
            self._store.give_back(claim)
        self._orphans = orphans

    def _unpark(self) -> None:
        """Resume parked runs that are due. All workers try; the first one records it."""
        now = now_us()
        for run_id in self._store.due(now):
            try:
                self._store.control(run_id, lambda run: decide_due(run, now))
            except Unreadable as error:
                self._store.queue.quarantine(run_id)
                _log.warning("%s stays parked: %s", run_id, error)


def _boot_time() -> float:
    """Seconds by a clock that counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
