"""A proved change as a commit on a branch of its own in the user's repository: one commit and one event of it a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote

from codepilot.core.commit import COMMIT, CommitRecorded, branch_name, checked_branch, commit_message
from codepilot.core.events import BasePinned, DependencyDegraded, Event, EventType, PatchProposed, ProofRecorded
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.task import default_goal
from codepilot.engine.work import Work
from codepilot.telemetry import redact
from codepilot.workspace import Commit, ObjectStore, is_url, write_commit


def commit_wanted(work: Work, context: ExecutionContext) -> None:
    """Commit a confirmed change where its task names a branch. What forbids that costs the run nothing else."""
    wanted = work.run.task.branch
    if wanted is None or work.run.committed is not None:
        return
    work.step.raise_if_stopped()  # a worker that lost the run must not write to the repository
    events = work.store.events(work.run.run_id)
    try:
        committed = commit_change(work.run, events, context.objects, wanted, before_commit=work.step.raise_if_stopped)
    except CodePilotError as error:
        consequence = f"the change is not on branch {branch_name(wanted, work.run.run_id)}"
        degraded = DependencyDegraded(dependency=COMMIT, consequence=consequence, failure=error.failure)
        work.record(EventType.DEPENDENCY_DEGRADED, degraded)
    else:
        work.record(EventType.COMMIT_RECORDED, committed)


def commit_change(
    run: Run,
    events: Sequence[Event],
    objects: ObjectStore,
    wanted: str,
    *,
    accept_plausible: bool = False,
    before_commit: Callable[[], None] = lambda: None,
) -> CommitRecorded:
    """The commit and its branch. All of it follows from the log, so that doing it again changes nothing."""
    branch = checked_branch(wanted, run.run_id)
    if run.base is None or run.base.checkout is None or run.proposal is None or is_url(run.task.repo):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Run {run.run_id} worked on a clone of {run.task.repo}; there is no repository of yours to commit to.",
            next_action=f"In your checkout: git switch -c {quote(branch)} && codepilot diff {run.run_id} | git apply",
        )
    if run.verdict != "confirmed" and not accept_plausible:
        again = f"codepilot apply {run.run_id} --branch {quote(branch)} --accept-plausible"
        raise CodePilotError(
            FailureKind.DENIED,
            f"The change of {run.run_id} is only plausible: the tests around it are too weak to trust it unread.",
            next_action=f"Read `codepilot diff {run.run_id}`, then: {again}",
        )
    proof, at = first_proof(run, events)
    commit = Commit(
        parent=run.base.commit,
        commit_tree=run.base.commit_tree,
        base_tree=run.base.untouched,
        new_tree=run.proposal.tree,
        message=redact(message_of(run, proof, _uncommitted(run.base, objects))),
        at=at,
    )
    name = write_commit(Path(run.base.checkout), objects, commit, branch, before_commit)
    return CommitRecorded(checkout=run.base.checkout, branch=branch, commit=name, parent=commit.parent)


def first_proof(run: Run, events: Sequence[Event]) -> tuple[ProofRecorded, int]:
    """The first proof of the change that gave it its verdict, and when: later ones must not make another commit."""
    found: tuple[ProofRecorded, int] | None = None
    for event in events:
        if isinstance(event.data, PatchProposed):
            found = None
        elif isinstance(event.data, ProofRecorded) and event.data.ok and event.data.verdict == run.verdict:
            found = found or (event.data, event.at)
    if found is None:
        raise CodePilotError(FailureKind.INTERNAL, f"Run {run.run_id} has no proof on record.")
    return found


def _uncommitted(base: BasePinned, objects: ObjectStore) -> list[str]:
    """What was on disk and is in no commit: the change was proved together with it."""
    return [path for path, _, _ in objects.changes(base.commit_tree, base.untouched)]


def message_of(run: Run, proof: ProofRecorded, uncommitted: Sequence[str] = ()) -> str:
    """The message of the commit that holds a run's change."""
    rationale = run.proposal.patch.rationale if run.proposal else ""
    targets = run.baseline.targets if run.baseline else ()
    asked = run.task.goal.natural
    goal = default_goal(targets) if asked == default_goal(()) else asked
    worth = f"{proof.verdict}: {proof.after.passed} tests pass after the change; {proof.reason}"
    return commit_message(goal, rationale, run.run_id, worth, targets, uncommitted)
