"""What a workspace holds beyond what it was made with, shared by all that runs in it: its disk limit is one for all."""

from __future__ import annotations

import math
import threading


class Held:
    """An estimate that only grows until somebody looks. Files changed after `since` are what counts.

    `known` says that there are none yet. Not every sign is this workspace's doing: free space goes for others' sake as
    well. `written` counts its own processes alone, for places that cannot be looked into.
    """

    def __init__(self, since: float, known: bool = True) -> None:
        self.since = since
        self._lock = threading.Lock()
        self._bytes = self._entries = 0.0 if known else math.inf
        self._written = 0
        self.total = 0
        """All that was ever written, as far as it was noted."""

    @property
    def written(self) -> int:
        return self._written

    def grow(self, size: int, entries: int, written: int) -> None:
        with self._lock:
            self._bytes += max(0, size)
            self._entries += max(0, entries)
            self._written += max(0, written)
            self.total += max(0, written)

    def over(self, size: int, entries: int) -> bool:
        """Whether it may be more than this."""
        return self._bytes > size or self._entries > entries

    def looked(self, size: int, entries: int, hidden: bool) -> None:
        """So much was found; if something was hidden, what was written is not forgotten."""
        with self._lock:
            self._written = max(size, self._written) if hidden else size
            self._bytes, self._entries = self._written, entries

    def forget(self) -> None:
        """Whoever comes next must look: what grew too much is being ended, and may still grow."""
        with self._lock:
            self._bytes = self._entries = math.inf
