"""The values that the store returns, and how they are read from rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, TypeVar

from sqlalchemy import Row

from codepilot.core.artifacts import ArtifactRef
from codepilot.core.events import DATA, Event, EventType, State, Verdict
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import Memory
from codepilot.core.run import Run, begin

_LONGEST_REASON = 300

Word = TypeVar("Word", bound=StrEnum)


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
class Requests:
    """Requests to a run that is at work."""

    pause: bool
    cancel: bool


@dataclass(frozen=True)
class ClaimedStep:
    """A step that a worker has begun: the claim, the events of its start, and the run after them."""

    claim: Claim
    events: Sequence[Event]
    run: Run


@dataclass(frozen=True)
class Written:
    """The events that a transaction added, and the step that it claimed for the worker that asked for one."""

    events: list[Event]
    claimed: ClaimedStep | None = None


@dataclass(frozen=True)
class RunRow:
    """A run as a list shows it. What another version or a damaged file says there stays as it is."""

    run_id: str
    state: State | str
    verdict: Verdict | None
    goal: str
    repo: str
    created_at: int
    updated_at: int
    failure_kind: FailureKind | str | None


@dataclass(frozen=True)
class RunFilter:
    """Which runs a list shows; an empty field lets every run through."""

    states: tuple[State, ...] = ()
    verdict: str = ""
    repo: str = ""
    goal: str = ""
    """A part of what is asked, in any case."""
    task_id: str = ""
    before: tuple[int, str] | None = None
    """Only runs that are listed after the one created at that time with that id."""


@dataclass(frozen=True)
class RunChange:
    """How far the log of a run has come."""

    run_id: str
    state: State | str
    updated_at: int
    last_seq: int


@dataclass(frozen=True)
class StepRow:
    """A step as a list shows it. What another version or a damaged file says there stays as it is."""

    run_id: str
    step_id: str
    attempt: int
    state: State | str
    status: StepStatus | str
    fence: int
    worker: str | None
    queued_at: int
    claimed_at: int | None
    ended_at: int | None


class Activity(StrEnum):
    """The activity of a run that has neither ended nor waits."""

    QUEUED = "queued"
    WORKING = "working"
    INTERRUPTED = "interrupted"
    """The worker that had its step is gone, and no other one is there to take it over."""


@dataclass(frozen=True)
class WorkerRow:
    """A worker that lives."""

    worker: str
    host: str
    pid: int
    beat_at: int
    takes_queued: bool
    """True if it takes any queued run. Without, it works on the one run that a command gave it."""


@dataclass(frozen=True)
class ApprovalRow:
    """A request for approval, and its decision."""

    run_id: str
    approval_id: str
    seq: int
    operation: str
    details: str
    risk: str
    decision: str | None
    decided_by: str | None
    requested_at: int
    decided_at: int | None


@dataclass(frozen=True)
class ArtifactRow:
    """An artifact, and the event of a run that names it."""

    ref: ArtifactRef
    seq: int
    event: str
    step_id: str | None
    state: str | None
    """Of its step."""


@dataclass(frozen=True)
class LockRow:
    """A contract lock: the run that may change its files, in one repository."""

    repo: str
    name: str
    run_id: str
    fence: int
    taken_at: int


@dataclass(frozen=True)
class MemoryRow:
    """A memory that a run or a person recorded for later runs."""

    run_id: str
    """The run, or the id of a quirk that a person added."""
    seq: int
    at: int
    repo: str
    language: str
    memory: Memory

    @property
    def memory_id(self) -> str:
        return f"{self.run_id}:{self.seq}" if self.run_id.startswith("r-") else self.run_id


@dataclass(frozen=True)
class NotificationRow:
    """The end of a run that is to be posted, and what became of it."""

    run_id: str
    seq: int
    """The event that ended the run."""
    at: int
    state: Literal["pending", "sent", "failed"]
    settled_at: int | None = None
    settled_by: str | None = None
    """The answer's status, or what went wrong."""
    tries: int = 0
    """Attempts so far, by any sender."""
    not_before: int | None = None
    """Until when it is leased or put off."""


