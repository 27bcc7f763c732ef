"""Events: what happened, immutable, in order. Every view of a run is a projection of these."""

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, SerializeAsAny, model_validator

from codepilot.core.approval import ApprovalDecided, ApprovalRequested
from codepilot.core.artifacts import (
    ArtifactRef,
    ContextChoice,
    PatchCandidate,
    PolicyCheck,
    Reflection,
    RegressionTest,
    RepoMap,
    Review,
    TestResult,
    TestSummary,
)
from codepilot.core.commit import CommitRecorded
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.failures import Failure
from codepilot.core.memory import MemoryRecalled, MemoryRecorded
from codepilot.core.notify import NotificationFailed, NotificationSent
from codepilot.core.plan import Plan
from codepilot.core.task import FollowUp, TaskSpec


class State(StrEnum):
    """Where a run stands. Exactly one holds at any time."""

    INIT = "INIT"
    MAP_REPO = "MAP_REPO"
    PLAN = "PLAN"
    IMPLEMENT = "IMPLEMENT"
    TEST = "TEST"
    REFLECT = "REFLECT"
    REVIEW = "REVIEW"
    FINALIZE = "FINALIZE"
    PAUSED = "PAUSED"
    BLOCKED = "BLOCKED"
    DONE = "DONE"
    FAILED = "FAILED"
    ABORTED = "ABORTED"


TERMINAL = frozenset({State.DONE, State.FAILED, State.ABORTED})
WAITING = frozenset({State.PAUSED, State.BLOCKED})

Verdict = Literal["confirmed", "plausible"]


class EventType(StrEnum):
    TASK_SPEC_RECORDED = "task_spec_recorded"
    BASE_PINNED = "base_pinned"
    WORKSPACE_CREATED = "workspace_created"
    SANDBOX_CHOSEN = "sandbox_chosen"
    BASELINE_RECORDED = "baseline_recorded"
    STEP_QUEUED = "step_queued"
    STEP_STARTED = "step_started"
    STEP_SUCCEEDED = "step_succeeded"
    STEP_FAILED = "step_failed"
    STEP_SKIPPED = "step_skipped"
    REPO_MAPPED = "repo_mapped"
    PLAN_CREATED = "plan_created"
    NODE_STARTED = "node_started"
    NODE_SUCCEEDED = "node_succeeded"
    NODE_FAILED = "node_failed"
    CONTEXT_GATHERED = "context_gathered"
    CONTEXT_CONDENSED = "context_condensed"
    MEMORY_RECALLED = "memory_recalled"
    MODEL_ASKED = "model_asked"
    MODEL_SWITCHED = "model_switched"
    REPAIRS_SOUGHT = "repairs_sought"
    TURN_STARTED = "turn_started"
    TURN_FINISHED = "turn_finished"
    SEARCH_PROGRESSED = "search_progressed"
    GUARDRAIL_BLOCKED = "guardrail_blocked"
    FILES_FLAGGED = "files_flagged"
    NETWORK_ALLOWED = "network_allowed"
    NETWORK_REFUSED = "network_refused"
    PATCH_PROPOSED = "patch_proposed"
    TESTS_JUDGED = "tests_judged"
    REFLECTION_RECORDED = "reflection_recorded"
    REVIEW_RECORDED = "review_recorded"
    PROOF_RECORDED = "proof_recorded"
    BUNDLE_WRITTEN = "bundle_written"
    SNAPSHOT_TAKEN = "snapshot_taken"
    SNAPSHOT_KEPT = "snapshot_kept"
    SNAPSHOT_RESTORED = "snapshot_restored"
    DEPENDENCY_DEGRADED = "dependency_degraded"
    RUN_FORKED = "run_forked"
    BUDGET_WARNED = "budget_warned"
    APPROVAL_REQUESTED = "approval_requested"
    APPROVAL_DECIDED = "approval_decided"
    PAUSE_REQUESTED = "pause_requested"
    CANCEL_REQUESTED = "cancel_requested"
    RUN_PAUSED = "run_paused"
    RUN_BLOCKED = "run_blocked"
    RUN_RESUMED = "run_resumed"
    RUN_FINISHED = "run_finished"
    FOLLOW_UP_PROPOSED = "follow_up_proposed"
    MEMORY_RECORDED = "memory_recorded"
    PATCH_APPLIED = "patch_applied"
    COMMIT_RECORDED = "commit_recorded"
    NOTIFICATION_SENT = "notification_sent"
    NOTIFICATION_FAILED = "notification_failed"


