"""The proposed change: the exact diff of the workspace, the rules that it breaks, and its deterministic review."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from codepilot.core.approval import PolicyDecided
from codepilot.core.areas import outside
from codepilot.core.artifacts import ArtifactRef, ArtifactType, PatchCandidate, Review
from codepilot.core.events import EventDraft, EventType, PatchProposed, State
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.permit import Action, permit
from codepilot.core.pipeline import pipeline_of
from codepilot.core.task import TaskKind
from codepilot.engine.approvals import require
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.interactive.validation import parts_of
from codepilot.engine.locks import held_by_others
from codepilot.engine.snapshot_transfer import keep_snapshot, restore_snapshot
from codepilot.engine.work import Work
from codepilot.executor import DiffResult, Violation
from codepilot.verify import Baseline, GateJudge, flagged, review, scan_generated

PROTECTED = "protected_areas"
Read = Callable[[str], bytes | None]


def restore(work: Work, context: ExecutionContext, snapshot: str) -> None:
    """Restore the workspace to a snapshot, which may come from another machine."""
    if not restore_snapshot(work, context, snapshot):
        raise CodePilotError(
            FailureKind.WORKER_LOST,
            f"The snapshot {snapshot} of run {work.run.run_id} is lost: its machine or directory is gone.",
            next_action="Start the task again.",
        )


def lay_tree(work: Work, context: ExecutionContext, tree: str) -> None:
    """Make the workspace hold exactly this tree."""
    executor, copy = context.executor, f"{work.workspace}-copy"
    executor.delete(copy)
    context.create(copy, tree)
    try:
        exported = executor.export_snapshot(copy, executor.snapshot(copy).snapshot)
        executor.restore(work.workspace, executor.import_snapshot(work.workspace, exported).snapshot)
    finally:
        executor.delete(copy)


def propose(work: Work, offered: PatchCandidate, diff: DiffResult, snapshot: str) -> PatchProposed:
    """Record the exact diff as the proposed change, with the rules that it breaks."""
    stored = work.artifacts.put(diff.patch, ArtifactType.PATCH)
    events = proposal_events(work, offered, diff, snapshot, stored, broken_rules(work, diff, ask=True))
    work.append(events)
    proposed = events[-1].data
    assert isinstance(proposed, PatchProposed)
    return proposed


def broken_rules(work: Work, diff: DiffResult, role: str = "implementer", ask: bool = False) -> tuple[Violation, ...]:
    """The violations of policy or plan in the workspace. With `ask`, a person may allow changes to protected paths."""
    task = work.run.task
    capability, interaction = task.risk_profile.capability, task.risk_profile.interaction.mode
    links = {change.path for change in diff.changes if change.is_link}
    enforced = task.policy.enforce_allowed_areas
    touched = outside(work.run.plan, [change.path for change in diff.changes], links, enforce_allowed=enforced)
    found = (
        *diff.violations,
        *(Violation(rule=rule, path=path) for path, rule in touched.items()),
        *_unplanned(work, diff),
        *held_by_others(work, [change.path for change in diff.changes]),
        *_listed(work, diff, role, ask=ask),
    )

    def allowed(one: Violation) -> bool:
        action = Action("path", one.path, one.rule, one.detail)
        return permit(task.policy, capability, interaction, action).effect == "allow"

    return tuple(one for one in found if not allowed(one))


def _unplanned(work: Work, diff: DiffResult) -> list[Violation]:
    """A change without a plan, where the policy demands one and the kind of task has one."""
    demanded = work.run.task.policy.enforce_plan and State.PLAN in pipeline_of(work.run.task.kind).states
    if not demanded or work.run.plan is not None:
        return []
    return [Violation(rule="enforce_plan", path=change.path) for change in diff.changes[:1]]


def _listed(work: Work, diff: DiffResult, role: str, *, ask: bool) -> list[Violation]:
    """The changed paths that the policy's own lists deny, or protect unless a person allows the change."""
    task, denied = work.run.task, []
    capability, interaction = task.risk_profile.capability, task.risk_profile.interaction.mode
    for change in diff.changes:
        action = Action("path", change.path, role=role, is_link=change.is_link, size_mb=change.size / 1e6)
        decision = permit(task.policy, capability, interaction, action)
        if not decision.rule:
            continue
        decided = PolicyDecided(
            effect=decision.effect,
            kind="path",
            subject=change.path,
            rule=decision.rule,
            reason=decision.reason,
            reasons=decision.reasons,
            score=decision.score,
        )
        if all(event.data != decided for event in work.history()):
            work.record(EventType.POLICY_DECIDED, decided)
        reasons = (decision.reason, *decision.reasons)
        asks = ask and decision.rule == PROTECTED and decision.effect != "deny"
        if asks and require(
            work, "path", change.path, risk="medium", reasons=reasons, snippet=_hunks(diff, change.path)
        ):
            continue
        if decision.effect != "allow" or asks:
            denied.append(Violation(rule=decision.rule, path=change.path, detail=decision.reason))
    return denied


