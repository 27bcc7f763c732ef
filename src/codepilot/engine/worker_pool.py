"""`codepilot worker`: takes steps of any run for as long as it may, several at a time.

One thread looks for work and sleeps at the store's wakeup when there is none; each run in hand has a thread of its
own. It ends as it is told: first it takes nothing new and finishes its steps, then it gives back what is left.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.garbage import sweep
from codepilot.engine.heart import Heart
from codepilot.engine.runtime import Runtime
from codepilot.engine.webhook import WebhookSender
from codepilot.engine.worker import Worker
from codepilot.store import ClaimedStep
from codepilot.store.wakeup import Wakeup
from codepilot.telemetry import METRICS

POLL_SEC = 2.0
"""How often the tables are read although nobody rang."""
IDLE_SEC = 0.2
SWEEP_SEC = 60.0
COUNT_SEC = 1.0
"""How often the steps that wait are counted and the most urgent is looked at: it takes longer the more there are."""
AWAY_SEC = 1.0
LOOK_SEC = 0.5
"""How often it is looked whether a hand that is waited for has become stuck."""

_log = logging.getLogger(__name__)
_depth = METRICS.gauge("codepilot_step_queue_depth", "Steps that wait for a worker.")


class WorkerPool:
    def __init__(
        self,
        runtime: Runtime,
        worker: Worker,
        *,
        concurrency: int,
        drain_sec: float = 25.0,
        until_idle: bool = False,
        webhook: WebhookSender | None = None,
    ) -> None:
        self._runtime = runtime
        self._worker = worker
        self._concurrency = concurrency
        self._drain_sec = drain_sec
        self._until_idle = until_idle
        self._webhook = webhook
        self._heart: Heart | None = None
        self._stopping = threading.Event()
        self._hands: set[threading.Thread] = set()
        self._wakeup: Wakeup | None = None
        self._swept = 0.0
        self._counted = 0.0

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Work until `stop`, or until the store is another; `ready` is called when the store knows this worker."""
        store, worker = self._runtime.store, self._worker
        with Heart(store, worker.name, worker.in_hand) as heart, closing(store.wakeup()) as wakeup, ExitStack() as last:
            if self._webhook is not None:
                last.enter_context(self._webhook)
            self._wakeup, self._heart = wakeup, heart
            ready()
            while not self._stopping.is_set():
                self._look(wakeup)
            self._worker.settle()
            self._wait(self._drain_sec)
            self._worker.leave()
            self._wait(None)
            if store.replaced:
                raise CodePilotError(
                    FailureKind.STORE_UNAVAILABLE,
                    f"The database {store.place} was removed or replaced while this worker had it open.",
                    next_action="Start the worker again: it works on the one that is there now.",
                )
            sweep(self._runtime)

    def stop(self, *, hurry: bool = False) -> None:
        """Take nothing new; with `hurry`, also give back what is in hand. May be called from a signal handler."""
        self._stopping.set()
        self._worker.settle()
        if hurry:
            self._worker.leave()
        if self._wakeup is not None:
            self._wakeup.poke()

    @property
    def busy(self) -> int:
        return len(self._heeding())

    def _heeding(self) -> list[threading.Thread]:
        """The hands at work, but for those that are stuck: others have their steps, and nobody waits for them."""
        stuck = self._worker.stuck()
        return [hand for hand in list(self._hands) if hand.ident not in stuck]

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def well(self) -> bool:
        """Whether the store has answered lately."""
        return self._heart is not None and self._heart.well

    def _look(self, wakeup: Wakeup) -> None:
        """Take one step, or sleep until there may be one."""
        if self._runtime.store.replaced:
            self.stop(hurry=True)
            return
        try:
            start = self._take() if self.busy < self._concurrency else None
            if start is None:
                self._rest(wakeup)
                return
        except CodePilotError as error:
            _log.warning("the store does not answer: %s", error)
            self._stopping.wait(AWAY_SEC)
            return
        hand = threading.Thread(target=self._work, args=(start, wakeup), name=f"hand-{start.run.run_id}", daemon=True)
        self._hands.add(hand)
        try:
            hand.start()
        except RuntimeError as error:  # there is no room for another thread
            self._hands.discard(hand)
            _log.error("left to others: %s", error, extra={"run_id": start.run.run_id})
            self._stopping.wait(AWAY_SEC)

    def _take(self) -> ClaimedStep | None:
        return self._runtime.store.claim_next(self._worker.name)

    def _rest(self, wakeup: Wakeup) -> None:
        self._tidy()
        if self._until_idle and not self.busy and self._runtime.store.queue.idle():
            self._stopping.set()
        else:
            wakeup.wait(POLL_SEC if not self._until_idle else IDLE_SEC)

    def _work(self, start: ClaimedStep, wakeup: Wakeup) -> None:
        """Work on the run, then on the next one that waits."""
        try:
            while True:
                self._work_on(start)
                # One that was stuck, and has been replaced, may be back.
                enough = self._stopping.is_set() or self.busy > self._concurrency
                following = None if enough else self._take()
                if following is None:
                    return
                start = following
        except CodePilotError as error:
            _log.warning("the store does not answer: %s", error)
        finally:
            self._hands.discard(threading.current_thread())
            wakeup.poke()

    def _work_on(self, start: ClaimedStep) -> None:
        """A step that cannot be reported on goes back: the heart sees that nobody has it in hand any more."""
        try:
            self._worker.work_on(start)
        except CodePilotError as error:
            _log.warning("left to others: %s", error, extra={"run_id": start.run.run_id})
        except Exception:  # noqa: BLE001 - one run's defect must not take the others' worker along
            _log.exception("left to others", extra={"run_id": start.run.run_id})
        if self._webhook is not None and start.run.task.notify:
            self._webhook.wake()

    def _wait(self, seconds: float | None) -> None:
        deadline = time.monotonic() + (math.inf if seconds is None else seconds)
        while (left := deadline - time.monotonic()) > 0 and (hands := self._heeding()):
            hands[0].join(min(left, LOOK_SEC))

    def _tidy(self) -> None:
        if time.monotonic() - self._swept >= SWEEP_SEC:
            self._swept = time.monotonic()
            sweep(self._runtime)
        if time.monotonic() - self._counted >= COUNT_SEC:
            queue = self._runtime.store.queue
            _depth.set(queue.depth())
            full = self.busy >= self._concurrency or queue.full()
            self._worker.make_way(queue.most_urgent() if full else None, crowded=queue.crowded())
            self._counted = time.monotonic()