class TaskSpecRecorded(Contract):
    task: TaskSpec


class BasePinned(Contract):
    """The base the whole run is measured against: a commit, and the exact tree (dirty files included)."""

    repo_id: str
    commit: str
    commit_tree: str
    tree: str
    checkout: str | None = None
    lineage: str = ""
    """Whose memories it shares: the first commit of its history, or where that is unknown this checkout's alone."""
    carried: tuple[ArtifactRef, ...] = ()
    """The trees as bytes, where workers on other machines may need them."""

    @property
    def dirty(self) -> bool:
        """Whether anything was uncommitted when the run began."""
        return self.tree != self.commit_tree


class WorkspaceCreated(Contract):
    workspace: str
    path: str


class SandboxChosen(Contract):
    """`executor` is where the code runs, if not on the worker's own machine."""

    level: str
    detail: str = ""
    executor: str | None = None


class BaselineRecorded(Contract):
    """What failed before anything was changed."""

    targets: tuple[str, ...]
    signature: str
    before: TestSummary
    suite: Literal["full", "partial", "none"]
    cut_short: str = ""
    """How a limit stopped the suite before its end, if one did."""
    report: ArtifactRef | None = None


class StepQueued(Contract):
    state: State
    reason: str = ""
    narrowed: bool = False
    """Whether the suite is too slow to be run whole from here on: the named tests count, and what ended in time."""
    again: bool = False
    """Where the run had been already: nothing new is begun, so it is no further iteration."""


class StepStarted(Contract):
    worker: str
    fence: int


class Usage(Contract):
    """What was used. `tokens` is all of them, those that a provider had cached included."""

    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Those of the input that were read from the provider's cache."""
    unpriced_tokens: int = 0
    """Those whose price is not known, and which `cost_usd` therefore leaves out."""


class StepSucceeded(Contract):
    state: State
    note: str = ""


class StepFailed(Contract):
    state: State
    failure: Failure


class StepSkipped(Contract):
    """The agent has no such role; said openly, and nothing invented in its place."""

    state: State
    reason: str


class RepoMapped(Contract):
    repo_map: RepoMap


class PlanCreated(Contract):
    plan: Plan


class NodeChanged(Contract):
    """`result` is what a node that succeeded gave back."""

    node: str
    role: str = ""
    note: str = ""
    result: JsonObject = {}
    failure: Failure | None = None
    blocked: tuple[str, ...] = ()
    """The nodes that are not walked because this one failed."""


class ContextCondensed(Contract):
    """From here on the observations of these turns are shown in short: the conversation neared its limit."""

    turns: tuple[int, ...]
    before: int
    after: int
    """Tokens of the request, as they were estimated."""


class ModelAsked(Contract):
    """A request is about to be sent: charged at its estimate until the reply tells what it used."""

    model: str
    estimate: Usage
    context_tokens: int | None = None


class ModelSwitched(Contract):
    """Another model goes on with the conversation, because the one before did not get anywhere."""

    model: str
    to: str
    reason: str


class RepairsSought(Contract):
    """The model-free engine looked for repairs: because policy has it try first, or because an agent asked it."""

    by: Literal["policy", "agent"]
    tests: tuple[str, ...]
    tried: int
    found: int
    chosen: bool = False
    """Whether its best one becomes the change, without a model."""
    action: JsonObject = {}
    confidence: float = 0.0
    reason: str = ""


class ContextGathered(Contract):
    """What was weighed for an agent to see, best first: what it was shown, whole or condensed, and what it was not."""

    recipe: str
    budget_tokens: int
    used_tokens: int
    choices: tuple[ContextChoice, ...]


class TurnStarted(Contract):
    """An agent's action, recorded before it is carried out."""

    turn: int
    action: JsonObject
    usage: Usage = Usage()


class SkillCall(Contract):
    """One call of a skill by an action, as the kernel tells it."""

    skill: str
    status: Literal["success", "error", "timeout", "policy_violation"]
    duration_ms: float = 0.0
    violation: str = ""
    """The forbidden thing, as `[rule] skill: attempt`."""
    arguments: str = ""
    exit: str = ""
    """How a call failed: a program's exit code, an exception's name, or `timeout`. Only such calls have these two."""


class TurnFinished(Contract):
    """What the action gave. `tree` is the workspace after it."""

    turn: int
    observation: JsonObject
    tree: str | None = None
    calls: tuple[SkillCall, ...] = ()


