"""The proposed change: the exact diff of the workspace, the rules that it breaks, and its deterministic review."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codepilot.core.areas import outside
from codepilot.core.artifacts import ArtifactRef, ArtifactType, PatchCandidate, Review
from codepilot.core.events import EventDraft, EventType, PatchProposed
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.permit import Action, permit
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.snapshot_transfer import keep_snapshot, restore_snapshot
from codepilot.engine.work import Work
from codepilot.executor import DiffResult, Violation
from codepilot.verify import flagged, review, scan_generated

Read = Callable[[str], bytes | None]


def restore(work: Work, context: ExecutionContext, snapshot: str) -> None:
    """Restore the workspace to a snapshot, which may come from another machine."""
    if not restore_snapshot(work, context, snapshot):
        raise CodePilotError(
            FailureKind.WORKER_LOST,
            f"The snapshot {snapshot} of run {work.run.run_id} is lost: its machine or directory is gone.",
            next_action="Start the task again.",
        )


def propose(work: Work, offered: PatchCandidate, diff: DiffResult, snapshot: str) -> PatchProposed:
    """Record the exact diff as the proposed change, with the rules that it breaks."""
    stored = work.artifacts.put(diff.patch, ArtifactType.PATCH)
    events = proposal_events(work, offered, diff, snapshot, stored, broken_rules(work, diff))
    work.append(events)
    proposed = events[-1].data
    assert isinstance(proposed, PatchProposed)
    return proposed


def broken_rules(work: Work, diff: DiffResult) -> tuple[Violation, ...]:
    """The violations of policy or plan in the workspace."""
    task = work.run.task
    capability, interaction = task.risk_profile.capability, task.risk_profile.interaction.mode
    touched = outside(work.run.plan, [change.path for change in diff.changes])
    found = (*diff.violations, *(Violation(rule=rule, path=path) for path, rule in touched.items()))

    def allowed(one: Violation) -> bool:
        action = Action("path", one.path, one.rule, one.detail)
        return permit(task.policy, capability, interaction, action).effect == "allow"

    return tuple(one for one in found if not allowed(one))


def proposal_events(
    work: Work,
    offered: PatchCandidate,
    diff: DiffResult,
    snapshot: str,
    stored: ArtifactRef,
    broken: Sequence[Violation],
) -> list[EventDraft]:
    """The events that propose a change; the last is `patch_proposed`."""
    patch = offered.model_copy(
        update={
            "diff": diff.patch.decode("utf-8", "backslashreplace"),
            "touched_files": tuple(change.path for change in diff.changes),
        }
    )
    refused_by = "; ".join(f"{one.rule} at {one.path}" for one in broken)
    proposed = PatchProposed(patch=patch, diff=stored, tree=diff.tree, snapshot=snapshot, refused_by=refused_by)
    return [
        *(work.draft(EventType.GUARDRAIL_BLOCKED, blocked) for blocked in work.new_violations(broken)),
        *(work.draft(EventType.FILES_FLAGGED, flag) for flag in flagged(diff.changes)),
        *keep_snapshot(work, snapshot),
        work.draft(EventType.PATCH_PROPOSED, proposed, (stored,)),
    ]


def readers(work: Work, context: ExecutionContext) -> tuple[Read, Read]:
    """Two functions that read a path: in the base, and in the workspace."""
    base_entries = context.objects.read_tree(work.base.tree)

    def before(path: str) -> bytes | None:
        entry = base_entries.get(path)
        return None if entry is None else context.objects.read_blob(entry.oid)

    def after(path: str) -> bytes | None:
        try:
            return context.executor.read_file(work.workspace, path)
        except CodePilotError as error:
            if error.kind is FailureKind.PATH_NOT_FOUND:
                return None
            raise

    return before, after


def check_change(work: Work, context: ExecutionContext) -> Review:
    """The deterministic review of the workspace."""
    diff = context.executor.diff(work.workspace, work.base.tree)
    before, after = readers(work, context)
    task = work.run.task
    warnings = work.run.test_result.new_warnings if work.run.test_result else ()
    failing = work.run.baseline.targets if work.run.baseline else ()
    threshold = task.policy.generated_code
    if threshold == "off":
        return review(diff, before, after, task.budget, task.kind, warnings=warnings, failing=failing)
    scan = scan_generated(context.executor, work.workspace, diff.changes, before, after)
    return review(diff, before, after, task.budget, task.kind, scan, threshold, warnings, failing)
