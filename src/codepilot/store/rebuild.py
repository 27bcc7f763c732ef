"""Writes every view of a run anew from its log. Who works on its open step at the moment is all that is kept."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from codepilot.core.run import Run
from codepilot.store.check import Tale, tell
from codepilot.store.projection import FoldedStep, birth_columns, run_columns, view_columns
from codepilot.store.rows import OPEN, StepStatus
from codepilot.store.schema import approvals, artifacts, runs, steps, views, workspaces


def rebuild_run(connection: Connection, run_id: str) -> None:
    """Within a transaction that may run any statement."""
    connection.execute(select(runs.c.run_id).where(runs.c.run_id == run_id).with_for_update())
    tale, run = tell(connection, run_id)
    row = {**birth_columns(run), **run_columns(run)}
    connection.execute(update(runs).where(runs.c.run_id == run_id).values(**row))
    _rewrite_steps(connection, run, tale)
    for table in (views, workspaces, approvals, artifacts):
        connection.execute(delete(table).where(table.c.run_id == run_id))
    connection.execute(insert(views).values(run_id=run_id, **view_columns(run)))
    connection.execute(insert(workspaces).values(run_id=run_id, **tale.workspace))
    if tale.approvals:
        connection.execute(insert(approvals), list(tale.approvals.values()))
    if tale.artifacts:
        connection.execute(insert(artifacts), tale.artifacts)


def _rewrite_steps(connection: Connection, run: Run, tale: Tale) -> None:
    found = connection.execute(select(steps).where(steps.c.run_id == run.run_id)).mappings()
    before = {(row["step_id"], row["attempt"]): dict(row) for row in found}
    connection.execute(delete(steps).where(steps.c.run_id == run.run_id))
    for (step_id, attempt), folded in tale.steps.items():
        held = _held_columns(before.get((step_id, attempt)), folded)
        row = {"run_id": run.run_id, "step_id": step_id, "attempt": attempt, "priority": run.task.priority}
        connection.execute(insert(steps).values(**row, **folded.columns(), **held))


def _held_columns(before: dict[str, Any] | None, folded: FoldedStep) -> dict[str, Any]:
    """A claim that holds is kept; any other cannot come back, for the fence is higher than all that were given."""
    if before is not None and (folded.status is not StepStatus.PENDING or StepStatus(before["status"]) in OPEN):
        status = before["status"] if folded.status is StepStatus.PENDING else folded.status.value
        kept = {name: before[name] for name in ("fence", "worker", "claimed_at")}
        return {"status": status, **kept}
    fence = max(folded.fence, 0 if before is None else int(before["fence"]))
    return {"status": folded.status.value, "fence": fence + 1, "worker": None, "claimed_at": None}