class SearchProgressed(Contract):
    """Where the repair search stands; enough to continue it after a crash."""

    position: int
    tried: int
    plausible: int
    per_sec: float = 0.0
    left_sec: float | None = None
    """What is left of its time, if it goes on to the end of that."""
    best: str = ""
    state: JsonObject = {}


class GuardrailBlocked(Contract):
    """One violation. What stands in the tree and may not is one, however many `paths` it has."""

    skill: str
    rule: str
    attempt: str
    paths: tuple[str, ...] = ()


class FilesFlagged(Contract):
    """Files of a change that a reader should look at first: allowed, yet able to run where nobody expects it."""

    rule: Literal["new_executable", "tool_configuration"]
    paths: tuple[str, ...]


class NetworkAllowed(Contract):
    """From here on code inside can reach these hosts: for the whole run, or for one command."""

    scope: Literal["run", "command"]
    hosts: tuple[str, ...]
    by: Literal["policy", "person"]
    command: tuple[str, ...] = ()


class NetworkRefused(Contract):
    """Code inside asked for a host that it may not reach."""

    host: str
    why: str


class PatchProposed(Contract):
    """A patch attempt with its whole diff; `refused_by` names the rule if it was not accepted."""

    patch: PatchCandidate
    diff: ArtifactRef
    tree: str
    snapshot: str
    refused_by: str = ""


class TestsJudged(Contract):
    __test__ = False

    result: TestResult


class ReflectionRecorded(Contract):
    reflection: Reflection


class ReviewRecorded(Contract):
    review: Review


class ProofRecorded(Contract):
    """What held on a clean copy of the base, and what that is worth."""

    ok: bool
    verdict: Verdict | None
    confidence: float
    checks: tuple[PolicyCheck, ...] = ()
    after: TestSummary = TestSummary()
    suite: Literal["full", "partial", "none"] = "none"
    reason: str = ""
    regression_test: RegressionTest | None = None
    """The test that was attached, or why none was; nothing where none was wanted."""


class BundleWritten(Contract):
    """Where doors on other machines may want it, `files` are its parts by name and `tree` is the changed tree."""

    path: str
    sha256: str
    files: dict[str, ArtifactRef] = {}
    tree: ArtifactRef | None = None


class SnapshotTaken(Contract):
    snapshot: str
    tree: str


class SnapshotKept(Contract):
    """A snapshot whose bytes any machine can fetch."""

    snapshot: str
    kept: ArtifactRef


class SnapshotRestored(Contract):
    snapshot: str


class DependencyDegraded(Contract):
    """Something the run can do without did not work, and what it goes without."""

    dependency: str
    consequence: str
    failure: Failure


class RunForked(Contract):
    """The events before this one are those of another run."""

    run_id: str
    seq: int


class BudgetWarned(Contract):
    budget: str
    used: float
    limit: float


class Requested(Contract):
    by: str = "user"
    reason: str = ""


class RunPaused(Contract):
    reason: str = ""
    unattended: bool = False
    """Whether nobody was at work on it then: what its open step used ends with the last that was recorded of it."""


class RunBlocked(Contract):
    """The run waits for a person, or until a time that is known."""

    failure: Failure
    until: int | None = None


class RunResumed(Contract):
    """Back to work; a run that had spent its budget is granted it once more."""

    granted: bool = False


class RunFinished(Contract):
    state: State
    failure: Failure | None = None
    unattended: bool = False


class FollowUpProposed(Contract):
    follow_up: FollowUp


class PatchApplied(Contract):
    checkout: str
    files: tuple[str, ...]


