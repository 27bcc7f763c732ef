"""The steps: one handler for each state of a run.

A handler does the work of its state, records events and returns an outcome. It decides nothing: `core/decide.py` turns
the outcome into the next step. A crash may restart any handler from its beginning, so each one first restores the
workspace to a known snapshot and looks for earlier results among the run's events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from codepilot.agents import Abstained
from codepilot.core.artifacts import ArtifactType, PatchCandidate, Reflection, RepoMap, Review, TestResult
from codepilot.core.contract import canonical_json
from codepilot.core.decide import Failed, Outcome, Red, Refused, Skipped, Succeeded
from codepilot.core.events import (
    BaselineRecorded,
    EventType,
    NetworkAllowed,
    PatchProposed,
    PlanRevised,
    SnapshotRestored,
    State,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.pipeline import gates_of, pipeline_for
from codepilot.core.plan import Plan
from codepilot.core.suspect import SuspectTest, suspect_failure
from codepilot.core.task import TaskKind, TaskSpec
from codepilot.core.text import counted
from codepilot.engine.base import can_be_had, carry_base, pin
from codepilot.engine.change.finalize import finalize
from codepilot.engine.change.proposal import (
    PROTECTED,
    check_change,
    denied_finding,
    gate_judge,
    lay_tree,
    propose,
    readers,
    restore,
)
from codepilot.engine.environment.found_project import found_project
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.interactive import is_interactive, last_state, strategy_of, supervised
from codepilot.engine.kinds.attempt import make_attempt
from codepilot.engine.kinds.build import build_baseline, complete, last_files, take_edits, write_output
from codepilot.engine.kinds.program_gates import judge_build
from codepilot.engine.kinds.prove import base_tests_gate, judge_before, propose_change, whole_change
from codepilot.engine.kinds.question import answer
from codepilot.engine.kinds.scaffold import (
    module_baseline,
    module_tree,
    own_tests_gate,
    template_fails,
)
from codepilot.engine.locks import take_planned, take_touched
from codepilot.engine.memory.learning import fill_solutions, learn_failures
from codepilot.engine.plan.children import initialise_child, restore_kept, tend
from codepilot.engine.plan.planning import settle_plan
from codepilot.engine.work import Work, keep_baseline, measured_suite
from codepilot.verify import NOTHING_RUN, Baseline, LintBench, run_baseline, run_suite_baseline, with_gates

Result = TypeVar("Result", RepoMap, Plan, Reflection, PatchCandidate, Review)


def initialise(work: Work) -> Outcome:
    """INIT: pin the base, create the workspace, and record which tests fail before the change."""
    task = work.run.task
    if task.parent_run_id is not None:
        return initialise_child(work, work.store.load(task.parent_run_id))
    if done := work.recorded(BaselineRecorded):
        return Succeeded(_before(task, done))
    if work.run.base is None or not can_be_had(work.runtime, work.run.base):
        base = carry_base(work.runtime, pin(task, work.home, work.runtime.settings.service.repository_hosts))
        work.record(EventType.BASE_PINNED, base, base.carried)
    work.record_sandbox()
    if work.recorded(NetworkAllowed) is None:
        work.append([work.draft(EventType.NETWORK_ALLOWED, scope) for scope in _network(task)])
    project, missing = found_project(work)
    context = work.make_workspace(project)
    if "lint" in gates_of(task):
        read = readers(work, context)[1]
        LintBench(context.executor, project, read, task.budget.command_sec).require(work.workspace)
    if task.kind is TaskKind.PROVE:
        baseline = judge_before(work, context)
        if refused_by := propose_change(work, context).refused_by:
            return _broken_rule(refused_by)
    elif task.kind in (TaskKind.QUESTION, TaskKind.PROMPT):
        baseline = NOTHING_RUN
    elif task.scaffold is not None:
        baseline = module_baseline(work, context, task.scaffold)
    elif task.kind is TaskKind.BUILD:
        baseline = build_baseline(work, context)
    elif task.kind is TaskKind.CHANGE and not task.tests:
        baseline = run_suite_baseline(context.executor, work.workspace, project, task.budget.command_sec)
    else:
        baseline = run_baseline(
            context.executor,
            work.workspace,
            project,
            task.tests,
            task.budget.command_sec,
            within=task.within,
            missing=missing,
            suite=measured_suite(work.artifacts, work.base, project),
        )
    report = keep_baseline(work.artifacts, project, baseline)
    recorded = BaselineRecorded(
        targets=baseline.targets,
        signature=baseline.signature,
        before=baseline.summary,
        suite=baseline.suite_kind,
        language=project.language,
        cut_short=baseline.cut_short,
        report=report,
    )
    work.conclude(EventType.BASELINE_RECORDED, recorded, (report,))
    return Succeeded(_before(task, recorded))


def _before(task: TaskSpec, baseline: BaselineRecorded) -> str:
    if task.kind is TaskKind.PROMPT:
        return "ready"
    if task.kind is TaskKind.BUILD:
        return f"{baseline.before.passed} test(s) pass before" if baseline.before.passed else "nothing is there yet"
    return f"{counted(len(baseline.targets), 'failing test')} to repair"


def _network(task: TaskSpec) -> list[NetworkAllowed]:
    """The hosts that code of this run may reach, by policy or by a person's approval."""
    allowed = (
        NetworkAllowed(scope="run", hosts=task.policy.hosts, by="policy"),
        NetworkAllowed(scope="run", hosts=task.approved_hosts, by="person"),
        NetworkAllowed(scope="command", hosts=task.policy.test_hosts, by="policy", command=("tests",)),
        NetworkAllowed(scope="command", hosts=task.approved_test_hosts, by="person", command=("tests",)),
    )
    return [one for one in allowed if one.hosts]


