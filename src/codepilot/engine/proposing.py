"""What becomes a change on offer: the exact difference of the workspace, and that without the test it came with.

A test that came with a repair must never cost the repair: where it does not hold, the same change is proposed again
without it, in the same step. The proposal is an event, so a worker that dies afterwards leaves no doubt which it is.
"""

from __future__ import annotations

from codepilot.core.areas import outside
from codepilot.core.artifacts import ArtifactType, PatchCandidate, RegressionTest
from codepilot.core.events import EventType, PatchProposed
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.snapshot_transfer import keep_snapshot, restore_snapshot
from codepilot.engine.work import Work
from codepilot.executor import DiffResult, Violation
from codepilot.verify import flagged


def propose(work: Work, offered: PatchCandidate, diff: DiffResult, snapshot: str) -> PatchProposed:
    """Record the exact difference as the change on offer, and which rules it breaks."""
    stored = work.artifacts.put(diff.patch, ArtifactType.PATCH)
    patch = offered.model_copy(
        update={
            "diff": diff.patch.decode("utf-8", "backslashreplace"),
            "touched_files": tuple(change.path for change in diff.changes),
        }
    )
    broken = _broken(work, diff)
    refused_by = "; ".join(f"{one.rule} at {one.path}" for one in broken)
    proposed = PatchProposed(patch=patch, diff=stored, tree=diff.tree, snapshot=snapshot, refused_by=refused_by)
    work.append(
        [
            *(work.draft(EventType.GUARDRAIL_BLOCKED, blocked) for blocked in work.new_violations(broken)),
            *(work.draft(EventType.FILES_FLAGGED, flag) for flag in flagged(diff.changes)),
            *keep_snapshot(work, snapshot),
            work.draft(EventType.PATCH_PROPOSED, proposed, (stored,)),
        ]
    )
    return proposed


def _broken(work: Work, diff: DiffResult) -> tuple[Violation, ...]:
    touched = outside(work.run.plan, [change.path for change in diff.changes])
    return (*diff.violations, *(Violation(rule=rule, path=path) for path, rule in touched.items()))


def where_allowed(
    work: Work, context: ExecutionContext, offered: PatchCandidate, diff: DiffResult, snapshot: str
) -> tuple[PatchCandidate, DiffResult, str]:
    """The change as it is in the workspace; without the test that came with it, where that lies in a wrong place."""
    test, base = offered.regression_test, work.run.base_snapshot
    if test is None or not test.written or base is None:
        return offered, diff, snapshot
    rules = [one.rule for one in _broken(work, diff) if one.path == test.path]
    if not rules:
        return offered, diff, snapshot
    why = RegressionTest(reason=f"{test.path} may not be changed ({rules[0]})")
    bare = _take_out(work, context, test.path, base, snapshot)
    left = context.executor.diff(work.workspace, work.base.tree)
    return offered.model_copy(update={"regression_test": why}), left, bare


def _take_out(work: Work, context: ExecutionContext, path: str, base: str, snapshot: str) -> str:
    """Leave what a snapshot holds in the workspace, but one file as the base has it."""
    _bring(work, context, base)
    before = work.snapshot().snapshot
    _bring(work, context, snapshot)
    context.executor.restore(work.workspace, before, (path,))
    return work.snapshot().snapshot


def without_test(work: Work, context: ExecutionContext, why: str) -> bool:
    """Propose the change alone, if it came with a test, and leave it in the workspace; whether there was one."""
    proposal, base = work.run.proposal, work.run.base_snapshot
    test = proposal.patch.regression_test if proposal else None
    if proposal is None or base is None or test is None or not test.written:
        return False
    work.watch.raise_if_stopped()  # what was interrupted says nothing about the test
    bare_snapshot = _take_out(work, context, test.path, base, proposal.snapshot)
    diff = context.executor.diff(work.workspace, work.base.tree)
    bare = proposal.patch.model_copy(update={"regression_test": RegressionTest(reason=why)})
    propose(work, bare, diff, bare_snapshot)
    return True


def _bring(work: Work, context: ExecutionContext, snapshot: str) -> None:
    if not restore_snapshot(work, context, snapshot):
        raise CodePilotError(
            FailureKind.WORKER_LOST,
            f"What {work.run.run_id} had in its workspace is gone with the machine or the directory it was in.",
            next_action="Start the task again.",
        )
