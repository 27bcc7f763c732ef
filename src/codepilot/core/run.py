"""The run as a fold over its events: `evolve` applies one event, and nothing else changes a run. Pure."""

from collections.abc import Sequence

from codepilot.core.approval import Approval, ApprovalDecided, ApprovalRequested, WaitingFor
from codepilot.core.artifacts import ArtifactRef, PatchCandidate, Reflection, RepoMap, Review, TestResult
from codepilot.core.breaker import FailedCall, count_failed
from codepilot.core.checkpoint import (
    CheckpointChain,
    CheckpointFailed,
    CheckpointRecorded,
    MessageSent,
    ModeChanged,
    Promoted,
    RolledBack,
    SessionRequested,
)
from codepilot.core.children import Child, dropped, joined, remembered, started
from codepilot.core.commit import COMMIT, CommitRecorded
from codepilot.core.contract import Contract
from codepilot.core.events import (
    TERMINAL,
    WAITING,
    ArtifactStored,
    BaselineRecorded,
    BasePinned,
    ChildJoined,
    ChildStarted,
    ContextCondensed,
    DependencyDegraded,
    EditsFound,
    EnvironmentPrepared,
    Event,
    EventType,
    GuardrailBlocked,
    ModelAnswered,
    ModelAsked,
    ModelSwitched,
    NodeChanged,
    OutputWritten,
    PatchApplied,
    PatchProposed,
    PlanRevised,
    ProofRecorded,
    RunBlocked,
    RunFinished,
    RunForked,
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
    TurnFinished,
    TurnStarted,
    Usage,
    Verdict,
)
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.landing import Landed, LandingQueued, LandingRefused
from codepilot.core.limits import after_resume
from codepilot.core.pipeline import PIPELINES
from codepilot.core.plan import NodeStatus, Plan, reopened, with_status
from codepilot.core.review import HunksReviewed
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
        EventType.MODEL_ANSWERED,
        EventType.PAUSE_REQUESTED,
        EventType.CANCEL_REQUESTED,
        EventType.NOTIFICATION_SENT,
        EventType.NOTIFICATION_FAILED,
        EventType.APPROVAL_DECIDED,
        EventType.HUNKS_REVIEWED,
        EventType.LANDING_QUEUED,
        EventType.LANDED,
        EventType.LANDING_REFUSED,
        EventType.ARTIFACT_STORED,
        EventType.SESSION_REQUESTED,
        EventType.MODE_CHANGED,
    }
)
"""Events that are no progress: every start of a step records them again, or someone other than the worker does."""

UNCHARGED = "uncharged"
"""The detail of a model's failure that says that its call costs nothing: the provider refused it or got nothing."""

