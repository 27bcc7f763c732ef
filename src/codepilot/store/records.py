"""From database rows to the values that rooms use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import Row

from codepilot.core.artifacts import ArtifactRef
from codepilot.core.events import DATA, Event, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run, begin
from codepilot.store.rows import ArtifactRow, RunRow, StepRow, StepStatus, Unreadable

Word = TypeVar("Word", bound=StrEnum)

_KINDS = {str(kind): kind for kind in EventType}


def event_id(run_id: str, seq: int) -> str:
    """An event's identity follows from its place."""
    return f"e-{run_id.removeprefix('r-')}-{seq:06d}"


def read_event(row: Sequence[Any]) -> Event:
    """From the columns of `events`, in their order."""
    try:
        return _read_event(row)
    except (ValueError, TypeError) as error:
        raise Unreadable(row[0], f"event {row[1]}", error) from error


def _read_event(row: Sequence[Any]) -> Event:
    run_id, seq, at, name, step_id, attempt, data, artifacts = row
    kind = _KINDS.get(name) or EventType(name)
    refs = () if artifacts == "[]" else tuple(ArtifactRef.model_validate(ref) for ref in json.loads(artifacts))
    values = {
        "type": kind,
        "data": DATA[kind].model_validate_json(data),
        "step_id": step_id,
        "attempt": attempt,
        "artifacts": refs,
        "event_id": event_id(run_id, seq),
        "seq": seq,
        "run_id": run_id,
        "at": at,
    }
    # A damaged file may hold anything anywhere: then the contract says what is wrong.
    sound = type(seq) is type(at) is type(attempt) is int and seq > 0 and type(step_id) in (str, type(None))
    return Event.of_checked(values, set(values)) if sound else Event(**values)


def begun_by(event: Event) -> Run:
    """The run that begins with this event."""
    try:
        return begin(event)
    except ValueError as error:
        raise Unreadable(event.run_id, f"event {event.seq}", error) from error


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


def member(kind: type[Word], text: str) -> Word | str:
    """The member of that value; what is none, another version may know."""
    try:
        return kind(text)
    except ValueError:
        return str(text)


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


def no_run(name: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC, f"There is no run {name!r}.", next_action="`codepilot history` lists the runs."
    )


def plain_text(text: str) -> str:
    """Text for a column that people read; PostgreSQL's text cannot hold NUL."""
    return text.replace("\x00", "\ufffd")
