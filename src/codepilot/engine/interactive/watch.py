"""Watches an agent's tree by walking it: what changed, when, and which checkpoint took it.

The walk compares statuses and contents, and its cost follows what changed. The system's change notifications are not
used: what is there to receive them follows links that an agent makes. The agent's word only makes a walk come sooner.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from codepilot.core.checkpoint import ESCAPES
from codepilot.engine.interactive.figures import PENDING_CHANGES, WATCH_SECONDS
from codepilot.executor import Executor, FileChange, SnapshotInfo, Violation
from codepilot.telemetry import now_us, rfc3339

STABLE_SEC = 0.1
"""How long a tree must stay as it is to count as written."""
LONGEST_SETTLING_SEC = 1.0
SHARE = 0.02
"""The share of its time that watching may take: a tree that is slow to walk is walked less often."""
MOST_CHANGES = 50_000
"""Changes between two checkpoints beyond this number are only counted."""
_TYPES = {"added": "add", "modified": "change", "mode": "change", "deleted": "unlink"}


@dataclass(frozen=True)
class Seen:
    """The tree at one look, and what may not be in it."""

    taken: SnapshotInfo
    escapes: tuple[Violation, ...] = ()
    """Entries that leave or corrupt the tree and were not there at the look before."""


class Watch:
    """The changes of one workspace since its last checkpoint. Safe to use from any thread."""

    def __init__(self, executor: Executor, workspace: str, run_id: str, tree: str) -> None:
        self._executor = executor
        self._workspace = workspace
        self._run_id = run_id
        self._tree = tree
        self._changes: list[dict[str, object]] = []
        self._paths: set[str] = set()
        self._left_out = 0
        self._reported: set[tuple[str, str]] = set()
        self._cost_sec = 0.0
        self._lock = threading.RLock()

    @property
    def changed(self) -> int:
        """How many paths changed since the last checkpoint."""
        return len(self._paths)

    @property
    def pause_sec(self) -> float:
        """The shortest time to the next look by what the last ones cost."""
        return self._cost_sec / SHARE

    def look(self) -> Seen:
        """Walk the tree, and note what changed since the last look."""
        with self._lock:
            started = time.perf_counter()
            seen = self.saw(self._executor.snapshot(self._workspace))
            cost = time.perf_counter() - started
            self._cost_sec = cost if not self._cost_sec else 0.7 * self._cost_sec + 0.3 * cost
            WATCH_SECONDS.observe(cost)
            return seen

    def saw(self, taken: SnapshotInfo) -> Seen:
        """Note what a snapshot shows."""
        with self._lock:
            if taken.tree != self._tree:
                found = self._executor.compare(self._workspace, self._tree, taken.tree, patch=False)
                self._note(found.changes)
                self._tree = taken.tree
            return Seen(taken, self._new_escapes(taken.violations))

    def settle(self) -> str:
        """The tree once nothing was written for a tenth of a second, at the latest after a second."""
        until = time.monotonic() + LONGEST_SETTLING_SEC
        before = self.look().taken.tree
        while time.monotonic() < until:
            time.sleep(STABLE_SEC)
            now = self.look().taken.tree
            if now == before:
                break
            before = now
        return before

    def take(self, checkpoint_id: str) -> bytes:
        """The changes so far as lines of JSON, each with the checkpoint that took it; then the list is empty."""
        with self._lock:
            lines = [json.dumps({**one, "checkpoint_id": checkpoint_id}) for one in self._changes]
            if self._left_out:
                lines.append(json.dumps({"left_out": self._left_out, "checkpoint_id": checkpoint_id}))
            self._changes, self._paths, self._left_out = [], set(), 0
            PENDING_CHANGES.set(0, run_id=self._run_id)
            return "".join(f"{line}\n" for line in lines).encode()

    def put_back(self, tree: str) -> None:
        """The platform itself changed the tree: that is no change of the agent's."""
        with self._lock:
            self._tree = tree
            self._reported.clear()

    def close(self) -> None:
        PENDING_CHANGES.forget(run_id=self._run_id)

    def _note(self, changes: Sequence[FileChange]) -> None:
        at = rfc3339(now_us())
        for one in changes:
            self._paths.add(one.path)
            if len(self._changes) >= MOST_CHANGES:
                self._left_out += 1
                continue
            self._changes.append(
                {"timestamp": at, "event_type": _TYPES[one.change], "file_path": one.path, "file_size": one.size}
            )
        PENDING_CHANGES.set(len(self._paths), run_id=self._run_id)

    def _new_escapes(self, found: Sequence[Violation]) -> tuple[Violation, ...]:
        escapes = {(one.rule, one.path): one for one in found if one.rule in ESCAPES}
        new = tuple(one for key, one in escapes.items() if key not in self._reported)
        self._reported = set(escapes)
        return new
