"""The run as a fold over its events: `evolve` applies one event, and nothing else changes a run. Pure."""

from collections.abc import Sequence

from codepilot.core.approval import Approval, ApprovalDecided, ApprovalRequested, WaitingFor
from codepilot.core.artifacts import PatchCandidate, Reflection, RepoMap, Review, TestResult
from codepilot.core.breaker import FailedCall, count_failed
from codepilot.core.commit import COMMIT, CommitRecorded
from codepilot.core.contract import Contract
from codepilot.core.events import (
    TERMINAL,
    WAITING,
    BaselineRecorded,
    BasePinned,
    DependencyDegraded,
    Event,
    EventType,
    GuardrailBlocked,
    ModelAsked,
    NodeChanged,
    PatchProposed,
    PlanCreated,
    ProofRecorded,
    ReflectionRecorded,
    RepoMapped,
    ReviewRecorded,
    RunBlocked,
    RunFinished,
    RunPaused,
    RunResumed,
    SandboxChosen,
    SnapshotTaken,
    State,
    StepFailed,
    StepQueued,
    StepSkipped,
    StepStarted,
    StepSucceeded,
    TaskSpecRecorded,
    TestsJudged,
    TurnFinished,
    TurnStarted,
    Usage,
    Verdict,
)
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.plan import NodeStatus, Plan, reopened, with_status
from codepilot.core.task import TaskSpec

BOOKKEEPING = frozenset(
    {
        EventType.STEP_STARTED,
        EventType.SNAPSHOT_RESTORED,
        EventType.SANDBOX_CHOSEN,
        EventType.NETWORK_ALLOWED,
        EventType.WORKSPACE_CREATED,
        EventType.SNAPSHOT_KEPT,
        EventType.DEPENDENCY_DEGRADED,
        EventType.MODEL_ASKED,
        EventType.PAUSE_REQUESTED,
        EventType.CANCEL_REQUESTED,
        EventType.NOTIFICATION_SENT,
        EventType.NOTIFICATION_FAILED,
        EventType.APPROVAL_DECIDED,
    }
)
"""Events that are no progress: every start of a step records them again, or someone other than the worker does."""

NOTIFIED = frozenset({EventType.NOTIFICATION_SENT, EventType.NOTIFICATION_FAILED})
ASKED = (
    frozenset(
        {
            EventType.PAUSE_REQUESTED,
            EventType.CANCEL_REQUESTED,
            EventType.RUN_RESUMED,
            EventType.APPROVAL_DECIDED,
        }
    )
    | NOTIFIED
)
"""Events that doors and webhook senders record, with or without a worker."""

_NODE_STATUS = {
    EventType.NODE_STARTED: NodeStatus.RUNNING,
    EventType.NODE_SUCCEEDED: NodeStatus.SUCCEEDED,
    EventType.NODE_FAILED: NodeStatus.FAILED,
}


class Spent(Contract):
    """What a run has used. `wall_us` counts only the time of open steps; `step_…` is what the last step used."""

    iterations: int = 0
    turns: int = 0
    step_turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    wall_us: int = 0
    step_wall_us: int = 0


class Run(Contract):
    """One attempt at a task: the state after all of its events."""

    run_id: str
    task: TaskSpec
    state: State = State.INIT
    resume_state: State | None = None
    step_id: str | None = None
    attempt: int = 1
    steps_queued: int = 0
    spent: Spent = Spent()
    asked: Usage | None = None
    """The estimate of a model call without a recorded reply; `spent` includes it."""
    grants: int = 1
    red_cycles: int = 0
    signatures: tuple[str, ...] = ()
    violations: int = 0
    failed_calls: tuple[FailedCall, ...] = ()
    idle_starts: int = 0
    narrowed: bool = False
    pause_requested: bool = False
    cancel_requested: bool = False
    base: BasePinned | None = None
    base_snapshot: str | None = None
    sandbox_level: str | None = None
    executor: str | None = None
    baseline: BaselineRecorded | None = None
    repo_map: RepoMap | None = None
    plan: Plan | None = None
    tree: str | None = None
    """The tree after the last turn of the open step."""
    changed_by: tuple[str, ...] = ()
    """The plan nodes that changed files."""
    proposal: PatchProposed | None = None
    test_result: TestResult | None = None
    reflection: Reflection | None = None
    review: Review | None = None
    proof: ProofRecorded | None = None
    verdict: Verdict | None = None
    confidence: float = 0.0
    bundle: str | None = None
    committed: CommitRecorded | None = None
    uncommitted: Failure | None = None
    """Why the change is not committed to the branch that the task names."""
    failure: Failure | None = None
    parked_until: int | None = None
    """When a BLOCKED run continues by itself."""
    approvals: tuple[Approval, ...] = ()
    """All approval requests in order, with the answers."""
    failures: tuple[Failure, ...] = ()
    attempted: tuple[PatchCandidate, ...] = ()
    created_at: int = 0
    updated_at: int = 0
    worked_at: int = 0
    """The time of the last event that a worker recorded."""
    step_open_since: int | None = None
    last_seq: int = 0

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def waiting_for(self) -> WaitingFor | None:
        """What must happen before a blocked run continues; None if the run is not blocked."""
        if self.state is not State.BLOCKED or self.failure is None:
            return None
        asked = [one.request.approval_id for one in self.approvals if one.decided is None]
        if asked and self.failure.details.get("approval_id") == asked[-1]:
            return WaitingFor(kind="approval", approval_id=asked[-1])
        if self.parked_until is None:
            return WaitingFor(kind="person")
        quota = self.failure.kind is FailureKind.MODEL_QUOTA
        return WaitingFor(kind="quota" if quota else "artifact_store", until=self.parked_until)

    def answer_to(self, request: ApprovalRequested) -> ApprovalDecided | None:
        """The answer to this request, or an `always` answer that covers it."""
        found = (one.decided for one in self.approvals if one.covers(request) and one.decided is not None)
        return next(found, None)

    @property
    def soon_back(self) -> bool:
        """True if the run waits for the artifact store, which may return at any time; a quota takes hours."""
        parked = self.state is State.BLOCKED and self.parked_until is not None and not self.pause_requested
        return parked and self.failure is not None and self.failure.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE


