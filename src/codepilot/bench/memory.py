"""How much memory a search takes at its highest: this process and everything it started, sandbox included."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType

EVERY_SEC = 0.25
_PAGE = os.sysconf("SC_PAGESIZE")


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
            self.peak_mib = max(self.peak_mib, round(family_mib(os.getpid()), 1))


def family_mib(root: int) -> float:
    """Resident memory of a process and its descendants; those in a sandbox are found by their parents."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                children[parent].append(int(entry.name))
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        total += _resident(process)
        waiting += children[process]
    return total * _PAGE / (1 << 20)


def _parent(entry: Path) -> int | None:
    try:
        return int((entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None  # It ended meanwhile.


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0  # It ended meanwhile.
