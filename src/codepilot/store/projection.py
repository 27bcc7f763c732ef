"""What an event means for the rows that lists, polls and workers read. Views are projections, never authority."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection

from codepilot.core.contract import canonical_json
from codepilot.core.events import Event, EventType, StepQueued
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.store.prepared import Sent
from codepilot.store.rows import StepStatus
from codepilot.store.statements import CLOSE_STEPS, END_STEP, INSERT_ARTIFACT, QUEUE_STEP, REOPEN_STEP

ENDINGS = {
    EventType.STEP_SUCCEEDED: StepStatus.SUCCEEDED,
    EventType.STEP_FAILED: StepStatus.FAILED,
    EventType.STEP_SKIPPED: StepStatus.SKIPPED,
}
REOPENING = frozenset({EventType.RUN_PAUSED, EventType.RUN_BLOCKED})

CHANGES_ROWS = frozenset(
    {
        *ENDINGS,
        *REOPENING,
        EventType.TASK_SPEC_RECORDED,
        EventType.STEP_QUEUED,
        EventType.PROOF_RECORDED,
        EventType.PAUSE_REQUESTED,
        EventType.CANCEL_REQUESTED,
        EventType.RUN_RESUMED,
        EventType.RUN_FINISHED,
    }
)
"""Events after which more than a run's length and age must be written. The others only add to the log."""


VIEW_SHAPE = hashlib.sha256(repr({n: f.annotation for n, f in Run.model_fields.items()}).encode()).hexdigest()[:16]
"""Changes with the fields of `Run`: a view in another shape is told anew from the log."""


def run_columns(run: Run) -> dict[str, Any]:
    """The small row of a run."""
    return {
        "state": run.state.value,
        "verdict": run.verdict,
        "failure_kind": run.failure.kind.value if run.failure else None,
        "iterations": run.spent.iterations,
        "pause_requested": run.pause_requested,
        "cancel_requested": run.cancel_requested,
        "updated_at": run.updated_at,
        "last_seq": run.last_seq,
    }


def view_columns(run: Run) -> dict[str, Any]:
    """The whole run, and the shape it is written in."""
    return {"seq": run.last_seq, "shape": VIEW_SHAPE, "view": canonical_json(run)}


def event_columns(event: Event) -> dict[str, Any]:
    return {
        "run_id": event.run_id,
        "seq": event.seq,
        "at": event.at,
        "type": event.type.value,
        "step_id": event.step_id,
        "attempt": event.attempt,
        "data": canonical_json(event.data),
        "artifacts": canonical_json([ref.model_dump(mode="json") for ref in event.artifacts])
        if event.artifacts
        else "[]",
    }


def project_steps(connection: Connection, event: Event, priority: int) -> Sent | None:
    """Open, end or reopen the step that `event` speaks of; what must have touched one row, if anything must."""
    named = {"in_run": event.run_id, "in_step": event.step_id, "in_attempt": event.attempt}
    if isinstance(event.data, StepQueued):
        QUEUE_STEP.send(connection, {**_queued_columns(event, event.data), "priority": priority})
    elif event.type in ENDINGS:
        ended = {"new_status": ENDINGS[event.type].value, "new_ended_at": event.at}
        return END_STEP.send(connection, {**named, **ended})
    elif event.type in REOPENING:
        return REOPEN_STEP.send(connection, named)
    elif event.type is EventType.RUN_FINISHED:
        CLOSE_STEPS.send(connection, {"in_run": event.run_id, "new_ended_at": event.at})
    return None


def project_artifacts(connection: Connection, events: Iterable[Event]) -> None:
    """One row for each artifact that an event names."""
    rows = [
        {"run_id": e.run_id, "seq": e.seq, "type": r.type.value, "sha256": r.sha256, "size_bytes": r.size_bytes}
        for e in events
        for r in dict.fromkeys(e.artifacts)
    ]
    if rows:
        INSERT_ARTIFACT.send(connection, *rows)


def fold_steps(events: Iterable[Event]) -> dict[tuple[str | None, int], StepStatus]:
    """The status of every step as the log tells it; PENDING stands for any open step."""
    statuses: dict[tuple[str | None, int], StepStatus] = {}
    for event in events:
        key = (event.step_id, event.attempt)
        if event.type is EventType.STEP_QUEUED or event.type in REOPENING:
            statuses[key] = StepStatus.PENDING
        elif event.type in ENDINGS:
            statuses[key] = ENDINGS[event.type]
        elif event.type is EventType.RUN_FINISHED:
            still_open = [k for k, status in statuses.items() if status is StepStatus.PENDING]
            statuses.update(dict.fromkeys(still_open, StepStatus.CANCELLED))
    return statuses


def _queued_columns(event: Event, data: StepQueued) -> dict[str, Any]:
    return {
        "run_id": event.run_id,
        "step_id": event.step_id,
        "attempt": event.attempt,
        "state": data.state.value,
        "status": StepStatus.PENDING.value,
        "fence": 0,
        "queued_seq": event.seq,
        "queued_at": event.at,
    }


def expect_one(sent: Sent, event: Event) -> None:
    if sent.touched != 1:
        raise CodePilotError(
            FailureKind.INTERNAL,
            f"{event.type} speaks of step {event.step_id} (attempt {event.attempt}), which is not open.",
            run_id=event.run_id,
            seq=event.seq,
        )
