"""Projects a run's events onto its rows: one pure fold, and one upsert that stores the changes.

A commit folds its events onto the rows they touch. `fsck` folds the whole log onto none and compares.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from sqlalchemy import Connection, Insert, Table, select

from codepilot.core.approval import ApprovalDecided, ApprovalRequested
from codepilot.core.contract import Contract, canonical_json
from codepilot.core.events import Event, EventType, RunBlocked, RunFinished, RunForked, StepQueued, StepStarted
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.memory import FailureMemory, MemoryForgotten, MemoryRecorded, MemorySolved
from codepilot.core.notify import NotificationFailed, NotificationSent
from codepilot.core.run import Run, evolve
from codepilot.store.memories import FORGOTTEN
from codepilot.store.rows import OPEN, StepStatus, begun_by, plain_text
from codepilot.store.schema import INSERTS, approvals, artifacts, memories, notifications, runs, steps, views

ENDINGS = {
    EventType.STEP_SUCCEEDED: StepStatus.SUCCEEDED,
    EventType.STEP_FAILED: StepStatus.FAILED,
    EventType.STEP_SKIPPED: StepStatus.SKIPPED,
}
REOPENING = frozenset({EventType.RUN_PAUSED, EventType.RUN_BLOCKED})
PENDING, SENT, FAILED = "pending", "sent", "failed"
"""The states of a notification."""

SIDE_TABLES = (steps, approvals, artifacts, memories, notifications)
"""The tables other than `runs`, `views` and `events` whose rows follow from a run's events."""

StoredRow = dict[str, Any]


