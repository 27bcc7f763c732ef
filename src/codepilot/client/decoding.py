"""What the API answers, as the values that the façade returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from codepilot.core.approval import ApprovalRequested
from codepilot.core.checkpoint import (
    CheckpointFailed,
    CheckpointRecorded,
    MessageSent,
    RolledBack,
    ViolationAcknowledged,
)
from codepilot.core.events import Event, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.landing import LandingEntry
from codepilot.core.memory import Memory
from codepilot.core.run import Run
from codepilot.engine.audit import AskedOf
from codepilot.engine.interactive.requests import Asked, Listed
from codepilot.store import Activity, LockRow, MemoryRow, RunRow, WorkerRow

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ACTIVITIES = {"QUEUED": Activity.QUEUED, "RUNNING": Activity.WORKING, "INTERRUPTED": Activity.INTERRUPTED}


def microseconds(text: str) -> int:
    """An RFC 3339 time as microseconds UTC."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def event_of(document: Mapping[str, Any]) -> Event:
    return Event.model_validate({**document, "at": microseconds(document["at"])})


def activity_of(status: str) -> Activity | None:
    return _ACTIVITIES.get(status)


def row_of(one: Mapping[str, Any]) -> RunRow:
    known = {state.value for state in State}
    state = one["currentState"]
    return RunRow(
        run_id=one["runId"],
        state=State(state) if state in known else state,
        verdict=one["verdict"],
        goal=one["goal"],
        repo=one["repoUrl"],
        created_at=microseconds(one["createdAt"]),
        updated_at=microseconds(one["updatedAt"]),
        failure_kind=one["failureKind"],
    )


def worker_of(one: Mapping[str, Any]) -> WorkerRow:
    return WorkerRow(one["workerId"], one["host"], one["pid"], microseconds(one["heartbeatAt"]), one["takesQueued"])


def lock_of(one: Mapping[str, Any]) -> LockRow:
    return LockRow(one["repo"], one["name"], one["runId"], one["fence"], microseconds(one["takenAt"]))


def landing_of(one: Mapping[str, Any]) -> LandingEntry:
    return LandingEntry(
        run_id=one["runId"],
        goal=one["goal"],
        checkout="",
        branch=one["branch"],
        status=one["status"],
        at=microseconds(one["at"]),
        position=one["position"],
        by=one["by"],
        commit=one["commit"] or "",
        judged_by=one["judgedBy"] or "",
        reason=one["reason"],
        conflicts=tuple(one["conflicts"]),
    )


def memory_of(one: Mapping[str, Any]) -> MemoryRow:
    run_id, _, seq = str(one["memoryId"]).partition(":")
    memory = TypeAdapter[Memory](Memory).validate_python(one["memory"])
    return MemoryRow(run_id, int(seq or 1), microseconds(one["at"]), one["repoUrl"], one["language"], memory)


def asked_of(one: Mapping[str, Any]) -> AskedOf:
    request = ApprovalRequested(
        approval_id=one["approvalId"],
        operation=one["operation"],
        details=one["details"],
        risk=one["risk"],
        reasons=tuple(one["reasons"]),
        snippet=one["snippet"],
        expires_at=None if one["expiresAt"] is None else microseconds(one["expiresAt"]),
    )
    return AskedOf(run_id=one["runId"], request=request, status=one["status"], by=one["by"], reason=one["reason"])


def listed_of(one: Mapping[str, Any]) -> Listed:
    fields = {name: info.alias or name for name, info in CheckpointRecorded.model_fields.items()}
    point = CheckpointRecorded.model_validate({alias: one[alias] for alias in fields.values()})
    answer = None
    if one["acknowledged"] is not None:
        answer = ViolationAcknowledged(
            checkpoint_id=point.checkpoint_id,
            delivered=True,
            acknowledged=one["acknowledged"],
            response=one["response"],
        )
    return Listed(microseconds(one["at"]), point, answer, one["promoted"], one["rolledBack"])


def asked_in_session(found: Mapping[str, Any], run: Run) -> Asked:
    """A request to a session with the event that carried it out, which its fields tell from the others."""
    result = found["result"]
    if result is None:
        return Asked(found["requestId"], run)
    kind = next(kind for field, kind in _RESULTS.items() if field in result)
    return Asked(found["requestId"], run, kind.model_validate(result))


_RESULTS: Mapping[str, type[CheckpointRecorded | CheckpointFailed | RolledBack | MessageSent]] = {
    "filesChangedTotal": CheckpointRecorded,
    "inARow": CheckpointFailed,
    "before": RolledBack,
    "content": MessageSent,
}


def named(asked: Sequence[AskedOf], approval_id: str, run_id: str) -> AskedOf:
    """The request with this id or start of an id; without one, the newest open request."""
    wanted = approval_id.removeprefix("a-")
    found = [one for one in asked if one.id.removeprefix("a-").startswith(wanted)]
    if not found or (wanted and len(found) > 1):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Run {run_id} has {'several requests' if found else 'no request'} {approval_id!r}.".replace(" ''", ""),
            next_action=f"`codepilot approvals {run_id}` lists them.",
        )
    return next((one for one in reversed(found) if one.status == "open"), found[-1])
