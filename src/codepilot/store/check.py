"""The proof that a run's stored views are what its log tells."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, select

from codepilot.core.contract import canonical_json
from codepilot.core.events import Event
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run, evolve
from codepilot.store.beside import NO_WORKSPACE, artifact_rows, fold_approvals, workspace_changes
from codepilot.store.projection import VIEW_SHAPE, FoldedStep, fold_step, run_columns
from codepilot.store.records import begun_by, no_run, read_event
from codepilot.store.rows import OPEN, StepStatus
from codepilot.store.schema import approvals, artifacts, runs, steps, views, workspaces
from codepilot.store.statements import SELECT_SOME_EVENTS

_PAGE = 500


@dataclass
class Tale:
    """Everything that the log tells of a run, event by event, without keeping the events."""

    run: Run | None = None
    view: Mapping[str, Any] | None = None
    """The run as the event told it at which the stored view stands."""
    steps: dict[tuple[str | None, int], FoldedStep] = field(default_factory=dict)
    workspace: dict[str, str | None] = field(default_factory=lambda: dict(NO_WORKSPACE))
    approvals: dict[str, dict[str, Any]] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)

    def add(self, event: Event, view_seq: int) -> None:
        last = 0 if self.run is None else self.run.last_seq
        if event.seq != last + 1:
            raise broken(event.run_id, f"the log has a gap: event {last + 1} is missing (found {event.seq})")
        self.run = begun_by(event) if self.run is None else evolve(self.run, event)
        fold_step(self.steps, event)
        self.workspace.update(workspace_changes([event]))
        fold_approvals(self.approvals, event)
        self.artifacts += artifact_rows([event])
        if event.seq == view_seq:
            self.view = _told(self.run)


def tell(connection: Connection, run_id: str, view_seq: int = 0) -> tuple[Tale, Run]:
    """The tale of a run's whole log, read in pages, and the run at its end."""
    tale = Tale()
    for event in read_log(connection, run_id):
        tale.add(event, view_seq)
    if tale.run is None:
        raise no_run(run_id)
    return tale, tale.run


def read_log(connection: Connection, run_id: str) -> Iterator[Event]:
    after = 0
    while page := SELECT_SOME_EVENTS.rows(connection, {"in_run": run_id, "in_after": after, "in_limit": _PAGE}):
        yield from map(read_event, page)
        after = int(page[-1][1])


def check_run(connection: Connection, run_id: str, current: Run) -> None:
    """Raise INTERNAL with the difference unless log, view, rows and the run as loaded agree."""
    stored = connection.execute(select(views).where(views.c.run_id == run_id)).one_or_none()
    if stored is None:
        raise broken(run_id, "it has no view")
    tale, told = tell(connection, run_id, stored.seq)
    if not 1 <= stored.seq <= told.last_seq:
        raise broken(run_id, f"its view stands at event {stored.seq}, the log ends at {told.last_seq}")
    if stored.shape == VIEW_SHAPE:
        _same(run_id, "stored view", json.loads(stored.view), tale.view or {})
    _same(run_id, "run as loaded", _told(current), _told(told))
    expected = run_columns(told)
    _same(run_id, "row", {name: row[name] for row in _rows(connection, runs, run_id) for name in expected}, expected)
    found = {(row["step_id"], row["attempt"]): _as_folded(row) for row in _rows(connection, steps, run_id)}
    _same(run_id, "steps", _named(found), _named(tale.steps))
    for row in _rows(connection, workspaces, run_id) or [{}]:
        _same(run_id, "workspace", {name: row.get(name) for name in NO_WORKSPACE}, tale.workspace)
    asked = {row["approval_id"]: row for row in _rows(connection, approvals, run_id)}
    _same(run_id, "approvals", asked, tale.approvals)
    _same(run_id, "artifacts", _counted(_rows(connection, artifacts, run_id)), _counted(tale.artifacts))


def some_runs(connection: Connection, after: str, limit: int) -> list[str]:
    """Ids of runs in their order, for those who walk through all of them."""
    every = select(runs.c.run_id).where(runs.c.run_id > after).order_by(runs.c.run_id)
    return list(connection.scalars(every.limit(limit)))


def _rows(connection: Connection, table: Table, run_id: str) -> list[dict[str, Any]]:
    return [dict(row._mapping) for row in connection.execute(select(table).where(table.c.run_id == run_id))]


def _as_folded(row: Mapping[str, Any]) -> FoldedStep:
    status = StepStatus(row["status"])
    return FoldedStep(
        state=row["state"],
        status=StepStatus.PENDING if status in OPEN else status,
        queued_seq=row["queued_seq"],
        queued_at=row["queued_at"],
        ended_at=row["ended_at"],
    )


def _told(run: Run) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(canonical_json(run))
    return told


def _named(found: Mapping[tuple[str | None, int], FoldedStep]) -> dict[str, str]:
    return {f"{step} attempt {attempt}": folded.told() for (step, attempt), folded in found.items()}


def _counted(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    return {f"{row['type']} {row['sha256']} of event {row['seq']}": row["size_bytes"] for row in rows}


def _same(run_id: str, what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    names = sorted(found.keys() | expected.keys())
    wrong = [name for name in names if found.get(name) != expected.get(name)]
    if wrong:
        told = "; ".join(f"{name} is {found.get(name)!r}, the log tells {expected.get(name)!r}" for name in wrong[:5])
        raise broken(run_id, f"its {what} differs from its log: {told}")


def broken(run_id: str, why: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INTERNAL,
        f"Run {run_id} is inconsistent: {why}.",
        next_action="Keep a copy of the database; `codepilot fsck --repair` writes the views anew from the log.",
        run_id=run_id,
    )