class RunProjection:
    """A run and its rows, folded event by event. Rows are addressed by their key without the run's id."""

    def __init__(self, run: Run | None = None, step: StoredRow | None = None) -> None:
        """`step` is the row of the run's open step, if it has been read: a run has only one."""
        self.run = run
        """None before the first event."""
        self._step_read = step is not None
        self.side_tables: dict[Table, dict[tuple[Any, ...], StoredRow]] = {table: {} for table in SIDE_TABLES}
        self._changed: dict[Table, dict[tuple[Any, ...], None]] = {table: {} for table in SIDE_TABLES}
        """The keys of rows to store, in the order in which they changed."""
        if step is not None:
            self._take(steps, [step])

    @property
    def folded(self) -> Run:
        """The run, once it has begun."""
        if self.run is None:
            raise CodePilotError(FailureKind.INTERNAL, "A run begins with its first event.")
        return self.run

    def load(self, connection: Connection, added: Sequence[Event]) -> None:
        """Read the stored rows that these events may change."""
        touched: set[tuple[str | None, int]] = set()
        approval_ids: set[str] = set()
        ends: set[int] = set()
        known: set[int] = set()
        for event in added:
            match event.data:
                case ApprovalRequested(approval_id=approval_id) | ApprovalDecided(approval_id=approval_id):
                    approval_ids.add(approval_id)
                case NotificationSent(of=of) | NotificationFailed(of=of):
                    ends.add(of)
                case MemorySolved(of=of) | MemoryForgotten(of=of):
                    known.add(of)
                case _ if event.type in ENDINGS or event.type in REOPENING or event.type in _OF_STEPS:
                    touched.add((event.step_id, event.attempt))
        run_id = self.folded.run_id
        queued = {(event.step_id, event.attempt) for event in added if isinstance(event.data, StepQueued)}
        if touched and not (self._step_read and touched - queued <= self.side_tables[steps].keys()):
            named = steps.c.step_id.in_({step_id for step_id, _ in touched}) | steps.c.status.in_(OPEN)
            self._take(steps, connection.execute(select(steps).where(steps.c.run_id == run_id, named)).mappings())
        if approval_ids:
            asked = select(approvals).where(approvals.c.run_id == run_id, approvals.c.approval_id.in_(approval_ids))
            self._take(approvals, connection.execute(asked).mappings())
        if known:
            kept = select(memories).where(memories.c.run_id == run_id, memories.c.seq.in_(known))
            self._take(memories, connection.execute(kept).mappings())
        if ends:
            settled = select(notifications).where(notifications.c.run_id == run_id, notifications.c.seq.in_(ends))
            self._take(notifications, connection.execute(settled).mappings())

    def fold(self, event: Event) -> None:
        """Bring the run and its rows up to `event`."""
        self.run = begun_by(event) if self.run is None else evolve(self.run, event)
        self._fold_step(event)
        for ref in dict.fromkeys(event.artifacts):
            row = {"run_id": event.run_id, "seq": event.seq, "type": ref.type.value, "sha256": ref.sha256}
            self._put(artifacts, {**row, "size_bytes": ref.size_bytes})
        match event.data:
            case ApprovalRequested() as request:
                self._put(approvals, _approval(event, request))
            case ApprovalDecided() as decision:
                self._decide_approval(event, decision)
            case MemoryRecorded() as recorded:
                self._put(memories, _memory(event, recorded))
            case MemorySolved() as solved:
                self._solve(solved)
            case MemoryForgotten(of=of):
                self._forget(of)
        if self.run.task.notify:
            self._fold_notification(event)

    def save(self, connection: Connection) -> None:
        """Store the changed rows of the side tables."""
        for table, keys in self._changed.items():
            upsert(connection, table, [self.side_tables[table][key] for key in keys])
            keys.clear()

    def rows(self) -> dict[Table, list[StoredRow]]:
        """All rows of the run but its events and its view."""
        rows = {table: list(found.values()) for table, found in self.side_tables.items()}
        return {runs: [run_columns(self.folded)], **rows}

    def _take(self, table: Table, found: Iterable[Mapping[Any, Any]]) -> None:
        for row in found:
            self.side_tables[table][_key(table, row)] = dict(row)

    def _put(self, table: Table, row: StoredRow) -> None:
        key = _key(table, row)
        if key in self.side_tables[table]:
            name = " ".join(map(str, key))
            raise CodePilotError(FailureKind.INTERNAL, f"Run {row['run_id']} has {name} in its {table.name} already.")
        self.side_tables[table][key] = row
        self._changed[table][key] = None

    def _change(self, table: Table, row: StoredRow, **values: Any) -> None:
        row.update(values)
        self._changed[table][_key(table, row)] = None

    def _fold_step(self, event: Event) -> None:
        rows = self.side_tables[steps]
        if isinstance(event.data, StepQueued):
            self._put(steps, _queued_step(event, event.data, self.folded.task.priority))
        elif event.type is EventType.RUN_FINISHED:
            for row in rows.values():
                if row["status"] in OPEN:
                    self._change(steps, row, status=StepStatus.CANCELLED.value, ended_at=event.at)
        elif event.type is EventType.RUN_FORKED:  # those starts were the other run's
            for row in rows.values():
                status = StepStatus.PENDING.value if row["status"] in OPEN else row["status"]
                self._change(steps, row, status=status, fence=0, worker=None, claimed_at=None)
        elif event.type in ENDINGS:
            self._change(steps, self._open_step(event), status=ENDINGS[event.type].value, ended_at=event.at)
        elif event.type in REOPENING:
            row = self._open_step(event, StepStatus.FAILED)
            fence = row["fence"] + 1
            self._change(steps, row, status=StepStatus.PENDING.value, fence=fence, worker=None, ended_at=None)
        elif isinstance(event.data, StepStarted):
            begun = {"status": StepStatus.RUNNING.value, "fence": event.data.fence, "worker": event.data.worker}
            self._change(steps, self._open_step(event), **begun, claimed_at=event.at)

    def _open_step(self, event: Event, *also: StepStatus) -> StoredRow:
        row = self.side_tables[steps].get((event.step_id, event.attempt))
        if row is None or row["status"] not in {*OPEN, *also}:
            raise CodePilotError(
                FailureKind.INTERNAL,
                f"{event.type} is about step {event.step_id} (attempt {event.attempt}), which is not open.",
                run_id=event.run_id,
                seq=event.seq,
            )
        return row

    def _decide_approval(self, event: Event, decided: ApprovalDecided) -> None:
        row = self.side_tables[approvals].get((decided.approval_id,))
        if row is None or row["decision"] is not None:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"Approval {decided.approval_id} of run {event.run_id} is not waiting for a decision.",
                run_id=event.run_id,
            )
        by = plain_text(decided.by)
        self._change(approvals, row, decision=decided.decision, decided_by=by, decided_at=event.at)

    def _forget(self, of: int) -> None:
        if (row := self.side_tables[memories].get((of,))) is not None:
            self._change(memories, row, kind=FORGOTTEN, memory="{}")

    def _solve(self, solved: MemorySolved) -> None:
        row = self.side_tables[memories].get((solved.of,))
        if row is None or row["kind"] != "failure":
            return  # it was forgotten meanwhile
        memory = FailureMemory.model_validate_json(row["memory"])
        filled = memory.model_copy(update={"solution": solved.solution, "changed": solved.changed})
        self._change(memories, row, memory=canonical_json(filled))

    def _fold_notification(self, event: Event) -> None:
        """A notification is due when a run ends, and when it begins to wait for a person."""
        rows = self.side_tables[notifications]
        match event.data:
            case RunBlocked(failure=None):
                return  # its child runs are at work
            case RunFinished() | RunBlocked(until=None) | RunBlocked(failure=Failure(kind=FailureKind.DENIED)):
                unsettled = {"state": PENDING, "settled_at": None, "settled_by": None, "tries": 0, "not_before": None}
                self._put(notifications, {"run_id": event.run_id, "seq": event.seq, "at": event.at, **unsettled})
            case RunForked():  # those ends were the other run's
                rows.clear()
                self._changed[notifications].clear()
            case NotificationSent(of=of, status=status):
                row = self._pending_notification(event, of)
                self._change(notifications, row, state=SENT, settled_at=event.at, settled_by=str(status))
            case NotificationFailed(of=of, failure=failure):
                row, reason = self._pending_notification(event, of), plain_text(failure.message)
                self._change(notifications, row, state=FAILED, settled_at=event.at, settled_by=reason)

    def _pending_notification(self, event: Event, of: int) -> StoredRow:
        row = self.side_tables[notifications].get((of,))
        if row is None or row["state"] != PENDING:
            raise CodePilotError(
                FailureKind.INTERNAL,
                f"{event.type} is about event {of}, which has no pending notification.",
                run_id=event.run_id,
                seq=event.seq,
            )
        return row


