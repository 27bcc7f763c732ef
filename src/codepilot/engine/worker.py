"""The corridor: claim a step, do it, commit its outcome and the next step in one transaction, go on.

A worker decides nothing (`core.run.decide` does) and keeps nothing (the store does), so it may die anywhere:
the next one finds the same step, the same events and the same workspace.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import closing

from codepilot.agents import Agent, make_agent
from codepilot.core.events import TERMINAL, WAITING, Event, EventDraft, EventType, State, StepStarted
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Failed, Outcome, Paused, Run, cancelled, decide, decide_start, evolve
from codepilot.core.task import TaskSpec
from codepilot.engine.close import close_run, open_log
from codepilot.engine.plane import check_place
from codepilot.engine.site import KeptSite
from codepilot.engine.steps import STEPS
from codepilot.engine.watch import StopRequested, Watch
from codepilot.engine.work import Work
from codepilot.store import Artifacts, Claim, Home, LostLease, Store, new_id
from codepilot.telemetry import RunLog, now_us

AGENT_STATES = frozenset({State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.REFLECT, State.REVIEW})
"""States in which an agent may be in the middle of an action that a pause should let finish."""


class Worker:
    """Drives runs from step to step until they end or wait."""

    def __init__(
        self,
        store: Store,
        artifacts: Artifacts,
        home: Home,
        listen: Callable[[Event], None] = lambda event: None,
        agent_for: Callable[[TaskSpec], Agent] = lambda task: make_agent(task.agent),
    ) -> None:
        self.name = new_id("w-")
        self._store = store
        self._artifacts = artifacts
        self._home = home
        self._agent_for = agent_for
        self._listen = listen

    def drive(self, run_id: str) -> Run:
        """Work on one run for as long as it has a step to do, then leave it in order."""
        self._store.register_worker(self.name)
        try:
            self._store.reclaim(run_id)
            claim = self._store.claim(self.name, run_id)
            if claim is not None:
                with closing(open_log(self._store, self._home, run_id)) as log, closing(KeptSite(self._home)) as kept:
                    while claim is not None:
                        self._step(claim, log, kept)
                        claim = self._store.claim(self.name, run_id)
            run = self._store.load(run_id)
            if run.state not in TERMINAL | WAITING:
                raise CodePilotError(
                    FailureKind.INVALID_SPEC,
                    f"Run {run_id} is being worked on by another process.",
                    next_action=f"Follow it with `codepilot logs {run_id} --follow`.",
                )
            close_run(run, self._store, self._home)
            return run
        finally:
            self._store.release_worker(self.name)

    def _step(self, claim: Claim, log: RunLog, kept: KeptSite) -> None:
        def publish(events: Sequence[Event]) -> None:
            log.write(events)
            for event in events:
                self._listen(event)

        run = self._store.load(claim.run_id)
        may_not = decide_start(run)
        started = EventDraft(
            type=EventType.STEP_STARTED,
            data=StepStarted(worker=self.name, fence=claim.fence),
            step_id=claim.step_id,
            attempt=claim.attempt,
        )
        try:
            events = self._store.append(claim, [started])
            publish(events)
            run = evolve(run, events[-1])
            outcome = Failed(may_not) if may_not else self._perform(run, claim, kept, publish)
            publish(self._store.commit(claim, lambda current: decide(current, outcome, now_us())))
        except LostLease:
            # Another worker holds the step now; whatever was done here has no effect.
            return

    def _perform(self, run: Run, claim: Claim, kept: KeptSite, publish: Callable[[Sequence[Event]], None]) -> Outcome:
        with Watch(self._store, run, kept.interrupt, pause_interrupts=run.state not in AGENT_STATES) as watch:
            try:
                check_place(run)
                kept.executor(run.task)
                agent = self._agent_for(run.task)
                stores = (self._store, self._artifacts, self._home)
                outcome = STEPS[run.state](Work(run, claim, *stores, agent, watch, kept, publish))
            except StopRequested:
                outcome = _stopped(watch)
            except LostLease:
                raise
            except CodePilotError as error:
                outcome = _stopped(watch) if watch.stopped else Failed(error.failure)
            except Exception as error:  # noqa: BLE001 - the step's boundary: recorded as a defect, never lost
                outcome = _stopped(watch) if watch.stopped else Failed(_defect(error))
        return outcome


def _stopped(watch: Watch) -> Outcome:
    if watch.cancelled:
        return Failed(cancelled())
    if watch.spent is not None:
        return Failed(watch.spent)
    return Paused("asked to pause")


def _defect(error: Exception) -> Failure:
    trace = "".join(traceback.format_exception(error))[-4000:]
    return Failure(kind=FailureKind.INTERNAL, message=f"{type(error).__name__}: {error}", details={"traceback": trace})
