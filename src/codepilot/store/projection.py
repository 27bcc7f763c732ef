"""What an event means for the rows that lists, polls and workers read. Views are projections, never authority."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, get_args

from sqlalchemy import Connection

from codepilot.core.contract import Contract, canonical_json
from codepilot.core.events import Event, EventType, StepQueued, StepStarted
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import NOTIFIED, Run
from codepilot.store.prepared import Sent
from codepilot.store.records import plain_text
from codepilot.store.rows import Claim, StepStatus
from codepilot.store.statements import CLOSE_STEPS, END_STEP, QUEUE_STEP, REOPEN_STEP

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
        *NOTIFIED,
    }
)
"""Events after which more than a run's length and age must be written. The others only add to the log."""


def shape_of(model: type[Contract]) -> str:
    """A digest of the fields of a contract and of all contracts within it."""
    known: dict[str, str] = {}

    def look(kind: object) -> None:
        if isinstance(kind, type) and issubclass(kind, Contract) and kind.__qualname__ not in known:
            known[kind.__qualname__] = repr({name: field.annotation for name, field in kind.model_fields.items()})
            for field in kind.model_fields.values():
                look(field.annotation)
        for part in get_args(kind):
            look(part)

    look(model)
    return hashlib.sha256(repr(sorted(known.items())).encode()).hexdigest()[:16]


VIEW_SHAPE = shape_of(Run)
"""A view in another shape, which another version of CodePilot wrote, is told anew from the log."""


def run_columns(run: Run) -> dict[str, Any]:
    """The small row of a run."""
    return {
        "state": str(run.state),
        "verdict": run.verdict,
        "failure_kind": str(run.failure.kind) if run.failure else None,
        "iterations": run.spent.iterations,
        "pause_requested": run.pause_requested,
        "cancel_requested": run.cancel_requested,
        "parked_until": run.parked_until,
        "updated_at": run.updated_at,
        "last_seq": run.last_seq,
    }


def birth_columns(run: Run) -> dict[str, Any]:
    """What never changes in a run's row."""
    return {
        "run_id": run.run_id,
        "task_id": run.task.task_id,
        "created_at": run.created_at,
        "goal": plain_text(run.task.goal.natural),
        "repo": plain_text(run.task.repo),
    }


def view_columns(run: Run) -> dict[str, Any]:
    """The whole run, and the shape it is written in."""
    return {"seq": run.last_seq, "shape": VIEW_SHAPE, "view": canonical_json(run)}


def event_columns(event: Event) -> dict[str, Any]:
    return {
        "run_id": event.run_id,
        "seq": event.seq,
        "at": event.at,
        "type": str(event.type),
        "step_id": event.step_id,
        "attempt": event.attempt,
        "data": canonical_json(event.data),
        "artifacts": canonical_json([ref.model_dump(mode="json") for ref in event.artifacts])
        if event.artifacts
        else "[]",
    }


def project_steps(connection: Connection, event: Event, priority: int, heir: Claim | None) -> Sent | None:
    """Open, end or reopen the step that `event` speaks of; what must have touched one row, if anything must.

    A step with an `heir` is at work as soon as it is queued.
    """
    named = {"in_run": event.run_id, "in_step": event.step_id, "in_attempt": event.attempt}
    if isinstance(event.data, StepQueued):
        QUEUE_STEP.send(connection, {**_queued_columns(event, event.data, heir), "priority": priority})
    elif event.type in ENDINGS:
        ended = {"new_status": str(ENDINGS[event.type]), "new_ended_at": event.at}
        return END_STEP.send(connection, {**named, **ended})
    elif event.type in REOPENING:
        return REOPEN_STEP.send(connection, named)
    elif event.type is EventType.RUN_FINISHED:
        CLOSE_STEPS.send(connection, {"in_run": event.run_id, "new_ended_at": event.at})
    return None


@dataclass(frozen=True)
class FoldedStep:
    """A step as the log tells it; PENDING stands for any open one."""

    state: str
    status: StepStatus
    queued_seq: int
    queued_at: int
    ended_at: int | None = None
    fence: int = 0
    """The highest that a start of it has named."""
    worker: str | None = None
    """Who started it last."""

    def columns(self) -> dict[str, Any]:
        """Those columns of its row that only the log decides."""
        return {
            "state": self.state,
            "queued_seq": self.queued_seq,
            "queued_at": self.queued_at,
            "ended_at": self.ended_at,
        }


def fold_step(steps: dict[tuple[str | None, int], FoldedStep], event: Event) -> None:
    """Bring the steps so far up to `event`."""
    key = (event.step_id, event.attempt)
    if isinstance(event.data, StepQueued):
        steps[key] = FoldedStep(str(event.data.state), StepStatus.PENDING, event.seq, event.at)
    elif event.type is EventType.RUN_FINISHED:
        for other, step in steps.items():
            if step.status is StepStatus.PENDING:
                steps[other] = replace(step, status=StepStatus.CANCELLED, ended_at=event.at)
    elif event.type is EventType.RUN_FORKED:
        for other, step in steps.items():
            steps[other] = replace(step, fence=0, worker=None)  # those starts were the other run's
    elif key in steps:
        if event.type in REOPENING:
            steps[key] = replace(steps[key], status=StepStatus.PENDING, ended_at=None)
        elif event.type in ENDINGS:
            steps[key] = replace(steps[key], status=ENDINGS[event.type], ended_at=event.at)
        elif isinstance(event.data, StepStarted):
            steps[key] = replace(steps[key], fence=max(steps[key].fence, event.data.fence), worker=event.data.worker)


def _queued_columns(event: Event, data: StepQueued, heir: Claim | None) -> dict[str, Any]:
    return {
        "run_id": event.run_id,
        "step_id": event.step_id,
        "attempt": event.attempt,
        "state": str(data.state),
        "status": str(StepStatus.RUNNING if heir else StepStatus.PENDING),
        "fence": heir.fence if heir else 0,
        "worker": heir.worker if heir else None,
        "queued_seq": event.seq,
        "queued_at": event.at,
        "claimed_at": event.at if heir else None,
    }


def expect_one(sent: Sent, event: Event) -> None:
    if sent.touched != 1:
        raise CodePilotError(
            FailureKind.INTERNAL,
            f"{event.type} speaks of step {event.step_id} (attempt {event.attempt}), which is not open.",
            run_id=event.run_id,
            seq=event.seq,
        )
