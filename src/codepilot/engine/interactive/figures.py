"""Prometheus metrics of interactive sessions."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from codepilot.telemetry import METRICS

FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)

CHECKPOINT_SECONDS = METRICS.histogram(
    "codepilot_checkpoint_duration_seconds", "Time to make a checkpoint.", ["trigger"], FAST
)
FROZEN_SECONDS = METRICS.histogram(
    "codepilot_agent_frozen_seconds", "Time that an agent stood still for a checkpoint or a rollback.", buckets=FAST
)
VALIDATION_SECONDS = METRICS.histogram(
    "codepilot_validation_duration_seconds", "Time to validate the change of a checkpoint.", buckets=FAST
)
WATCH_SECONDS = METRICS.histogram(
    "codepilot_watch_duration_seconds", "Time to find what changed in an agent's tree.", buckets=FAST
)
CHECKPOINTS = METRICS.counter("codepilot_checkpoint_total", "Checkpoints by what became of them.", ["status"])
VALIDATED = METRICS.counter(
    "codepilot_validation_files_total", "Changed files that were validated, by whether a result was known.", ["cache"]
)
PAUSES = METRICS.counter("codepilot_agent_pause_total", "Attempts to freeze an agent.", ["status"])
SESSIONS = METRICS.gauge("codepilot_interactive_sessions", "Interactive agents at work in this process.")
DISK_BYTES = METRICS.gauge("codepilot_interactive_disk_bytes", "Bytes that a run's change holds.", ["run_id"])
PENDING_CHANGES = METRICS.gauge(
    "codepilot_watch_pending_changes", "Changed files that no checkpoint has taken yet.", ["run_id"]
)
SESSION_MEMORY = METRICS.gauge(
    "codepilot_interactive_session_memory_bytes",
    "What this process grew by since it had no interactive session, shared among those that it has.",
)


class _Memory:
    """The sessions of this process, and what it held before the first of them began."""

    def __init__(self) -> None:
        self._sessions = 0
        self._before = 0
        self._lock = threading.Lock()

    def begin(self) -> None:
        with self._lock:
            if self._sessions == 0:
                self._before = _resident()
            self._sessions += 1
            SESSIONS.set(self._sessions)

    def end(self) -> None:
        with self._lock:
            self._sessions -= 1
            SESSIONS.set(self._sessions)
            SESSION_MEMORY.set(0 if not self._sessions else self._share())

    def look(self) -> None:
        if METRICS.enabled:
            with self._lock:
                SESSION_MEMORY.set(self._share())

    def _share(self) -> float:
        return max(0, _resident() - self._before) / max(1, self._sessions)


def _resident() -> int:
    """Bytes of memory that this process holds; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


MEMORY = _Memory()
