"""Every column of every table, changed alone: fsck notices it and writes it anew, or here is reported why not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest
from raw_sql import on_postgres, raw_sql
from sample_runs import draft, new_run, succeed, take, task, turn
from sqlalchemy import Boolean, Column, Table, Text, create_engine, select, update
from sqlalchemy.exc import IntegrityError

from codepilot.core.approval import ApprovalDecided, ApprovalRequested
from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.decide import Failed, Paused, decide, decide_cancel, decide_resume, start
from codepilot.core.events import (
    BasePinned,
    EventDraft,
    EventType,
    SnapshotTaken,
    WorkspaceCreated,
)
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.fork import fork, taken_over
from codepilot.core.memory import MemoryRecorded, PatternMemory
from codepilot.core.notify import NotificationSent
from codepilot.store import Store, new_id
from codepilot.store.schema import metadata, runs, steps, views

NO_LOG_TELLS = {
    "meta": "the schema's version and the store's limit, not a run's",
    "events": "the log itself: triggers keep it from changes",
    "leases": "who lives at this moment",
    "removals": "runs whose log is gone",
    "credentials": "who may use the service, not a run's",
    "locks": "who may change which files at this moment",
    "quirks": "what people know of repositories, not a run's",
    "notifications.tries": "how often it was tried in vain: no event says so",
    "notifications.not_before": "when it may be tried again",
    "views.schema_digest": "a view with another digest is another version's, and nobody reads it",
}


def reported_columns(tables: Collection[Table] = metadata.sorted_tables) -> Iterator[Column[Any]]:
    for table in tables:
        for column in table.columns:
            if not {table.name, f"{table.name}.{column.name}"} & NO_LOG_TELLS.keys():
                yield column


def lies(column: Column[Any], truth: Any) -> list[Any]:
    """Other values that the column can hold."""
    if isinstance(column.type, Boolean):
        return [not truth]
    wrong: list[Any] = ["another"] if isinstance(column.type, Text) else [1 if truth is None else truth - 1]
    if column.name == "status":
        wrong += [status for status in ("RUNNING", "SUCCEEDED") if status != truth]
    return [*wrong, None] if column.nullable and truth is not None else wrong


class Shell:
    """A person with a database shell who minds no foreign key."""

    def __init__(self, place: str) -> None:
        self._engine = create_engine(place)
        self._careless = "SET LOCAL session_replication_role = replica" if on_postgres(place) else "SELECT 1"

    def rows(self, table: Table, key: str) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            found = connection.execute(select(table).where(table.c.run_id == key).order_by(*table.primary_key))
            return [dict(row._mapping) for row in found]

    def change(self, table: Table, row: dict[str, Any], **values: Any) -> None:
        this = [key == row[key.name] for key in table.primary_key]
        with self._engine.begin() as connection:
            connection.exec_driver_sql(self._careless)
            assert connection.execute(update(table).where(*this).values(values)).rowcount == 1


def furnish(store: Store, run_id: str) -> None:
    """A row in every table, and its first step at work."""
    claim = take(store, "w-one", run_id)
    pinned = BasePinned(repo_id="x", commit="c" * 40, commit_tree="t" * 40, tree="t" * 40)
    ref = ArtifactRef(type=ArtifactType.LOG, sha256="ab" * 32, size_bytes=5)
    asked = [
        ApprovalRequested(approval_id=name, operation="network", details="pypi.org", risk="low") for name in ("a", "b")
    ]
    learnt = MemoryRecorded(repo="x", language="python", memory=PatternMemory(task="t", solution="s"))
    store.append(
        claim,
        [
            draft(claim, EventType.BASE_PINNED, pinned),
            draft(claim, EventType.WORKSPACE_CREATED, WorkspaceCreated(workspace="w-1", path="/x")),
            draft(claim, EventType.SNAPSHOT_TAKEN, SnapshotTaken(snapshot="s-1", tree="t" * 40)),
            *(draft(claim, EventType.APPROVAL_REQUESTED, one) for one in asked),
            draft(claim, EventType.APPROVAL_DECIDED, ApprovalDecided(approval_id="a", decision="once", by="someone")),
            *(one.model_copy(update={"artifacts": (ref,)}) for one in turn(claim, 1)),
            draft(claim, EventType.MEMORY_RECORDED, learnt),
        ],
    )


def running(store: Store) -> str:
    """One that has come to an end before, of which somebody was informed."""
    run_id = new_id("r")
    store.create_run(run_id, start(task().model_copy(update={"notify": True}), run_id))
    no_key = Failed(Failure(kind=FailureKind.MODEL_AUTH, message="there is no key"))
    store.commit(take(store, "w-one", run_id), lambda run: decide(run, no_key, now=run.updated_at))
    (pending,) = store.outbox.of(run_id)
    output = NotificationSent(of=pending.seq, status=200)
    assert store.outbox.settle(pending, EventDraft(type=EventType.NOTIFICATION_SENT, data=output))
    store.control(run_id, decide_resume)
    furnish(store, run_id)
    return run_id


def fresh(store: Store) -> str:
    return new_run(store)


def given_back(store: Store) -> str:
    run_id = running(store)
    store.release_worker("w-one")
    assert store.reclaim(run_id, wait=True)
    return run_id


def reopened(store: Store) -> str:
    run_id = running(store)
    (claim,) = store.queue.held_claims("w-one")
    store.commit(claim, lambda run: decide(run, Paused("asked"), now=run.updated_at))
    store.control(run_id, decide_resume)
    return run_id


def ended(store: Store) -> str:
    run_id = running(store)
    (claim,) = store.queue.held_claims("w-one")
    store.commit(claim, succeed)
    take(store, "w-one", run_id)
    store.control(run_id, decide_cancel)
    return run_id


def forked(store: Store) -> str:
    old = new_run(store)
    furnish(store, old)
    return forked_from(store, old)


def forked_from(store: Store, old: str) -> str:
    new = new_id("r")
    events = store.events(old)
    store.create_run(new, fork(taken_over(events, len(events)), new))
    return new


WHO_HAS_IT = ("status", "fence", "worker", "claimed_at")
"""What becomes of a step that somebody had: nobody has it any more."""


RARER = [fresh, given_back, reopened, ended, forked]
PLACES = [
    ("postgres", running),
    ("sqlite", running),
    *(pytest.param("sqlite", made, marks=pytest.mark.slow) for made in RARER),
]


@pytest.mark.parametrize(("place", "made"), PLACES, indirect=["place"])
def test_a_column_that_lies_is_found_and_written_anew(place: str, store: Store, made: Callable[[Store], str]) -> None:
    """Every column of a run at work; of other runs, those of the tables whose rows differ by how far a run is.

    Each kind of wrong value is tried once, on SQLite and for a run at work.
    """
    every = made is running and not on_postgres(place)
    new_run(store)
    run_id = made(store)
    run = store.load(run_id)
    shell = Shell(place)
    columns = list(reported_columns() if made is running else reported_columns([runs, steps, views]))
    tried = set()
    assert store.check_all() == {}
    for column in columns:
        truths = [row[column.name] for row in shell.rows(column.table, run_id)[:1]]
        wrong = [lie for truth in truths for lie in lies(column, truth)]
        for lie in wrong if every or column.name == "status" else wrong[:1]:
            output = f"{column} = {lie!r}"
            before = shell.rows(column.table, run_id)
            shell.change(column.table, before[0], **{column.name: lie})
            found = store.check_all()
            assert run_id in found, f"{output} instead of {before[0][column.name]!r} was believed"
            left = store.repair(found)
            if column is runs.c.run_id:
                assert "its log is empty" in left.pop("another"), "a run whose log is gone is not forgotten"
                raw_sql(place, "DELETE FROM runs WHERE run_id = 'another'")
            assert left == store.check_all() == {}, output
            assert store.load(run_id) == run, output
            assert plain(shell.rows(column.table, run_id)) == plain(before), output
            if column.table is steps:
                shell.change(steps, before[0], **{name: before[0][name] for name in WHO_HAS_IT})
            tried.add(str(column))
    if made is running:
        assert tried == set(map(str, columns))


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in WHO_HAS_IT} for row in rows]


def test_a_run_whose_row_is_gone_is_found_by_its_log(place: str, store: Store) -> None:
    run_id = running(store)
    before = store.load(run_id)
    if on_postgres(place):  # nobody can remove the row as long as the log is there
        with pytest.raises(IntegrityError):
            raw_sql(place, "DELETE FROM runs")
    else:
        raw_sql(place, "DELETE FROM runs", "DELETE FROM views")
    assert store.repair(store.check_all()) == store.check_all() == {}
    assert store.load(run_id) == before


@pytest.mark.parametrize("table", ["views", "steps"])
def test_a_row_that_is_missing_is_missed_although_it_was_empty(place: str, store: Store, table: str) -> None:
    run_id = fresh(store)
    raw_sql(place, f"DELETE FROM {table}")
    assert run_id in store.check_all()
    assert store.repair([run_id]) == store.check_all() == {}
