"""The schema's history: an ordered list, applied under a lock, never edited once released.

The statements are what SQLite and PostgreSQL have in common; one that only one of them knows is marked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, insert, inspect, select, update

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.schema import meta

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
_APPEND_ONLY = [
    *(
        Statement(
            f"CREATE TRIGGER events_no_{verb.lower()} BEFORE {verb} ON events "
            f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END",
            "sqlite",
        )
        for verb in ("UPDATE", "DELETE")
    ),
    Statement(
        f"CREATE TRIGGER events_no_gap BEFORE INSERT ON events WHEN {_FOLLOWS} "
        f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL} and gapless'); END",
        "sqlite",
    ),
    Statement(
        "CREATE FUNCTION refuse_event_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{_REFUSAL}' USING ERRCODE = 'integrity_constraint_violation'; END $$",
        "postgresql",
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


FIRST = Migration(
    1,
    "first",
    [
        Statement("CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)"),
        Statement(
            "CREATE TABLE runs (run_id TEXT NOT NULL PRIMARY KEY, task_id TEXT NOT NULL, "
            "state TEXT NOT NULL, verdict TEXT, failure_kind TEXT, goal TEXT NOT NULL, repo TEXT NOT NULL, "
            "iterations INTEGER NOT NULL, pause_requested BOOLEAN NOT NULL, cancel_requested BOOLEAN NOT NULL, "
            "parked_until BIGINT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, last_seq BIGINT NOT NULL)"
        ),
        Statement("CREATE INDEX runs_by_age ON runs (created_at)"),
        Statement("CREATE INDEX runs_parked ON runs (parked_until) WHERE parked_until IS NOT NULL"),
        Statement(
            "CREATE TABLE views (run_id TEXT NOT NULL PRIMARY KEY REFERENCES runs(run_id), seq BIGINT NOT NULL, "
            "schema_digest TEXT NOT NULL, view TEXT NOT NULL)"
        ),
        Statement(
            "CREATE TABLE steps (run_id TEXT NOT NULL REFERENCES runs(run_id), step_id TEXT NOT NULL, "
            "attempt INTEGER NOT NULL, state TEXT NOT NULL, status TEXT NOT NULL, priority INTEGER NOT NULL, "
            "fence INTEGER NOT NULL, worker TEXT, queued_seq BIGINT NOT NULL, queued_at BIGINT NOT NULL, "
            "claimed_at BIGINT, ended_at BIGINT, PRIMARY KEY (run_id, step_id, attempt))"
        ),
        Statement("CREATE INDEX steps_pending ON steps (priority DESC, queued_at) WHERE status = 'PENDING'"),
        Statement("CREATE INDEX steps_running ON steps (worker) WHERE status = 'RUNNING'"),
        Statement("CREATE UNIQUE INDEX steps_one_open ON steps (run_id) WHERE status IN ('PENDING', 'RUNNING')"),
        Statement(
            "CREATE TABLE events (run_id TEXT NOT NULL REFERENCES runs(run_id), seq BIGINT NOT NULL, "
            "at BIGINT NOT NULL, type TEXT NOT NULL, step_id TEXT, attempt INTEGER NOT NULL, data TEXT NOT NULL, "
            "artifacts TEXT NOT NULL, PRIMARY KEY (run_id, seq))"
        ),
        *_APPEND_ONLY,
        Statement(
            "CREATE TABLE artifacts (run_id TEXT NOT NULL REFERENCES runs(run_id), seq BIGINT NOT NULL, "
            "type TEXT NOT NULL, sha256 TEXT NOT NULL, size_bytes BIGINT NOT NULL, "
            "PRIMARY KEY (run_id, seq, type, sha256))"
        ),
        Statement(
            "CREATE TABLE approvals (run_id TEXT NOT NULL REFERENCES runs(run_id), approval_id TEXT NOT NULL, "
            "seq BIGINT NOT NULL, operation TEXT NOT NULL, details TEXT NOT NULL, risk TEXT NOT NULL, decision TEXT, "
            "decided_by TEXT, requested_at BIGINT NOT NULL, decided_at BIGINT, PRIMARY KEY (run_id, approval_id))"
        ),
        Statement("CREATE INDEX approvals_waiting ON approvals (requested_at) WHERE decision IS NULL"),
        Statement(
            "CREATE TABLE memories (run_id TEXT NOT NULL REFERENCES runs(run_id), seq BIGINT NOT NULL, "
            "at BIGINT NOT NULL, kind TEXT NOT NULL, repo TEXT NOT NULL, language TEXT NOT NULL, memory TEXT NOT NULL, "
            "PRIMARY KEY (run_id, seq))"
        ),
        Statement("CREATE INDEX memories_of_repo ON memories (kind, repo, at)"),
        Statement("CREATE INDEX memories_of_language ON memories (kind, language, at)"),
        Statement(
            "CREATE TABLE notifications (run_id TEXT NOT NULL REFERENCES runs(run_id), seq BIGINT NOT NULL, "
            "at BIGINT NOT NULL, state TEXT NOT NULL, settled_at BIGINT, settled_by TEXT, tries INTEGER NOT NULL, "
            "not_before BIGINT, PRIMARY KEY (run_id, seq))"
        ),
        Statement("CREATE INDEX notifications_pending ON notifications (at) WHERE state = 'pending'"),
        Statement(
            "CREATE TABLE leases (worker TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, "
            "started_at BIGINT NOT NULL, beat_at BIGINT NOT NULL, stale_us BIGINT NOT NULL)"
        ),
        Statement("ALTER TABLE leases SET (fillfactor = 50)", "postgresql"),
    ],
)

MIGRATIONS: Sequence[Migration] = (FIRST,)


def schema_version(connection: Connection) -> int:
    """The version a database has; 0 when it is empty."""
    if not inspect(connection).has_table(meta.name):
        return 0
    found = connection.scalar(select(meta.c.value).where(meta.c.key == "schema_version"))
    return int(found) if found is not None else 0


def refuse_newer(version: int, place: str, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """A database that a newer CodePilot has migrated is not touched."""
    known = migrations[-1].version
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
    engine = connection.dialect.name
    if engine == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})")
    version = schema_version(connection)
    refuse_newer(version, place, migrations)
    for migration in migrations:
        if migration.version <= version:
            continue
        for statement in migration.statements:
            if statement.engine in (None, engine):
                connection.exec_driver_sql(statement.sql)
        _set_version(connection, migration.version)
    return migrations[-1].version


def _set_version(connection: Connection, version: int) -> None:
    changed = connection.execute(update(meta).where(meta.c.key == "schema_version").values(value=str(version)))
    if changed.rowcount == 0:
        connection.execute(insert(meta).values(key="schema_version", value=str(version)))