def map_repo(work: Work) -> Outcome:
    """MAP_REPO: the agent describes how the project is built and tested."""
    return _by_agent(work, State.MAP_REPO, RepoMap, EventType.REPO_MAPPED, ArtifactType.MAP)


def plan(work: Work) -> Outcome:
    """PLAN: the agent plans the change as a graph of nodes."""
    if work.recorded(PlanRevised):
        return Succeeded()
    return _by_agent(work, State.PLAN, Plan, EventType.PLAN_CREATED, ArtifactType.PLAN)


def reflect(work: Work) -> Outcome:
    """REFLECT: the agent explains the last failure and what to try next."""
    outcome = _by_agent(work, State.REFLECT, Reflection, EventType.REFLECTION_RECORDED)
    if (thought := work.recorded(Reflection)) is not None:
        learn_failures(work, work.settled()[0], thought)
    return outcome


def implement(work: Work) -> Outcome:
    """IMPLEMENT: let the agent change the workspace, then record the exact difference as its proposal."""
    if work.run.task.kind is TaskKind.QUESTION:
        return answer(work)
    if work.run.task.attempt is not None:
        return make_attempt(work)
    if done := work.recorded(PatchProposed):
        return _outcome_of_patch(done)
    context, baseline = work.settled()
    watched = is_interactive(work.run) and work.run.task.worktree is not None
    keeps = pipeline_for(work.run.task).keeps_files or watched
    resumed = _resume_point(work, None)
    _restore(work, context, resumed or (last_files(work) if keeps else work.run.base_snapshot))
    if work.run.accepted_tree is not None and resumed is None:
        lay_tree(work, context, work.run.accepted_tree)
    elif work.run.task.scaffold is not None and resumed is None:
        lay_tree(work, context, module_tree(work, context.project)[1])
    if pipeline_for(work.run.task).keeps_files and work.run.task.parent_run_id is None:
        take_edits(work, context)
    else:
        restore_kept(work, context)
    if (waits := tend(work, context)) is not None:
        return waits
    take_planned(work)
    offered = PatchCandidate(diff="", touched_files=(), rationale="The agent's time was over before it had finished.")
    with supervised(work, context) as supervise:
        offered = _expect(work.perform(State.IMPLEMENT, context, baseline, supervise), PatchCandidate)
    if (waits := tend(work, context)) is not None:
        return waits
    if offered.suspect is not None:
        return _outcome_of_suspect(offered.suspect, baseline)
    if work.run.task.kind is TaskKind.BUILD and work.run.task.parent_run_id is None:
        complete(work, context)
    taken = work.snapshot()
    diff = context.executor.diff(work.workspace, work.base.tree)
    if diff.tree != taken.tree:
        raise CodePilotError(FailureKind.TOOL_FAILED, "The workspace changed while it was being examined.")
    if not diff.changes and not diff.violations and work.run.task.parent_run_id is None:
        unchanged = f"The agent {work.agent.name!r} ended IMPLEMENT and no file differs from the base."
        return Failed(Failure(kind=FailureKind.TESTS_FAILED, message=unchanged))
    take_touched(work, [change.path for change in diff.changes])
    return _outcome_of_patch(propose(work, offered, diff, taken.snapshot))


def _outcome_of_suspect(suspect: SuspectTest, baseline: Baseline) -> Outcome:
    """End the run with the evidence against one of its named tests."""
    if suspect.test not in baseline.targets:
        message = f"The agent suspects {suspect.test}, which is none of the failing tests of this task."
        return Failed(Failure(kind=FailureKind.MODEL_BAD_REPLY, message=message))
    return Failed(suspect_failure(suspect))


