"""The outcome of a run, packaged for a person or a model: what happened, what changed, what failed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from codepilot.core.artifacts import TestResult
from codepilot.core.contract import Contract
from codepilot.core.events import Event, EventType, StepFailed
from codepilot.core.review import HunkChoice, HunksReviewed
from codepilot.core.run import Run
from codepilot.telemetry.redact import Clean

MOST = 50
"""Errors and references; the newest ones are named."""
_SHOWN = (
    *(EventType.BASELINE_RECORDED, EventType.PLAN_CREATED, EventType.PATCH_PROPOSED, EventType.TESTS_JUDGED),
    *(EventType.REFLECTION_RECORDED, EventType.REVIEW_RECORDED, EventType.PROOF_RECORDED, EventType.STEP_FAILED),
    *(EventType.APPROVAL_DECIDED, EventType.GUARDRAIL_BLOCKED, EventType.HUNKS_REVIEWED, EventType.RUN_FINISHED),
)


class Delta(Contract):
    """A changed file, or once a person has reviewed the change, one piece of it with the decision."""

    type: Literal["file_diff"] = "file_diff"
    target: str
    artifact: str
    decision: HunkChoice | None = None
    reason: str = ""


class FeedbackError(Contract):
    """What went wrong. `details_artifact` is null if the message is all there is."""

    type: str
    message: str
    details_artifact: str | None


class Feedback(Contract):
    """A run in short. `timeline_refs` are the ids of the events that tell it."""

    summary: str
    deltas: tuple[Delta, ...]
    errors: tuple[FeedbackError, ...]
    timeline_refs: tuple[str, ...]


def feedback(run: Run, events: Sequence[Event], clean: Clean) -> Feedback:
    """The run as it is now, packaged."""
    return Feedback(
        summary=clean(_summary(run)),
        deltas=tuple(_deltas(run, events, clean)),
        errors=tuple(_errors(events, clean))[-MOST:],
        timeline_refs=tuple(event.event_id for event in events if event.type in _SHOWN)[-MOST:],
    )


def _summary(run: Run) -> str:
    if run.verdict is not None and run.proof is not None:
        return f"{run.verdict}: {run.proof.reason}"
    if run.failure is not None:
        return run.failure.message
    if run.test_result is not None and not run.test_result.passed:
        red = dict.fromkeys((*run.test_result.failed_tests_after, *run.test_result.regressions))
        return f"{len(red)} tests fail after the change: {', '.join(list(red)[:5])}"
    return f"The run is in the state {run.state}."


def _deltas(run: Run, events: Sequence[Event], clean: Clean) -> Iterator[Delta]:
    if run.proposal is None:
        return
    reviews = [event.data for event in events if isinstance(event.data, HunksReviewed)]
    uri = run.proposal.diff.uri
    if not reviews:
        yield from (Delta(target=path, artifact=uri) for path in run.proposal.patch.touched_files)
    for one in reviews[-1].decisions if reviews else ():
        yield Delta(target=one.hunk, artifact=uri, decision=one.decision, reason=clean(one.reason))


def _errors(events: Sequence[Event], clean: Clean) -> Iterator[FeedbackError]:
    for event in events:
        details = event.artifacts[0].uri if event.artifacts else None
        match event.data:
            case TestResult(passed=False) as result:
                shown = result.errors[0].message if result.errors else result.log_tail[-500:]
                yield FeedbackError(type="tests_failed", message=clean(shown), details_artifact=details)
            case StepFailed(failure=failure):
                yield FeedbackError(type=failure.kind.value, message=clean(failure.message), details_artifact=details)
