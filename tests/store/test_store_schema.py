"""The schema: made by migrations, held to what the queries expect, and append-only where it says so."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from sample_runs import new_run, take, turn
from sqlalchemy import create_engine, inspect

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import Home, Store
from codepilot.store.database import Database
from codepilot.store.migrations import FIRST, MIGRATIONS, Migration, Statement, migrate, schema_version
from codepilot.store.schema import metadata


@pytest.mark.parametrize("change", ["UPDATE events SET at = 0", "DELETE FROM events", "REPLACE INTO events {row}"])
def test_the_log_is_append_only(home: Home, store: Store, change: str) -> None:
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    before = store.events(run_id)
    raw = sqlite3.connect(home.database)
    change = change.format(row="SELECT run_id, seq, 0, type, step_id, attempt, data, artifacts FROM events")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        raw.execute(change)
    raw.close()
    assert store.events(run_id) == before


@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_a_place_in_the_log_is_taken_once_and_in_order(home: Home, store: Store, place: int) -> None:
    run_id = new_run(store)
    columns = "run_id, {}, at, type, step_id, attempt, data, artifacts"
    add = f"INSERT INTO events SELECT {columns.format('?')} FROM events WHERE seq = 1"
    raw = sqlite3.connect(home.database)
    with pytest.raises(sqlite3.IntegrityError, match="gapless"):
        raw.execute(add, (place,))
    raw.execute(add, (3,))
    raw.close()
    assert len(store.events(run_id)) == 2, "it was never committed"


def test_a_run_has_one_open_step(home: Home, store: Store) -> None:
    new_run(store)
    raw = sqlite3.connect(home.database)
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute("INSERT INTO steps SELECT run_id, 's-x', 1, state, status, 0, NULL, 9, 9, NULL, NULL FROM steps")
    raw.close()


def test_migrations_make_what_the_queries_expect(home: Home, store: Store) -> None:
    made = inspect(create_engine(f"sqlite:///{home.database}"))
    assert set(made.get_table_names()) == set(metadata.tables)
    for name, table in metadata.tables.items():
        found = {column["name"]: column for column in made.get_columns(name)}
        assert list(found) == [column.name for column in table.columns]
        for column in table.columns:
            assert str(found[column.name]["type"]) == str(column.type)
            assert found[column.name]["nullable"] == column.nullable
        assert made.get_pk_constraint(name)["constrained_columns"] == [column.name for column in table.primary_key]
        assert {index["name"] for index in made.get_indexes(name)} == {index.name for index in table.indexes}
        references = {key["constrained_columns"][0]: key["referred_table"] for key in made.get_foreign_keys(name)}
        assert references == {key.parent.name: key.column.table.name for key in table.foreign_keys}


def test_versions_count_up_and_both_engines_have_their_triggers() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    for engine in ("sqlite", "postgresql"):
        assert any("TRIGGER" in statement.sql and statement.engine == engine for statement in FIRST.statements)


def test_opening_again_keeps_everything(home: Home, store: Store) -> None:
    run_id = new_run(store)
    again = Store.open(home.database, locks=home.locks)
    assert again.load(run_id) == store.load(run_id)
    again.close()


def test_many_openers_of_a_new_database_migrate_it_once(home: Home) -> None:
    with ThreadPoolExecutor(6) as pool:
        opened = list(pool.map(lambda _: Store.open(home.database, locks=home.locks), range(6)))
    run_id = new_run(opened[0])
    assert {one.load(run_id).run_id for one in opened} == {run_id}
    for one in opened:
        one.close()


def test_a_newer_database_is_refused_and_untouched(home: Home, store: Store) -> None:
    store.close()
    raw = sqlite3.connect(home.database)
    with raw:
        raw.execute("UPDATE meta SET value = '999' WHERE key = 'schema_version'")
    with pytest.raises(CodePilotError, match="999") as refused:
        Store.open(home.database, locks=home.locks)
    assert refused.value.kind is FailureKind.STORE_UNAVAILABLE
    assert "Upgrade" in refused.value.failure.advice
    assert raw.execute("SELECT value FROM meta").fetchall() == [("999",)]
    raw.close()


def test_a_migration_is_applied_whole_or_not_at_all(home: Home) -> None:
    second = Migration(
        2,
        "more",
        [
            Statement("ALTER TABLE runs ADD COLUMN priority INTEGER"),
            Statement("CREATE SCHEMA only_there", "postgresql"),
            Statement("CREATE TABLE extra (id TEXT)"),
        ],
    )
    broken = Migration(3, "broken", [Statement("CREATE TABLE half (id TEXT)"), Statement("CREATE NONSENSE")])
    database = Database.open(home.database, home.locks)
    with pytest.raises(CodePilotError), database.write(durable=True) as connection:
        migrate(connection, database.place, [FIRST, second, broken])
    with database.read() as connection:
        assert schema_version(connection) == MIGRATIONS[-1].version
        assert "extra" not in inspect(connection).get_table_names()
    with database.write(durable=True) as connection:
        assert migrate(connection, database.place, [FIRST, second]) == 2
    with database.read() as connection:
        assert schema_version(connection) == 2
        tables = inspect(connection).get_table_names()
    database.close()
    assert "extra" in tables
    assert "half" not in tables


def test_a_view_of_another_version_is_told_anew_from_the_log(home: Home, store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    whole = store.load(run_id)
    raw = sqlite3.connect(home.database)
    with raw:
        raw.execute("""UPDATE views SET shape = 'older', view = '{"state":"GONE"}'""")
    raw.close()
    assert store.load(run_id) == whole
    store.check(run_id)
    store.commit(claim, lambda run: turn(claim, 2))
    assert store.load(run_id).spent.turns == 2
    store.check(run_id)
