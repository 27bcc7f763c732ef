"""The timeline of a run: how long each step took, and how it ended. The transcript: every event, one JSON line each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from codepilot.core.artifacts import Review, TestResult
from codepilot.core.contract import Contract, JsonObject, canonical_json
from codepilot.core.events import (
    Event,
    EventType,
    State,
    StepQueued,
    TurnStarted,
)
from codepilot.core.run import Run
from codepilot.telemetry.figures import Stopwatch
from codepilot.telemetry.redact import Clean, redact, redact_json

StepStatus = Literal["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"]


class TimelineStep(Contract):
    role: State
    duration_sec: float
    agent_turns: int | None = None
    exit_code: int | None = None
    status: StepStatus
    verdict: str | None = None
    attempt: int


class TimelineTests(Contract):
    passed: bool
    failed_tests_before: tuple[str, ...]
    failed_tests_after: tuple[str, ...]


class Timeline(Contract):
    run_id: str
    task: str
    status: State
    total_duration_sec: float
    iterations_used: int
    steps: tuple[TimelineStep, ...]
    patch: str | None
    test_result: TimelineTests | None


@dataclass
class _Step(Stopwatch):
    """A step while its events are read. Pauses do not count."""

    role: State
    attempt: int
    status: StepStatus = "PENDING"
    turns: int = 0
    exit_code: int | None = None
    verdict: str | None = None

    def summary(self) -> TimelineStep:
        return TimelineStep(
            role=self.role,
            duration_sec=_seconds(self.worked_us),
            agent_turns=self.turns or None,
            exit_code=self.exit_code,
            status=self.status,
            verdict=self.verdict,
            attempt=self.attempt,
        )


_ENDS: dict[EventType, StepStatus] = {
    EventType.STEP_SUCCEEDED: "SUCCEEDED",
    EventType.STEP_FAILED: "FAILED",
    EventType.STEP_SKIPPED: "SKIPPED",
    EventType.RUN_PAUSED: "PENDING",
    EventType.RUN_BLOCKED: "PENDING",
}


def timeline(run: Run, events: Sequence[Event], clean: Clean = redact) -> JsonObject:
    """The run's timeline without secrets; fields that a step has nothing to say about are left out."""
    steps: dict[tuple[str | None, int], _Step] = {}
    for event in events:
        key = (event.step_id, event.attempt)
        if isinstance(event.data, StepQueued):
            steps[key] = _Step(event.data.state, event.attempt, last_at=event.at)
        elif event.type is EventType.RUN_FINISHED:
            for step in steps.values():
                if step.status in ("PENDING", "RUNNING"):
                    step.rest(event.at)
                    step.status = "CANCELLED"
        elif key in steps:
            _read(steps[key], event)
    result = run.test_result
    timeline = Timeline(
        run_id=run.run_id,
        task=run.task.goal.natural,
        status=run.state,
        total_duration_sec=_seconds(run.spent.wall_us),
        iterations_used=run.spent.iterations,
        steps=tuple(step.summary() for step in steps.values()),
        patch=run.proposal.patch.diff if run.proposal else None,
        test_result=None
        if result is None
        else TimelineTests(
            passed=result.passed,
            failed_tests_before=result.failed_tests_before,
            failed_tests_after=result.failed_tests_after,
        ),
    )
    document: JsonObject = timeline.model_dump(mode="json", by_alias=True)
    document["steps"] = [
        step.summary().model_dump(mode="json", by_alias=True, exclude_none=True) for step in steps.values()
    ]
    return redact_json(document, clean)


def _read(step: _Step, event: Event) -> None:
    match event.data:
        case TurnStarted(usage=usage):
            step.turns += usage.turns
        case TestResult() as result:
            step.exit_code = result.exit_code
        case Review() as review:
            step.verdict = review.verdict
    if event.type is EventType.STEP_STARTED:
        step.start(event.at)
        step.status = "RUNNING"
    elif event.type in _ENDS:
        step.rest(event.at)
        step.status = _ENDS[event.type]
    step.last_at = event.at


def _seconds(us: int) -> float:
    return round(us / 1e6, 3)


def transcript(events: Iterable[Event], clean: Clean = redact) -> bytes:
    """Each event is redacted by itself, so that one event cannot spoil the others."""
    return "".join(f"{_line(event, clean)}\n" for event in events).encode()


def _line(event: Event, clean: Clean) -> str:
    line = canonical_json(event)
    if "\\" not in line and clean(line) == line:
        return line
    return canonical_json(redact_json(event.model_dump(mode="json"), clean))
