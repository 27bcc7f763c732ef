"""Watches steps from the side: requests from other processes, and budgets that run out while they work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run
from codepilot.core.spending import must_stop, tighter_clock
from codepilot.store import Claim, LostLease, Requests, Store
from codepilot.telemetry import now_us

POLL_SEC = 0.25
IDLE_ROUNDS = 20
"""How often the watcher looks in vain for something to watch before its thread ends."""
MOST_UNHEEDED = 120
"""How often a step that must stop at once is looked at (for half a minute) before it is believed to be stuck."""

_log = logging.getLogger(__name__)


class StopRequested(Exception):
    """The step was asked to stop at a safe point."""


class Watch:
    """What is known of one open step: whether it must stop, and why.

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
        self.run = run
        """The run as the step's events leave it: budgets are counted on it."""
        self.claim = claim
        self._interrupt = interrupt
        self._interrupting: threading.Thread | None = None
        self._leaving = leaving
        self._pause_interrupts = pause_interrupts
        self.lost: LostLease | None = None
        self.paused = False
        self.cancelled = False
        self.spent: Failure | None = None
        self.troubled = False
        """Whether what is done beside the step failed the last time."""
        self.unheeded = 0
        """How often it was seen to go on although it must stop at once."""

    @property
    def leaving(self) -> bool:
        return self._leaving.is_set()

    @property
    def stopped(self) -> bool:
        return self.paused or self.cancelled or self.leaving or self.spent is not None

    @property
    def urgent(self) -> bool:
        """Whether what is in flight must not be waited for."""
        return self.cancelled or self.leaving or self.spent is not None or self.lost is not None

    def raise_if_stopped(self) -> None:
        """A safe point: raises if the step must stop here."""
        self.look(_standing(self._store, self.claim.worker))
        if self.lost is not None:
            raise self.lost
        if self.stopped:
            raise StopRequested

    def seconds_left(self) -> float:
        """What remains of the step's and the run's wall clock, whichever is less."""
        return tighter_clock(self.run, now_us()).left

    def look(self, standing: Mapping[Claim, Requests] | None) -> None:
        """Learn from the clock, and from what the store says of its worker's steps if it says anything."""
        self.spent = self.spent or must_stop(self.run, now_us())
        if standing is None:
            return
        asked = standing.get(self.claim)
        if asked is None:
            self.lost = self.lost or LostLease(self.claim)
        else:
            was_told = self.paused and self._interrupting is not None
            self.paused, self.cancelled = asked.pause or was_told, asked.cancel

    def stop_if_told(self) -> None:
        """Interrupt what is in flight where it must not be waited for; others are not held up by that."""
        busy = self._interrupting is not None and self._interrupting.is_alive()
        if not busy and (self.urgent or (self.paused and self._pause_interrupts)):
            beside = threading.Thread(target=self._interrupt, name="interrupt", daemon=True)
            try:
                beside.start()
            except RuntimeError:  # there is no room for another thread: rather hold the others up than let it go on
                self._interrupt()
            else:
                self._interrupting = beside

    def settle(self) -> None:
        """Wait for an interruption that is under way: what comes after the step is not meant by it."""
        if self._interrupting is not None:
            self._interrupting.join()


class Watcher:
    """Looks after all open steps of one worker, in one thread that is there while there are any."""

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        self._worker = worker
        self._watches: dict[Watch, Callable[[], None]] = {}
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, watch: Watch, meanwhile: Callable[[], None] = lambda: None) -> Iterator[None]:
        """While this lasts the step is watched, and `meanwhile` is called every now and then."""
        with self._guard:
            if self._thread is None:
                thread = threading.Thread(target=self._poll, name=f"watch-{self._worker}", daemon=True)
                thread.start()
                self._thread = thread
            self._watches[watch] = meanwhile
        try:
            yield
        finally:
            watch.settle()  # watched still: whoever hangs in it is stuck
            with self._guard:
                del self._watches[watch]
            watch.settle()

    def stuck(self) -> set[Claim]:
        """Steps that must stop and do not, for whatever reason: nobody should wait for them any longer."""
        with self._guard:
            return {watch.claim for watch in self._watches if watch.unheeded >= MOST_UNHEEDED}

    def _poll(self) -> None:
        idle = 0
        pause = threading.Event()
        while idle < IDLE_ROUNDS:
            pause.wait(POLL_SEC)
            with self._guard:
                watches = dict(self._watches)
                idle = 0 if watches else idle + 1
                if idle == IDLE_ROUNDS:
                    self._thread = None
            if watches:
                self._look_after(watches)

    def _look_after(self, watches: Mapping[Watch, Callable[[], None]]) -> None:
        """Those that were open before the store was asked, and still are: what has ended is not held any more."""
        for watch, meanwhile in watches.items():
            try:
                meanwhile()
                watch.troubled = False
            except Exception as error:  # noqa: BLE001 - who does it in the step itself is told, and reports it
                if not watch.troubled:
                    _log.warning("%s", error, extra={"run_id": watch.claim.run_id, "step_id": watch.claim.step_id})
                watch.troubled = True
        try:
            standing = _standing(self._store, self._worker)
        except Exception:  # noqa: BLE001 - a defect here must not leave every step unwatched
            _log.exception("the steps of %s could not be looked at", self._worker)
            standing = None
        with self._guard:
            for watch in watches:
                if watch in self._watches:
                    watch.look(standing)
                    watch.stop_if_told()
                    watch.unheeded += watch.urgent


def _standing(store: Store, worker: str) -> Mapping[Claim, Requests] | None:
    """What the store says; nothing if it is away."""
    try:
        return store.queue.held_claims(worker)
    except CodePilotError as error:
        if error.kind is not FailureKind.STORE_UNAVAILABLE:
            raise
        return None
