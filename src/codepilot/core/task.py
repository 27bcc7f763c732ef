"""The task contract: the goal, its budget and risk, and how success is judged."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, PositiveInt, field_validator, model_validator

from codepilot.core import DEFAULT_AGENT
from codepilot.core.commit import branch_problem
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.memory import MemorySettings
from codepilot.core.policy import Host, Policy


class TaskKind(StrEnum):
    BUGFIX = "bugfix"
    SCAFFOLD = "scaffold"
    BUILD = "build"
    CHANGE = "change"


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
    wall_sec: Seconds = Field(
        default=1800.0, validation_alias=AliasChoices("wall_sec", "wallSec", "maxWallSec", "max_wall_time_sec")
    )
    step_wall_sec: Seconds = 600.0
    turns_per_step: PositiveInt = Field(
        default=10, validation_alias=AliasChoices("turns_per_step", "turnsPerStep", "maxToolCallsPerStep")
    )
    turns: PositiveInt | None = Field(default=None, validation_alias=AliasChoices("turns", "max_steps", "maxSteps"))
    command_sec: Seconds = Field(
        default=300.0, validation_alias=AliasChoices("command_sec", "commandSec", "commandTimeoutSec")
    )
    tokens: PositiveInt = 2_000_000
    cost_usd: Dollars = 5.0
    patch_lines: PositiveInt = Field(
        default=300, validation_alias=AliasChoices("patch_lines", "patchLines", "maxPatchLOC")
    )


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


class TaskSpec(Contract):
    """A task, normalised: the first event of every run."""

    task_id: str
    kind: TaskKind = Field(default=TaskKind.BUGFIX, validation_alias=AliasChoices("kind", "type"))
    goal: Goal
    repo: str = Field(validation_alias=AliasChoices("repo", "repoUrl", "repo_url"))
    ref: str | None = Field(default=None, validation_alias=AliasChoices("ref", "repoRef", "repo_ref"))
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
    priority: int = Field(default=0, ge=-100, le=100)
    """Runs of a higher priority are worked on first."""
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

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts that code of the task may reach, by policy or approval."""
        return tuple(dict.fromkeys((*self.policy.hosts, *self.approved_hosts)))

    @property
    def test_hosts(self) -> tuple[Host, ...]:
        """Further hosts that the test command may reach."""
        return tuple(dict.fromkeys((*self.policy.test_hosts, *self.approved_test_hosts)))

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
        return self


class FollowUp(Contract):
    """A suggestion for a next task, ready to be submitted."""

    title: str
    kind: str
    inputs: JsonObject = {}
    origin: TaskOrigin
