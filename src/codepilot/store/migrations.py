"""Makes the schema of a new database, and migrates an older one: an ordered list, never edited once released.

The statements are what SQLite and PostgreSQL have in common; one that only one of them knows is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, inspect, select

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.schema import insert_into, meta, metadata

_LOCK_KEY = 0x636F6465


@dataclass(frozen=True)
class Statement:
    sql: str
    engine: str | None = None
    """The only engine it is for; None for both."""


@dataclass(frozen=True)
class Migration:
    version: int
    name: str
    statements: Sequence[Statement]


_REFUSAL = "events are append-only"
_FOLLOWS = "NEW.seq <> COALESCE((SELECT max(seq) FROM events WHERE run_id = NEW.run_id), 0) + 1"
_REMOVED = "EXISTS (SELECT 1 FROM removals WHERE run_id = OLD.run_id)"
_REFUSE_DELETE = [
    Statement(
        f"CREATE TRIGGER events_no_delete BEFORE DELETE ON events WHEN NOT {_REMOVED} "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END",
        "sqlite",
    ),
    Statement(
        "CREATE OR REPLACE FUNCTION refuse_event_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN IF TG_OP = 'DELETE' THEN IF {_REMOVED} THEN RETURN OLD; END IF; END IF; "
        f"RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END $$",
        "postgresql",
    ),
]
_APPEND_ONLY = [
    *_REFUSE_DELETE,
    Statement(
        f"CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END",
        "sqlite",
    ),
    Statement(
        f"CREATE TRIGGER events_no_gap BEFORE INSERT ON events WHEN {_FOLLOWS} "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL} and gapless'); END",
        "sqlite",
    ),
    Statement(
        "CREATE TRIGGER events_no_change BEFORE UPDATE OR DELETE ON events "
        "FOR EACH ROW EXECUTE FUNCTION refuse_event_change()",
        "postgresql",
    ),
    Statement(
        "CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_event_change()",
        "postgresql",
    ),
    Statement(
        f"CREATE FUNCTION refuse_event_gap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {_FOLLOWS} THEN "
        f"RAISE EXCEPTION '{_REFUSAL} and gapless' USING ERRCODE = 'integrity_constraint_violation'; "
        "END IF; RETURN NEW; END $$",
        "postgresql",
    ),
    Statement(
        "CREATE TRIGGER events_no_gap BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse_event_gap()",
        "postgresql",
    ),
]


FIRST_VERSION = 1
REMOVALS = Migration(
    2,
    "removals",
    [
        Statement("CREATE TABLE removals (run_id TEXT NOT NULL PRIMARY KEY, at BIGINT NOT NULL)"),
        Statement("ALTER TABLE leases ADD COLUMN takes_queued BOOLEAN NOT NULL DEFAULT FALSE"),
        Statement("CREATE INDEX artifacts_by_hash ON artifacts (sha256)"),
        Statement("DROP TRIGGER events_no_delete", "sqlite"),
        *_REFUSE_DELETE,
    ],
)
SERVICE = Migration(
    3,
    "service",
    [
        Statement(
            "CREATE TABLE credentials (credential_id TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL,"
            " scope TEXT NOT NULL, digest TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,"
            " ended_at BIGINT)"
        ),
        Statement("CREATE INDEX runs_by_task ON runs (task_id)"),
        Statement("CREATE INDEX runs_by_change ON runs (updated_at)"),
    ],
)
CHILDREN = Migration(
    4,
    "children",
    [
        Statement("ALTER TABLE runs ADD COLUMN parent_run_id TEXT"),
        Statement("CREATE INDEX runs_of_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL"),
    ],
)
QUIRKS = Migration(
    5,
    "quirks",
    [
        Statement(
            "CREATE TABLE quirks (quirk_id TEXT NOT NULL PRIMARY KEY, at BIGINT NOT NULL, repo TEXT NOT NULL,"
            ' text TEXT NOT NULL, "by" TEXT NOT NULL)'
        ),
        Statement("CREATE INDEX events_recalled ON events (at) WHERE type = 'memory_recalled'"),
    ],
)
LOCKS = Migration(
    6,
    "locks",
    [
        Statement(
            "CREATE TABLE locks (repo TEXT NOT NULL, name TEXT NOT NULL, run_id TEXT NOT NULL, fence BIGINT NOT NULL,"
            " taken_at BIGINT NOT NULL, PRIMARY KEY (repo, name))"
        ),
    ],
)
MIGRATIONS: Sequence[Migration] = (REMOVALS, SERVICE, CHILDREN, QUIRKS, LOCKS)
"""The migrations from earlier versions."""


def newest(migrations: Sequence[Migration] = MIGRATIONS) -> int:
    return migrations[-1].version if migrations else FIRST_VERSION


def schema_version(connection: Connection) -> int:
    """The version a database has; 0 when it is empty."""
    if not inspect(connection).has_table(meta.name):
        return 0
    found = connection.scalar(select(meta.c.value).where(meta.c.key == "schema_version"))
    return int(found) if found is not None else 0


def refuse_newer(version: int, place: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """A database that a newer CodePilot has migrated is not touched."""
    known = newest(migrations)
    if version > known:
        raise CodePilotError(
            FailureKind.STORE_UNAVAILABLE,
            f"The database {place} has schema version {version}; this CodePilot knows versions up to {known}.",
            next_action="Upgrade CodePilot, or use another CODEPILOT_HOME.",
            database=place,
            version=version,
            known=known,
        )


def migrate(connection: Connection, place: str, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """Bring the database of this write transaction up to the newest version; return that version."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")
    version = schema_version(connection)
    refuse_newer(version, place, migrations)
    if version == 0:
        metadata.create_all(connection, checkfirst=False)
        _execute(connection, _APPEND_ONLY)
    for migration in migrations if version else ():
        if migration.version > version:
            _execute(connection, migration.statements)
    value = {"value": str(newest(migrations))}
    stored = insert_into(connection, meta).values(key="schema_version", **value)
    connection.execute(stored.on_conflict_do_update(index_elements=["key"], set_=value))
    return newest(migrations)


def _execute(connection: Connection, statements: Sequence[Statement]) -> None:
    for statement in statements:
        if statement.engine in (None, connection.dialect.name):
            connection.exec_driver_sql(statement.sql)
