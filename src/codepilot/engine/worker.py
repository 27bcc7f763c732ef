"""The corridor: claim a step, do it, commit its outcome and the next step in one transaction, go on.

A worker decides nothing (`core.decide` does) and keeps nothing (the store does), so it may die anywhere:
the next one finds the same step, the same events and the same workspace.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import reduce

from codepilot.agents import Agent
from codepilot.core.decide import ASKED_TO_PAUSE, LEFT, Failed, Outcome, cancelled, decide, decide_start
from codepilot.core.events import TERMINAL, WAITING, Event, State
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run, evolve
from codepilot.core.task import TaskSpec
from codepilot.engine.agent_factory import AgentFactory
from codepilot.engine.close import close_run, leave_record
from codepilot.engine.execution_context import RunResources
from codepilot.engine.heart import Heart
from codepilot.engine.late_log import LateLog
from codepilot.engine.metrics import count
from codepilot.engine.runtime import Runtime
from codepilot.engine.steps import STEPS
from codepilot.engine.task import Begun
from codepilot.engine.teller import Teller
from codepilot.engine.watch import StopRequested, Watch, Watcher
from codepilot.engine.work import Work
from codepilot.store import Claim, ClaimedStep, LostLease, new_id
from codepilot.store.faults import disk_is_full
from codepilot.telemetry import now_us

_log = logging.getLogger(__name__)

AGENT_STATES = frozenset({State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.REFLECT, State.REVIEW})
"""States in which an agent may be in the middle of an action that a pause should let finish."""
FOLLOW_SEC = 0.25
"""How often a run that another worker has is looked at."""


class Worker:
    """Drives runs from step to step until they end or wait."""

    def __init__(
        self,
        runtime: Runtime,
        listen: Callable[[Event], None] = lambda event: None,
        agent_for: Callable[[TaskSpec], Agent] | None = None,
        hear: Callable[[str], None] = lambda piece: None,
        begun: Begun | None = None,
    ) -> None:
        """`begun` is what was begun for it, in the name that it bears then."""
        self.name = begun.worker if begun else new_id("w-")
        self._first = begun.start if begun else None
        self._runtime = runtime
        self._store = runtime.store
        self._agent_for = agent_for or AgentFactory(runtime.settings)
        self._listen = listen
        self._hear = hear
        self._settling = threading.Event()
        self._leaving = threading.Event()
        self._in_hand: dict[int, Claim] = {}
        self._more_urgent: int | None = None
        """The priority of a step that waits while all hands are busy."""
        self._crowded = False
        """Whether more steps are at work than the store's limit allows."""
        self._making_way = threading.Lock()
        self._watcher = Watcher(runtime.store, self.name)

    def in_hand(self) -> set[Claim]:
        """What is worked on here at this moment, and heeds us: whoever does not has lost his step to others."""
        return set(self._in_hand.copy().values()) - self._watcher.stuck()

    def stuck(self) -> set[int]:
        """The threads that do not heed us."""
        unheeding = self._watcher.stuck()
        return {hand for hand, claim in self._in_hand.copy().items() if claim in unheeding}

    def drive(self, run_id: str, told: int | None = None) -> Run:
        """See to one run until it ends or waits, then leave it in order.

        Steps that another worker has are left to it, and told as if they were done here; whatever is free is done here.
        `told` is the place of the last event that the listener need not be told. A run that is soon back is waited for:
        the heart goes on with it.
        """
        with Heart(self._store, self.name, self.in_hand):
            first, self._first = self._first, None
            if first is None:
                self._store.reclaim(run_id, wait=True)
            elif told is None:
                told = first.run.last_seq - len(first.events)
            teller = Teller(self._store, run_id, self._listen, told)
            while True:
                start, first = first or self._store.claim_next(self.name, run_id), None
                if start is not None:
                    self.work_on(start, teller.tell)
                run = self._store.load(run_id)
                teller.catch_up(run.last_seq)
                if run.state in TERMINAL | WAITING and not run.soon_back:
                    close_run(run, self._runtime)
                    return run
                if start is None:
                    time.sleep(FOLLOW_SEC)

    def work_on(self, start: ClaimedStep, listen: Callable[[Event], None] | None = None) -> None:
        """Do the step, and those of the same run that follow it, until the run ends or waits or another needs us."""
        run_id = start.claim.run_id
        following: ClaimedStep | Run | None = start
        self._take_in_hand(start)
        try:
            with closing(LateLog(self._runtime, start)) as log, closing(RunResources(self._runtime)) as resources:
                while isinstance(following, ClaimedStep):
                    following = self._step(following, log, resources, listen or self._listen)
        finally:
            del self._in_hand[threading.get_ident()]
        run = following or self._store.load(run_id)
        if run.state in TERMINAL | WAITING and log.last_seq == run.last_seq:
            leave_record(run, self._runtime)
        elif run.state in TERMINAL | WAITING:
            close_run(run, self._runtime)

    def settle(self) -> None:
        """Take no further step once those in hand are done."""
        self._settling.set()

    def make_way(self, priority: int | None, *, crowded: bool = False) -> None:
        """Leave one run that is less urgent after its step, so that a hand is free; it goes on in its turn. Any one,
        if it is `crowded`.
        """
        with self._making_way:
            self._more_urgent, self._crowded = priority, crowded

    def leave(self) -> None:
        """Stop what is in hand now, and give it back for others to go on with."""
        self._settling.set()
        self._leaving.set()

    def _makes_way(self, run: Run) -> bool:
        """Whether a more urgent one waits, or too many are at work; of several runs in hand one makes way."""
        with self._making_way:
            if self._crowded:
                self._crowded = False
                return True
            outranked = self._more_urgent is not None and run.task.priority < self._more_urgent
            if outranked:
                self._more_urgent = None
        return outranked

    def _take_in_hand(self, start: ClaimedStep) -> None:
        """As soon as it is ours: whatever we hold and have not in hand is given back before long."""
        self._in_hand[threading.get_ident()] = start.claim

    def _step(
        self, start: ClaimedStep, log: LateLog, resources: RunResources, listen: Callable[[Event], None]
    ) -> ClaimedStep | Run | None:
        """Do one step; what is to be done next, or how it left the run, as far as that is known."""
        claim, run = start.claim, start.run

        def publish(events: Sequence[Event]) -> None:
            log.write(events)
            count(run, events)
            for event in events:
                listen(event)

        following: ClaimedStep | Run | None = None
        try:
            publish(start.events)
            outcome: Outcome | None = decide_start(run)
            if outcome is None:
                outcome, run = self._perform(run, claim, resources, log, publish)
            if self._settling.is_set() or self._makes_way(run):
                events = self._store.commit(claim, lambda current: decide(current, outcome, now_us())).events
            else:
                written = self._store.commit(claim, lambda current: decide(current, outcome, now_us()), claim_next=True)
                events, following = written.events, written.claimed
            if isinstance(following, ClaimedStep):
                self._take_in_hand(following)
            publish(events)
            if not isinstance(following, ClaimedStep):
                log.flush()
            if following is None and events and events[0].seq == run.last_seq + 1:
                following = reduce(evolve, events, run)
        except LostLease as lost:
            # Another worker holds the step now; whatever was done here has no effect.
            _log.warning("%s", lost, extra=_fields(claim))
            log.drop()
            return None
        return following

    def _perform(
        self, run: Run, claim: Claim, resources: RunResources, log: LateLog, publish: Callable[[Sequence[Event]], None]
    ) -> tuple[Outcome, Run]:
        """How the step ended, and the run as it left it."""
        interrupting = run.state not in AGENT_STATES
        watch = Watch(self._store, run, claim, resources.interrupt, self._leaving, pause_interrupts=interrupting)
        with self._watcher.over(watch, log.flush):
            try:
                self._runtime.leave_name()
                resources.settle(run)
                agent = self._agent_for(run.task)
                outcome = STEPS[run.state](
                    Work(run, claim, self._runtime, agent, watch, resources, publish, self._hear)
                )
            except StopRequested:
                outcome = _stopped(watch)
            except LostLease:
                raise
            except CodePilotError as error:
                if error.kind is FailureKind.STORE_UNAVAILABLE:
                    raise
                outcome = _stopped(watch) if watch.stopped else Failed(error.failure)
            except Exception as error:  # noqa: BLE001 - the step's boundary: recorded as a defect, never lost
                outcome = _stopped(watch) if watch.stopped else Failed(_defect(error, self._runtime.redact))
        if watch.lost is not None:
            raise watch.lost
        return outcome, watch.run


def _fields(claim: Claim) -> dict[str, object]:
    return {"run_id": claim.run_id, "step_id": claim.step_id, "role": claim.state.value, "attempt": claim.attempt}


def _stopped(watch: Watch) -> Outcome:
    if watch.cancelled:
        return Failed(cancelled())
    if watch.spent is not None:
        return Failed(watch.spent)
    return LEFT if watch.leaving else ASKED_TO_PAUSE


def _defect(error: Exception, clean: Callable[[str], str]) -> Failure:
    """What nobody expected may quote anything, the keys of this process included."""
    trace = clean("".join(traceback.format_exception(error)))[-4000:]
    message = clean(f"{type(error).__name__}: {error}")
    if isinstance(error, OSError) and disk_is_full(error):
        return Failure(kind=FailureKind.DISK_FULL, message=message)
    return Failure(kind=FailureKind.INTERNAL, message=message, details={"traceback": trace})
