"""Reads what runs recorded for others to learn from. A run can do without it, so nobody waits for it for long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, select

from codepilot.core.memory import Memory, MemoryKind
from codepilot.store.rows import MemoryRow
from codepilot.store.schema import memories

NEWEST = 200
PATIENCE_SEC = 5.0

_memory: TypeAdapter[Memory] = TypeAdapter(Memory)


def newest_memories(
    connection: Connection, kind: MemoryKind, repo: str | None, language: str | None, limit: int, patience_sec: float
) -> list[MemoryRow]:
    """Within a transaction of its own."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(patience_sec * 1000))}")
    wanted = select(memories).where(memories.c.kind == kind)
    if repo is not None:
        wanted = wanted.where(memories.c.repo == repo)
    if language is not None:
        wanted = wanted.where(memories.c.language == language)
    newest = wanted.order_by(memories.c.at.desc(), memories.c.run_id.desc(), memories.c.seq.desc()).limit(limit)
    return [row for found in connection.execute(newest) for row in _read(found._mapping)]


def _read(row: Mapping[Any, Any]) -> Iterator[MemoryRow]:
    """One that cannot be read, because it is damaged or another version's, is none that anyone could use."""
    with suppress(ValueError):
        memory = _memory.validate_json(row["memory"])
        yield MemoryRow(row["run_id"], row["seq"], row["at"], row["repo"], row["language"], memory)
