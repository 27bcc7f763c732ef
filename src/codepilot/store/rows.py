"""What the store hands out: claims on steps, and rows for lists."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from codepilot.core.events import State, Verdict
from codepilot.core.failures import CodePilotError, FailureKind


class StepStatus(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


OPEN = frozenset({StepStatus.PENDING, StepStatus.RUNNING})


@dataclass(frozen=True)
class Claim:
    """A worker's right to write for one step. It ends when the step's fence moves on."""

    run_id: str
    step_id: str
    attempt: int
    fence: int
    worker: str
    state: State


@dataclass(frozen=True)
class RunRow:
    """A run as a list shows it."""

    run_id: str
    state: State
    verdict: Verdict | None
    goal: str
    repo: str
    created_at: int
    updated_at: int
    failure_kind: FailureKind | None


@dataclass(frozen=True)
class StepRow:
    """A step as the scheduler sees it."""

    run_id: str
    step_id: str
    attempt: int
    state: State
    status: StepStatus
    fence: int
    worker: str | None
    queued_at: int
    claimed_at: int | None
    ended_at: int | None


class LostLease(CodePilotError):
    """The step belongs to someone else by now, or is closed: nothing was written."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(
            FailureKind.WORKER_LOST,
            f"Worker {claim.worker} no longer holds {claim.step_id}, attempt {claim.attempt}, fence {claim.fence}.",
            run_id=claim.run_id,
            step_id=claim.step_id,
            attempt=claim.attempt,
            fence=claim.fence,
        )
