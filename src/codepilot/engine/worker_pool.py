"""`codepilot worker`: works on any run of the store, several at a time.

The main thread claims steps and sleeps until the store wakes it; each run at work has a slot with a thread of its own.
On `stop` the pool claims nothing new, lets the steps at work end, and gives back what is left when the time is over.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.close import sweep
from codepilot.engine.runtime import Runtime
from codepilot.engine.webhook import WebhookSender
from codepilot.engine.worker import Worker
from codepilot.store import ClaimedStep
from codepilot.store.wakeup import Wakeup
from codepilot.telemetry import METRICS

POLL_SEC = 2.0
"""How often the tables are read although nothing woke the pool."""
IDLE_SEC = 0.2
SWEEP_SEC = 60.0
COUNT_SEC = 1.0
"""How often pending steps are counted: it takes longer the more there are."""
AWAY_SEC = 1.0
STUCK_SEC = 0.5
"""How often a slot that is waited for is checked for being stuck."""

_SLOT = "slot-"

_log = logging.getLogger(__name__)
DEPTH = METRICS.gauge("codepilot_step_queue_depth", "Steps that wait for a worker.")


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
        worker.monitor.takes_queued = True
        self._concurrency = concurrency
        self._drain_sec = drain_sec
        self._until_idle = until_idle
        self._webhook = webhook
        self._stopping = threading.Event()
        self._slots: set[threading.Thread] = set()
        self._wakeup: Wakeup | None = None
        self._swept = 0.0
        self._counted = 0.0

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Work until `stop`, or until the database is replaced; `ready` is called when the worker is registered."""
        store, worker = self._runtime.store, self._worker
        with worker.monitor, closing(store.wakeup()) as wakeup, ExitStack() as last:
            if self._webhook is not None:
                last.enter_context(self._webhook)
            self._wakeup = wakeup
            ready()
            while not self._stopping.is_set():
                self._fill_slot(wakeup)
            worker.drain()
            self._wait(self._drain_sec)
            worker.abort()
            self._wait(math.inf)
            if store.replaced:
                raise CodePilotError(
                    FailureKind.STORE_UNAVAILABLE,
                    f"The database {store.place} was removed or replaced while this worker had it open.",
                    next_action="Start the worker again: it works on the one that is there now.",
                )
            sweep(self._runtime)

    def stop(self, *, hurry: bool = False) -> None:
        """Claim nothing new; with `hurry`, also give back running steps. May be called from a signal handler."""
        self._stopping.set()
        self._worker.drain()
        if hurry:
            self._worker.abort()
        if self._wakeup is not None:
            self._wakeup.poke()

    @property
    def name(self) -> str:
        return self._worker.name

    @property
    def busy(self) -> int:
        """Slots at work."""
        return len(self._at_work())

    @property
    def runs(self) -> list[str]:
        """The runs at work."""
        return [thread.name.removeprefix(_SLOT) for thread in self._at_work()]

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def healthy(self) -> bool:
        """True if the store has answered lately."""
        return self._worker.monitor.healthy

    def _at_work(self) -> list[threading.Thread]:
        """The slots' threads, without stuck ones: other workers have their steps."""
        stuck = self._worker.monitor.stuck_threads()
        return [thread for thread in list(self._slots) if thread.ident not in stuck]

    def _fill_slot(self, wakeup: Wakeup) -> None:
        """Claim one step for a free slot, or sleep until there may be one."""
        store = self._runtime.store
        if store.replaced:
            self.stop(hurry=True)
            return
        try:
            claimed = store.claim_next(self._worker.name) if self.busy < self._concurrency else None
            if claimed is None:
                self._tidy()
                if self._until_idle and not self.busy and store.queue.idle():
                    self._stopping.set()
                else:
                    wakeup.wait(IDLE_SEC if self._until_idle else POLL_SEC)
                return
        except CodePilotError as error:
            _log.warning("the store does not answer: %s", error)
            self._stopping.wait(AWAY_SEC)
            return
        run_id = claimed.run.run_id
        slot = threading.Thread(target=self._work, args=(claimed, wakeup), name=f"{_SLOT}{run_id}", daemon=True)
        self._slots.add(slot)
        try:
            slot.start()
        except RuntimeError as error:  # no room for another thread
            self._slots.discard(slot)
            _log.error("left to others: %s", error, extra={"run_id": run_id})
            self._stopping.wait(AWAY_SEC)

    def _work(self, claimed: ClaimedStep, wakeup: Wakeup) -> None:
        """Work on the run. If its step cannot be committed, the monitor gives the step back."""
        task = claimed.run.task
        try:
            self._worker.execute(claimed)
        except CodePilotError as error:
            _log.warning("left to others: %s", error, extra={"run_id": claimed.run.run_id})
        except Exception:  # noqa: BLE001 - one run's defect must not end the worker of the others
            _log.exception("left to others", extra={"run_id": claimed.run.run_id})
        finally:
            self._slots.discard(threading.current_thread())
            if self._webhook is not None and task.notify:
                self._webhook.wake()
            wakeup.poke()

    def _wait(self, seconds: float) -> None:
        """Wait for the slots at work."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and (slots := self._at_work()):
            slots[0].join(min(left, STUCK_SEC))

    def _tidy(self) -> None:
        if time.monotonic() - self._swept >= SWEEP_SEC:
            self._swept = time.monotonic()
            sweep(self._runtime)
        if time.monotonic() - self._counted >= COUNT_SEC:
            queue = self._runtime.store.queue
            DEPTH.set(queue.depth())
            full = self.busy >= self._concurrency or queue.full()
            self._worker.preempt(queue.most_urgent() if full else None, over_limit=queue.over_limit())
            self._counted = time.monotonic()
