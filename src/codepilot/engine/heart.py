"""The heart of a worker's process: says that it lives, and returns the steps of those that do not."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType

from codepilot.core.decide import decide_due
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import Claim, Store, Unreadable
from codepilot.telemetry import METRICS, now_us

REAP_SEC = 0.5
WELL_SEC = 5.0
"""A store that has not answered for so long is told as away."""

_log = logging.getLogger(__name__)
_reclaimed = METRICS.counter("codepilot_step_heartbeat_reclaim_total", "Steps taken from workers that died.")


class Heart:
    """Beats in a thread of its own. A store that is away is no reason to stop: it is asked again."""

    def __init__(self, store: Store, worker: str, in_hand: Callable[[], set[Claim]]) -> None:
        self._store = store
        self._worker = worker
        self._in_hand = in_hand
        self._ownerless: set[Claim] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heart-{worker}", daemon=True)
        self._answered = time.monotonic()

    def __enter__(self) -> Heart:
        try:
            self._store.register_worker(self._worker)
        except CodePilotError as error:
            if error.kind is not FailureKind.STORE_UNAVAILABLE:
                raise
            _log.warning("%s is not known yet, the store is away: %s", self._worker, error)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        try:
            self._store.release_worker(self._worker)
        except CodePilotError as away:
            _log.warning("%s leaves without a word, the store is away: %s", self._worker, away)

    @property
    def well(self) -> bool:
        """Whether the store has answered lately."""
        return time.monotonic() - self._answered < WELL_SEC

    def _beat(self) -> None:
        lease = self._store.queue.lease
        beaten = _awake_or_asleep()
        while not self._stop.wait(min(REAP_SEC, lease.beat_sec)):
            try:
                if _awake_or_asleep() - beaten >= lease.beat_sec:
                    self._store.beat(self._worker)
                    beaten = _awake_or_asleep()
                self._give_back_ownerless()
                _reclaimed.inc(len(self._store.reclaim()))
                self._go_on_with_parked()
                self._answered = time.monotonic()
            except CodePilotError as error:
                _log.warning("the store does not answer: %s", error)
            except Exception:  # noqa: BLE001 - a worker whose heart stops would lose all its steps
                _log.exception("the heart of %s missed a beat", self._worker)

    def _go_on_with_parked(self) -> None:
        """Any worker may, and all may try: whoever is first records it."""
        now = now_us()
        for run_id in self._store.due(now):
            try:
                self._store.control(run_id, lambda run: decide_due(run, now))
            except Unreadable as error:
                self._store.queue.quarantine(run_id)
                _log.warning("%s stays parked: %s", run_id, error)

    def _give_back_ownerless(self) -> None:
        """Steps that the store counts as ours and that nobody here works on: the answer to a claim was lost, or the
        work on one failed where nothing could be written. Seen twice, since a claim may be on its way to its hand."""
        ownerless = set(self._store.queue.held_claims(self._worker)) - self._in_hand()
        for claim in ownerless & self._ownerless:
            self._store.give_back(claim)
        self._ownerless = ownerless


def _awake_or_asleep() -> float:
    """Seconds by a clock that goes on while the machine sleeps: whoever wakes up beats before he judges others by
    their beats, or he would take his own steps from himself."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
