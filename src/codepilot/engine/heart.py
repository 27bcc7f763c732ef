"""The heart of a worker's process: says that it lives, and returns the steps of those that do not."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

from codepilot.core.failures import CodePilotError
from codepilot.store import Claim, Store
from codepilot.telemetry import METRICS

REAP_SEC = 1.0

_log = logging.getLogger(__name__)
_reclaimed = METRICS.counter("codepilot_step_heartbeat_reclaim_total", "Steps taken from workers that died.")


class Heart:
    """Beats in a thread of its own. A store that is away is no reason to stop: it is asked again."""

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        self._worker = worker
        self._stop = threading.Event()
        self._abandoned: list[Claim] = []
        self._thread = threading.Thread(target=self._beat, name=f"heart-{worker}", daemon=True)
        self._answered = time.monotonic()

    def __enter__(self) -> Heart:
        self._store.register_worker(self._worker)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._store.release_worker(self._worker)

    @property
    def well(self) -> bool:
        """Whether the store has answered within half of what a lease lasts."""
        return time.monotonic() - self._answered < self._store.queue.lease.stale_sec / 2

    def abandon(self, claim: Claim) -> None:
        """A step that this worker can no longer report on goes back as soon as the store takes it."""
        self._abandoned.append(claim)

    def _beat(self) -> None:
        beaten = time.monotonic()
        while not self._stop.wait(REAP_SEC):
            try:
                if time.monotonic() - beaten >= self._store.queue.lease.beat_sec:
                    self._store.beat(self._worker)
                    beaten = time.monotonic()
                while self._abandoned:
                    self._store.give_back(self._abandoned[0])
                    del self._abandoned[0]
                _reclaimed.inc(len(self._store.reclaim()))
                self._answered = time.monotonic()
            except CodePilotError as error:
                _log.warning("the store does not answer: %s", error)