def _outcome_of_patch(proposed: PatchProposed) -> Outcome:
    if proposed.refused_by.startswith(PROTECTED):
        message = f"A person does not allow this change: {proposed.refused_by}. Make it without touching these files."
        return Refused(Failure(kind=FailureKind.DENIED, message=message))
    return _broken_rule(proposed.refused_by) if proposed.refused_by else Succeeded(proposed.patch.rationale)


def _broken_rule(rule: str) -> Failed:
    return Failed(Failure(kind=FailureKind.POLICY_VIOLATION, message=f"The change breaks a rule: {rule}."))


def test(work: Work) -> Outcome:
    """TEST: run the gates on the proposal. The platform judges, never the agent."""
    if done := work.recorded(TestResult):
        fill_solutions(work, done)
        return _outcome_of_tests(done)
    context, baseline = work.settled()
    _restore(work, context, _proposal(work).snapshot)
    if work.run.task.kind is TaskKind.BUILD:
        write_output(work, context)
        result = judge_build(work, context, baseline)
    else:
        if (denied := denied_finding(work, context)) is not None:
            return Refused(denied)
        result = _gates(work, context, baseline)
    work.conclude(EventType.TESTS_JUDGED, result)
    fill_solutions(work, result)
    if work.run.task.scaffold is not None and not result.passed and work.run.task.model is None:
        return template_fails(work, context, result)
    return _outcome_of_tests(result)


def _gates(work: Work, context: ExecutionContext, baseline: Baseline) -> TestResult:
    task = work.run.task
    with gate_judge(work, context, baseline) as judge:
        result = judge.judge(gates_of(task), task.accept, work.run.narrowed)
    if task.scaffold is not None:
        return with_gates(result, [*result.gates, own_tests_gate(baseline, result)])
    if not result.passed or "base_tests" not in gates_of(task):
        return result
    return with_gates(result, [*result.gates, base_tests_gate(work, context, result.failed_tests_after)])


def _outcome_of_tests(result: TestResult) -> Outcome:
    return Succeeded(f"{result.summary.passed} passed") if result.passed else Red(result)


def review_change(work: Work) -> Outcome:
    """REVIEW: run the deterministic checks, then the agent's reviewer, which cannot overrule them."""
    if done := work.recorded(Review):
        return _outcome_of_review(done)
    context, baseline = work.settled()
    _restore(work, context, _proposal(work).snapshot)
    if work.run.task.kind is TaskKind.PROVE:
        review = check_change(work, context, whole_change(work, context))
    else:
        review = check_change(work, context)
    if not pipeline_for(work.run.task).roles:
        pass
    elif not _has_role(work, State.REVIEW):
        review = review.model_copy(update={"notes": f"the agent {work.agent.name!r} has no reviewer"})
    elif review.verdict == "APPROVE":
        review = _reviewed(work, context, baseline, review)
    work.conclude(EventType.REVIEW_RECORDED, review)
    return _outcome_of_review(review)


def _reviewed(work: Work, context: ExecutionContext, baseline: Baseline, checked: Review) -> Review:
    """The reviewer's verdict with the evidence of the deterministic checks."""
    try:
        review = _expect(work.perform(State.REVIEW, context, baseline), Review)
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
    event: EventType,
    artifact: ArtifactType | None = None,
) -> Outcome:
    """Run a step that only the agent works on; skip it if the agent does not have the role.

    The result is recorded as an event and, if `artifact` is given, stored as one.
    """
    if not _has_role(work, role):
        return Skipped(f"the agent {work.agent.name!r} has no such role")
    if work.recorded(kind):
        return Succeeded()
    context, baseline = work.settled()
    start = work.run.proposal.snapshot if work.run.proposal else work.run.base_snapshot
    _restore(work, context, _resume_point(work, start))
    try:
        result = _expect(work.perform(role, context, baseline), kind)
    except Abstained as abstained:
        return Skipped(str(abstained))
    if isinstance(result, Plan):
        return settle_plan(work, result)
    stored = () if artifact is None else (work.artifacts.put(canonical_json(result).encode(), artifact),)
    work.record(event, result, stored)
    return Succeeded()


def _has_role(work: Work, role: State) -> bool:
    """True if the kind of task has an agent work in this state and this agent has the role."""
    return role in pipeline_for(work.run.task).roles & work.agent.roles


def _resume_point(work: Work, start: str | None) -> str | None:
    """The snapshot of the last turn if this step was interrupted, else `start`."""
    run = work.run
    found = last_state(work.history(), strategy_of(run), interactive=is_interactive(run))
    return start if found is None else found


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