def begin(event: Event) -> Run:
    """The run after its first event."""
    if not isinstance(event.data, TaskSpecRecorded):
        raise ValueError(f"a run begins with {EventType.TASK_SPEC_RECORDED}, not {event.type}")
    run = Run(run_id=event.run_id, task=event.data.task, last_seq=event.seq)
    return run.model_copy(update=dict.fromkeys(("created_at", "updated_at", "worked_at"), event.at))


def evolve(run: Run, event: Event) -> Run:
    """The run after `event`."""
    changes: dict[str, object] = {"updated_at": event.at, "last_seq": event.seq}
    if event.type not in BOOKKEEPING and not (run.state is State.INIT and event.type is EventType.SNAPSHOT_TAKEN):
        changes["idle_starts"] = 0
    if event.type not in ASKED:
        changes["worked_at"] = event.at
    changes.update(_changes(run, event))
    return run.model_copy(update=changes)


def replay(events: Sequence[Event]) -> Run:
    """The run after all of its events."""
    run = begin(events[0])
    for event in events[1:]:
        run = evolve(run, event)
    return run


def _changes(run: Run, event: Event) -> dict[str, object]:
    data = event.data
    match data:
        case StepQueued():
            return _on_queued(run, event, data)
        case StepStarted():
            begun = {"step_open_since": event.at, "idle_starts": run.idle_starts + 1, "asked": None}
            return {**close_step(run, run.worked_at), **begun}
        case StepSucceeded() | StepSkipped():
            return close_step(run, event.at)
        case ModelAsked(estimate=estimate):
            return {"spent": charge(run.spent, paid(estimate)), "asked": paid(estimate)}
        case TurnStarted(usage=usage):
            spent = charge(run.spent, usage, run.asked)
            return {"spent": spent.model_copy(update={"step_turns": spent.step_turns + 1}), "asked": None}
        case NodeChanged() if run.plan is not None:
            plan = with_status(run.plan, _NODE_STATUS[event.type], data.node)
            return {"plan": with_status(plan, NodeStatus.BLOCKED, *data.blocked) if data.blocked else plan}
        case TurnFinished():
            return _on_turn(run, event, data)
        case BasePinned():
            return {"base": data}
        case SandboxChosen(level=level, executor=executor):
            return {"sandbox_level": level, "executor": executor}
        case SnapshotTaken(snapshot=snapshot) if run.state is State.INIT:
            return {"base_snapshot": snapshot}
        case BaselineRecorded():
            return {"baseline": data}
        case RepoMapped(repo_map=repo_map):
            return {"repo_map": repo_map}
        case PlanCreated(plan=plan):
            return {"plan": with_status(plan, NodeStatus.PENDING), "changed_by": ()}
        case PatchProposed(patch=patch, tree=tree):
            another = run.proposal is None or tree != run.proposal.tree
            handed_over = {"committed": None, "uncommitted": None} if another else {}
            return {"proposal": data, "attempted": (*run.attempted, patch), **handed_over}
        case TestsJudged(result=result):
            return _on_judged(run, result)
        case ReflectionRecorded(reflection=reflection):
            return {"reflection": reflection}
        case ReviewRecorded(review=review):
            return {"review": review}
        case ProofRecorded():
            return {"proof": data, "verdict": data.verdict, "confidence": data.confidence}
        case GuardrailBlocked():
            return {"violations": run.violations + 1}
        case StepFailed(failure=failure):
            return {**close_step(run, event.at), "failures": (*run.failures, failure)}
        case _:
            return _on_control(run, event)


