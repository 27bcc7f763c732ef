"""The part of the façade that is about memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from codepilot.engine.facade.base import FacadeBase

if TYPE_CHECKING:
    from codepilot.core.memory import MemoryKind
    from codepilot.engine.memory.memories import Remembered


class Remembers(FacadeBase):
    def memories(
        self, repo: str | None = ".", *, kind: MemoryKind | None = None, text: str = "", limit: int = 1_000
    ) -> list[Remembered]:
        """The memories of a checkout's repository, or without one of all: by words of `text`, then the newest first."""
        from codepilot.engine.memory.memories import remembered

        return remembered(self._runtime, None if repo is None else Path(repo).resolve(), kind, text, limit)

    def memory_of(self, memory_id: str) -> Remembered:
        """One memory by its id or the beginning of it."""
        from codepilot.engine.memory.memories import find_memory

        return find_memory(self._runtime, memory_id)

    def remember(self, text: str, repo: str = ".", *, by: str = "user") -> Remembered:
        """Add what is peculiar about a repository; every later run on it is shown that."""
        from codepilot.engine.memory.memories import add_quirk

        return add_quirk(self._runtime, Path(repo).resolve(), text, by)

    def forget(self, memory_id: str, *, by: str = "user") -> Remembered:
        """Remove a memory."""
        from codepilot.engine.memory.memories import forget

        return forget(self._runtime, memory_id, by)
