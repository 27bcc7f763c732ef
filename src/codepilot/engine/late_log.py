"""The log file of a run in hand. What happens in quick succession is written together, at most a moment late."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from codepilot.core.events import Event
from codepilot.engine.close import begin_log
from codepilot.engine.runtime import Runtime
from codepilot.store import ClaimedStep
from codepilot.telemetry import RunLog

MOMENT_SEC = 0.25


class LateLog:
    """Lines are held only while the run is ours, and someone calls `flush` now and then.

    A process that is killed loses those it holds, and no event with them: whoever opens the log next writes them.
    """

    def __init__(self, runtime: Runtime, start: ClaimedStep) -> None:
        self._runtime = runtime
        self._start = start
        self._log: RunLog | None = None
        self._held: list[Event] = []
        self._written = time.monotonic()
        self._guard = threading.Lock()

    def write(self, events: Sequence[Event]) -> None:
        with self._guard:
            self._held += events
            if time.monotonic() - self._written >= MOMENT_SEC:
                self._write()

    def flush(self) -> None:
        """Write what is held. May be called by any thread."""
        with self._guard:
            if self._held:
                self._write()

    def drop(self) -> None:
        """The run is another's: what is held is no longer ours to write."""
        with self._guard:
            self._held.clear()

    @property
    def last_seq(self) -> int:
        """The place of the last event that it has."""
        return self._log.last_seq if self._log is not None else 0

    def close(self) -> None:
        try:
            self.flush()
        finally:
            if self._log is not None:
                self._log.close()

    def _write(self) -> None:
        if self._log is None:
            self._log = begin_log(self._runtime, self._start.claim.run_id)
        self._log.write(self._held)
        self._held.clear()
        self._written = time.monotonic()
