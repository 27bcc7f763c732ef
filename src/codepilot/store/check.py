"""The proof that everything that is stored of a run is what its log tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, select, union

from codepilot.core.run import Run
from codepilot.store.projection import VIEW_SHAPE, FoldedStep
from codepilot.store.records import no_run
from codepilot.store.schema import (
    approvals,
    artifacts,
    events,
    memories,
    notifications,
    runs,
    steps,
    tasks,
    views,
    workspaces,
)
from codepilot.store.tale import StepKey, broken, is_told, read_task, stands, task_rows, tell, told

OF_A_RUN = (runs, events, views, steps, workspaces, approvals, artifacts, memories, notifications)


def check_run(connection: Connection, run_id: str, load: Callable[[], Run]) -> None:
    """Raise INTERNAL with the difference unless the log, every row and the run as loaded agree."""
    if not is_named(connection, run_id, OF_A_RUN):
        raise no_run(run_id)
    stored = connection.execute(select(views).where(views.c.run_id == run_id)).one_or_none()
    tale, run = tell(connection, run_id, stored.seq if stored else 0)
    if stored is None:
        raise broken(run_id, "it has no view")
    if not 1 <= stored.seq <= run.last_seq:
        raise broken(run_id, f"its view stands at event {stored.seq}, the log ends at {run.last_seq}")
    if stored.shape == VIEW_SHAPE:
        view = json.loads(stored.view)
        _same(run_id, "its stored view", view if isinstance(view, dict) else {}, tale.view or {})
    for table, expected in tale.rows(run).items():
        found = connection.execute(select(table).where(table.c.run_id == run_id)).mappings().all()
        _same_rows(run_id, table, found, expected)
        if table is steps:
            _check_standing(run_id, found, tale.steps)
    _check_task(connection, run)
    _same(run_id, "the run as loaded", told(load()), told(run))


def is_named(connection: Connection, run_id: str, tables: Sequence[Table]) -> bool:
    """Whether any row of these tables names the run."""
    rows = (select(table.c.run_id).where(table.c.run_id == run_id).limit(1) for table in tables)
    return any(connection.execute(row).first() for row in rows)


def some_runs(connection: Connection, after: str, limit: int) -> list[str]:
    """Ids of runs in their order, for those who walk through all of them: any that a row names."""
    named = [
        select(table.c.run_id).where(table.c.run_id > after).distinct().order_by(table.c.run_id).limit(limit).subquery()
        for table in OF_A_RUN
    ]
    every = union(*(select(one.c.run_id) for one in named)).subquery()
    return list(connection.scalars(select(every.c.run_id).order_by(every.c.run_id).limit(limit)))


def _check_standing(run_id: str, rows: Sequence[Mapping[Any, Any]], folded: Mapping[StepKey, FoldedStep]) -> None:
    for row in rows:
        step = folded[row["step_id"], row["attempt"]]
        if not stands(row, step):
            found = f"{row['status']} with {row['worker']}, fence {row['fence']}"
            last = f"{step.status}, last with {step.worker}, fence {step.fence}"
            raise broken(run_id, f"its steps differ from its log: {row['step_id']} is {found}, the log tells {last}")


def _check_task(connection: Connection, run: Run) -> None:
    row = connection.execute(select(tasks).where(tasks.c.task_id == run.task.task_id)).mappings().one_or_none()
    if row is None:
        raise broken(run.run_id, f"there is no task {run.task.task_id}")
    found, expected = read_task(row), None
    for told_row in task_rows(connection, run):
        if is_told(found, told_row):
            return
        expected = expected or told_row
    _same(run.run_id, "the row of its task", found, expected or {})


def _same_rows(
    run_id: str, table: Table, found: Sequence[Mapping[Any, Any]], expected: Sequence[Mapping[str, Any]]
) -> None:
    """Whether there are those rows and no others, and each has in the expected columns what is expected there."""
    there, wanted = ({_key(table, row): row for row in rows} for rows in (found, expected))
    for key in sorted(there.keys() | wanted.keys()):
        if key not in there:
            raise broken(run_id, f"its {table.name} lack {key}, of which its log tells")
        if key not in wanted:
            raise broken(run_id, f"its {table.name} have {key}, of which its log tells nothing")
        _same(run_id, f"{key} in its {table.name}", {name: there[key][name] for name in wanted[key]}, wanted[key])


def _key(table: Table, row: Mapping[Any, Any]) -> str:
    """What the row is called within its run."""
    return " ".join(str(row[one.name]) for one in table.primary_key if one.name != "run_id") or "the row"


def _same(run_id: str, what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    names = sorted(found.keys() | expected.keys())
    wrong = [name for name in names if found.get(name) != expected.get(name)]
    if wrong:
        said = "; ".join(f"{name} is {found.get(name)!r}, the log tells {expected.get(name)!r}" for name in wrong[:5])
        raise broken(run_id, f"{what} differs from its log: {said}")
