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
    """The state of a run."""

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
    """The base of the run: a commit, and the exact tree with uncommitted files."""

    repo_id: str
    commit: str
    commit_tree: str
    tree: str
    checkout: str | None = None
    lineage: str = ""
    """The repository whose memories the run shares: its first commit, or the checkout if that is unknown."""
    carried: tuple[ArtifactRef, ...] = ()
    """The trees as bytes, for workers on other machines."""

    @property
    def dirty(self) -> bool:
        """True if there were uncommitted changes when the run began."""
        return self.tree != self.commit_tree


class WorkspaceCreated(Contract):
    workspace: str
    path: str


class SandboxChosen(Contract):
    """The sandbox level, and the URL of the executor if code does not run on the worker's machine."""

    level: str
    executor: str | None = None


class BaselineRecorded(Contract):
    """What failed before anything was changed."""

    targets: tuple[str, ...]
    signature: str
    before: TestSummary
    suite: Literal["full", "partial", "none"]
    cut_short: str = ""
    """The limit that stopped the suite before its end; empty if it finished."""
    report: ArtifactRef | None = None


class StepQueued(Contract):
    state: State
    reason: str = ""
    narrowed: bool = False
    """True if the suite is too slow: from here on, only the named tests and those that ended in time are run."""
    again: bool = False
    """True if the run returns to a state that it had entered; this does not count as an iteration."""


class StepStarted(Contract):
    worker: str
    fence: int


class Usage(Contract):
    """Turns, tokens and money used. `tokens` includes cached ones."""

    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens read from the provider's cache."""
    unpriced_tokens: int = 0
    """Tokens of unknown price, which `cost_usd` leaves out."""


class StepSucceeded(Contract):
    state: State
    note: str = ""


class StepFailed(Contract):
    state: State
    failure: Failure


class StepSkipped(Contract):
    """The agent does not have the role of this state."""

    state: State
    reason: str


class RepoMapped(Contract):
    repo_map: RepoMap


class PlanCreated(Contract):
    plan: Plan


class NodeChanged(Contract):
    """A plan node changed its status. `result` is the value that a succeeded node returned."""

    node: str
    role: str = ""
    note: str = ""
    result: JsonObject = {}
    failure: Failure | None = None
    blocked: tuple[str, ...] = ()
    """Nodes that cannot run because this one failed."""


class ContextCondensed(Contract):
    """The observations of these turns were shortened, because the conversation neared the context limit."""

    turns: tuple[int, ...]
    before: int
    after: int
    """Estimated tokens of the request."""


class ModelAsked(Contract):
    """A request is about to be sent. The run is charged the estimate until the reply reports its usage."""

    model: str
    estimate: Usage
    context_tokens: int | None = None


class ModelSwitched(Contract):
    """Another model continues the conversation, because the previous one made no progress."""

    model: str
    to: str
    reason: str


class RepairsSought(Contract):
    """The model-free engine searched for repairs, by policy or on an agent's request."""

    by: Literal["policy", "agent"]
    tests: tuple[str, ...]
    tried: int
    found: int
    chosen: bool = False
    """True if its best repair becomes the change, without a model."""
    action: JsonObject = {}
    confidence: float = 0.0
    reason: str = ""


class ContextGathered(Contract):
    """The context that was considered for an agent, best first, and what was shown, condensed or left out."""

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
    """One call of a skill by an action, as the kernel reports it."""

    skill: str
    status: Literal["success", "error", "timeout", "policy_violation"]
    duration_ms: float = 0.0
    violation: str = ""
    """The forbidden thing, as `[rule] skill: attempt`."""
    arguments: str = ""
    exit: str = ""
    """How the call failed: an exit code, an exception's name, or `timeout`. Only failed calls have these two fields."""


class TurnFinished(Contract):
    """The observation of an action. `tree` is the workspace after it."""

    turn: int
    observation: JsonObject
    tree: str | None = None
    calls: tuple[SkillCall, ...] = ()


class SearchProgressed(Contract):
    """The position of the repair search, with enough state to continue it after a crash."""

    position: int
    tried: int
    plausible: int
    per_sec: float = 0.0
    left_sec: float | None = None
    """Time left until the search reaches its limit."""
    best: str = ""
    state: JsonObject = {}


class GuardrailBlocked(Contract):
    """One violation. Forbidden files in the tree count as one, however many `paths` there are."""

    skill: str
    rule: str
    attempt: str
    paths: tuple[str, ...] = ()


