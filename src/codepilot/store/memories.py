"""What runs and people recorded for later runs, and which runs were shown it.

Memories of runs follow from their events. Quirks that a person adds are rows of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, Select, case, func, select

from codepilot.core.events import EventType
from codepilot.core.memory import Memory, MemoryKind, MemoryRecalled, MemoryUse, QuirkMemory
from codepilot.store.database import Database
from codepilot.store.rows import MemoryRow, plain_text
from codepilot.store.schema import events, memories, quirks, runs

NEWEST_MEMORIES = 200
TIMEOUT_SEC = 5.0
MOST_WORDS = 12
"""How many words of a text are searched for: the longest, which say the most."""
MOST_USES = 5_000
_WORD = re.compile(r"[^\W_]{3,}")
_memory: TypeAdapter[Memory] = TypeAdapter(Memory)


class Memories:
    def __init__(self, database: Database, clock: Callable[[], int], *, shared: bool) -> None:
        self._database = database
        self._clock = clock
        self._shared = shared

    def rows(
        self,
        kind: MemoryKind | None = None,
        *,
        repo: str | None = None,
        language: str | None = None,
        text: str = "",
        limit: int = NEWEST_MEMORIES,
        timeout_sec: float = TIMEOUT_SEC,
    ) -> list[MemoryRow]:
        """What was recorded for others to learn from: what shares most words with `text`, then the newest.

        A run can do without it, so a server that takes longer than the timeout is not waited for.
        """
        wanted = select(memories).where(memories.c.kind == kind if kind else memories.c.kind != FORGOTTEN)
        if repo is not None:
            wanted = wanted.where(memories.c.repo == repo)
        if language is not None:
            wanted = wanted.where(memories.c.language == language)
        newest = memories.c.at.desc(), memories.c.run_id.desc(), memories.c.seq.desc()
        ordered = wanted.order_by(*_hits(words_of(text)), *newest).limit(limit)

        def ask(connection: Connection) -> list[MemoryRow]:
            if self._shared:
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(timeout_sec * 1000))}")
            found = [row for stored in connection.execute(ordered).all() for row in _read(stored._mapping)]
            if kind not in (None, "quirk"):
                return found
            return [*_added(connection, repo, limit), *found]

        return self._database.reading(ask)

    def add(self, quirk_id: str, repo: str, text: str, by: str) -> MemoryRow:
        """Keep a quirk that a person knows."""
        memory = QuirkMemory(text=plain_text(text), by=plain_text(by))

        def change(connection: Connection) -> int:
            now = self._database.now(connection, self._clock)
            connection.execute(quirks.insert().values(quirk_id=quirk_id, at=now, repo=repo, text=memory.text, by=by))
            return now

        return MemoryRow(quirk_id, 1, self._database.writing(change), repo, "", memory)

    def remove(self, quirk_id: str) -> bool:
        """Remove a quirk that a person added."""
        gone = quirks.delete().where(quirks.c.quirk_id == quirk_id)
        return bool(self._database.writing(lambda db: db.execute(gone).rowcount))

    def uses(self) -> dict[tuple[str, int], tuple[MemoryUse, ...]]:
        """The runs that were shown a memory, by the memory's run and number, the newest first."""
        wanted = (
            select(events.c.run_id, events.c.data, events.c.at, runs.c.state, runs.c.verdict, runs.c.iterations)
            .join(runs, runs.c.run_id == events.c.run_id)
            .where(events.c.type == EventType.MEMORY_RECALLED.value)
            .order_by(events.c.at.desc())
            .limit(MOST_USES)
        )
        found: dict[tuple[str, int], dict[str, MemoryUse]] = {}
        for row in self._database.reading(lambda db: db.execute(wanted).all()):
            use = MemoryUse(
                run_id=row.run_id, state=row.state, verdict=row.verdict, iterations=row.iterations, at=row.at
            )
            for one in _recalled(row.data):
                found.setdefault(one, {}).setdefault(row.run_id, use)
        return {key: tuple(used.values()) for key, used in found.items()}


FORGOTTEN = "forgotten"
"""The kind of a row whose memory a person removed."""


def words_of(text: str) -> tuple[str, ...]:
    """The longest words of a text, in lower case."""
    words = dict.fromkeys(word.lower() for word in _WORD.findall(text[:4_000]))
    return tuple(sorted(words, key=lambda word: (-len(word), word))[:MOST_WORDS])


def _hits(words: Sequence[str]) -> list[Any]:
    """An order by the number of words that occur in the memory."""
    text = func.lower(memories.c.memory)
    found = [case((text.contains(word, autoescape=True), 1), else_=0) for word in words]
    return [sum(found[1:], found[0]).desc()] if found else []


def _added(connection: Connection, repo: str | None, limit: int) -> Iterator[MemoryRow]:
    wanted: Select[Any] = select(quirks).order_by(quirks.c.at.desc(), quirks.c.quirk_id).limit(limit)
    if repo is not None:
        wanted = wanted.where(quirks.c.repo == repo)
    for row in connection.execute(wanted).all():
        yield MemoryRow(row.quirk_id, 1, row.at, row.repo, "", QuirkMemory(text=row.text, by=row.by))


def _recalled(data: str) -> Iterable[tuple[str, int]]:
    with suppress(ValueError):
        return [(one.run_id, one.seq) for one in MemoryRecalled.model_validate_json(data).found]
    return []


def _read(row: Mapping[Any, Any]) -> Iterator[MemoryRow]:
    """Empty for one that is damaged or another version's."""
    with suppress(ValueError):
        memory = _memory.validate_json(row["memory"])
        yield MemoryRow(row["run_id"], row["seq"], row["at"], row["repo"], row["language"], memory)