DATA: dict[EventType, type[Contract]] = {
    EventType.TASK_SPEC_RECORDED: TaskSpecRecorded,
    EventType.BASE_PINNED: BasePinned,
    EventType.WORKSPACE_CREATED: WorkspaceCreated,
    EventType.SANDBOX_CHOSEN: SandboxChosen,
    EventType.BASELINE_RECORDED: BaselineRecorded,
    EventType.STEP_QUEUED: StepQueued,
    EventType.STEP_STARTED: StepStarted,
    EventType.STEP_SUCCEEDED: StepSucceeded,
    EventType.STEP_FAILED: StepFailed,
    EventType.STEP_SKIPPED: StepSkipped,
    EventType.REPO_MAPPED: RepoMapped,
    EventType.PLAN_CREATED: PlanCreated,
    EventType.NODE_STARTED: NodeChanged,
    EventType.NODE_SUCCEEDED: NodeChanged,
    EventType.NODE_FAILED: NodeChanged,
    EventType.CONTEXT_GATHERED: ContextGathered,
    EventType.CONTEXT_CONDENSED: ContextCondensed,
    EventType.MEMORY_RECALLED: MemoryRecalled,
    EventType.MODEL_ASKED: ModelAsked,
    EventType.MODEL_SWITCHED: ModelSwitched,
    EventType.REPAIRS_SOUGHT: RepairsSought,
    EventType.TURN_STARTED: TurnStarted,
    EventType.TURN_FINISHED: TurnFinished,
    EventType.SEARCH_PROGRESSED: SearchProgressed,
    EventType.GUARDRAIL_BLOCKED: GuardrailBlocked,
    EventType.FILES_FLAGGED: FilesFlagged,
    EventType.NETWORK_ALLOWED: NetworkAllowed,
    EventType.NETWORK_REFUSED: NetworkRefused,
    EventType.PATCH_PROPOSED: PatchProposed,
    EventType.TESTS_JUDGED: TestsJudged,
    EventType.REFLECTION_RECORDED: ReflectionRecorded,
    EventType.REVIEW_RECORDED: ReviewRecorded,
    EventType.PROOF_RECORDED: ProofRecorded,
    EventType.BUNDLE_WRITTEN: BundleWritten,
    EventType.SNAPSHOT_TAKEN: SnapshotTaken,
    EventType.SNAPSHOT_KEPT: SnapshotKept,
    EventType.SNAPSHOT_RESTORED: SnapshotRestored,
    EventType.DEPENDENCY_DEGRADED: DependencyDegraded,
    EventType.RUN_FORKED: RunForked,
    EventType.BUDGET_WARNED: BudgetWarned,
    EventType.APPROVAL_REQUESTED: ApprovalRequested,
    EventType.APPROVAL_DECIDED: ApprovalDecided,
    EventType.PAUSE_REQUESTED: Requested,
    EventType.CANCEL_REQUESTED: Requested,
    EventType.RUN_PAUSED: RunPaused,
    EventType.RUN_BLOCKED: RunBlocked,
    EventType.RUN_RESUMED: RunResumed,
    EventType.RUN_FINISHED: RunFinished,
    EventType.FOLLOW_UP_PROPOSED: FollowUpProposed,
    EventType.MEMORY_RECORDED: MemoryRecorded,
    EventType.PATCH_APPLIED: PatchApplied,
    EventType.COMMIT_RECORDED: CommitRecorded,
    EventType.NOTIFICATION_SENT: NotificationSent,
    EventType.NOTIFICATION_FAILED: NotificationFailed,
}


class EventDraft(Contract):
    """An event before the store gives it its place in the log."""

    type: EventType
    data: SerializeAsAny[Contract]
    step_id: str | None = None
    attempt: int = 0
    artifacts: tuple[ArtifactRef, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _typed_data(cls, values: object) -> object:
        """Data read back from storage becomes the type its event has."""
        if isinstance(values, dict) and isinstance(values.get("data"), dict):
            values = {**values, "data": DATA[EventType(values["type"])].model_validate(values["data"])}
        return values

    @staticmethod
    def of(kind: EventType, data: Contract, step_id: str | None, attempt: int) -> "EventDraft":
        """One of a step, several times quicker than by its name: its data was checked when it was made."""
        given = {"type": kind, "data": data, "step_id": step_id, "attempt": attempt}
        _check_fit(kind, data)
        return EventDraft.of_checked({**given, "artifacts": ()}, set(given))

    @model_validator(mode="after")
    def _data_fits(self) -> Self:
        _check_fit(self.type, self.data)
        return self


def _check_fit(kind: EventType, data: Contract) -> None:
    if type(data) is not DATA[kind]:
        raise ValueError(f"{kind} carries {DATA[kind].__name__}, not {type(data).__name__}")


class Event(EventDraft):
    """An event in its place: `seq` counts from 1 without gaps within a run; `at` is microseconds UTC."""

    event_id: str
    seq: int = Field(ge=1)
    run_id: str
    at: int

    @classmethod
    def placed(cls, draft: EventDraft, *, event_id: str, seq: int, run_id: str, at: int) -> Self:
        """The draft in its place in a run's log."""
        place = {"event_id": event_id, "seq": seq, "run_id": run_id, "at": at}
        return cls.of_checked({**draft.__dict__, **place}, {*draft.model_fields_set, *place})
