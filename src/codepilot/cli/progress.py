"""A run's progress, folded from its events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from codepilot.cli.output import plain
from codepilot.core.artifacts import Gate, TestResult
from codepilot.core.children import Child, joined, started
from codepilot.core.events import (
    BudgetWarned,
    ChildJoined,
    ChildStarted,
    ContextCondensed,
    Event,
    EventType,
    ModelAnswered,
    ModelAsked,
    NodeChanged,
    PlanRevised,
    RunFinished,
    SandboxChosen,
    State,
    StepFailed,
    StepQueued,
    StepSkipped,
    StepSucceeded,
    TurnStarted,
    Usage,
)
from codepilot.core.plan import NodeStatus, Plan, with_status
from codepilot.core.run import UNCHARGED
from codepilot.telemetry import PlanPart, describe, plan_parts

USUAL_STATES = (
    State.INIT,
    State.MAP_REPO,
    State.PLAN,
    State.IMPLEMENT,
    State.TEST,
    State.REVIEW,
    State.FINALIZE,
)
_DOING: Mapping[State, str] = {
    State.INIT: "copying the repository",
    State.MAP_REPO: "mapping the repository",
    State.PLAN: "planning the change",
    State.IMPLEMENT: "looking for a change",
    State.TEST: "running the tests after the change",
    State.REFLECT: "looking for the cause of the failure",
    State.REVIEW: "reviewing the change",
    State.FINALIZE: "proving the change on a clean copy",
}
"""What a step does before its events say more."""


@dataclass(frozen=True)
class StepLine:
    """One step as a line: `mark` is waiting, running, done, partly (done, but some test still fails) or failed."""

    state: State
    mark: str = "waiting"
    started_at: int | None = None
    ended_at: int | None = None
    note: str = ""
    red: bool = False
    """True if tests still fail."""


@dataclass(frozen=True)
class Progress:
    steps: tuple[StepLine, ...] = ()
    iterations: int = 0
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unpriced: bool = False
    """True if the price of some tokens is unknown."""
    asked: Usage | None = None
    """The estimate of a call without a reply; it counts as spent once the next call is made."""
    sandbox: str = ""
    warning: str = ""
    """A budget that is nearly spent."""
    finished: RunFinished | None = None
    gates: tuple[Gate, ...] = ()
    """The gates as they were judged last."""
    plan: Plan | None = None
    children: tuple[Child, ...] = ()

    @property
    def parts(self) -> tuple[PlanPart, ...]:
        """The parts of the plan while it is carried out."""
        newest = self.steps[-1].state if self.steps else None
        return plan_parts(self.plan, self.children) if newest is State.IMPLEMENT else ()

    @property
    def running(self) -> StepLine | None:
        """The step at work."""
        newest = self.steps[-1] if self.steps else None
        return newest if newest is not None and newest.mark == "running" and self.finished is None else None

    @property
    def upcoming(self) -> tuple[State, ...]:
        """The states that normally follow the newest step."""
        if self.finished is not None or not self.steps:
            return ()
        newest = self.steps[-1].state
        after = USUAL_STATES.index(newest) + 1 if newest in USUAL_STATES else USUAL_STATES.index(State.IMPLEMENT)
        return USUAL_STATES[after:]


def advance(progress: Progress, event: Event) -> Progress:
    """The progress after one more event."""
    return _stepped(_planned(progress, event), event)


_STATUS = {
    EventType.NODE_STARTED: NodeStatus.RUNNING,
    EventType.NODE_SUCCEEDED: NodeStatus.SUCCEEDED,
    EventType.NODE_FAILED: NodeStatus.FAILED,
}


def _planned(progress: Progress, event: Event) -> Progress:
    """How the parts of the plan stand after one more event."""
    plan = progress.plan
    match event.data:
        case Plan() as made:
            return replace(progress, plan=with_status(made, NodeStatus.PENDING), children=())
        case PlanRevised(plan=revised):
            return replace(progress, plan=revised)
        case NodeChanged() as changed if plan is not None:
            plan = with_status(plan, _STATUS[event.type], changed.node)
            return replace(
                progress, plan=with_status(plan, NodeStatus.BLOCKED, *changed.blocked) if changed.blocked else plan
            )
        case ChildStarted() as child:
            return replace(progress, children=(*progress.children, started(child)))
        case ChildJoined() as ended:
            again = plan is not None and ended.outcome == "conflict"
            plan = with_status(plan, NodeStatus.PENDING, ended.node) if plan is not None and again else plan
            return replace(progress, plan=plan, children=joined(progress.children, ended))
        case _:
            return progress


def _stepped(progress: Progress, event: Event) -> Progress:
    data = event.data
    match data:
        case StepQueued(state=state, again=again):
            entered = 1 if state is State.IMPLEMENT and event.attempt == 1 and not again else 0
            line = StepLine(state)
            return replace(progress, steps=(*progress.steps, line), iterations=progress.iterations + entered)
        case StepSucceeded(note=note):
            partly = bool(progress.steps) and progress.steps[-1].red
            return _close(progress, event, "partly" if partly else "done", note)
        case StepSkipped():  # the agent lacks the role: there is nothing to show
            return replace(progress, steps=progress.steps[:-1])
        case StepFailed(failure=failure):
            progress = replace(progress, asked=None if failure.details.get(UNCHARGED) is True else progress.asked)
            return _close(progress, event, "failed", failure.message)
        case SandboxChosen(level=level):
            return replace(progress, sandbox=level)
        case ModelAsked(call=call) if call:
            return progress
        case ModelAnswered(usage=usage):
            return _spend(progress, usage)
        case ModelAsked(estimate=estimate):
            lost = progress.asked or Usage()
            return replace(_spend(_note(progress, describe(event)), lost), asked=estimate)
        case TurnStarted(usage=usage):
            noted = _note(progress, describe(event) or "working")
            return replace(_spend(noted, usage), turns=progress.turns + 1, asked=None)
        case ContextCondensed():
            return replace(_note(progress, describe(event)), asked=None)
        case TestResult() as result:
            red = bool(result.failed_tests_after or result.regressions)
            return replace(_newest(_note(progress, describe(event)), red=red), gates=result.gates)
        case BudgetWarned():
            return replace(progress, warning=describe(event))
        case RunFinished():
            return replace(progress, finished=data)
        case _ if event.type is EventType.STEP_STARTED:
            return _newest(progress, mark="running", started_at=event.at, ended_at=None)
        case _:
            note = describe(event)
            return _note(progress, note) if note else progress


def doing(line: StepLine) -> str:
    """What a step does now."""
    return line.note or _DOING.get(line.state, "working")


def _spend(progress: Progress, usage: Usage) -> Progress:
    return replace(
        progress,
        tokens=progress.tokens + usage.tokens,
        cost_usd=progress.cost_usd + usage.cost_usd,
        unpriced=progress.unpriced or usage.unpriced_tokens > 0,
    )


def _note(progress: Progress, note: str) -> Progress:
    return _newest(progress, note=plain(note))


def _close(progress: Progress, event: Event, mark: str, note: str) -> Progress:
    newest = progress.steps[-1] if progress.steps else None
    kept = newest.note if newest and newest.note and newest.note != "working" else note
    return _newest(progress, mark=mark, ended_at=event.at, note=plain(note if mark == "failed" else kept))


def _newest(progress: Progress, **changes: object) -> Progress:
    if not progress.steps:
        return progress
    newest = replace(progress.steps[-1], **changes)  # type: ignore[arg-type]
    return replace(progress, steps=(*progress.steps[:-1], newest))
