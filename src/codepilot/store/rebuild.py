"""Writes every row of a run anew from its log. Who works on its open step at the moment is all that is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from codepilot.core.run import Run
from codepilot.store.check import OF_A_RUN, is_named
from codepilot.store.projection import FoldedStep, view_columns
from codepilot.store.rows import StepStatus
from codepilot.store.schema import events, runs, steps, tasks, views
from codepilot.store.tale import is_told, read_task, stands, task_rows, tell


def rebuild_run(connection: Connection, run_id: str) -> bool:
    """Within a transaction that may run any statement. Whether there is such a run: rows that belong to none go."""
    connection.execute(select(runs.c.run_id).where(runs.c.run_id == run_id).with_for_update())
    if not is_named(connection, run_id, (events, runs)):
        _clear(connection, run_id)
        return False
    tale, run = tell(connection, run_id)
    rows = tale.rows(run)
    (row,) = rows.pop(runs)
    mine = select(steps).where(steps.c.run_id == run_id).with_for_update()  # a step may be returned at any moment
    before = connection.execute(mine).mappings().all()
    held = {(step["step_id"], step["attempt"]): step for step in before}
    rows[steps] = [
        {
            **step,
            **_standing(held.get((step["step_id"], step["attempt"])), tale.steps[step["step_id"], step["attempt"]]),
        }
        for step in rows[steps]
    ]
    rows[views] = [{"run_id": run_id, **view_columns(run)}]
    _clear(connection, run_id)
    _write_task(connection, run)
    if not connection.execute(update(runs).where(runs.c.run_id == run_id).values(**row)).rowcount:
        connection.execute(insert(runs).values(**row))
    for table, wanted in rows.items():
        if wanted:
            connection.execute(insert(table), wanted)
    return True


def _clear(connection: Connection, run_id: str) -> None:
    for table in OF_A_RUN:
        if table not in (runs, events):
            connection.execute(delete(table).where(table.c.run_id == run_id))


def _write_task(connection: Connection, run: Run) -> None:
    """As the oldest of its runs tells it, unless it is what any of them tells."""
    this = tasks.c.task_id == run.task.task_id
    found = connection.execute(select(tasks).where(this)).mappings().one_or_none()
    told = list(task_rows(connection, run))
    oldest = min(filter(None, told), key=lambda one: int(one["created_at"]))
    if found is None:
        connection.execute(insert(tasks).values(**oldest))
    elif not any(is_told(read_task(found), one) for one in told):
        connection.execute(update(tasks).where(this).values(**oldest))


def _standing(before: Mapping[Any, Any] | None, folded: FoldedStep) -> dict[str, Any]:
    """A claim that holds is kept; any other cannot come back, for the fence is higher than all that were given."""
    if before is not None and stands(before, folded):
        return {name: before[name] for name in ("status", "fence", "worker", "claimed_at")}
    given = before["fence"] if before is not None and isinstance(before["fence"], int) else 0
    fence = max(folded.fence, given) + 1
    worker = None if folded.status is StepStatus.PENDING else folded.worker
    return {"status": folded.status.value, "fence": fence, "worker": worker, "claimed_at": None}
