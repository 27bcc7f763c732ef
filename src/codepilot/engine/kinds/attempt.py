"""Tasks of kind prompt: one attempt of a batch task, whose change is handed back as a patch."""

from __future__ import annotations

from codepilot.core.artifacts import ArtifactType, PatchCandidate
from codepilot.core.attempt import Attempt, AttemptEnded
from codepilot.core.contract import JsonObject
from codepilot.core.decide import Failed, Outcome, Succeeded
from codepilot.core.events import PatchProposed, State
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.engine.change.proposal import broken_rules, proposal_events, restore
from codepilot.engine.work import Work
from codepilot.executor import RunCommand


def make_attempt(work: Work) -> Outcome:
    """IMPLEMENT: let the program work, and keep what it left, whatever became of it."""
    ended = work.recorded(AttemptEnded)
    context, baseline = work.settled()
    attempt = _attempt(work)
    if ended is None:
        if not attempt.in_place and work.run.base_snapshot is not None:
            restore(work, context, work.run.base_snapshot)
        if not attempt.in_place:
            work.executor.init_git(work.workspace)  # programs look at what they changed; without git they do without
            if work.run.task.path:
                _make_directory(work, work.run.task.path)
        work.perform(State.IMPLEMENT, context, baseline)
        ended = work.recorded(AttemptEnded)
    if ended is None:
        raise CodePilotError(
            FailureKind.MODEL_BAD_REPLY, f"The agent {work.agent.name!r} makes no attempts of batches."
        )
    proposed = work.recorded(PatchProposed)
    if proposed is None and not attempt.in_place:
        proposed = _proposed(work)
    if ended.outcome != "completed":
        return _failed(attempt, ended.outcome, ended.message)
    if proposed is not None and proposed.refused_by:
        return _failed(attempt, "failed_permission_blocked", f"The change breaks a rule: {proposed.refused_by}.")
    return Succeeded("completed")


def _make_directory(work: Work, path: str) -> None:
    """The task's directory has no files in the copy if it is empty or ignored by git."""
    made = work.executor.run_command(RunCommand(workspace=work.workspace, argv=("mkdir", "-p", "--", path)))
    if made.exit_code != 0:
        why = made.stderr.decode(errors="replace").strip()
        raise CodePilotError(FailureKind.INVALID_SPEC, f"{path} cannot be made in the copy: {why}")


def _attempt(work: Work) -> Attempt:
    attempt = work.run.task.attempt
    if attempt is None:
        raise CodePilotError(FailureKind.INTERNAL, f"Run {work.run.run_id} is no attempt.")
    return attempt


def _proposed(work: Work) -> PatchProposed:
    """Record the exact change as the proposal. What the policy protects is refused: there is nobody to ask."""
    taken = work.snapshot()
    diff = work.executor.diff(work.workspace, work.base.tree)
    stored = work.artifacts.put(diff.patch, ArtifactType.PATCH)
    offered = PatchCandidate(diff="", touched_files=(), rationale="what the program left")
    events = proposal_events(work, offered, diff, taken.snapshot, stored, broken_rules(work, diff))
    recorded = work.append(events)[-1].data
    assert isinstance(recorded, PatchProposed)
    return recorded


def _failed(attempt: Attempt, outcome: str, message: str) -> Failed:
    details: JsonObject = {"task_id": attempt.task_id, "outcome": outcome}
    return Failed(
        Failure(kind=FailureKind.ATTEMPT_FAILED, message=f"{attempt.task_id}: {outcome}. {message}", details=details)
    )