class Unreadable(CodePilotError):
    """A run that is damaged, or written by a version which knows more than this one."""

    def __init__(self, run_id: str, what: str, why: Exception) -> None:
        self.run_id = run_id
        reason = " ".join(str(why).split())
        if len(reason) > _LONGEST_REASON:
            reason = f"{reason[:_LONGEST_REASON]}…"
        super().__init__(
            FailureKind.INTERNAL,
            f"Run {run_id} cannot be read: {what}: {reason}",
            next_action="`codepilot fsck` shows what is wrong; if a newer CodePilot wrote it, use that one.",
            run_id=run_id,
        )


class LostLease(CodePilotError):
    """Another worker holds the step, or it is closed: nothing was written."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(
            FailureKind.WORKER_LOST,
            f"Worker {claim.worker} no longer holds {claim.step_id}, attempt {claim.attempt}, fence {claim.fence}.",
            run_id=claim.run_id,
            step_id=claim.step_id,
            attempt=claim.attempt,
            fence=claim.fence,
        )


def event_id(run_id: str, seq: int) -> str:
    """An event's id follows from its place in the log."""
    return f"e-{run_id.removeprefix('r-')}-{seq:06d}"


def read_event(row: Sequence[Any]) -> Event:
    """From the columns of `events`, in their order."""
    run_id, seq, at, name, step_id, attempt, data, artifacts = row
    try:
        kind = EventType(name)
        return Event(
            type=kind,
            data=DATA[kind].model_validate_json(data),
            step_id=step_id,
            attempt=attempt,
            artifacts=() if artifacts == "[]" else tuple(map(ArtifactRef.model_validate, json.loads(artifacts))),
            event_id=event_id(run_id, seq),
            seq=seq,
            run_id=run_id,
            at=at,
        )
    except (ValueError, TypeError) as error:
        raise Unreadable(run_id, f"event {seq}", error) from error


def begun_by(event: Event) -> Run:
    """The run that begins with this event."""
    try:
        return begin(event)
    except ValueError as error:
        raise Unreadable(event.run_id, f"event {event.seq}", error) from error


def member(kind: type[Word], text: str) -> Word | str:
    """The member of that value, or the text itself: another version may know it."""
    try:
        return kind(text)
    except ValueError:
        return str(text)


def read_run_row(row: Row[*tuple[Any, ...]]) -> RunRow:
    return RunRow(
        run_id=row.run_id,
        state=member(State, row.state),
        verdict=row.verdict,
        goal=row.goal,
        repo=row.repo,
        created_at=row.created_at,
        updated_at=row.updated_at,
        failure_kind=member(FailureKind, row.failure_kind) if row.failure_kind else None,
    )


def read_step_row(row: Row[*tuple[Any, ...]]) -> StepRow:
    return StepRow(
        run_id=row.run_id,
        step_id=row.step_id,
        attempt=row.attempt,
        state=member(State, row.state),
        status=member(StepStatus, row.status),
        fence=row.fence,
        worker=row.worker,
        queued_at=row.queued_at,
        claimed_at=row.claimed_at,
        ended_at=row.ended_at,
    )


def read_artifact_row(row: Row[*tuple[Any, ...]]) -> ArtifactRow:
    ref = ArtifactRef(type=row.type, sha256=row.sha256, size_bytes=row.size_bytes)
    return ArtifactRow(ref=ref, seq=row.seq, event=row.event, step_id=row.step_id, state=row.state)


class NoSuchRun(CodePilotError):
    """Nothing is named so."""

    def __init__(self, name: str) -> None:
        none = name == "last"
        super().__init__(
            FailureKind.INVALID_SPEC,
            "There is no run yet." if none else f"There is no run {name!r}.",
            next_action="Begin one, for example with `codepilot fix`."
            if none
            else "`codepilot history` lists the runs.",
        )


class SeveralRuns(CodePilotError):
    """The beginning of an id that several runs share."""

    def __init__(self, name: str, found: Sequence[str]) -> None:
        super().__init__(
            FailureKind.INVALID_SPEC,
            f"{name!r} names several runs: {', '.join(found[:5])}{', …' if len(found) > 5 else ''}.",
            next_action="Give more characters of the id; `codepilot history` lists them.",
        )


def no_run(name: str) -> CodePilotError:
    return NoSuchRun(name)


def plain_text(text: str) -> str:
    """Text for a column that people read; PostgreSQL's text cannot hold NUL."""
    return text.replace("\x00", "\ufffd")
