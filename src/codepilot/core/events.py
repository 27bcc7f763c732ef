"""Events: what happened, immutable, in order. Every view of a run is a projection of these."""

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, SerializeAsAny, model_validator

from codepilot.core.approval import ApprovalDecided, ApprovalRequested, PolicyDecided
from codepilot.core.artifacts import (
    ArtifactRef,
    Concern,
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
from codepilot.core.attempt import AttemptEnded, KeysSent
from codepilot.core.checkpoint import (
    CheckpointFailed,
    CheckpointRecorded,
    MessageSent,
    ModeChanged,
    Promoted,
    RolledBack,
    SessionRequested,
    UserEditsFound,
    ViolationAcknowledged,
)
from codepilot.core.commit import CommitRecorded
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.failures import Failure
from codepilot.core.landing import Landed, LandingQueued, LandingRefused
from codepilot.core.locks import LockReleased, LockTaken
from codepilot.core.memory import MemoryForgotten, MemoryRecalled, MemoryRecorded, MemorySolved
from codepilot.core.notify import NotificationFailed, NotificationSent
from codepilot.core.plan import Plan
from codepilot.core.review import HunksReviewed
from codepilot.core.task import Budget, FollowUp, TaskSpec


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
    PLAN_REVISED = "plan_revised"
    CHILD_STARTED = "child_started"
    CHILD_JOINED = "child_joined"
    SESSION_STARTED = "session_started"
    SESSION_ENDED = "session_ended"
    AGENT_SWITCHED = "agent_switched"
    KEYS_SENT = "keys_sent"
    ATTEMPT_ENDED = "attempt_ended"
    CONTEXT_GATHERED = "context_gathered"
    CONTEXT_CONDENSED = "context_condensed"
    MEMORY_RECALLED = "memory_recalled"
    MODEL_ASKED = "model_asked"
    MODEL_ANSWERED = "model_answered"
    MODEL_SWITCHED = "model_switched"
    REPAIRS_SOUGHT = "repairs_sought"
    TURN_STARTED = "turn_started"
    TURN_FINISHED = "turn_finished"
    SEARCH_PROGRESSED = "search_progressed"
    GUARDRAIL_BLOCKED = "guardrail_blocked"
    FILES_FLAGGED = "files_flagged"
    NETWORK_ALLOWED = "network_allowed"
    NETWORK_REFUSED = "network_refused"
    ENVIRONMENT_PREPARED = "environment_prepared"
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
    POLICY_DECIDED = "policy_decided"
    PAUSE_REQUESTED = "pause_requested"
    CANCEL_REQUESTED = "cancel_requested"
    RUN_PAUSED = "run_paused"
    RUN_BLOCKED = "run_blocked"
    RUN_RESUMED = "run_resumed"
    RUN_FINISHED = "run_finished"
    FOLLOW_UP_PROPOSED = "follow_up_proposed"
    MEMORY_RECORDED = "memory_recorded"
    MEMORY_SOLVED = "memory_solved"
    MEMORY_FORGOTTEN = "memory_forgotten"
    PATCH_APPLIED = "patch_applied"
    ARTIFACT_STORED = "artifact_stored"
    HUNKS_REVIEWED = "hunks_reviewed"
    OUTPUT_WRITTEN = "output_written"
    EDITS_FOUND = "edits_found"
    COMMIT_RECORDED = "commit_recorded"
    LOCK_TAKEN = "lock_taken"
    LOCK_RELEASED = "lock_released"
    LANDING_QUEUED = "landing_queued"
    LANDED = "landed"
    LANDING_REFUSED = "landing_refused"
    CHECKPOINT_RECORDED = "checkpoint_recorded"
    CHECKPOINT_FAILED = "checkpoint_failed"
    VIOLATION_ACKNOWLEDGED = "violation_acknowledged"
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled_back"
    SESSION_REQUESTED = "session_requested"
    MESSAGE_SENT = "message_sent"
    MODE_CHANGED = "mode_changed"
    USER_EDITS_FOUND = "user_edits_found"
    NOTIFICATION_SENT = "notification_sent"
    NOTIFICATION_FAILED = "notification_failed"


class TaskSpecRecorded(Contract):
    task: TaskSpec
    by: str = "user"
    """Who submitted it."""


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
    proposed: str | None = None
    """The tree with the change that a task of kind prove judges. The tests of the change are in `tree`, too."""
    before: str | None = None
    """The tree without any of the proposed change, if `tree` has the tests of it."""
    measured: ArtifactRef | None = None
    """The project and its suite on this very tree, if an earlier run of the same series recorded them."""

    @property
    def untouched(self) -> str:
        """The tree that the change, with its tests, applies to."""
        return self.before or self.tree

    @property
    def dirty(self) -> bool:
        """True if there were uncommitted changes when the run began."""
        return self.tree != self.commit_tree

    @property
    def described(self) -> str:
        """The commit, and what differs from it, in words."""
        difference = "the tests of the change" if self.before is not None else "uncommitted changes"
        return f"{self.commit[:12]}{f' with {difference}' if self.dirty else ''}"


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
    language: str = ""
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


class NodeChanged(Contract):
    """A plan node changed its status. `result` is the value that a succeeded node returned."""

    node: str
    role: str = ""
    note: str = ""
    result: JsonObject = {}
    failure: Failure | None = None
    blocked: tuple[str, ...] = ()
    """Nodes that cannot run because this one failed."""


class PlanRevised(Contract):
    """The plan from here on, and what changed: succeeded nodes outside the affected part stay as they are."""

    plan: Plan
    reason: str
    reopened: tuple[str, ...] = ()
    """Nodes that are done again."""
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Succeeded nodes that stay."""


class ChildStarted(Contract):
    """A child run works on one node of the plan, at the same time as others."""

    child_run_id: str
    node: str
    tree: str
    """The tree on which it begins."""
    budget: Budget
    """Its share of the run's budget."""


class ChildJoined(Contract):
    """What became of a child run. Only `merged` changes the workspace."""

    child_run_id: str
    node: str
    outcome: Literal["merged", "conflict", "failed"]
    tree: str
    """The workspace's tree after it."""
    touched_files: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    """Names of functions and classes in and around its change."""
    conflicts: tuple[str, ...] = ()
    """The paths that others changed in another way. The node is done again on the merged tree."""
    change: ArtifactRef | None = None
    """Its change as a patch to the tree on which it began."""
    usage: Usage = Usage()
    """What it spent of the run's budget."""
    wall_us: int = 0
    """The time that is charged to the run: that of the longest of the children which ended together."""
    failure: Failure | None = None


class SessionStarted(Contract):
    """An agent's program runs in the sandbox; `session_id` is the name by which it can be resumed."""

    agent: str
    session_id: str | None = None
    model: str = ""
    resumed: bool = False


class SessionEnded(Contract):
    """An agent's program ended. Its process is gone."""

    agent: str
    session_id: str | None = None
    how: Literal["finished", "failed", "stopped"]
    failure: Failure | None = None
    usage: Usage = Usage()
    """What the program itself reported."""


class AgentSwitched(Contract):
    """Another agent goes on from the same tree."""

    agent: str
    to: str
    reason: str


class ContextCondensed(Contract):
    """The observations of these turns were shortened, because the conversation neared the context limit."""

    turns: tuple[int, ...]
    left_out: tuple[int, ...] = ()
    """The turns that are not shown any more: short observations were not enough."""
    before: int
    after: int
    """Estimated tokens of the request."""


class ModelAsked(Contract):
    """A request is about to be sent. The run is charged the estimate until the reply reports its usage."""

    model: str
    estimate: Usage
    context_tokens: int | None = None
    call: str = ""
    """The name of a call through the model gateway, of which several may be open at a time."""


class ModelAnswered(Contract):
    """A call through the model gateway is over. What it used replaces its estimate; a refused call used nothing."""

    call: str
    model: str
    usage: Usage


class ModelSwitched(Contract):
    """Another model continues the conversation, because the previous one made no progress."""

    model: str
    to: str
    reason: str
    whole_run: bool = False
    """True if the other model has the rest of the run, not only of the conversation."""


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
    """Code in the sandbox may reach these hosts, in the whole run, in the open step or in one command."""

    scope: Literal["run", "step", "command"]
    hosts: tuple[str, ...]
    by: Literal["policy", "person"]
    command: tuple[str, ...] = ()


class EnvironmentPrepared(Contract):
    """Packages were installed, after a person allowed it, into an environment that later runs reuse."""

    key: str
    """The hash of what was installed."""
    path: str
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """The project's own lists of requirements."""
    hosts: tuple[str, ...] = ()
    """The registries that the installation could reach."""


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


class ProofRecorded(Contract):
    """The result of the proof on a clean copy of the base, with its verdict."""

    ok: bool
    verdict: Verdict | None
    confidence: float
    checks: tuple[PolicyCheck, ...] = ()
    after: TestSummary = TestSummary()
    suite: Literal["full", "partial", "none"] = "none"
    reason: str = ""
    concerns: tuple[Concern, ...] = ()
    """The reasons to doubt that the change is general."""
    confidence_parts: dict[str, float] = {}
    """The ingredients of the confidence, each from 0 to 1."""
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
    by: str = "user"


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
    """The run waits for a person, until a known time, or for its child runs."""

    failure: Failure | None = None
    """What a person must do, or why it waits until then; None while child runs are at work."""
    until: int | None = None
    children: tuple[str, ...] = ()
    """The child runs that it waits for."""


class RunResumed(Contract):
    """The run continues. `granted` adds the whole budget once more; `limits` are new values of named budgets."""

    granted: bool = False
    by: str = "user"
    limits: dict[str, float] = {}


class RunFinished(Contract):
    state: State
    failure: Failure | None = None
    unattended: bool = False


class ArtifactStored(Contract):
    """A document of the run for people: an answer, or the plan, commands and diff of a dry run."""

    name: Literal["answer", "plan", "commands", "diff"]
    artifact: ArtifactRef


class PatchApplied(Contract):
    checkout: str
    files: tuple[str, ...]
    by: str = "user"


class OutputWritten(Contract):
    """The files of a build were written to its directory, which then held `tree`."""

    directory: str
    tree: str
    files: tuple[str, ...]


class EditsFound(Contract):
    """A person changed files in the directory of a build since CodePilot wrote there; `tree` is what it holds now."""

    directory: str
    tree: str
    files: tuple[str, ...]
    diff: str = ""


DATA: dict[EventType, type[Contract]] = {
    **{kind: data for kind in EventType if (data := globals().get(kind.value.title().replace("_", "")))},
    **dict.fromkeys((EventType.NODE_STARTED, EventType.NODE_SUCCEEDED, EventType.NODE_FAILED), NodeChanged),
    **dict.fromkeys((EventType.PAUSE_REQUESTED, EventType.CANCEL_REQUESTED), Requested),
    EventType.REPO_MAPPED: RepoMap,
    EventType.PLAN_CREATED: Plan,
    EventType.TESTS_JUDGED: TestResult,
    EventType.REFLECTION_RECORDED: Reflection,
    EventType.REVIEW_RECORDED: Review,
    EventType.FOLLOW_UP_PROPOSED: FollowUp,
    EventType.APPROVAL_REQUESTED: ApprovalRequested,
    EventType.APPROVAL_DECIDED: ApprovalDecided,
    EventType.POLICY_DECIDED: PolicyDecided,
    EventType.KEYS_SENT: KeysSent,
    EventType.ATTEMPT_ENDED: AttemptEnded,
    EventType.COMMIT_RECORDED: CommitRecorded,
    EventType.LOCK_TAKEN: LockTaken,
    EventType.LOCK_RELEASED: LockReleased,
    EventType.LANDING_QUEUED: LandingQueued,
    EventType.LANDED: Landed,
    EventType.LANDING_REFUSED: LandingRefused,
    EventType.CHECKPOINT_RECORDED: CheckpointRecorded,
    EventType.CHECKPOINT_FAILED: CheckpointFailed,
    EventType.VIOLATION_ACKNOWLEDGED: ViolationAcknowledged,
    EventType.PROMOTED: Promoted,
    EventType.ROLLED_BACK: RolledBack,
    EventType.SESSION_REQUESTED: SessionRequested,
    EventType.MESSAGE_SENT: MessageSent,
    EventType.MODE_CHANGED: ModeChanged,
    EventType.USER_EDITS_FOUND: UserEditsFound,
    EventType.MEMORY_RECALLED: MemoryRecalled,
    EventType.MEMORY_RECORDED: MemoryRecorded,
    EventType.MEMORY_SOLVED: MemorySolved,
    EventType.MEMORY_FORGOTTEN: MemoryForgotten,
    EventType.HUNKS_REVIEWED: HunksReviewed,
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
