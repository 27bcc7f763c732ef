"""What a person watching a run wants to know, folded from its events. Pure; the screens only draw it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codepilot.cli.text import plain
from codepilot.core.events import (
    BaselineRecorded,
    BasePinned,
    Event,
    EventType,
    PatchProposed,
    ProofRecorded,
    ReviewRecorded,
    RunFinished,
    SandboxChosen,
    SearchProgressed,
    State,
    StepFailed,
    StepQueued,
    StepSkipped,
    StepSucceeded,
    TestsJudged,
    TurnStarted,
    WorkspaceCreated,
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
    sandbox: str = ""
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
        case TurnStarted():
            return replace(_note(progress, "working"), turns=progress.turns + 1)
        case RunFinished():
            return replace(progress, finished=data)
        case _ if event.type is EventType.STEP_STARTED:
            return _newest(progress, mark="running", started_at=event.at, ended_at=None)
        case _:
            note = describe(event)
            return _note(progress, note) if note else progress


def describe(event: Event) -> str:
    """One line about an event worth telling, or nothing."""
    match event.data:
        case BasePinned(commit=commit) as base:
            return f"base {commit[:12]}{' with uncommitted changes' if base.dirty else ''}"
        case WorkspaceCreated():
            return "running the tests before anything is changed"
        case BaselineRecorded(before=before, targets=targets):
            red = len(before.failed) + len(before.errors)
            return f"{before.passed} pass, {red} fail before; repairing {', '.join(targets)}"
        case SearchProgressed() as search:
            best = f" · best: {search.best}" if search.best else ""
            return f"{search.tried} candidates · {search.per_sec:.0f}/s · {search.plausible} plausible{best}"
        case PatchProposed(patch=patch, refused_by=refused_by):
            refused = f" — refused: {refused_by}" if refused_by else ""
            return f"{', '.join(patch.touched_files) or 'no file'} changed{refused}"
        case TestsJudged(result=result):
            red = len(result.failed_tests_after) + len(result.regressions)
            return f"{result.summary.passed} pass, {red} fail after"
        case ReviewRecorded(review=review):
            held = sum(1 for check in review.policy_checks if check.ok)
            return f"{held} of {len(review.policy_checks)} checks hold"
        case ProofRecorded(verdict=verdict, ok=ok):
            return f"proved on a clean copy: {verdict}" if ok else "the proof did not hold"
        case _:
            return ""


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
