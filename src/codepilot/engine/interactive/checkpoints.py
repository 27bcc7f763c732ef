"""Makes checkpoints: freeze, snapshot, compare, validate, record in the chain, revert or promote, thaw."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.checkpoint import (
    FLAGGED,
    MOST_LISTED,
    ChangedFile,
    CheckpointFailed,
    CheckpointMark,
    CheckpointRecorded,
    CheckpointViolation,
    RolledBack,
    SessionRequested,
    Trigger,
    UserEditsFound,
    reverts_everything,
    severity_of,
    to_revert,
    violation,
)
from codepilot.core.events import EventType
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.engine.base import fetch_base, open_objects
from codepilot.engine.interactive.figures import (
    CHECKPOINT_SECONDS,
    CHECKPOINTS,
    DISK_BYTES,
    FROZEN_SECONDS,
    PAUSES,
)
from codepilot.engine.interactive.validation import Checked, Validation
from codepilot.engine.interactive.watch import Watch
from codepilot.engine.interactive.worktree import WorkingTree
from codepilot.engine.monitor import StopRequested
from codepilot.engine.snapshot_transfer import keep_snapshot
from codepilot.engine.work import Work
from codepilot.executor import DiffResult, Executor, SnapshotInfo
from codepilot.store import LostLease, new_id

MOST_ROUNDS = 3
"""How often the agent's files are looked at again in one checkpoint because a person edits them meanwhile."""
SETTLED_BY_ITSELF = frozenset({"turn", "final"})
"""The agent writes nothing at these moments."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Taken:
    """What came of a checkpoint. All parts may be missing: then nothing had changed."""

    recorded: CheckpointRecorded | None = None
    edits: tuple[tuple[UserEditsFound, str], ...] = ()
    failure: Failure | None = None
    rolled_back: RolledBack | None = None


@dataclass(frozen=True)
class _Found:
    """The agent's files at a checkpoint, compared and checked."""

    taken: SnapshotInfo
    step: DiffResult
    total: DiffResult
    checked: Checked


