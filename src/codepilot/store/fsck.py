"""Compares a run's rows with its log, and rebuilds them from the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, select, union

from codepilot.core.contract import canonical_json
from codepilot.core.events import Event
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.store.projection import SCHEMA_DIGEST, SIDE_TABLES, RunProjection, run_columns, upsert, view_columns
from codepilot.store.rows import StepStatus, no_run, read_event
from codepilot.store.schema import events, notifications, runs, steps, views

OF_A_RUN = (runs, events, views, *SIDE_TABLES)
_NOT_LOGGED: Mapping[Table, frozenset[str]] = {
    steps: frozenset({"status", "fence", "worker"}),  # a step is returned without an event: see `_may_stand`
    notifications: frozenset({"tries", "not_before"}),
}
_PAGE = 500


def check_run(connection: Connection, run_id: str, load: Callable[[], Run]) -> None:
    """Raise INTERNAL with the difference unless the log, every row and the run as loaded agree."""
    if not _is_named(connection, run_id, OF_A_RUN):
        raise no_run(run_id)
    stored = connection.execute(select(views).where(views.c.run_id == run_id)).one_or_none()
    projection, then = _folded(connection, run_id, stored.seq if stored else 0)
    run = projection.folded
    if stored is None:
        raise broken(run_id, "it has no view")
    if not 1 <= stored.seq <= run.last_seq:
        raise broken(run_id, f"its view is of event {stored.seq}, the log ends at {run.last_seq}")
    if stored.schema_digest == SCHEMA_DIGEST:
        view = json.loads(stored.view)
        _compare(run_id, "its stored view", view if isinstance(view, dict) else {}, then)
    for table, expected in projection.rows().items():
        found = connection.execute(select(table).where(table.c.run_id == run_id)).mappings().all()
        _compare_rows(run_id, table, found, expected)
    _compare(run_id, "the run as loaded", _as_json(load()), _as_json(run))


def rebuild_run(connection: Connection, run_id: str) -> bool:
    """Write every row of the run anew from its log, within a write transaction; false if there is no such run.

    A claim that still holds is kept. Rows that belong to no run are removed.
    """
    connection.execute(select(runs.c.run_id).where(runs.c.run_id == run_id).with_for_update())
    if not _is_named(connection, run_id, (events, runs)):
        _clear(connection, run_id)
        return False
    projection, _ = _folded(connection, run_id)
    stored = select(steps).where(steps.c.run_id == run_id).with_for_update()  # a step may be returned at any moment
    before = {(row["step_id"], row["attempt"]): row for row in connection.execute(stored).mappings()}
    for key, row in projection.side_tables[steps].items():
        row.update(_rebuilt_claim(before.get((key[0], key[1])), row))
    _clear(connection, run_id)
    upsert(connection, runs, [run_columns(projection.folded)])
    upsert(connection, views, [view_columns(projection.folded)])
    projection.save(connection)
    return True


def some_runs(connection: Connection, after: str, limit: int) -> list[str]:
    """A page of run ids, in their order: any that a row names."""
    named = [
        select(table.c.run_id).where(table.c.run_id > after).distinct().order_by(table.c.run_id).limit(limit).subquery()
        for table in OF_A_RUN
    ]
    every = union(*(select(one.c.run_id) for one in named)).subquery()
    return list(connection.scalars(select(every.c.run_id).order_by(every.c.run_id).limit(limit)))


def broken(run_id: str, why: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INTERNAL,
        f"Run {run_id} is inconsistent: {why}.",
        next_action="Keep a copy of the database; `codepilot fsck --repair` writes the views anew from the log.",
        run_id=run_id,
    )


def _folded(connection: Connection, run_id: str, view_seq: int = 0) -> tuple[RunProjection, dict[str, Any]]:
    """The projection of the whole log, and the run as it was at `view_seq`."""
    projection, then, last = RunProjection(), {}, 0
    for event in _read_log(connection, run_id):
        if event.seq != last + 1:
            raise broken(run_id, f"the log has a gap: event {last + 1} is missing (found {event.seq})")
        last = event.seq
        projection.fold(event)
        if last == view_seq:
            then = _as_json(projection.folded)
    if projection.run is None:
        raise broken(run_id, "its log is empty")
    return projection, then


def _read_log(connection: Connection, run_id: str) -> Iterator[Event]:
    after = 0
    of_run = select(events).where(events.c.run_id == run_id).order_by(events.c.seq).limit(_PAGE)
    while page := connection.execute(of_run.where(events.c.seq > after)).all():
        yield from map(read_event, page)
        after = int(page[-1].seq)


def _is_named(connection: Connection, run_id: str, tables: Sequence[Table]) -> bool:
    """True if any row of these tables names the run."""
    rows = (select(table.c.run_id).where(table.c.run_id == run_id).limit(1) for table in tables)
    return any(connection.execute(row).first() for row in rows)


def _clear(connection: Connection, run_id: str) -> None:
    for table in (views, *SIDE_TABLES):
        connection.execute(delete(table).where(table.c.run_id == run_id))


def _may_stand(row: Mapping[Any, Any], folded: Mapping[str, Any]) -> bool:
    """True if a step may stand as its row says. Every claim is in the log; that a step was returned is not.

    A returned step is PENDING with a higher fence than any claim before.
    """
    status, fence, worker = row["status"], row["fence"], row["worker"]
    if not isinstance(fence, int):  # a database file keeps anything anywhere
        return False
    if folded["status"] == StepStatus.RUNNING:
        if status == StepStatus.PENDING:
            return worker is None and fence > folded["fence"]
        return (status, fence, worker) == (StepStatus.RUNNING, folded["fence"], folded["worker"])
    nobody = worker is None and folded["status"] == StepStatus.CANCELLED
    return bool(status == folded["status"] and fence >= folded["fence"] and (nobody or worker == folded["worker"]))


def _rebuilt_claim(before: Mapping[Any, Any] | None, folded: Mapping[str, Any]) -> dict[str, Any]:
    """How a rebuilt step stands: a claim that holds is kept; any other cannot come back, for its fence is too low."""
    names = ("status", "fence", "worker")
    if before is not None and _may_stand(before, folded):
        return {name: before[name] for name in names}
    given = before["fence"] if before is not None and isinstance(before["fence"], int) else 0
    fence = max(folded["fence"], given) + 1
    if folded["status"] == StepStatus.RUNNING:
        return {"status": StepStatus.PENDING.value, "fence": fence, "worker": None}
    return {**{name: folded[name] for name in names}, "fence": fence}


def _compare_rows(
    run_id: str, table: Table, found: Sequence[Mapping[Any, Any]], expected: Sequence[Mapping[str, Any]]
) -> None:
    there, wanted = ({_name(table, row): row for row in rows} for rows in (found, expected))
    for name in sorted(there.keys() | wanted.keys()):
        if name not in there:
            raise broken(run_id, f"its {table.name} lack {name}, which is in its log")
        if name not in wanted:
            raise broken(run_id, f"its {table.name} have {name}, which is not in its log")
        row, logged = there[name], wanted[name]
        columns = logged.keys() - _NOT_LOGGED.get(table, frozenset())
        what = f"{name} in its {table.name}"
        _compare(run_id, what, {column: row[column] for column in columns}, {one: logged[one] for one in columns})
        if table is steps and not _may_stand(row, logged):
            stands, last = (f"{one['status']} with {one['worker']}, fence {one['fence']}" for one in (row, logged))
            raise broken(run_id, f"its steps differ from its log: {name} is {stands}, the log says {last}")


def _name(table: Table, row: Mapping[Any, Any]) -> str:
    """The row's name within its run."""
    return " ".join(str(row[one.name]) for one in table.primary_key if one.name != "run_id") or "the row"


def _compare(run_id: str, what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    names = sorted(found.keys() | expected.keys())
    wrong = [name for name in names if found.get(name) != expected.get(name)]
    if wrong:
        list_ = "; ".join(f"{name} is {found.get(name)!r}, the log says {expected.get(name)!r}" for name in wrong[:5])
        raise broken(run_id, f"{what} differs from its log: {list_}")


def _as_json(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(canonical_json(run))
    return found
