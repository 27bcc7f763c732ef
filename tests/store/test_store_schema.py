"""The schema: made by migrations, held to what the queries expect, and append-only where it says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import pytest
from pydantic import AfterValidator, create_model
from raw_sql import on_postgres, raw_sql
from sample_runs import new_run, take, turn
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import IntegrityError

from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import TaskSpec
from codepilot.store import Home, Store
from codepilot.store.database import Database
from codepilot.store.migrations import MIGRATIONS, Migration, Statement, migrate, newest, schema_version
from codepilot.store.projection import schema_digest_of
from codepilot.store.schema import metadata


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, home: Home) -> str:
    """The URL of a database that no migration has touched."""
    if request.param == "sqlite":
        return f"sqlite:///{home.database}"
    return str(request.getfixturevalue("postgres").database())


@pytest.mark.parametrize("change", ["UPDATE events SET at = 0", "DELETE FROM events", "{replace}", "{truncate}"])
def test_the_log_is_append_only(place: str, store: Store, change: str) -> None:
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    before = store.events(run_id)
    copy = "INTO events SELECT run_id, seq, 0, type, step_id, attempt, data, artifacts FROM events WHERE true"
    if on_postgres(place):
        change = change.format(
            replace=f"INSERT {copy} ON CONFLICT (run_id, seq) DO UPDATE SET at = 0", truncate="TRUNCATE events CASCADE"
        )
    else:
        change = change.format(replace=f"REPLACE {copy}", truncate="DELETE FROM events WHERE true")
    with pytest.raises(IntegrityError, match="append-only"):
        raw_sql(place, change)
    assert store.events(run_id) == before


@pytest.mark.parametrize("seq", [0, 1, 2, 4])
def test_a_place_in_the_log_is_taken_once_and_in_order(place: str, store: Store, seq: int) -> None:
    run_id = new_run(store)
    add = "INSERT INTO events SELECT run_id, {}, at, type, step_id, attempt, data, artifacts FROM events WHERE seq = 1"
    with pytest.raises(IntegrityError, match="gapless"):
        raw_sql(place, add.format(seq))
    assert len(store.events(run_id)) == 2
    raw_sql(place, add.format(3))
    assert len(store.events(run_id)) == 3


def test_a_run_has_one_open_step(place: str, store: Store) -> None:
    new_run(store)
    columns = "run_id, {}, attempt, state, status, fence, queued_seq, queued_at"
    add = (
        f"INSERT INTO steps ({columns.format('step_id')}) SELECT {columns.format(chr(39) + 's-x' + chr(39))} FROM steps"
    )
    with pytest.raises(IntegrityError):
        raw_sql(place, add)


INDEXES = {
    "events": {"events_recalled"},
    "runs": {"runs_by_age", "runs_by_change", "runs_by_task", "runs_of_parent", "runs_parked"},
    "steps": {"steps_pending", "steps_running", "steps_one_open"},
    "approvals": {"approvals_waiting"},
    "artifacts": {"artifacts_by_hash"},
    "memories": {"memories_of_repo", "memories_of_language"},
    "notifications": {"notifications_pending"},
}


def test_migrations_make_what_the_queries_expect(place: str, store: Store) -> None:
    engine = create_engine(place)
    made = inspect(engine)
    assert set(made.get_table_names()) == set(metadata.tables)
    for name, table in metadata.tables.items():
        found = {column["name"]: column for column in made.get_columns(name)}
        assert set(found) == {column.name for column in table.columns}
        for column in table.columns:
            assert str(found[column.name]["type"]) == str(column.type)
            assert found[column.name]["nullable"] == column.nullable
        assert made.get_pk_constraint(name)["constrained_columns"] == [column.name for column in table.primary_key]
        assert {index["name"] for index in made.get_indexes(name)} == INDEXES.get(name, set())
        references = {key["constrained_columns"][0]: key["referred_table"] for key in made.get_foreign_keys(name)}
        assert references == {key.parent.name: key.column.table.name for key in table.foreign_keys}
    engine.dispose()


def test_opening_again_keeps_everything(open_store: Callable[[], Store]) -> None:
    store = open_store()
    run_id = new_run(store)
    assert open_store().load(run_id) == store.load(run_id)


def test_many_openers_of_a_new_database_migrate_it_once(open_store: Callable[[], Store]) -> None:
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: open_store(), range(6)))
    run_id = new_run(opened[0])
    assert {one.load(run_id).run_id for one in opened} == {run_id}


def test_a_newer_database_is_refused_and_untouched(place: str, store: Store, open_store: Callable[[], Store]) -> None:
    raw_sql(place, "UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    with pytest.raises(CodePilotError, match="999") as refused:
        open_store()
    assert refused.value.kind is FailureKind.STORE_UNAVAILABLE
    assert "Upgrade" in refused.value.failure.advice
    assert [tuple(row) for row in raw_sql(place, "SELECT value FROM meta")] == [("999",)]


def test_a_migration_is_applied_whole_or_not_at_all(place: str, home: Home) -> None:
    more = Migration(
        newest() + 1,
        "more",
        [
            Statement("ALTER TABLE runs ADD COLUMN colour INTEGER"),
            Statement("CREATE SCHEMA only_there", "postgresql"),
            Statement("CREATE TABLE extra (id TEXT)"),
        ],
    )
    broken = Migration(newest() + 2, "broken", [Statement("CREATE TABLE half (id TEXT)"), Statement("CREATE NONSENSE")])
    database = Database.open(place, home.locks)
    with pytest.raises(CodePilotError), database.write() as connection:
        migrate(connection, database.place, [*MIGRATIONS, more, broken])
    with database.read() as connection:
        assert schema_version(connection) == newest()
        assert "extra" not in inspect(connection).get_table_names()
    with database.write() as connection:
        assert migrate(connection, database.place, [*MIGRATIONS, more]) == newest() + 1
    with database.read() as connection:
        assert schema_version(connection) == newest() + 1
        tables = inspect(connection).get_table_names()
    database.close()
    assert "extra" in tables
    assert "half" not in tables


def test_a_view_of_another_version_is_reported_anew_from_the_log(place: str, store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    whole = store.load(run_id)
    raw_sql(place, """UPDATE views SET schema_digest = 'older', view = '{"state":"GONE"}'""")
    assert store.load(run_id) == whole
    store.check(run_id)
    store.commit(claim, lambda run: turn(claim, 2))
    assert store.load(run_id).spent.turns == 2
    store.check(run_id)


def test_the_schema_digest_of_a_view_tells_of_contracts_within_it():
    def shape(**fields: tuple[type, object]) -> str:
        inner = create_model("Inner", __base__=Contract, a=(int, 1), **fields)
        middle = create_model("Middle", __base__=Contract, inner=(dict[str, tuple[inner, ...]] | None, None))
        return schema_digest_of(create_model("Outer", __base__=Contract, middle=(middle, ...)))

    assert shape() == shape()
    assert shape() != shape(b=(int, 2))
    assert schema_digest_of(Run) != schema_digest_of(TaskSpec)


def test_the_schema_digest_is_the_same_in_each_process():
    """Where functions are in memory does not count: a view of another process would be folded anew."""

    def digest() -> str:
        def check(text: str) -> str:
            return text

        checked.append(check)
        return schema_digest_of(
            create_model("Checked", __base__=Contract, a=(Annotated[str, AfterValidator(check)], ""))
        )

    checked: list[object] = []
    assert digest() == digest() and len(set(map(id, checked))) == 2
