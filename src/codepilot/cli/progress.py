"""What a person watching a run wants to know, folded from its events. Pure; the screens only draw it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codepilot.cli.telling import describe
from codepilot.cli.text import plain
from codepilot.core.events import (
    BudgetWarned,
    Event,
    EventType,
    ModelAsked,
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

ROAD = (State.INIT, State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.TEST, State.REVIEW, State.FINALIZE)


@dataclass(frozen=True)
class StepLine:
    """One step as a line: `mark` is waiting, running, done, skipped or failed."""

    state: State
    mark: str = "waiting"
    started_at: int | None = None
    ended_at: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Progress:
    steps: tuple[StepLine, ...] = ()
    iterations: int = 0
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unpriced: bool = False
    """Whether some of the tokens have a price that is not known."""
    asked: Usage | None = None
    """The estimate of a call whose reply is not there: what the next call finds here is spent."""
    sandbox: str = ""
    warning: str = ""
    """That a budget nears its end."""
    finished: RunFinished | None = None

    @property
    def upcoming(self) -> tuple[State, ...]:
        """The states that normally follow the newest step."""
        if self.finished is not None or not self.steps:
            return ()
        newest = self.steps[-1].state
        return ROAD[ROAD.index(newest) + 1 :] if newest in ROAD else ROAD[ROAD.index(State.IMPLEMENT) :]


def advance(progress: Progress, event: Event) -> Progress:
    """The view after one more event."""
    data = event.data
    match data:
        case StepQueued(state=state, again=again):
            entered = 1 if state is State.IMPLEMENT and event.attempt == 1 and not again else 0
            line = StepLine(state)
            return replace(progress, steps=(*progress.steps, line), iterations=progress.iterations + entered)
        case StepSucceeded(note=note):
            return _close(progress, event, "done", note)
        case StepSkipped(reason=reason):
            return _close(progress, event, "skipped", reason)
        case StepFailed(failure=failure):
            return _close(progress, event, "failed", failure.message)
        case SandboxChosen(level=level):
            return replace(progress, sandbox=level)
        case ModelAsked(estimate=estimate):
            lost = progress.asked or Usage()
            return replace(_used(_note(progress, describe(event)), lost), asked=estimate)
        case TurnStarted(usage=usage):
            doing = describe(event) or "working"
            return replace(_used(_note(progress, doing), usage), turns=progress.turns + 1, asked=None)
        case BudgetWarned():
            return replace(progress, warning=describe(event))
        case RunFinished():
            return replace(progress, finished=data)
        case _ if event.type is EventType.STEP_STARTED:
            return _newest(progress, mark="running", started_at=event.at, ended_at=None)
        case _:
            note = describe(event)
            return _note(progress, note) if note else progress


def _used(progress: Progress, usage: Usage) -> Progress:
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
