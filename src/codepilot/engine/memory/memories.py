"""What is remembered for later runs, as people list, add to and remove from it."""

from __future__ import annotations

import socket
from pathlib import Path

from codepilot.core.contract import Contract
from codepilot.core.events import EventDraft, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import MAX_LINE, Memory, MemoryForgotten, MemoryKind, MemoryUse, success_rate
from codepilot.core.run import Run
from codepilot.engine.base import repo_id
from codepilot.engine.runtime import Runtime
from codepilot.store import MemoryRow, new_id
from codepilot.telemetry import rfc3339
from codepilot.workspace import find_root, first_commit

MOST_LISTED = 1_000
_QUIRK = "m-"


class Remembered(Contract):
    """A memory, with the runs that were shown it."""

    id: str
    at: str
    repo: str
    language: str
    memory: Memory
    uses: tuple[MemoryUse, ...] = ()

    @property
    def used(self) -> int:
        return len(self.uses)

    @property
    def success_rate(self) -> float | None:
        """The share of the runs that were shown it and succeeded."""
        return success_rate(self.uses)


def remembered(
    runtime: Runtime, repo: Path | None, kind: MemoryKind | None = None, text: str = "", limit: int = MOST_LISTED
) -> list[Remembered]:
    """The memories of a checkout's repository, or of all: those that share words with `text` first, then the newest."""
    lineage = None if repo is None else lineage_of(repo)
    rows = runtime.store.memories(kind, repo=lineage, text=text, limit=limit)
    uses = runtime.store.memory.uses()
    return [_remembered(row, uses) for row in rows]


def find_memory(runtime: Runtime, memory_id: str) -> Remembered:
    """The memory with this id, or with the only id that begins so."""
    rows = runtime.store.memories(limit=100_000)
    found = [row for row in rows if row.memory_id == memory_id]
    found = found or [row for row in rows if row.memory_id.startswith(memory_id)]
    if len(found) != 1:
        problem = f"{len(found)} memories begin with {memory_id!r}." if found else f"There is no memory {memory_id!r}."
        raise CodePilotError(
            FailureKind.INVALID_SPEC, problem, next_action="See `codepilot memory list --all` for the ids."
        )
    return _remembered(found[0], runtime.store.memory.uses())


def add_quirk(runtime: Runtime, repo: Path, text: str, by: str) -> Remembered:
    """Store a person's note about a repository as a quirk. The same text is stored once."""
    clean = runtime.redact(" ".join(text.split()))
    if not 1 <= len(clean) <= MAX_LINE:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"A quirk has 1 to {MAX_LINE} characters; this one has {len(clean)}.",
            next_action="Say one thing in a short sentence: codepilot memory add 'tests need TZ=UTC'",
        )
    lineage = lineage_of(repo)
    for row in runtime.store.memories("quirk", repo=lineage):
        if row.memory.kind == "quirk" and row.memory.text.casefold() == clean.casefold():
            return _remembered(row, runtime.store.memory.uses())
    return _remembered(runtime.store.memory.add(new_id(_QUIRK), lineage, clean, by), {})


def forget(runtime: Runtime, memory_id: str, by: str) -> Remembered:
    """Remove a memory. What a run recorded is emptied, and the run's log says who did so."""
    found = find_memory(runtime, memory_id)
    run_id, _, number = found.id.partition(":")
    if not number:
        runtime.store.memory.remove(run_id)
        return found
    forgotten = MemoryForgotten(of=int(number), by=by)

    def drop(run: Run) -> list[EventDraft]:
        draft = EventDraft(type=EventType.MEMORY_FORGOTTEN, data=forgotten, step_id=run.step_id, attempt=run.attempt)
        return [draft]

    runtime.store.control(run_id, drop)
    return found


def lineage_of(repo: Path) -> str:
    """The repository under which a checkout's memories are kept: its first commit, else its place on this machine."""
    if not repo.exists():
        raise CodePilotError(FailureKind.INVALID_SPEC, f"There is no directory {repo}.", next_action="Name a checkout.")
    root = find_root(repo)
    return first_commit(root, "HEAD") or f"{repo_id(str(root))}@{socket.gethostname()}"


def _remembered(row: MemoryRow, uses: dict[tuple[str, int], tuple[MemoryUse, ...]]) -> Remembered:
    return Remembered(
        id=row.memory_id,
        at=rfc3339(row.at),
        repo=row.repo,
        language=row.language,
        memory=row.memory,
        uses=uses.get((row.run_id, row.seq), ()),
    )