def _on_control(run: Run, event: Event) -> dict[str, object]:
    match event.type, event.data:
        case EventType.BUNDLE_WRITTEN, data:
            return {"bundle": getattr(data, "path", None)}
        case _, CommitRecorded() as committed:
            return {"committed": committed, "uncommitted": None}
        case _, DependencyDegraded(dependency=dependency, failure=failure) if dependency == COMMIT:
            return {"uncommitted": failure}
        case _, ApprovalRequested() as request:
            return {"approvals": (*run.approvals, Approval(request=request))}
        case _, ApprovalDecided() as decided:
            return {"approvals": tuple(_answered(one, decided) for one in run.approvals)}
        case EventType.PAUSE_REQUESTED, _:
            return {"pause_requested": True}
        case EventType.CANCEL_REQUESTED, _:
            return {"cancel_requested": True}
        case _, RunPaused(unattended=unattended):
            waits = {"pause_requested": False, "parked_until": None}
            return {**close_step(run, run.worked_at if unattended else event.at), **_wait(run, State.PAUSED), **waits}
        case _, RunBlocked(failure=failure, until=until):
            parked = {"failure": failure, "parked_until": until}
            return {**close_step(run, event.at), **_wait(run, State.BLOCKED), **parked}
        case _, RunResumed(granted=granted):
            back = run.resume_state or run.state
            grants = run.grants + (1 if granted else 0)
            return {
                "state": back,
                "resume_state": None,
                "failure": None,
                "parked_until": None,
                "grants": grants,
                "pause_requested": False,
            }
        case _, RunFinished(state=state, failure=failure, unattended=unattended):
            resume_state = None if run.state in TERMINAL else run.resume_state or run.state
            return {
                **close_step(run, run.worked_at if unattended else event.at),
                "state": state,
                "failure": failure,
                "resume_state": resume_state,
                "parked_until": None,
                "pause_requested": False,
                "cancel_requested": False,
            }
        case _:
            return {}


def _on_queued(run: Run, event: Event, data: StepQueued) -> dict[str, object]:
    spent = run.spent.model_copy(update={"step_turns": 0, "step_wall_us": 0})
    if data.state is State.IMPLEMENT and event.attempt == 1 and not data.again:
        spent = spent.model_copy(update={"iterations": spent.iterations + 1})
    return {
        "state": data.state,
        "step_id": event.step_id,
        "attempt": event.attempt,
        "steps_queued": run.steps_queued + (1 if event.attempt == 1 else 0),
        "red_cycles": 0 if data.state is State.PLAN else run.red_cycles,
        "spent": spent,
        "narrowed": data.narrowed,
        "tree": None,
        "plan": reopened(run.plan, run.changed_by) if run.plan and data.state is State.IMPLEMENT else run.plan,
        "changed_by": () if data.state is State.IMPLEMENT else run.changed_by,
    }


def _on_turn(run: Run, event: Event, turn: TurnFinished) -> dict[str, object]:
    """Count failed calls, and note which plan nodes changed files."""
    changes: dict[str, object] = {"tree": turn.tree or run.tree}
    if turn.calls:
        changes["failed_calls"] = count_failed(run.failed_calls, turn, event.step_id)
    before = run.tree or (run.base.tree if run.base else None)
    if run.plan is not None and turn.tree not in (None, before):
        running = (node.id for node in run.plan.nodes if node.status is NodeStatus.RUNNING)
        changes["changed_by"] = tuple(dict.fromkeys((*run.changed_by, *running)))
    return changes


def _answered(approval: Approval, decided: ApprovalDecided) -> Approval:
    asked = approval.request.approval_id == decided.approval_id and approval.decided is None
    return approval.model_copy(update={"decided": decided}) if asked else approval


def _on_judged(run: Run, result: TestResult) -> dict[str, object]:
    if result.passed:
        return {"test_result": result, "red_cycles": 0}
    return {
        "test_result": result,
        "red_cycles": run.red_cycles + 1,
        "signatures": (*run.signatures, result.signature),
    }


def _wait(run: Run, state: State) -> dict[str, object]:
    return {"state": state, "resume_state": run.resume_state if run.state in WAITING else run.state}


def charge(spent: Spent, usage: Usage, instead_of: Usage | None = None) -> Spent:
    """Add `usage`, in place of the estimate that was charged before."""
    before = instead_of or Usage()
    return spent.model_copy(
        update={
            "turns": spent.turns + usage.turns,
            "tokens": spent.tokens + usage.tokens - before.tokens,
            "cost_usd": max(0.0, round(spent.cost_usd + usage.cost_usd - before.cost_usd, 9)),
        }
    )


def paid(estimate: Usage) -> Usage:
    """The tokens and money of an estimate; a call is a turn only once its reply is recorded."""
    return Usage(tokens=estimate.tokens, cost_usd=estimate.cost_usd)


def close_step(run: Run, until: int) -> dict[str, object]:
    """Charge the time of the open step up to `until` to the step and to the run."""
    if run.step_open_since is None:
        return {}
    wall = max(0, until - run.step_open_since)
    charged = {"wall_us": run.spent.wall_us + wall, "step_wall_us": run.spent.step_wall_us + wall}
    return {"spent": run.spent.model_copy(update=charged), "step_open_since": None}
