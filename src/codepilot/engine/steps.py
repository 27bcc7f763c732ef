"""The steps: one handler for each state of a run.

A handler does the work of its state, records events and returns an outcome. It decides nothing: `core/decide.py` turns
the outcome into the next step. A crash may restart any handler from its beginning, so each one first restores the
workspace to a known snapshot and looks for earlier results among the run's events.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from codepilot.agents import Abstained
from codepilot.core.artifacts import ArtifactType, PatchCandidate, Reflection, RepoMap, Review, TestResult
from codepilot.core.contract import Contract, canonical_json
from codepilot.core.decide import Failed, Outcome, Red, Refused, Skipped, Succeeded
from codepilot.core.events import (
    BaselineRecorded,
    EventType,
    NetworkAllowed,
    PatchProposed,
    PlanCreated,
    ReflectionRecorded,
    RepoMapped,
    ReviewRecorded,
    SandboxChosen,
    SnapshotRestored,
    SnapshotTaken,
    State,
    TestsJudged,
    WorkspaceCreated,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.pipeline import gates_of, pipeline_of
from codepilot.core.plan import Plan
from codepilot.core.task import TaskSpec
from codepilot.engine.base import can_be_had, carry_base, fetch_base, local_checkout, open_objects, pin
from codepilot.engine.execution_context import ExecutionContext, find_project, seen_at
from codepilot.engine.finalize import finalize
from codepilot.engine.proposal import check_change, propose, readers, restore
from codepilot.engine.snapshot_transfer import keep_snapshot
from codepilot.engine.work import Work, keep_baseline
from codepilot.project import Project
from codepilot.verify import Baseline, GateJudge, LintBench, run_baseline

Result = TypeVar("Result", RepoMap, Plan, Reflection, PatchCandidate, Review)


def initialise(work: Work) -> Outcome:
    """INIT: pin the base, create the workspace, and record which tests fail before the change."""
    task = work.run.task
    if done := work.recorded(BaselineRecorded):
        return Succeeded(f"{len(done.targets)} failing test(s) to repair")
    if work.run.base is None or not can_be_had(work.runtime, work.run.base):
        base = carry_base(work.runtime, pin(task, work.home))
        work.record(EventType.BASE_PINNED, base, base.carried)
    chosen = SandboxChosen(level=work.executor.level, executor=work.runtime.settings.executor.url)
    if (work.run.sandbox_level, work.run.executor) != (chosen.level, chosen.executor):
        work.record(EventType.SANDBOX_CHOSEN, chosen)
    if work.recorded(NetworkAllowed) is None:
        work.append([work.draft(EventType.NETWORK_ALLOWED, scope) for scope in _network(task)])
    project = _project(work)
    context = work.context(project)
    context.executor.delete(work.workspace)
    path = context.create(work.workspace, work.base.tree)
    work.record(EventType.WORKSPACE_CREATED, WorkspaceCreated(workspace=work.workspace, path=path))
    clean = work.snapshot()
    taken = work.draft(EventType.SNAPSHOT_TAKEN, SnapshotTaken(snapshot=clean.snapshot, tree=clean.tree))
    work.append([taken, *keep_snapshot(work, clean.snapshot)])
    if "lint" in gates_of(task):
        read = readers(work, context)[1]
        LintBench(context.executor, project, read, task.budget.command_sec).require(work.workspace)
    baseline = run_baseline(context.executor, work.workspace, project, task.tests, task.budget.command_sec)
    report = keep_baseline(work.artifacts, project, baseline)
    recorded = BaselineRecorded(
        targets=baseline.targets,
        signature=baseline.signature,
        before=baseline.summary,
        suite=baseline.suite_kind,
        cut_short=baseline.cut_short,
        report=report,
    )
    work.conclude(EventType.BASELINE_RECORDED, recorded, (report,))
    return Succeeded(f"{len(baseline.targets)} failing test(s) to repair")


def _network(task: TaskSpec) -> list[NetworkAllowed]:
    """The hosts that code of this run may reach, by policy or by a person's approval."""
    allowed = (
        NetworkAllowed(scope="run", hosts=task.policy.hosts, by="policy"),
        NetworkAllowed(scope="run", hosts=task.approved_hosts, by="person"),
        NetworkAllowed(scope="command", hosts=task.policy.test_hosts, by="policy", command=("tests",)),
        NetworkAllowed(scope="command", hosts=task.approved_test_hosts, by="person", command=("tests",)),
    )
    return [one for one in allowed if one.hosts]


