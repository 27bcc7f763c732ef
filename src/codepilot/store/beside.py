"""Rows beside a run: its workspace, what people were asked, what artifacts it names, what it learnt.

They follow from events alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from codepilot.core.approval import ApprovalDecided, ApprovalRequested
from codepilot.core.contract import canonical_json
from codepilot.core.events import (
    BasePinned,
    Event,
    EventType,
    SnapshotTaken,
    StepStarted,
    WorkspaceCreated,
)
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import MemoryRecorded
from codepilot.store.prepared import Sent
from codepilot.store.records import plain_text
from codepilot.store.rows import Unreadable
from codepilot.store.statements import (
    DECIDE_APPROVAL,
    INSERT_APPROVAL,
    INSERT_ARTIFACT,
    INSERT_MEMORY,
    SET_WORKSPACE,
)

LETS_GO = frozenset(
    {
        EventType.STEP_SUCCEEDED,
        EventType.STEP_FAILED,
        EventType.STEP_SKIPPED,
        EventType.RUN_PAUSED,
        EventType.RUN_BLOCKED,
        EventType.RUN_FINISHED,
    }
)
"""Events after which nobody works in the workspace. A worker that died holds it until another one starts."""

NO_WORKSPACE: Mapping[str, str | None] = {"workspace": None, "base_commit": None, "snapshot": None, "held_by": None}


def project_beside(
    connection: Connection, events: Sequence[Event], held_by: str | None = None
) -> list[tuple[Sent, Event]]:
    """Write what the events say of these rows; what must have touched one row each."""
    expected = []
    changes = workspace_changes(events)
    if held_by is not None and changes.get("held_by") == held_by:
        del changes["held_by"]
    for column, value in changes.items():
        SET_WORKSPACE[column].send(connection, {"in_run": events[0].run_id, "new_value": value})
    for event in events:
        if isinstance(event.data, ApprovalRequested):
            INSERT_APPROVAL.send(connection, approval_columns(event, event.data))
        elif isinstance(event.data, ApprovalDecided):
            named = {"in_run": event.run_id, "in_approval": event.data.approval_id}
            expected.append((DECIDE_APPROVAL.send(connection, {**named, **_decision(event, event.data)}), event))
    rows = artifact_rows(events)
    if rows:
        INSERT_ARTIFACT.send(connection, *rows)
    if learnt := memory_rows(events):
        INSERT_MEMORY.send(connection, *learnt)
    return expected


def expect_asked(sent: Sent, event: Event) -> None:
    """A decision answers one question, once."""
    if sent.touched != 1 and isinstance(event.data, ApprovalDecided):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Approval {event.data.approval_id} of run {event.run_id} is not waiting for a decision.",
            run_id=event.run_id,
        )


def workspace_changes(events: Iterable[Event]) -> dict[str, str | None]:
    """The columns of a run's workspace that the events change, and to what."""
    changes: dict[str, str | None] = {}
    for event in events:
        match event.data:
            case WorkspaceCreated(workspace=workspace):
                changes["workspace"] = plain_text(workspace)
            case BasePinned(commit=commit):
                changes["base_commit"] = commit
            case SnapshotTaken(snapshot=snapshot):
                changes["snapshot"] = plain_text(snapshot)
            case StepStarted(worker=worker):
                changes["held_by"] = worker
            case _ if event.type in LETS_GO:
                changes["held_by"] = None
    return changes


def approval_columns(event: Event, asked: ApprovalRequested) -> dict[str, Any]:
    return {
        "run_id": event.run_id,
        "approval_id": asked.approval_id,
        "seq": event.seq,
        "operation": plain_text(asked.operation),
        "details": plain_text(asked.details),
        "risk": asked.risk,
        "decision": None,
        "decided_by": None,
        "requested_at": event.at,
        "decided_at": None,
    }


def fold_approvals(approvals: dict[str, dict[str, Any]], event: Event) -> None:
    """Bring what was asked so far up to `event`."""
    if isinstance(event.data, ApprovalRequested):
        approvals[event.data.approval_id] = approval_columns(event, event.data)
    elif isinstance(event.data, ApprovalDecided):
        decided = {name.removeprefix("new_"): value for name, value in _decision(event, event.data).items()}
        if event.data.approval_id not in approvals:
            unknown = LookupError(f"approval {event.data.approval_id} was never asked for")
            raise Unreadable(event.run_id, f"event {event.seq}", unknown)
        approvals[event.data.approval_id].update(decided)


def artifact_rows(events: Iterable[Event]) -> list[dict[str, Any]]:
    """One row for each artifact that an event names."""
    return [
        {"run_id": e.run_id, "seq": e.seq, "type": r.type.value, "sha256": r.sha256, "size_bytes": r.size_bytes}
        for e in events
        for r in dict.fromkeys(e.artifacts)
    ]


def memory_rows(events: Iterable[Event]) -> list[dict[str, Any]]:
    """One row for each memory that is recorded."""
    return [
        {
            "run_id": event.run_id,
            "seq": event.seq,
            "at": event.at,
            "kind": event.data.memory.kind,
            "repo": plain_text(event.data.repo),
            "language": plain_text(event.data.language),
            "memory": canonical_json(event.data.memory),
        }
        for event in events
        if isinstance(event.data, MemoryRecorded)
    ]


def _decision(event: Event, decided: ApprovalDecided) -> dict[str, Any]:
    return {"new_decision": decided.decision, "new_decided_by": plain_text(decided.by), "new_decided_at": event.at}
