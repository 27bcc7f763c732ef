"""A worker: claims a step, does it, commits its outcome and the claim of the next step in one transaction, goes on.

A worker decides nothing (`core.decide` does) and keeps nothing (the store does), so it may die at any point: the next
worker finds the same step, the same events and the same workspace.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing

from codepilot.agents import Agent
from codepilot.core.approval import ApprovalNeeded
from codepilot.core.decide import ASKED_TO_PAUSE, LEFT, Failed, NeedsApproval, Outcome, cancelled, decide, decide_start
from codepilot.core.events import TERMINAL, WAITING, Event, State
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import TaskSpec
from codepilot.engine.agent_factory import AgentFactory
from codepilot.engine.close import LiveLog, close_run
from codepilot.engine.execution_context import RunResources
from codepilot.engine.follower import EventFollower, is_settled
from codepilot.engine.monitor import OpenStep, StepMonitor, StopRequested
from codepilot.engine.plan.families import ChildThreads, wake
from codepilot.engine.runtime import Runtime
from codepilot.engine.steps import STEPS
from codepilot.engine.task import Begun
from codepilot.engine.work import Work
from codepilot.store import Claim, ClaimedStep, LostLease, new_id
from codepilot.store.faults import disk_is_full
from codepilot.telemetry import now_us
from codepilot.telemetry.process_log import log_event
from codepilot.telemetry.transitions import log_transition

_log = logging.getLogger(__name__)

AGENT_STATES = frozenset({State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.REFLECT, State.REVIEW})
"""States in which an agent may be in the middle of an action that a pause lets finish."""

OnEvent = Callable[[Event], None]


class Worker:
    """Works on runs from step to step until they end or wait. A `WorkerPool` gives it several at a time."""

    def __init__(
        self,
        runtime: Runtime,
        on_event: OnEvent = lambda event: None,
        agent_for: Callable[[TaskSpec], Agent] | None = None,
        on_text: Callable[[str], None] = lambda text: None,
        on_output: Callable[[bytes], None] = lambda data: None,
        begun: Begun | None = None,
    ) -> None:
        """`begun` is a run whose first step was claimed in the name that this worker then has."""
        self.name = begun.worker if begun else new_id("w-")
        self.monitor = StepMonitor(runtime.store, self.name)
        self._first = begun.start if begun else None
        self._runtime = runtime
        self._store = runtime.store
        self._agent_for = agent_for or AgentFactory(runtime.settings)
        self._on_event = on_event
        self._on_text = on_text
        self._on_output = on_output
        self._draining = threading.Event()
        self._aborting = threading.Event()
        self._waiting_priority: int | None = None
        self._over_limit = False
        self._preempting = threading.Lock()

    def drive(self, run_id: str, after: int | None = None) -> Run:
        """Work on one run until it ends or waits for longer than a moment.

        Every event after `after` is shown, by default those from now on: a step that another worker has is left to it
        and followed, a free one is done here. A run that is parked for a moment is waited for.
        """
        with self.monitor:
            children = ChildThreads(self._store, self.name, lambda one: self.execute(one, _unseen))
            claimed, self._first = self._first, None
            if claimed is None:
                self._store.reclaim(run_id, wait=True)
            elif after is None:
                after = claimed.run.last_seq - len(claimed.events)
            follower = EventFollower(self._store, run_id, self._store.load(run_id).last_seq if after is None else after)

            def show(event: Event) -> None:
                for one in follower.recorded(event):
                    self._on_event(one)

            while True:
                claimed = claimed or self._store.claim_next(self.name, run_id)
                if claimed is not None:
                    self.execute(claimed, show)
                run = self._store.load(run_id)
                children.work_on(run)
                for event in follower.new():
                    self._on_event(event)
                if run.last_seq == follower.after and is_settled(run) and not children.busy:
                    if claimed is None:  # another worker ended it
                        close_run(run, self._runtime)
                    return run
                if claimed is None:
                    follower.wait()
                claimed = None

    def execute(self, claimed: ClaimedStep, on_event: OnEvent | None = None) -> None:
        """Do the step, and those of the same run that follow it, until the run ends or waits or the worker stops."""
        run_id = claimed.claim.run_id
        following: ClaimedStep | None = claimed
        self.monitor.hold(claimed.claim)
        try:
            with closing(LiveLog(self._runtime, run_id)) as log, closing(RunResources(self._runtime)) as resources:
                while following is not None:
                    following = self._step(following, log, resources, on_event or self._on_event)
        finally:
            self.monitor.let_go()
        run = self._store.load(run_id)
        if run.state in TERMINAL | WAITING:
            close_run(run, self._runtime)
        if run.task.parent_run_id is not None and is_settled(run):
            wake(self._store, run.task.parent_run_id)

    def _on_text_of(self, run: Run) -> Callable[[str], None]:
        return self._on_text if run.task.parent_run_id is None else _unheard

    def drain(self) -> None:
        """Claim no further step once those at work are done."""
        self._draining.set()

    def abort(self) -> None:
        """Stop the steps at work now and give them back to the queue."""
        self._draining.set()
        self._aborting.set()

    def preempt(self, priority: int | None, *, over_limit: bool = False) -> None:
        """Free one slot after its step: of a run below `priority`, or of any run if the store is `over_limit`."""
        with self._preempting:
            self._waiting_priority, self._over_limit = priority, over_limit

    def _is_preempted(self, run: Run) -> bool:
        """True if this run frees its slot; of several at work one does."""
        with self._preempting:
            if self._over_limit:
                self._over_limit = False
                return True
            outranked = self._waiting_priority is not None and run.task.priority < self._waiting_priority
            if outranked:
                self._waiting_priority = None
        return outranked

    def _step(
        self, claimed: ClaimedStep, log: LiveLog, resources: RunResources, on_event: OnEvent
    ) -> ClaimedStep | None:
        """Do one step; the next one of the run, if it was claimed."""
        claim, run = claimed.claim, claimed.run

        def publish(events: Sequence[Event]) -> None:
            log.write(events)
            self._runtime.count(run, events)
            for event in events:
                log_event(event, run.state)
                log_transition(claimed.run, run, event)
                on_event(event)

        try:
            publish(claimed.events)
            outcome: Outcome | None = decide_start(run)
            if outcome is None:
                outcome, run = self._perform(run, claim, resources, publish)
            stops = self._draining.is_set() or self._is_preempted(run)
            written = self._store.commit(
                claim, lambda current: decide(current, outcome, now_us()), claim_next=not stops
            )
            if written.claimed is not None:
                self.monitor.hold(written.claimed.claim)
            publish(written.events)
        except LostLease as lost:
            # Another worker has the step now; what was done here has no effect.
            fields = {"run_id": claim.run_id, "step_id": claim.step_id, "role": claim.state, "attempt": claim.attempt}
            _log.warning("%s", lost, extra=fields)
            return None
        return written.claimed

    def _perform(
        self, run: Run, claim: Claim, resources: RunResources, publish: Callable[[Sequence[Event]], None]
    ) -> tuple[Outcome, Run]:
        """How the step ended, and the run as it left it."""
        interrupting = run.state not in AGENT_STATES
        step = OpenStep(self._store, run, claim, resources.interrupt, self._aborting, pause_interrupts=interrupting)
        with self.monitor.watching(step):
            try:
                self._runtime.leave_name()
                resources.settle(run)
                agent = self._agent_for(run.task)
                outcome = STEPS[run.state](
                    Work(
                        run,
                        claim,
                        self._runtime,
                        agent,
                        step,
                        resources,
                        publish,
                        self._on_text_of(run),
                        self._on_output,
                    )
                )
            except StopRequested:
                outcome = _stopped(step)
            except ApprovalNeeded as needed:
                outcome = _stopped(step) if step.stopped else NeedsApproval(needed.request)
            except LostLease:
                raise
            except CodePilotError as error:
                if error.kind is FailureKind.STORE_UNAVAILABLE:
                    raise
                outcome = _stopped(step) if step.stopped else Failed(error.failure)
            except Exception as error:  # noqa: BLE001 - the step's boundary: a defect is recorded, never lost
                outcome = _stopped(step) if step.stopped else Failed(_defect(error, self._runtime.redact))
        if step.lost is not None:
            raise step.lost
        return outcome, step.run


def _unheard(text: str) -> None:
    """The words of several models at once cannot be shown."""


def _unseen(event: Event) -> None:
    """A child's events are in its own log; its parent's say what became of it."""


def _stopped(step: OpenStep) -> Outcome:
    if step.cancelled:
        return Failed(cancelled())
    if step.spent is not None:
        return Failed(step.spent)
    return LEFT if step.aborted else ASKED_TO_PAUSE


def _defect(error: Exception, clean: Callable[[str], str]) -> Failure:
    """An unexpected error as a failure. Its text may quote anything, the keys of this process included."""
    trace = clean("".join(traceback.format_exception(error)))[-4000:]
    message = clean(f"{type(error).__name__}: {error}")
    if isinstance(error, OSError) and disk_is_full(error):
        return Failure(kind=FailureKind.DISK_FULL, message=message)
    return Failure(kind=FailureKind.INTERNAL, message=message, details={"traceback": trace})
