"""Where an interactive agent works, and where the run's tree is meanwhile.

Strategy direct without a worktree: they are one directory. Otherwise the agent works in a shadow, and checkpoints are
promoted to the run's tree in one exchange: with strategy shadow the valid ones, else all of them. With `--worktree`
that tree lies where a person may edit it; the edits are put into the agent's files before the next promotion.
"""

from __future__ import annotations

import time
from pathlib import Path

from codepilot.core.artifacts import ArtifactType
from codepilot.core.checkpoint import MOST_LISTED, CheckpointMark, CheckpointRecorded, Promoted, UserEditsFound
from codepilot.core.events import EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.interactive import Strategy
from codepilot.engine.work import Work
from codepilot.executor import Executor, RunTreeInfo, SnapshotInfo

MOST_SHOWN = 8_000
"""How much of a person's edits the agent reads as a patch."""


class WorkingTree:
    """See the module. Its methods are called while nothing of the agent runs."""

    def __init__(self, work: Work, executor: Executor, strategy: Strategy) -> None:
        self._work = work
        self._executor = executor
        self._workspace = work.workspace
        self._place = work.run.task.worktree
        self.strategy = strategy
        self.shadowed = strategy == "shadow" or self._place is not None
        self._seen = ""
        """What the run's tree held when it was looked at last."""
        self._promoted = ""
        self._good = CheckpointMark(checkpoint_id="", snapshot="", tree="")

    @property
    def good(self) -> CheckpointMark:
        """What was promoted last, or the beginning: a discarded state goes back to it."""
        return self._good

    def open(self) -> SnapshotInfo:
        """Make the shadow, if the agent works in one; the files that it begins with."""
        if self.shadowed:
            found = self._executor.open_shadow(self._workspace, self._place)
            self._seen = self._promoted = found.promoted
        taken = self._executor.snapshot(self._workspace)
        if self._place is not None and self.strategy == "shadow":
            self._seen = taken.tree  # a worker that was killed may have promoted more, a person's edits among it
        self._good = CheckpointMark(checkpoint_id="", snapshot=taken.snapshot, tree=taken.tree)
        return taken

    def take_edits(self, agent_tree: str) -> tuple[UserEditsFound, str] | None:
        """Put a person's edits of the worktree into the agent's files; they win where both changed a path."""
        if self._place is None:
            return None
        now = self._executor.run_tree(self._workspace)
        if now.tree == self._seen:
            return None
        found = self._adopt(now.tree, now.snapshot, agent_tree)
        self._seen = now.tree
        return found

    def promote(self, one: CheckpointRecorded, agent_tree: str) -> tuple[UserEditsFound, str] | None:
        """Make the checkpoint the run's tree if it may be, and record that; edits that came in that moment."""
        if not self.shadowed or (self.strategy == "shadow" and one.status == "invalid"):
            return None
        mark = CheckpointMark(checkpoint_id=one.checkpoint_id, snapshot=one.snapshot, tree=one.tree)
        if one.snapshot == self._good.snapshot and one.tree == self._promoted == self._seen:
            self._good = mark
            return None
        started = time.perf_counter()
        done: RunTreeInfo = self._executor.promote(self._workspace, one.snapshot)
        self._good = mark
        self._work.record(
            EventType.PROMOTED,
            Promoted(
                checkpoint_id=one.checkpoint_id,
                tree=one.tree,
                duration_us=int((time.perf_counter() - started) * 1e6),
            ),
        )
        late = None
        if done.late_tree:
            late = self._adopt(done.late_tree, done.late_snapshot, agent_tree)
        self._seen = self._promoted = one.tree
        return late

    def discard(self) -> None:
        """Put everything back to what was promoted last. A person's edits since then are found again."""
        self._executor.restore(self._workspace, self._good.snapshot)
        self._seen = self._promoted

    def close(self, last: CheckpointMark | None) -> None:
        """Let the workspace hold the run's tree again, and remove the shadow."""
        if not self.shadowed:
            return
        self._executor.close_shadow(self._workspace)
        kept = last if last is not None and self.strategy == "direct" else self._good
        if self._place is not None:
            self._executor.restore(self._workspace, kept.snapshot)

    def _adopt(self, tree: str, snapshot: str, agent_tree: str) -> tuple[UserEditsFound, str] | None:
        """Put what differs between the tree that was seen and `tree` into the agent's files, as it is in `snapshot`."""
        compared = self._executor.compare(self._workspace, self._seen, tree)
        paths = tuple(change.path for change in compared.changes)
        if not paths:
            return None
        mine = {
            change.path: change.after
            for change in self._executor.compare(self._workspace, self._promoted, agent_tree, patch=False).changes
        }
        conflicts = tuple(one.path for one in compared.changes if one.path in mine and mine[one.path] != one.after)
        self._executor.restore(self._workspace, snapshot, paths)
        kept = self._work.artifacts.put(compared.patch, ArtifactType.PATCH)
        found = UserEditsFound(
            files=paths[:MOST_LISTED],
            files_left_out=max(0, len(paths) - MOST_LISTED),
            conflicts=conflicts[:MOST_LISTED],
            tree=tree,
            diff=kept,
        )
        self._work.append([self._work.draft(EventType.USER_EDITS_FOUND, found, (kept,))])
        return found, compared.patch[:MOST_SHOWN].decode("utf-8", "replace")


def check_place(work: Work) -> None:
    """Refuse a worktree inside the user's checkout or around it before anything is made there."""
    place, checkout = work.run.task.worktree, work.base.checkout
    if place is None or checkout is None:
        return
    inside = Path(place).resolve().is_relative_to(Path(checkout).resolve())
    around = Path(checkout).resolve().is_relative_to(Path(place).resolve())
    if inside or around:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The worktree {place} lies in your checkout, or around it.",
            next_action="Name a directory outside of the repository with --worktree.",
        )