def _project(work: Work) -> Project:
    """Detect the project in the base; raise if the agent does not support its language."""
    with closing(open_objects(work.home, work.base.repo_id)) as objects:
        fetch_base(work.runtime, work.base, objects)
        root = local_checkout(work.home, work.base, objects)
        project = find_project(
            work.run.task,
            work.base,
            root,
            work.executor,
            lambda: seen_at(work.executor, objects, work.workspace),
            work.runtime.settings,
            work.run.task.test_hosts,
        )
    languages = work.agent.languages
    if languages is not None and project.language not in languages:
        supported = ", ".join(sorted(languages))
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The agent {work.agent.name!r} works on {supported} only, not on {project.language} projects.",
            next_action="Choose an agent for this language, for example --agent codeact with a model.",
        )
    return project


def map_repo(work: Work) -> Outcome:
    """MAP_REPO: the agent describes how the project is built and tested."""
    return _by_agent(
        work,
        State.MAP_REPO,
        RepoMap,
        lambda found: (EventType.REPO_MAPPED, RepoMapped(repo_map=found)),
        ArtifactType.MAP,
    )


def plan(work: Work) -> Outcome:
    """PLAN: the agent plans the change as a graph of nodes."""
    return _by_agent(
        work, State.PLAN, Plan, lambda found: (EventType.PLAN_CREATED, PlanCreated(plan=found)), ArtifactType.PLAN
    )


def reflect(work: Work) -> Outcome:
    """REFLECT: the agent explains the last failure and what to try next."""
    return _by_agent(
        work,
        State.REFLECT,
        Reflection,
        lambda found: (EventType.REFLECTION_RECORDED, ReflectionRecorded(reflection=found)),
    )


def implement(work: Work) -> Outcome:
    """IMPLEMENT: let the agent change the workspace, then record the exact difference as its proposal."""
    if done := work.recorded(PatchProposed):
        return _outcome_of_patch(done)
    context, baseline = work.settled()
    _restore(work, context, _resume_point(work, work.run.base_snapshot))
    offered = _expect(work.agent.perform(State.IMPLEMENT, work.step_context(context, baseline)), PatchCandidate)
    taken = work.snapshot()
    diff = context.executor.diff(work.workspace, work.base.tree)
    if diff.tree != taken.tree:
        raise CodePilotError(FailureKind.TOOL_FAILED, "The workspace changed while it was being examined.")
    return _outcome_of_patch(propose(work, offered, diff, taken.snapshot))


def _outcome_of_patch(proposed: PatchProposed) -> Outcome:
    if not proposed.refused_by:
        return Succeeded(proposed.patch.rationale)
    message = f"The change breaks a rule: {proposed.refused_by}."
    return Failed(Failure(kind=FailureKind.POLICY_VIOLATION, message=message))


def test(work: Work) -> Outcome:
    """TEST: run the gates on the proposal. The platform judges, never the agent."""
    if done := work.recorded(TestsJudged):
        return _outcome_of_tests(done.result)
    context, baseline = work.settled()
    _restore(work, context, _proposal(work).snapshot)
    result = _gates(work, context, baseline)
    work.conclude(EventType.TESTS_JUDGED, TestsJudged(result=result))
    return _outcome_of_tests(result)


def _gates(work: Work, context: ExecutionContext, baseline: Baseline) -> TestResult:
    task, executor = work.run.task, context.executor

    def base_workspace() -> str:
        name = f"{work.workspace}-base"
        executor.delete(name)
        context.create(name, work.base.tree)
        return name

    before, after = readers(work, context)
    judge = GateJudge(
        executor=executor,
        workspace=work.workspace,
        base_workspace=base_workspace,
        project=context.project,
        baseline=baseline,
        changes=executor.diff(work.workspace, work.base.tree).changes,
        before=before,
        after=after,
        command_sec=task.budget.command_sec,
    )
    try:
        return judge.judge(gates_of(task), task.accept, work.run.narrowed)
    finally:
        executor.delete(f"{work.workspace}-base")


def _outcome_of_tests(result: TestResult) -> Outcome:
    return Succeeded(f"{result.summary.passed} passed") if result.passed else Red(result)


