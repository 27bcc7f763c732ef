"""How much memory a search takes at its highest: this process and everything it started, sandbox included."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

from codepilot.sandbox.limits import usage

EVERY_SEC = 0.25
_NO_LIMIT = 1 << 60


class PeakMemory:
    """Samples while it is open. Pages shared between processes count once a process, so it never says too little."""

    def __init__(self) -> None:
        self.peak_mib = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(EVERY_SEC):
            self.peak_mib = max(self.peak_mib, round(family_mib(), 1))


def family_mib() -> float:
    """Resident memory of this process and its descendants, those in sandboxes included."""
    own = int(Path("/proc/self/statm").read_text().split()[1]) * usage.PAGE
    return (own + usage.measure(os.getpid(), _NO_LIMIT, _NO_LIMIT).memory_bytes) / (1 << 20)
