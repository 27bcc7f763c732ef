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
    "runs, steps, events",
    [
        Statement("CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)"),
        Statement(
            "CREATE TABLE tasks (task_id TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, goal TEXT NOT NULL, "
            "repo TEXT NOT NULL, ref TEXT, spec TEXT NOT NULL, created_at BIGINT NOT NULL)"
        ),
        Statement(
            "CREATE TABLE runs (run_id TEXT NOT NULL PRIMARY KEY, task_id TEXT NOT NULL REFERENCES tasks(task_id), "
            "state TEXT NOT NULL, verdict TEXT, failure_kind TEXT, goal TEXT NOT NULL, repo TEXT NOT NULL, "
            "iterations INTEGER NOT NULL, pause_requested BOOLEAN NOT NULL, cancel_requested BOOLEAN NOT NULL, "
            "created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, last_seq BIGINT NOT NULL)"
        ),
        Statement("CREATE INDEX runs_by_age ON runs (created_at)"),
        Statement(
            "CREATE TABLE views (run_id TEXT NOT NULL PRIMARY KEY REFERENCES runs(run_id), seq BIGINT NOT NULL, "
            "shape TEXT NOT NULL, view TEXT NOT NULL)"
        ),
        Statement(
            "CREATE TABLE steps (run_id TEXT NOT NULL REFERENCES runs(run_id), step_id TEXT NOT NULL, "
            "attempt INTEGER NOT NULL, state TEXT NOT NULL, status TEXT NOT NULL, fence INTEGER NOT NULL, worker TEXT, "
            "queued_seq BIGINT NOT NULL, queued_at BIGINT NOT NULL, claimed_at BIGINT, ended_at BIGINT, "
            "PRIMARY KEY (run_id, step_id, attempt))"
        ),
        Statement("CREATE INDEX steps_pending ON steps (queued_at) WHERE status = 'PENDING'"),
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
            "CREATE TABLE leases (worker TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, "
            "started_at BIGINT NOT NULL, beat_at BIGINT NOT NULL)"
        ),
        Statement("ALTER TABLE leases SET (fillfactor = 50)", "postgresql"),
    ],
)

SECOND = Migration(
    2,
    "priorities",
    [
        Statement("ALTER TABLE steps ADD COLUMN priority INTEGER NOT NULL DEFAULT 0"),
        Statement("DROP INDEX steps_pending"),
        Statement("CREATE INDEX steps_pending ON steps (priority DESC, queued_at) WHERE status = 'PENDING'"),
    ],
)

_STARTS_OR_ENDS = (
    "'step_started', 'step_succeeded', 'step_failed', 'step_skipped', 'run_paused', 'run_blocked', 'run_finished'"
)


def _last(field: str, of: str) -> str:
    """The field of the run's last event of these types, if it has it."""
    return f"(SELECT {field} FROM events e WHERE e.run_id = r.run_id AND e.type IN ({of}) ORDER BY seq DESC LIMIT 1)"


def _workspaces_so_far(read: str) -> str:
    """What the logs that exist say of workspaces; `read` takes a field out of an event's data."""
    return (
        "INSERT INTO workspaces (run_id, workspace, base_commit, snapshot, held_by) SELECT r.run_id, "
        + ", ".join(
            [
                _last(read.format("workspace"), "'workspace_created'"),
                _last(read.format("commit"), "'base_pinned'"),
                _last(read.format("snapshot"), "'snapshot_taken'"),
                _last(f"CASE WHEN type = 'step_started' THEN {read.format('worker')} END", _STARTS_OR_ENDS),
            ]
        )
        + " FROM runs r"
    )


THIRD = Migration(
    3,
    "workspaces, approvals, locks",
    [
        Statement(
            "CREATE TABLE workspaces (run_id TEXT NOT NULL PRIMARY KEY REFERENCES runs(run_id), workspace TEXT, "
            "base_commit TEXT, snapshot TEXT, held_by TEXT)"
        ),
        Statement("ALTER TABLE workspaces SET (fillfactor = 70)", "postgresql"),
        Statement(_workspaces_so_far("json_extract(data, '$.{}')"), "sqlite"),
        Statement(_workspaces_so_far("data::json ->> '{}'"), "postgresql"),
        Statement(
            "CREATE TABLE approvals (run_id TEXT NOT NULL REFERENCES runs(run_id), approval_id TEXT NOT NULL, "
            "seq BIGINT NOT NULL, operation TEXT NOT NULL, details TEXT NOT NULL, risk TEXT NOT NULL, decision TEXT, "
            "decided_by TEXT, requested_at BIGINT NOT NULL, decided_at BIGINT, PRIMARY KEY (run_id, approval_id))"
        ),
        Statement("CREATE INDEX approvals_waiting ON approvals (requested_at) WHERE decision IS NULL"),
        Statement(
            "CREATE TABLE locks (name TEXT NOT NULL PRIMARY KEY, holder TEXT, token BIGINT NOT NULL, "
            "expires_at BIGINT NOT NULL)"
        ),
    ],
)

FOURTH = Migration(
    4,
    "runs that go on by themselves",
    [
        Statement("ALTER TABLE runs ADD COLUMN parked_until BIGINT"),
        Statement("CREATE INDEX runs_parked ON runs (parked_until) WHERE parked_until IS NOT NULL"),
    ],
)

FIFTH = Migration(
    5,
    "memories",
    [
        Statement(
            "CREATE TABLE memories (run_id TEXT NOT NULL REFERENCES runs(run_id), seq BIGINT NOT NULL, "
            "at BIGINT NOT NULL, kind TEXT NOT NULL, repo TEXT NOT NULL, language TEXT NOT NULL, memory TEXT NOT NULL, "
            "PRIMARY KEY (run_id, seq))"
        ),
        Statement("CREATE INDEX memories_of_repo ON memories (kind, repo, at)"),
        Statement("CREATE INDEX memories_of_language ON memories (kind, language, at)"),
    ],
)

SIXTH = Migration(
    6,
    "notifications",
    [
        Statement(
            "CREATE TABLE notifications (run_id TEXT NOT NULL REFERENCES runs(run_id), seq BIGINT NOT NULL, "
            "at BIGINT NOT NULL, state TEXT NOT NULL, settled_at BIGINT, settled_by TEXT, PRIMARY KEY (run_id, seq))"
        ),
        Statement("CREATE INDEX notifications_owed ON notifications (at) WHERE state = 'pending'"),
    ],
)

SEVENTH = Migration(
    7,
    "tries at notifications",
    [
        Statement("ALTER TABLE notifications ADD COLUMN tries INTEGER NOT NULL DEFAULT 0"),
        Statement("ALTER TABLE notifications ADD COLUMN not_before BIGINT"),
    ],
)

EIGHTH = Migration(
    8,
    "how long a lease lasts",
    [Statement("ALTER TABLE leases ADD COLUMN stale_us BIGINT NOT NULL DEFAULT 90000000")],
)

MIGRATIONS: Sequence[Migration] = (FIRST, SECOND, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, EIGHTH)


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