class FilesFlagged(Contract):
    """Files of a change that a reader should check first: allowed, but able to run code unexpectedly."""

    rule: Literal["new_executable", "tool_configuration"]
    paths: tuple[str, ...]


class NetworkAllowed(Contract):
    """Code in the sandbox may reach these hosts, in the whole run or in one command."""

    scope: Literal["run", "command"]
    hosts: tuple[str, ...]
    by: Literal["policy", "person"]
    command: tuple[str, ...] = ()


class NetworkRefused(Contract):
    """Code in the sandbox was refused a connection to this host."""

    host: str
    why: str


class PatchProposed(Contract):
    """A proposed patch with its diff. `refused_by` names the rule that it breaks, if any."""

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
    """The result of the proof on a clean copy of the base, with its verdict."""

    ok: bool
    verdict: Verdict | None
    confidence: float
    checks: tuple[PolicyCheck, ...] = ()
    after: TestSummary = TestSummary()
    suite: Literal["full", "partial", "none"] = "none"
    reason: str = ""
    regression_test: RegressionTest | None = None
    """The test that was attached, or the reason why none was; None if none was wanted."""


class BundleWritten(Contract):
    """`files` (the bundle's files by name) and `tree` (the changed tree) are set if other machines may read them."""

    path: str
    sha256: str
    files: dict[str, ArtifactRef] = {}
    tree: ArtifactRef | None = None


class SnapshotTaken(Contract):
    snapshot: str
    tree: str


class SnapshotKept(Contract):
    """A snapshot was stored as an artifact, so that any machine can fetch it."""

    snapshot: str
    kept: ArtifactRef


class SnapshotRestored(Contract):
    snapshot: str


class DependencyDegraded(Contract):
    """An optional part failed; `consequence` says what the run does without it."""

    dependency: str
    consequence: str
    failure: Failure


class RunForked(Contract):
    """The events before this one were copied from another run."""

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
    """True if no worker held the run: its open step is charged up to its last event."""


class RunBlocked(Contract):
    """The run waits for a person, or until a known time."""

    failure: Failure
    until: int | None = None


class RunResumed(Contract):
    """The run continues. `granted` adds the whole budget once more."""

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
    **{kind: data for kind in EventType if (data := globals().get(kind.value.title().replace("_", "")))},
    **dict.fromkeys((EventType.NODE_STARTED, EventType.NODE_SUCCEEDED, EventType.NODE_FAILED), NodeChanged),
    **dict.fromkeys((EventType.PAUSE_REQUESTED, EventType.CANCEL_REQUESTED), Requested),
    EventType.APPROVAL_REQUESTED: ApprovalRequested,
    EventType.APPROVAL_DECIDED: ApprovalDecided,
    EventType.COMMIT_RECORDED: CommitRecorded,
    EventType.MEMORY_RECALLED: MemoryRecalled,
    EventType.MEMORY_RECORDED: MemoryRecorded,
    EventType.NOTIFICATION_SENT: NotificationSent,
    EventType.NOTIFICATION_FAILED: NotificationFailed,
}
"""What each type of event carries. A class above whose name is the type in CamelCase is found by that name."""


class EventDraft(Contract):
    """An event before the store assigns its sequence number."""

    type: EventType
    data: SerializeAsAny[Contract]
    step_id: str | None = None
    attempt: int = 0
    artifacts: tuple[ArtifactRef, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _typed_data(cls, values: object) -> object:
        """Parse stored data as the class of the event's type."""
        if isinstance(values, dict) and isinstance(values.get("data"), dict):
            values = {**values, "data": DATA[EventType(values["type"])].model_validate(values["data"])}
        return values

    @model_validator(mode="after")
    def _data_fits(self) -> Self:
        if type(self.data) is not DATA[self.type]:
            raise ValueError(f"{self.type} carries {DATA[self.type].__name__}, not {type(self.data).__name__}")
        return self


class Event(EventDraft):
    """A stored event. `seq` counts from 1 without gaps within a run; `at` is microseconds UTC."""

    event_id: str
    seq: int = Field(ge=1)
    run_id: str
    at: int

    @classmethod
    def placed(cls, draft: EventDraft, *, event_id: str, seq: int, run_id: str, at: int) -> Self:
        """The event that stores `draft` at `seq` of a run's log."""
        return cls(**dict(draft), event_id=event_id, seq=seq, run_id=run_id, at=at)