_OF_STEPS = frozenset({EventType.STEP_QUEUED, EventType.STEP_STARTED, EventType.RUN_FINISHED, EventType.RUN_FORKED})


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert whole rows, or replace those with the same key."""
    if rows:
        connection.execute(_upserts[connection.dialect.name][table], rows)


def _upsert_of(make: Any, table: Table) -> Insert:
    statement = make(table)
    key = [column.name for column in table.primary_key]
    values = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in key}
    result: Insert = statement.on_conflict_do_update(index_elements=key, set_=values)
    return result


_upserts = {
    name: {table: _upsert_of(make, table) for table in (runs, views, *SIDE_TABLES)} for name, make in INSERTS.items()
}


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Where a validator's function is in memory: another place in each process."""


def schema_digest_of(model: type[Contract]) -> str:
    """A digest of the fields of a contract and of all contracts within it."""
    known: dict[str, str] = {}

    def look(kind: object) -> None:
        if isinstance(kind, type) and issubclass(kind, Contract) and kind.__qualname__ not in known:
            shown = repr({name: field.annotation for name, field in kind.model_fields.items()})
            known[kind.__qualname__] = _ADDRESS.sub("", shown)
            for field in kind.model_fields.values():
                look(field.annotation)
        for part in get_args(kind):
            look(part)

    look(model)
    return hashlib.sha256(repr(sorted(known.items())).encode()).hexdigest()[:16]


SCHEMA_DIGEST = schema_digest_of(Run)
"""A view with another digest was written by another version of CodePilot: the run is folded anew from its log."""


def run_columns(run: Run) -> StoredRow:
    """The small row of a run."""
    return {
        "run_id": run.run_id,
        "task_id": run.task.task_id,
        "state": run.state.value,
        "verdict": run.verdict,
        "failure_kind": run.failure.kind.value if run.failure else None,
        "goal": plain_text(run.task.goal.natural),
        "repo": plain_text(run.task.repo),
        "iterations": run.spent.iterations,
        "pause_requested": run.pause_requested,
        "cancel_requested": run.cancel_requested,
        "parked_until": run.parked_until,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "last_seq": run.last_seq,
        "parent_run_id": run.task.parent_run_id,
    }


def view_columns(run: Run) -> StoredRow:
    """The whole run, and the schema it is written in."""
    return {"run_id": run.run_id, "seq": run.last_seq, "schema_digest": SCHEMA_DIGEST, "view": canonical_json(run)}


def event_columns(event: Event) -> StoredRow:
    """In the order of the table's columns."""
    return {
        "run_id": event.run_id,
        "seq": event.seq,
        "at": event.at,
        "type": event.type.value,
        "step_id": event.step_id,
        "attempt": event.attempt,
        "data": canonical_json(event.data),
        "artifacts": canonical_json([ref.model_dump(mode="json") for ref in event.artifacts]),
    }


def _key(table: Table, row: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(row[column.name] for column in table.primary_key if column.name != "run_id")


def _queued_step(event: Event, queued: StepQueued, priority: int) -> StoredRow:
    return {
        "run_id": event.run_id,
        "step_id": event.step_id,
        "attempt": event.attempt,
        "state": queued.state.value,
        "status": StepStatus.PENDING.value,
        "priority": priority,
        "fence": 0,
        "worker": None,
        "queued_seq": event.seq,
        "queued_at": event.at,
        "claimed_at": None,
        "ended_at": None,
    }


def _approval(event: Event, request: ApprovalRequested) -> StoredRow:
    return {
        "run_id": event.run_id,
        "approval_id": request.approval_id,
        "seq": event.seq,
        "operation": plain_text(request.operation),
        "details": plain_text(request.details),
        "risk": request.risk,
        "decision": None,
        "decided_by": None,
        "requested_at": event.at,
        "decided_at": None,
    }


def _memory(event: Event, recorded: MemoryRecorded) -> StoredRow:
    return {
        "run_id": event.run_id,
        "seq": event.seq,
        "at": event.at,
        "kind": recorded.memory.kind,
        "repo": plain_text(recorded.repo),
        "language": plain_text(recorded.language),
        "memory": canonical_json(recorded.memory),
    }