def review_change(work: Work) -> Outcome:
    """REVIEW: run the deterministic checks, then the agent's reviewer, which cannot overrule them."""
    if done := work.recorded(ReviewRecorded):
        return _outcome_of_review(done.review)
    context, baseline = work.settled()
    _restore(work, context, _proposal(work).snapshot)
    review = check_change(work, context)
    if not _has_role(work, State.REVIEW):
        review = review.model_copy(update={"notes": f"the agent {work.agent.name!r} has no reviewer"})
    elif review.verdict == "APPROVE":
        review = _reviewed(work, context, baseline, review)
    work.conclude(EventType.REVIEW_RECORDED, ReviewRecorded(review=review))
    return _outcome_of_review(review)


def _reviewed(work: Work, context: ExecutionContext, baseline: Baseline, checked: Review) -> Review:
    """The reviewer's verdict with the evidence of the deterministic checks."""
    try:
        review = _expect(work.agent.perform(State.REVIEW, work.step_context(context, baseline)), Review)
    except Abstained as abstained:
        return checked.model_copy(update={"notes": str(abstained)})
    return review.model_copy(update={"policy_checks": checked.policy_checks, "patch_loc": checked.patch_loc})


def _outcome_of_review(review: Review) -> Outcome:
    if review.verdict == "APPROVE":
        return Succeeded(review.notes)
    reasons = "; ".join(review.reasons) or "no reason was given"
    if any(check.name == "generated_code" and not check.ok for check in review.policy_checks):
        return Failed(Failure(kind=FailureKind.POLICY_VIOLATION, message=f"The change may not be run: {reasons}"))
    return Refused(Failure(kind=FailureKind.REVIEW_REFUSED, message=f"The review asks for changes: {reasons}"))


def _by_agent(
    work: Work,
    role: State,
    kind: type[Result],
    to_event: Callable[[Result], tuple[EventType, Contract]],
    artifact: ArtifactType | None = None,
) -> Outcome:
    """Run a step that only the agent works on; skip it if the agent does not have the role.

    The result is recorded as an event and, if `artifact` is given, stored as one.
    """
    if not _has_role(work, role):
        return Skipped(f"the agent {work.agent.name!r} has no such role")
    if work.recorded(RepoMapped, PlanCreated, ReflectionRecorded):
        return Succeeded()
    context, baseline = work.settled()
    start = work.run.proposal.snapshot if work.run.proposal else work.run.base_snapshot
    _restore(work, context, _resume_point(work, start))
    try:
        result = _expect(work.agent.perform(role, work.step_context(context, baseline)), kind)
    except Abstained as abstained:
        return Skipped(str(abstained))
    event_type, data = to_event(result)
    stored = () if artifact is None else (work.artifacts.put(canonical_json(result).encode(), artifact),)
    work.record(event_type, data, stored)
    return Succeeded()


def _has_role(work: Work, role: State) -> bool:
    """True if the kind of task has an agent work in this state and this agent has the role."""
    return role in pipeline_of(work.run.task.kind).roles & work.agent.roles


def _resume_point(work: Work, start: str | None) -> str | None:
    """The snapshot of the last turn if this step was interrupted, else `start`."""
    taken = [event.data for event in work.history() if isinstance(event.data, SnapshotTaken)]
    return taken[-1].snapshot if taken else start


def _restore(work: Work, context: ExecutionContext, snapshot: str | None) -> None:
    if snapshot is None:
        raise CodePilotError(FailureKind.INTERNAL, f"Run {work.run.run_id} has no snapshot to start from.")
    restore(work, context, snapshot)
    work.record(EventType.SNAPSHOT_RESTORED, SnapshotRestored(snapshot=snapshot))


def _proposal(work: Work) -> PatchProposed:
    if work.run.proposal is None:
        raise CodePilotError(FailureKind.INTERNAL, f"Run {work.run.run_id} has no proposal in {work.run.state}.")
    return work.run.proposal


def _expect(result: object, kind: type[Result]) -> Result:
    if not isinstance(result, kind):
        raise CodePilotError(
            FailureKind.MODEL_BAD_REPLY, f"The agent returned {type(result).__name__} instead of {kind.__name__}."
        )
    return result


STEPS: dict[State, Callable[[Work], Outcome]] = {
    State.INIT: initialise,
    State.MAP_REPO: map_repo,
    State.PLAN: plan,
    State.IMPLEMENT: implement,
    State.TEST: test,
    State.REFLECT: reflect,
    State.REVIEW: review_change,
    State.FINALIZE: finalize,
}