class Checkpoints:
    """The chain of one run. One checkpoint or rollback at a time."""

    def __init__(
        self,
        work: Work,
        executor: Executor,
        tree: WorkingTree,
        watch: Watch,
        validation: Validation,
        start: SnapshotInfo,
    ) -> None:
        self._work = work
        self._executor = executor
        self._workspace = work.workspace
        self._tree = tree
        self._watch = watch
        self._validation = validation
        self.around: Callable[[str], None] = lambda what: None
        """Called with "freeze" before a freeze and with "thaw" after it."""
        self._turn = threading.RLock()
        self._last = CheckpointMark(checkpoint_id="", snapshot=start.snapshot, tree=start.tree)
        self._valid = self._last
        self._checked_whole = False
        self._violations: tuple[CheckpointViolation, ...] = ()
        """What the last check found."""
        self.taken_at = time.monotonic()
        """When the last one was begun."""
        self.frozen_sec = 0.0
        """How long the agent has stood still so far."""

    @property
    def last(self) -> CheckpointMark:
        return self._last

    def take(self, trigger: Trigger, request_id: str = "") -> Taken:
        """Make a checkpoint. What fails is recorded; the agent's files are then as they were."""
        with self._turn:
            started = time.perf_counter()
            self.taken_at = time.monotonic()
            try:
                if trigger not in SETTLED_BY_ITSELF:
                    self._look_ahead(self._watch.settle())
                with self.frozen() as since:
                    taken = self._take(trigger, request_id, since)
            except (LostLease, StopRequested):
                raise
            except CodePilotError as error:
                if error.kind is FailureKind.STORE_UNAVAILABLE:
                    raise
                return self._failed(trigger, request_id, error.failure)
            CHECKPOINT_SECONDS.observe(time.perf_counter() - started, trigger=trigger)
            return taken

    @contextmanager
    def frozen(self) -> Iterator[float]:
        """Nothing of the agent runs in this block; the moment from which on it stands still."""
        self.around("freeze")
        try:
            self._executor.freeze(self._workspace)
        except CodePilotError:
            PAUSES.inc(status="failed")
            raise
        since = time.perf_counter()
        PAUSES.inc(status="ok")
        try:
            yield since
        finally:
            self._executor.thaw(self._workspace)
            stood = time.perf_counter() - since
            self.frozen_sec += stood
            FROZEN_SECONDS.observe(stood)
            self.around("thaw")

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nothing of the agent runs in this block, and no checkpoint is made meanwhile."""
        with self._turn:
            frozen = self._executor.freeze(self._workspace)
            try:
                yield
            finally:
                if not frozen.already:
                    self._executor.thaw(self._workspace)

    def _look_ahead(self, tree: str) -> None:
        """Make the patches of a settled tree while the agent still runs: what stays as it is costs no frozen time."""
        for before in dict.fromkeys((self._work.base.tree, self._last.tree)):
            self._compare(before, tree)

    # One checkpoint ---------------------------------------------------------------------------------

    def _take(self, trigger: Trigger, request_id: str, since: float, rounds: int = MOST_ROUNDS) -> Taken:
        edits: list[tuple[UserEditsFound, str]] = []
        taken = self._executor.snapshot(self._workspace)
        for _ in range(MOST_ROUNDS):
            adopted = self._tree.take_edits(taken.tree)
            if adopted is None:
                break
            edits.append(adopted)
            taken = self._executor.snapshot(self._workspace)
        if self._is_settled(trigger, taken):
            self._watch.saw(taken)
            return Taken(edits=tuple(edits))
        checkpoint_id = new_id("ckpt-")
        found = self._look(trigger, taken, checkpoint_id)
        action = self._action(found)
        one = self._record(trigger, request_id, checkpoint_id, found, action, since)
        undone = None
        if action != "none":
            undone, late = self._revert(one, found, action, since)
        else:
            late = self._tree.promote(one, taken.tree)
        if late is None or not rounds:
            return Taken(one, tuple(edits), rolled_back=undone)
        # The promotion took them away from the person, and no other one may follow.
        again = self._take("final" if trigger == "final" else "request", "", since, rounds - 1)
        return Taken(again.recorded or one, (*edits, late, *again.edits), rolled_back=again.rolled_back or undone)

    def _is_settled(self, trigger: Trigger, taken: SnapshotInfo) -> bool:
        """True if nothing changed since the last checkpoint and nobody needs another one."""
        if trigger in ("request", "rollback"):
            return False
        same = (taken.tree, taken.snapshot) == (self._last.tree, self._last.snapshot)
        return same and (trigger != "final" or self._checked_whole)

    def _look(self, trigger: Trigger, taken: SnapshotInfo, checkpoint_id: str) -> _Found:
        """Compare and check the tree of a snapshot."""
        self._watch.saw(taken)
        base = self._work.base.tree
        total, too_large = self._compare(base, taken.tree)
        step = total if self._last.tree == base else self._compare(self._last.tree, taken.tree)[0]
        whole = trigger == "final" or self._tree.strategy == "shadow"
        run = self._work.run
        if whole or run.task.interactive.validation_on_checkpoint:
            checked = self._validation.check(run, taken.violations, total, whole=whole, salt=checkpoint_id)
        else:
            checked = self._validation.skip(run, taken.violations)
        if too_large is not None:
            found = (*checked.violations, violation("quota", ".", str(too_large)))
            checked = Checked(found, checked.checked, checked.cached, checked.left_out, checked.duration_us)
        self._violations = checked.violations
        return _Found(taken, step, total, checked)

    def _compare(self, before: str, after: str) -> tuple[DiffResult, CodePilotError | None]:
        """The difference; without a patch, and with the reason, if it is too large for one."""
        try:
            return self._executor.compare(self._workspace, before, after), None
        except CodePilotError as error:
            if error.kind is not FailureKind.POLICY_VIOLATION:
                raise
            return self._executor.compare(self._workspace, before, after, patch=False), error

    def _record(
        self,
        trigger: Trigger,
        request_id: str,
        checkpoint_id: str,
        found: _Found,
        action: str,
        since: float,
    ) -> CheckpointRecorded:
        settings, checked, taken = self._work.run.task.interactive, found.checked, found.taken
        step, total = self._kept(found.step), self._kept(found.total)
        changes = self._work.artifacts.put(self._watch.take(checkpoint_id), ArtifactType.LOG)
        stood = int((time.perf_counter() - since) * 1e6)
        one = CheckpointRecorded.model_validate(
            {
                "checkpoint_id": checkpoint_id,
                "previous": self._last.checkpoint_id or None,
                "trigger": trigger,
                "tree": taken.tree,
                "snapshot": taken.snapshot,
                "files_changed": tuple(change.path for change in found.step.changes[:MOST_LISTED]),
                "files_left_out": max(0, len(found.step.changes) - MOST_LISTED),
                "files_changed_total": len(found.total.changes),
                "diff": step,
                "diff_total": total,
                "changes": changes,
                "status": checked.status(),
                "violations": checked.violations[:MOST_LISTED],
                "violations_left_out": max(0, len(checked.violations) - MOST_LISTED),
                "severity": severity_of(checked.violations, settings.violation_severity),
                "action_taken": action,
                "strategy": self._tree.strategy,
                "checked": checked.checked,
                "cached": checked.cached,
                "left_out": checked.left_out,
                "frozen_us": stood,
                "duration_us": stood,
                "validation_us": checked.duration_us,
                "request_id": request_id,
            }
        )
        kept = tuple(ref for ref in (step, total, changes) if ref is not None)
        self._work.append(
            [
                self._work.draft(EventType.CHECKPOINT_RECORDED, one, kept),
                *keep_snapshot(self._work, taken.snapshot),
            ]
        )
        CHECKPOINTS.inc(status=one.status)
        DISK_BYTES.set(sum(change.size for change in found.total.changes), run_id=self._work.run.run_id)
        self._last = CheckpointMark(checkpoint_id=checkpoint_id, snapshot=taken.snapshot, tree=taken.tree)
        self._checked_whole = not checked.left_out and not checked.skipped
        if one.status == "valid" and not one.left_out:
            self._valid = self._last
        return one

    def _kept(self, diff: DiffResult) -> ArtifactRef | None:
        return self._work.artifacts.put(diff.patch, ArtifactType.PATCH) if diff.patch else None

    # Reverting --------------------------------------------------------------------------------------

    def _action(self, found: _Found) -> str:
        """What is done about the violations."""
        if found.checked.status() != "invalid":
            return "none"
        mode, strategy = self._work.run.task.interactive.revert, self._tree.strategy
        if reverts_everything(mode, strategy, still_broken=False):
            return "discarded"
        return "reverted" if self._to_revert(found) else "none"

    def _to_revert(self, found: _Found) -> tuple[str, ...]:
        changed = [ChangedFile(one.path, one.change, before=one.before, after=one.after) for one in found.total.changes]
        return to_revert(self._work.run.task.interactive.revert, found.checked.violations, changed)

    def _revert(
        self, one: CheckpointRecorded, found: _Found, action: str, since: float
    ) -> tuple[RolledBack, tuple[UserEditsFound, str] | None]:
        """Put back what breaks the rules; the state after it is a checkpoint of its own."""
        to, files = self._valid, self._to_revert(found)
        if action == "discarded":
            to, files = self._tree.good, ()
            self._tree.discard()
        else:
            self._executor.restore(self._workspace, to.snapshot, files)
            again = self._look("final", self._executor.snapshot(self._workspace), one.checkpoint_id)
            mode, strategy = self._work.run.task.interactive.revert, self._tree.strategy
            if again.checked.status() == "invalid" and reverts_everything(mode, strategy, still_broken=True):
                files = ()
                self._executor.restore(self._workspace, to.snapshot)
        undone = self._rolled_back(to, files, before=one.checkpoint_id, reason="violation")
        after = self._look("final", self._executor.snapshot(self._workspace), new_id("ckpt-"))
        later = self._record("request", "", new_id("ckpt-"), after, "none", since)
        return undone, self._tree.promote(later, later.tree) if later.status == "valid" else None

    def roll_back(self, asked: SessionRequested) -> tuple[Taken, RolledBack]:
        """Put files back as a person asked. The tree before it is a checkpoint, so nothing is lost."""
        with self._turn:
            request = asked.request_id
            before: CheckpointRecorded | None = None
            try:
                self._watch.settle()
                with self.frozen() as since:
                    before = self._take("rollback", "", since).recorded
                    to, files = self._aim(asked)
                    self._executor.restore(self._workspace, to.snapshot, files)
                    done = self._rolled_back(to, files, before=before.checkpoint_id if before else None, asked=asked)
                    taken = self._take("request", "", since)
            except (LostLease, StopRequested):
                raise
            except CodePilotError as error:
                if error.kind is FailureKind.STORE_UNAVAILABLE:
                    raise
                kept = before.checkpoint_id if before is not None else None
                done = RolledBack(
                    checkpoint_id=asked.checkpoint_id,
                    before=kept,
                    snapshot=self._last.snapshot,
                    tree=self._last.tree,
                    files=asked.files,
                    smart=asked.smart,
                    by=asked.by,
                    request_id=request,
                    failure=error.failure,
                )
                self._work.record(EventType.ROLLED_BACK, done)
                mistaken = error.kind in (
                    FailureKind.INVALID_SPEC,
                    FailureKind.TOOL_INVALID_ARGS,
                )  # of the person, so that the agent need not know
                taken = Taken(failure=None if mistaken else error.failure)
            return taken, done

    def _aim(self, asked: SessionRequested) -> tuple[CheckpointMark, tuple[str, ...]]:
        """The checkpoint to go back to, and the paths to put back; none means everything."""
        to = self.find(asked.checkpoint_id) if asked.checkpoint_id else None
        if asked.smart:
            broken = tuple(dict.fromkeys(one.file for one in self._violations if one.constraint != FLAGGED))
            if not broken:
                raise CodePilotError(
                    FailureKind.INVALID_SPEC,
                    "No file breaks a rule, so that --smart has nothing to put back.",
                    next_action="Name a checkpoint with --checkpoint, or files with --files.",
                )
            return to or self._valid, broken
        to = to or self._before_last()
        if unknown := self._unknown(asked.files, to):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{', '.join(unknown)} is neither in the tree nor in the checkpoint; nothing was put back.",
                next_action="Name files and directories as `git status` does, from the top of the repository.",
            )
        return to, asked.files

    def _unknown(self, files: Sequence[str], to: CheckpointMark) -> list[str]:
        """The files that neither the tree holds nor a checkpoint."""
        if not files:
            return []
        base = self._work.base
        with closing(open_objects(self._work.home, base.repo_id)) as objects:
            fetch_base(self._work.runtime, base, objects)
            known = set(objects.read_tree(base.tree))
        now = self._executor.diff(self._workspace, base.tree)
        then = self._executor.compare(self._workspace, base.tree, to.tree, patch=False)
        known.update(change.path for change in (*now.changes, *then.changes))
        known.update(path.rstrip("/") for path in now.ignored)
        above = {"/".join(path.split("/")[:end]) for path in known for end in range(1, path.count("/") + 1)}
        return [
            file
            for file in files
            if file not in known | above and not any(file.startswith(f"{path.rstrip('/')}/") for path in now.ignored)
        ]

    def _before_last(self) -> CheckpointMark:
        """The newest valid checkpoint whose tree is not the one that was just kept; else the beginning."""
        marks = [mark for mark, valid in self._chain() if valid]
        return next((mark for mark in reversed(marks) if mark.tree != self._last.tree), self._beginning())

    def find(self, checkpoint_id: str) -> CheckpointMark:
        """A checkpoint of this run by its id or the beginning of it."""
        found = [mark for mark, _ in self._chain() if mark.checkpoint_id.startswith(checkpoint_id)]
        if len({mark.checkpoint_id for mark in found}) != 1:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{checkpoint_id!r} names {'several checkpoints' if found else 'no checkpoint'} of this run.",
                next_action=f"See `codepilot checkpoints {self._work.run.run_id}`.",
            )
        return found[0]

    def _chain(self) -> list[tuple[CheckpointMark, bool]]:
        found = []
        for event in self._work.store.events(self._work.run.run_id):
            one = event.data
            if isinstance(one, CheckpointRecorded):
                mark = CheckpointMark(checkpoint_id=one.checkpoint_id, snapshot=one.snapshot, tree=one.tree)
                found.append((mark, one.status == "valid" and one.trigger != "rollback"))
        return found

    def _beginning(self) -> CheckpointMark:
        start = self._work.run.base_snapshot
        if start is None:
            raise CodePilotError(FailureKind.INTERNAL, f"Run {self._work.run.run_id} has no beginning.")
        return CheckpointMark(checkpoint_id="", snapshot=start, tree=self._work.base.tree)

    def _rolled_back(
        self,
        to: CheckpointMark,
        files: Sequence[str],
        *,
        before: str | None,
        reason: str = "request",
        asked: SessionRequested | None = None,
    ) -> RolledBack:
        """Record that files were put back, with the tree after it."""
        now = self._executor.snapshot(self._workspace)
        self._watch.put_back(now.tree)
        done = RolledBack.model_validate(
            {
                "checkpoint_id": to.checkpoint_id or None,
                "before": before,
                "snapshot": now.snapshot,
                "tree": now.tree,
                "files": tuple(files[:MOST_LISTED]),
                "files_left_out": max(0, len(files) - MOST_LISTED),
                "reason": reason,
                "by": "codepilot" if asked is None else asked.by,
                "smart": asked is not None and asked.smart,
                "request_id": "" if asked is None else asked.request_id,
            }
        )
        self._work.append([self._work.draft(EventType.ROLLED_BACK, done), *keep_snapshot(self._work, now.snapshot)])
        return done

    # Failures ---------------------------------------------------------------------------------------

    def _failed(self, trigger: Trigger, request_id: str, why: Failure) -> Taken:
        """Record a checkpoint that could not be made."""
        message = f"A checkpoint could not be made: {why.message}"
        kept = Failure(
            kind=FailureKind.CHECKPOINT_FAILED,
            message=message,
            next_action=why.next_action,
            details={"cause": why.kind.value},
        )
        failed = CheckpointFailed(
            trigger=trigger, failure=kept, in_a_row=self._work.run.chain.failures + 1, request_id=request_id
        )
        _log.warning("%s", message)
        self._work.record(EventType.CHECKPOINT_FAILED, failed)
        CHECKPOINTS.inc(status="failed")
        return Taken(failure=kept)
