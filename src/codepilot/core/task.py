"""The task contract: the goal, its budget and risk, and how success is judged."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AliasChoices, Field, PositiveInt, field_validator, model_validator

from codepilot.core import DEFAULT_AGENT
from codepilot.core.attempt import Attempt
from codepilot.core.commit import branch_problem
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.git_names import check_folder
from codepilot.core.interactive import ExecutionMode, InteractiveSettings, Strategy
from codepilot.core.memory import MemorySettings
from codepilot.core.policy import Host, Policy
from codepilot.core.scaffold import Scaffold


class TaskKind(StrEnum):
    BUGFIX = "bugfix"
    SCAFFOLD = "scaffold"
    BUILD = "build"
    CHANGE = "change"
    PROVE = "prove"
    QUESTION = "question"
    PROMPT = "prompt"


Language = Literal["python", "node", "java"]


class Capability(StrEnum):
    """The ladder of what an agent may do, weakest first."""

    READ_ONLY = "read_only"
    WRITE_WITH_DIFF = "write_with_diff"
    WRITE_AND_RUN_TESTS = "write_and_run_tests"
    FULL_SHELL = "full_shell"

    def allows(self, needed: Self) -> bool:
        ladder = list(Capability)
        return ladder.index(self) >= ladder.index(needed)


class InteractionMode(StrEnum):
    FULL_AUTONOMY = "full_autonomy"
    ASK_BEFORE_RISKY = "ask_before_risky"
    ASK_EVERY_STEP = "ask_every_step"


class MachineGoal(Contract):
    """The goal in machine-readable form."""

    type: str = "edit_code"
    repo: str = "workspace"
    target_outcome: str = "tests_pass"


class Goal(Contract):
    natural: str
    machine: MachineGoal = MachineGoal()


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
LONGEST_COMMAND_SEC = 86_400.0
"""The longest command that an executor allows."""


class Budget(Contract):
    """What a run may spend. Paused, blocked and parked time is free."""

    iterations: PositiveInt = Field(
        default=6, validation_alias=AliasChoices("iterations", "maxIterations", "max_iterations")
    )
    """How many times a change is attempted."""
    wall_sec: Seconds = Field(
        default=1800.0, validation_alias=AliasChoices("wall_sec", "wallSec", "maxWallSec", "max_wall_time_sec")
    )
    """Seconds of the whole run."""
    step_wall_sec: Seconds = 600.0
    """Seconds of one step."""
    turns_per_step: PositiveInt = Field(
        default=10, validation_alias=AliasChoices("turns_per_step", "turnsPerStep", "maxToolCallsPerStep")
    )
    """How many actions an agent takes in one step."""
    turns: PositiveInt | None = Field(default=None, validation_alias=AliasChoices("turns", "max_steps", "maxSteps"))
    """How many actions agents take in the whole run."""
    command_sec: Seconds = Field(
        default=300.0, validation_alias=AliasChoices("command_sec", "commandSec", "commandTimeoutSec")
    )
    """Seconds of one command, for example of the test suite; a day at most."""
    tokens: PositiveInt = 2_000_000
    """Tokens of all models, cached ones included."""
    cost_usd: Dollars = 5.0
    """Dollars of all models."""
    patch_lines: PositiveInt = Field(
        default=300, validation_alias=AliasChoices("patch_lines", "patchLines", "maxPatchLOC")
    )
    """Added and removed lines of the change; a larger one is refused in review."""
    parallel: PositiveInt = 3
    """How many independent parts of a plan are worked on at the same time, each as a run of its own; 1 for none."""


class Interaction(Contract):
    mode: InteractionMode = InteractionMode.ASK_BEFORE_RISKY


class RiskProfile(Contract):
    capability: Capability = Capability.WRITE_AND_RUN_TESTS
    interaction: Interaction = Interaction()


class Evaluation(Contract):
    """Which gates must hold before the change counts."""

    success: tuple[Literal["tests_pass", "compiles", "lint_clean"], ...] = ("tests_pass",)
    acceptance_hint: str = ""


class TaskOrigin(Contract):
    from_task: str


class ProposedChange(Contract):
    """A change that somebody made: a diff, the commit `ref`, or else the uncommitted files of the checkout."""

    diff: str | None = None
    ref: str | None = None


class TaskSpec(Contract):
    """A task, normalised: the first event of every run."""

    task_id: str
    kind: TaskKind = Field(default=TaskKind.BUGFIX, validation_alias=AliasChoices("kind", "type"))
    goal: Goal
    repo: str = Field(validation_alias=AliasChoices("repo", "repoUrl", "repo_url"))
    public_hosts_only: bool = False
    """True if the repository is fetched from public addresses alone, as for tasks that came over the network."""
    ref: str | None = Field(default=None, validation_alias=AliasChoices("ref", "repoRef", "repo_ref"))
    path: Annotated[str, AfterValidator(check_folder)] = ""
    """The file or directory of the repository that the task is about: the nearest project around it is repaired."""
    within: tuple[str, ...] = ()
    """Files or directories: without `tests`, the first failing test in them is repaired."""
    tests: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    budget: Budget = Budget()
    risk_profile: RiskProfile = RiskProfile()
    policy: Policy = Policy()
    approved_hosts: tuple[Host, ...] = ()
    """Hosts that a person approved for this run, beyond its policy."""
    approved_test_hosts: tuple[Host, ...] = ()
    """Hosts that a person approved for the test command only."""
    memory: MemorySettings = MemorySettings()
    evaluation: Evaluation = Evaluation()
    accept: tuple[str, ...] = ()
    """Commands that must succeed after the change. Each is a gate."""
    alters: tuple[str, ...] = ()
    """Existing tests, or files of tests, that a task of kind change may edit or remove. The others judge it."""
    proposed: ProposedChange | None = None
    """The change that a task of kind prove judges, on the commit `ref`."""
    scaffold: Scaffold | None = None
    """The module that a task of kind scaffold makes."""
    attempt: Attempt | None = None
    """The attempt of a batch that a task of kind prompt makes."""
    dry_run: bool = False
    """True if the change is only shown: it cannot be applied, committed or handed over."""
    priority: int = Field(default=0, ge=-100, le=100)
    """Runs of a higher priority are worked on first."""
    language: Language | None = None
    """The language of the program that a task of kind build makes; None means Python."""
    agent: str = DEFAULT_AGENT
    model: str | None = None
    """The chat model that the agent thinks with, for example `anthropic:claude-sonnet-4-6`."""
    fallback_model: str | None = None
    """The model that replies if the first is not available."""
    python: str | None = None
    sandbox_level: Literal["best", "bubblewrap", "landlock", "none"] = "best"
    notify: bool = False
    """True if the end of its runs is sent to the webhook. The URL is a setting of the sender."""
    origin: TaskOrigin | None = None
    branch: str | None = None
    """A new branch of the checkout's repository on which a confirmed change becomes a commit; `{run}` is the run."""
    execution_mode: ExecutionMode = "deterministic"
    """`deterministic` checks the change at the end of a step, `interactive` watches the agent while it works."""
    strategy: Strategy | None = None
    """Where an interactive agent works: in the run's tree, or in a shadow of it. By default the configuration says."""
    interactive: InteractiveSettings = InteractiveSettings()
    """How interactive work is watched and checked."""
    locks: Mapping[str, tuple[str, ...]] = {}
    """Names for files that one run at a time may change, with their patterns."""
    worktree: str | None = None
    """The directory where the run's tree is laid out for its user while an interactive agent works."""
    parent_run_id: str | None = None
    """The run whose plan this run works on a part of."""
    node_id: str | None = None
    """The node of that plan."""

    @property
    def starts_empty(self) -> bool:
        """True if its base is empty: it makes the directory `repo`, or works on that directory itself."""
        if self.attempt is not None:
            return self.attempt.in_place
        return self.scaffold is not None and not self.scaffold.join

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts that code of the task may reach, by policy or approval."""
        return tuple(dict.fromkeys((*self.policy.hosts, *self.approved_hosts)))

    @property
    def test_hosts(self) -> tuple[Host, ...]:
        """Further hosts that the test command may reach."""
        return tuple(dict.fromkeys((*self.policy.test_hosts, *self.approved_test_hosts)))

    @property
    def judged_by_commands(self) -> bool:
        """True for a change that its commands alone can judge, where the project has no tests."""
        return self.kind is TaskKind.PROVE and bool(self.accept) and not self.tests

    @field_validator("branch")
    @classmethod
    def _can_be_a_branch(cls, name: str | None) -> str | None:
        if name is not None and (problem := branch_problem(name)):
            raise ValueError(f"{name!r} cannot be a branch: {problem}")
        return name

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.goal.natural.strip():
            raise ValueError("the goal is empty: say what should be done")
        if any(not one.strip() for one in self.accept):
            raise ValueError("accept: a criterion is empty")
        if (self.kind is TaskKind.PROVE) != (self.proposed is not None):
            raise ValueError("a task of kind prove, and no other, has a proposed change")
        if (self.kind is TaskKind.PROMPT) != (self.attempt is not None):
            raise ValueError("a task of kind prompt, and no other, has an attempt")
        if (self.kind is TaskKind.SCAFFOLD) != (self.scaffold is not None):
            raise ValueError("a task of kind scaffold, and no other, has a scaffold")
        return self


class FollowUp(Contract):
    """A suggestion for a next task, ready to be submitted."""

    title: str
    kind: str
    inputs: JsonObject = {}
    origin: TaskOrigin


def split_criteria(criteria: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Criteria that name a test, and those that are commands: a command has a space or names no test."""
    tests = tuple(one for one in criteria if " " not in one.strip() and ("::" in one or "#" in one))
    return tests, tuple(one for one in criteria if one not in tests)