NOTIFIED = frozenset({EventType.NOTIFICATION_SENT, EventType.NOTIFICATION_FAILED})
ASKED = (
    frozenset(
        {
            EventType.PAUSE_REQUESTED,
            EventType.CANCEL_REQUESTED,
            EventType.RUN_RESUMED,
            EventType.APPROVAL_DECIDED,
            EventType.HUNKS_REVIEWED,
            EventType.LANDING_QUEUED,
            EventType.LANDED,
            EventType.LANDING_REFUSED,
            EventType.SESSION_REQUESTED,
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
    unpriced_tokens: int = 0
    """Tokens of unknown price, which `cost_usd` leaves out."""
    cost_usd: float = 0.0
    wall_us: int = 0
    step_wall_us: int = 0

    @property
    def known_cost_usd(self) -> float | None:
        """The cost; None if the price of some tokens is unknown."""
        return None if self.unpriced_tokens else self.cost_usd


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
    calls: dict[str, Usage] = {}
    """The estimates of calls through the model gateway that are not over, by their names; `spent` includes them."""
    grants: int = 1
    limits: dict[str, float] = {}
    """Budgets of the whole run that a resume set, in place of the granted ones."""
    documents: dict[str, ArtifactRef] = {}
    """The documents of the run for people, by name."""
    fell_back: bool = False
    """True if the fallback model has the rest of the run."""
    output_tree: str | None = None
    """What the directory of a build held when CodePilot last wrote to it or read it."""
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
    environments: tuple[EnvironmentPrepared, ...] = ()
    """The packages that were installed for this run."""
    sandbox_level: str | None = None
    executor: str | None = None
    baseline: BaselineRecorded | None = None
    repo_map: RepoMap | None = None
    plan: Plan | None = None
    tree: str | None = None
    """The tree after the last turn of the open step."""
    changed_by: tuple[str, ...] = ()
    """The plan nodes that changed files."""
    accepted_tree: str | None = None
    """The base with the hunks that a person accepted in review: where the next change begins."""
    children: tuple[Child, ...] = ()
    """The runs that work, or worked, on nodes of the plan, in the order in which they began."""
    awaits_children: bool = False
    """True if the run is BLOCKED until child runs end."""
    proposal: PatchProposed | None = None
    test_result: TestResult | None = None
    reflection: Reflection | None = None
    review: Review | None = None
    proof: ProofRecorded | None = None
    verdict: Verdict | None = None
    confidence: float = 0.0
    bundle: str | None = None
    committed: CommitRecorded | None = None
    applied: PatchApplied | None = None
    """The last time that the change was written into the checkout."""
    uncommitted: Failure | None = None
    """Why the change is not committed to the branch that the task names."""
    landing: LandingQueued | Landed | LandingRefused | None = None
    """Where its change stands on the way to a branch."""
    failure: Failure | None = None
    parked_until: int | None = None
    """When a BLOCKED run continues by itself."""
    approvals: tuple[Approval, ...] = ()
    """All approval requests in order, with the answers."""
    failures: tuple[Failure, ...] = ()
    attempted: tuple[PatchCandidate, ...] = ()
    chain: CheckpointChain = CheckpointChain()
    """The checkpoints of interactive work."""
    asked_of_session: tuple[SessionRequested, ...] = ()
    """Requests to the agent's session that no worker has carried out yet."""
    undelivered: tuple[str, ...] = ()
    """Messages of people that no agent got."""
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
        if self.state is not State.BLOCKED:
            return None
        if self.awaits_children and self.failure is None:
            return WaitingFor(kind="children")
        if (request := self.open_request) is not None:
            return WaitingFor(kind="approval", approval_id=request.approval_id, until=request.expires_at)
        if self.parked_until is None:
            return WaitingFor(kind="person")
        match self.failure.kind if self.failure is not None else None:
            case FailureKind.MODEL_QUOTA:
                return WaitingFor(kind="quota", until=self.parked_until)
            case FailureKind.LOCK_HELD:
                return WaitingFor(kind="lock", until=self.parked_until)
        return WaitingFor(kind="artifact_store", until=self.parked_until)

    @property
    def open_request(self) -> ApprovalRequested | None:
        """What a person is asked while the run is blocked for the answer."""
        if self.state is not State.BLOCKED or self.failure is None:
            return None
        asked = [one.request for one in self.approvals if one.decided is None]
        return asked[-1] if asked and self.failure.details.get("approval_id") == asked[-1].approval_id else None

    def answer_to(self, request: ApprovalRequested) -> ApprovalDecided | None:
        """The answer to this request, or an `always` answer that covers it."""
        found = (one.decided for one in self.approvals if one.covers(request) and one.decided is not None)
        return next(found, None)

    @property
    def soon_back(self) -> bool:
        """True if the run waits for its child runs, or for the artifact store, which may return at any time."""
        if self.awaits_children:
            return self.failure is None and not self.pause_requested
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
            begun = {"step_open_since": event.at, "idle_starts": run.idle_starts + 1}
            return {**close_step(run, run.worked_at), **begun, "asked": None, "calls": {}}
        case StepSucceeded() | StepSkipped():
            return close_step(run, event.at)
        case ModelAsked(estimate=estimate, call=call) if call:
            return {"spent": charge(run.spent, paid(estimate)), "calls": {**run.calls, call: paid(estimate)}}
        case ModelAnswered(call=call, usage=usage) if call in run.calls:
            left = {name: one for name, one in run.calls.items() if name != call}
            return {"spent": charge(run.spent, paid(usage), run.calls[call]), "calls": left}
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
        case EnvironmentPrepared():
            return {"environments": (*run.environments, data)}
        case SandboxChosen(level=level, executor=executor):
            return {"sandbox_level": level, "executor": executor}
        case OutputWritten(tree=tree) | EditsFound(tree=tree):
            return {"output_tree": tree}
        case ModelSwitched(whole_run=True):
            return {"fell_back": True}
        case SnapshotTaken(snapshot=snapshot, tree=tree):
            return {"base_snapshot": snapshot} if run.state is State.INIT else {"tree": tree}
        case BaselineRecorded():
            return {"baseline": data}
        case RepoMap() as repo_map:
            return {"repo_map": repo_map}
        case Plan() as plan:
            return {"plan": with_status(plan, NodeStatus.PENDING), "changed_by": (), "children": _ended(run)}
        case PlanRevised(plan=plan):
            return {"plan": plan, "changed_by": (), "children": remembered(run.children, plan)}
        case ChildStarted():
            return {"children": (*run.children, started(data))}
        case ChildJoined():
            return _on_joined(run, data)
        case PatchProposed(patch=patch, tree=tree):
            another = run.proposal is None or tree != run.proposal.tree
            handed_over = {"committed": None, "uncommitted": None} if another else {}
            settled = {} if data.refused_by else {"chain": run.chain.accepted()}
            return {"proposal": data, "attempted": (*run.attempted, patch), **handed_over, **settled}
        case TestResult() as result:
            return _on_judged(run, result)
        case Reflection() as reflection:
            return {"reflection": reflection}
        case Review() as review:
            return {"review": review}
        case ArtifactStored(name=name, artifact=artifact):
            return {"documents": {**run.documents, name: artifact}}
        case HunksReviewed(tree=accepted):
            return {"accepted_tree": accepted}
        case ProofRecorded():
            return {"proof": data, "verdict": data.verdict, "confidence": data.confidence}
        case GuardrailBlocked():
            return {"violations": run.violations + 1}
        case ContextCondensed():
            return {"spent": uncharged(run).spent, "asked": None}  # the call that did not fit was refused
        case StepFailed(failure=failure):
            run = without_refused_call(run, failure)
            changed = {"spent": run.spent, "asked": run.asked, **close_step(run, event.at)}
            return {**changed, "failures": (*run.failures, failure)}
        case _:
            return _on_control(run, event)


def _on_control(run: Run, event: Event) -> dict[str, object]:
    match event.type, event.data:
        case EventType.BUNDLE_WRITTEN, data:
            return {"bundle": getattr(data, "path", None)}
        case _, CommitRecorded() as committed:
            return {"committed": committed, "uncommitted": None}
        case _, LandingQueued() | Landed() | LandingRefused():
            return {"landing": event.data}
        case _, PatchApplied() as applied:
            return {"applied": applied}
        case _, DependencyDegraded(dependency=dependency, failure=failure) if dependency == COMMIT:
            return {"uncommitted": failure}
        case _, ApprovalRequested() as request:
            return {"approvals": (*run.approvals, Approval(request=request))}
        case _, ApprovalDecided() as decided:
            return {"approvals": tuple(_answered(one, decided) for one in run.approvals)}
        case _, CheckpointRecorded() as checkpoint:
            return _on_checkpoint(run, checkpoint)
        case _, CheckpointFailed() as failed:
            return {"chain": run.chain.failed(failed), **_carried_out(run, failed.request_id)}
        case _, Promoted(tree=tree):
            return {"chain": run.chain.model_copy(update={"promoted": tree}), "tree": tree}
        case _, RolledBack(failure=None) as undone:
            return {"chain": run.chain.rolled_back(), "tree": undone.tree, **_carried_out(run, undone.request_id)}
        case _, MessageSent(type="user", delivered=False) as lost:
            return {"undelivered": (*run.undelivered, lost.content), **_carried_out(run, lost.request_id)}
        case _, (RolledBack(request_id=request_id) | MessageSent(request_id=request_id)):
            return _carried_out(run, request_id)
        case _, SessionRequested() as request:
            return {"asked_of_session": (*run.asked_of_session, request)}
        case _, ModeChanged(execution_mode=mode, strategy=strategy):
            changed = {"execution_mode": mode, "strategy": strategy or run.task.strategy}
            return {"task": run.task.model_copy(update=changed)}
        case _, RunForked():
            children, plan = dropped(run.children, run.plan)
            return {"children": children, "plan": plan}
        case EventType.PAUSE_REQUESTED, _:
            return {"pause_requested": True}
        case EventType.CANCEL_REQUESTED, _:
            return {"cancel_requested": True}
        case _, RunPaused(unattended=unattended):
            waits = {"pause_requested": False, "parked_until": None, "awaits_children": False}
            return {**close_step(run, run.worked_at if unattended else event.at), **_wait(run, State.PAUSED), **waits}
        case _, RunBlocked(failure=failure, until=until, children=awaited):
            parked = {"failure": failure, "parked_until": until, "awaits_children": bool(awaited)}
            return {**close_step(run, event.at), **_wait(run, State.BLOCKED), **parked}
        case _, RunResumed(granted=granted, limits=limits):
            back = run.resume_state or run.state
            grants = run.grants + (1 if granted else 0)
            budget, totals = after_resume(run.task.budget, run.limits, limits, granted=granted)
            return {
                "task": run.task if budget is run.task.budget else run.task.model_copy(update={"budget": budget}),
                "limits": totals,
                "chain": run.chain.reopened(),
                "state": back,
                "resume_state": None,
                "failure": None,
                "parked_until": None,
                "awaits_children": False,
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
                "awaits_children": False,
                "pause_requested": False,
                "cancel_requested": False,
            }
        case _:
            return {}


def _on_queued(run: Run, event: Event, data: StepQueued) -> dict[str, object]:
    spent = run.spent.model_copy(update={"step_turns": 0, "step_wall_us": 0})
    if data.state is State.IMPLEMENT and event.attempt == 1 and not data.again:
        spent = spent.model_copy(update={"iterations": spent.iterations + 1})
    plan, children = run.plan, run.children
    if plan is not None and data.state is State.IMPLEMENT:
        plan = _reopened(run)
        children = remembered(children, plan)
    return {
        "children": children,
        "state": data.state,
        "step_id": event.step_id,
        "attempt": event.attempt,
        "steps_queued": run.steps_queued + (1 if event.attempt == 1 else 0),
        "red_cycles": 0 if data.state is State.PLAN else run.red_cycles,
        "spent": spent,
        "narrowed": data.narrowed,
        "tree": None,
        "plan": plan,
        "changed_by": () if data.state is State.IMPLEMENT else run.changed_by,
    }


def _reopened(run: Run) -> Plan | None:
    """The plan of another iteration. Where files are kept, succeeded nodes stay succeeded."""
    pipeline = PIPELINES.get(run.task.kind)
    if run.plan is None or (pipeline is not None and pipeline.keeps_files):
        return run.plan
    return reopened(run.plan, run.changed_by)


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


def _ended(run: Run) -> tuple[Child, ...]:
    """The children without what they made: a new plan begins without it."""
    return tuple(child.model_copy(update={"kept": False}) for child in run.children)


def _on_joined(run: Run, data: ChildJoined) -> dict[str, object]:
    spent = charge(run.spent, data.usage)
    spent = spent.model_copy(update={"wall_us": spent.wall_us + data.wall_us})
    plan = run.plan
    if plan is not None and data.outcome == "conflict":
        plan = with_status(plan, NodeStatus.PENDING, data.node)
    return {"children": joined(run.children, data), "spent": spent, "plan": plan, "tree": data.tree}


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


def _on_checkpoint(run: Run, checkpoint: CheckpointRecorded) -> dict[str, object]:
    """Frozen time is free: the open step counts as begun that much later."""
    opened = run.step_open_since
    return {
        "chain": run.chain.recorded(checkpoint),
        "tree": checkpoint.tree,
        "step_open_since": None if opened is None else opened + checkpoint.frozen_us,
        **_carried_out(run, checkpoint.request_id),
    }


def _carried_out(run: Run, request_id: str) -> dict[str, object]:
    left = tuple(one for one in run.asked_of_session if one.request_id != request_id)
    return {} if len(left) == len(run.asked_of_session) else {"asked_of_session": left}


def _wait(run: Run, state: State) -> dict[str, object]:
    return {"state": state, "resume_state": run.resume_state if run.state in WAITING else run.state}


def charge(spent: Spent, usage: Usage, instead_of: Usage | None = None) -> Spent:
    """Add `usage`, in place of the estimate that was charged before."""
    before = instead_of or Usage()
    return spent.model_copy(
        update={
            "turns": spent.turns + usage.turns,
            "tokens": spent.tokens + usage.tokens - before.tokens,
            "unpriced_tokens": spent.unpriced_tokens + usage.unpriced_tokens - before.unpriced_tokens,
            "cost_usd": max(0.0, round(spent.cost_usd + usage.cost_usd - before.cost_usd, 9)),
        }
    )


def paid(estimate: Usage) -> Usage:
    """The tokens and money of an estimate; a call is a turn only once its reply is recorded."""
    return Usage(tokens=estimate.tokens, cost_usd=estimate.cost_usd, unpriced_tokens=estimate.unpriced_tokens)


def uncharged(run: Run) -> Run:
    """The run without the estimate of the call that the provider refused."""
    if run.asked is None:
        return run
    return run.model_copy(update={"spent": charge(run.spent, Usage(), run.asked), "asked": None})


def without_refused_call(run: Run, failure: Failure) -> Run:
    """The run after `failure`: a call of the model that the provider refused costs nothing."""
    return uncharged(run) if failure.details.get(UNCHARGED) is True else run


def close_step(run: Run, until: int) -> dict[str, object]:
    """Charge the time of the open step up to `until` to the step and to the run."""
    if run.step_open_since is None:
        return {}
    wall = max(0, until - run.step_open_since)
    charged = {"wall_us": run.spent.wall_us + wall, "step_wall_us": run.spent.step_wall_us + wall}
    return {"spent": run.spent.model_copy(update=charged), "step_open_since": None}
