"""The tables and their indexes. A new database gets them as they are here, an older one by `migrations`.

`runs` is the small row that lists and polls read and every event touches; the whole `Run` is in `views`, which is
written less often. A view's `schema_digest` tells whether another version of CodePilot wrote it.
Times are microseconds, JSON is canonical text.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("task_id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("verdict", Text),
    Column("failure_kind", Text),
    Column("goal", Text, nullable=False),
    Column("repo", Text, nullable=False),
    Column("iterations", Integer, nullable=False),
    Column("pause_requested", Boolean, nullable=False),
    Column("cancel_requested", Boolean, nullable=False),
    Column("parked_until", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("parent_run_id", Text),
)

views = Table(
    "views",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("schema_digest", Text, nullable=False),
    Column("view", Text, nullable=False),
)

steps = Table(
    "steps",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("step_id", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("state", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("worker", Text),
    Column("queued_seq", BigInteger, nullable=False),
    Column("queued_at", BigInteger, nullable=False),
    Column("claimed_at", BigInteger),
    Column("ended_at", BigInteger),
)

events = Table(
    "events",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("step_id", Text),
    Column("attempt", Integer, nullable=False),
    Column("data", Text, nullable=False),
    Column("artifacts", Text, nullable=False),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("type", Text, primary_key=True),
    Column("sha256", Text, primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("worker", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("beat_at", BigInteger, nullable=False),
    Column("stale_us", BigInteger, nullable=False),
    Column("takes_queued", Boolean, nullable=False, server_default=text("FALSE")),
    postgresql_with={"fillfactor": 50},
)

removals = Table(
    "removals",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
)
"""The runs that were removed. The log of every other one is append-only."""

approvals = Table(
    "approvals",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("approval_id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("operation", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("risk", Text, nullable=False),
    Column("decision", Text),
    Column("decided_by", Text),
    Column("requested_at", BigInteger, nullable=False),
    Column("decided_at", BigInteger),
)

memories = Table(
    "memories",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("repo", Text, nullable=False),
    Column("language", Text, nullable=False),
    Column("memory", Text, nullable=False),
)

quirks = Table(
    "quirks",
    metadata,
    Column("quirk_id", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("repo", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("by", Text, nullable=False),
)
"""What people know of repositories."""

locks = Table(
    "locks",
    metadata,
    Column("repo", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("taken_at", BigInteger, nullable=False),
)
"""Contract locks that runs hold."""

notifications = Table(
    "notifications",
    metadata,
    Column("run_id", Text, ForeignKey("runs.run_id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("settled_at", BigInteger),
    Column("settled_by", Text),
    Column("tries", Integer, nullable=False),
    Column("not_before", BigInteger),
)

credentials = Table(
    "credentials",
    metadata,
    Column("credential_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scope", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
)


def _partial(name: str, *columns: Any, where: str, unique: bool = False) -> None:
    """An index of only some rows."""
    Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


Index("runs_by_age", runs.c.created_at)
Index("runs_by_task", runs.c.task_id)
Index("runs_by_change", runs.c.updated_at)
_partial("runs_parked", runs.c.parked_until, where="parked_until IS NOT NULL")
_partial("runs_of_parent", runs.c.parent_run_id, where="parent_run_id IS NOT NULL")
_partial("steps_pending", steps.c.priority.desc(), steps.c.queued_at, where="status = 'PENDING'")
_partial("steps_running", steps.c.worker, where="status = 'RUNNING'")
_partial("steps_one_open", steps.c.run_id, where="status IN ('PENDING', 'RUNNING')", unique=True)
_partial("approvals_waiting", approvals.c.requested_at, where="decision IS NULL")
Index("artifacts_by_hash", artifacts.c.sha256)
Index("memories_of_repo", memories.c.kind, memories.c.repo, memories.c.at)
Index("memories_of_language", memories.c.kind, memories.c.language, memories.c.at)
_partial("events_recalled", events.c.at, where="type = 'memory_recalled'")
_partial("notifications_pending", notifications.c.at, where="state = 'pending'")


INSERTS: dict[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
"""Each engine has its own insert with `ON CONFLICT`."""


def insert_into(connection: Connection, table: Table) -> Any:
    return INSERTS[connection.dialect.name](table)