def _hunks(diff: DiffResult, path: str) -> str:
    """The part of the difference that is about one file."""
    return parts_of(diff).get(path, b"").decode("utf-8", "backslashreplace")


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


def _targets(work: Work) -> tuple[str, ...]:
    return work.run.baseline.targets if work.run.baseline else ()


def check_change(work: Work, context: ExecutionContext, change: tuple[DiffResult, Read, Read] | None = None) -> Review:
    """The deterministic review of the workspace, or of another change: its difference, and readers of both sides."""
    diff, before, after = change or (
        context.executor.diff(work.workspace, work.base.tree),
        *readers(work, context),
    )
    task = work.run.task
    warnings = work.run.test_result.new_warnings if work.run.test_result else ()
    failing = None if task.kind is TaskKind.CHANGE and task.accept else _targets(work)
    threshold = task.policy.generated_code
    if threshold == "off":
        return review(
            diff, before, after, task.budget, task.kind, warnings=warnings, failing=failing, alters=task.alters
        )
    scan = scan_generated(context.executor, work.workspace, diff.changes, before, after)
    return review(diff, before, after, task.budget, task.kind, scan, threshold, warnings, failing, task.alters)


@contextmanager
def gate_judge(work: Work, context: ExecutionContext, baseline: Baseline) -> Iterator[GateJudge]:
    """The judge of the workspace's gates. It has a workspace of the base as well, made when a gate needs it."""
    executor, name = context.executor, f"{work.workspace}-base"

    def base_workspace() -> str:
        executor.delete(name)
        context.create(name, work.base.tree)
        return name

    before, after = readers(work, context)
    try:
        yield GateJudge(
            executor=executor,
            workspace=work.workspace,
            base_workspace=base_workspace,
            project=context.project,
            baseline=baseline,
            changes=executor.diff(work.workspace, work.base.tree).changes,
            before=before,
            after=after,
            command_sec=work.run.task.budget.command_sec,
        )
    finally:
        executor.delete(name)


def denied_finding(work: Work, context: ExecutionContext) -> Failure | None:
    """The failure of a change with a finding of medium severity that a person denied: it is not run.

    Graver findings are refused in review, as the policy says. What is made without a model is not scanned here.
    """
    task = work.run.task
    if task.policy.generated_code != "high" or task.model is None or task.kind is TaskKind.PROVE:
        return None
    before, after = readers(work, context)
    changes = context.executor.diff(work.workspace, work.base.tree).changes
    scan = scan_generated(context.executor, work.workspace, changes, before, after)
    for one in (one for one in scan.findings if one.severity == "medium"):
        subject = f"{one.test} {one.path}"
        lines = (after(one.path) or b"").decode("utf-8", "replace").splitlines()
        snippet = "\n".join(lines[max(0, one.line - 3) : one.line + 2])
        if not require(work, "finding", subject, risk="medium", reasons=(str(one),), snippet=snippet):
            return _denied(work, "finding", subject, f"Write it without that: {one}.")
    return None


def _denied(work: Work, operation: str, subject: str, instead: str) -> Failure:
    decided = (
        one.decided
        for one in work.run.approvals
        if (one.request.operation, one.request.details) == (operation, subject)
    )
    reason = next((one.reason for one in decided if one is not None and one.decision == "denied"), "")
    message = f"A person denied the {operation} ({subject}){f': {reason}' if reason else ''}. {instead}"
    return Failure(kind=FailureKind.DENIED, message=message)
