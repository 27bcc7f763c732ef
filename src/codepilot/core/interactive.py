"""Execution modes: how an agent's files become the change, and the settings of the interactive mode. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from codepilot.core.contract import Contract

ExecutionMode = Literal["deterministic", "interactive"]
Strategy = Literal["direct", "shadow"]
Revert = Literal["none", "files", "smart"]
ViolationSeverity = Literal["info", "warning", "error", "critical"]

SEVERITIES: tuple[ViolationSeverity, ...] = ("info", "warning", "error", "critical")
REVERTS: tuple[Revert, ...] = ("none", "files", "smart")
MOST_CONCURRENT = 10
"""The most interactive runs that one home works on at a time."""

_STRATEGIES = {"direct_worktree": "direct", "shadow_workspace": "shadow"}
_SHADOW_KEYS = ("promotion_strategy", "cleanup_on_failure", "max_shadow_size_mb")

Milliseconds = Annotated[int, Field(gt=0, le=86_400_000)]


class InteractiveSettings(Contract):
    """How agents work that write files themselves while the platform watches, checks and rolls back."""

    execution_mode: ExecutionMode = "deterministic"
    """`deterministic` checks the change once, at the end of the step; `interactive` watches the agent and checks it at
    checkpoints."""
    strategy: Strategy | None = None
    """`direct` lets the agent work in the run's tree, `shadow` promotes valid checkpoints to it. Without one it is
    `direct`, or `shadow` where the plan touches contracts or schemas."""
    watchdog_poll_interval_ms: Milliseconds = 2_000
    """How often the tree is looked at, besides whenever the agent reports the end of a tool."""
    checkpoint_interval_ms: Milliseconds = 30_000
    """The longest time between checkpoints while files change."""
    min_checkpoint_interval_ms: Annotated[int, Field(ge=0, le=86_400_000)] = 5_000
    """The shortest time between checkpoints that nobody asked for."""
    max_uncommitted_changes: Annotated[int, Field(gt=0)] = 50
    """How many changed files bring the next checkpoint forward."""
    validation_on_checkpoint: bool = True
    """False records checkpoints without checking them. The last one of a step is always checked."""
    validation_budget_ms: Milliseconds = 1_000
    """A check of more than 100 changed files that would take longer takes a sample, except at the end."""
    revert: Revert = "none"
    """`files` puts back the files that break a rule, `smart` also what belongs to them, and everything if that is not
    enough; `none` only tells the agent."""
    violation_severity: ViolationSeverity = "warning"
    """The severity of a broken rule. `error` and `critical` block landing until a later checkpoint is valid."""
    promotion_strategy: Literal["atomic"] = "atomic"
    """How a shadow's checkpoint becomes the run's tree: by an exchange of directories."""
    cleanup_on_failure: bool = True
    """True if a shadow is removed when its step fails."""
    max_shadow_size_mb: Annotated[int, Field(gt=0)] = 2_048
    """The largest shadow, in MiB."""
    max_execution_time_ms: Milliseconds | None = None
    """How long the agent may work in one step; the budget holds anyway."""
    acknowledgement_ms: Annotated[int, Field(ge=0, le=10_000)] = 10_000
    """How long an agent may take to acknowledge a message."""
    concurrent: Annotated[int, Field(gt=0, le=MOST_CONCURRENT)] = 5
    """How many interactive runs one home works on at a time."""
    lock_lease_sec: Annotated[int, Field(gt=0)] = 300
    """How long a contract lock holds without being renewed."""
    lock_conflict: Literal["wait", "tell"] = "wait"
    """`wait` blocks a run that meets another run's contract lock; `tell` reports it to the agent as a violation."""

    @model_validator(mode="before")
    @classmethod
    def _of_the_seed(cls, values: Any) -> Any:
        """Accept `revert_on_violation` and the table `shadow_workspace`."""
        if not isinstance(values, dict):
            return values
        given = dict(values)
        reverting = given.pop("revert_on_violation", given.pop("revertOnViolation", None))
        if reverting is not None and "revert" not in given:
            given["revert"] = "smart" if _true(reverting) else "none"
        shadow = given.pop("shadow_workspace", given.pop("shadowWorkspace", None))
        if isinstance(shadow, dict):
            if _true(shadow.get("enabled", False)):
                given.setdefault("strategy", "shadow")
            unknown = sorted(set(shadow) - {"enabled", *_SHADOW_KEYS})
            if unknown:
                raise ValueError(f"there is no setting interactive.shadow_workspace.{unknown[0]}")
            given.update({key: shadow[key] for key in _SHADOW_KEYS if key in shadow})
        return given

    @field_validator("strategy", mode="before")
    @classmethod
    def _alias(cls, value: object) -> object:
        return _STRATEGIES.get(value, value) if isinstance(value, str) else value

    @field_validator("promotion_strategy", mode="before")
    @classmethod
    def _not_incremental(cls, value: object) -> object:
        if value == "incremental":
            raise ValueError(
                "promotion_strategy incremental is not supported: a tree that is promoted file by file has moments in"
                " which it is neither the old nor the new one; use atomic"
            )
        return value

    def tightened(self, wish: InteractiveSettings) -> InteractiveSettings:
        """These settings with the stricter ones of a repository, which alone decides on the mode."""
        return InteractiveSettings(
            execution_mode=wish.execution_mode,
            strategy="shadow" if "shadow" in (self.strategy, wish.strategy) else self.strategy or wish.strategy,
            watchdog_poll_interval_ms=min(self.watchdog_poll_interval_ms, wish.watchdog_poll_interval_ms),
            checkpoint_interval_ms=min(self.checkpoint_interval_ms, wish.checkpoint_interval_ms),
            min_checkpoint_interval_ms=min(self.min_checkpoint_interval_ms, wish.min_checkpoint_interval_ms),
            max_uncommitted_changes=min(self.max_uncommitted_changes, wish.max_uncommitted_changes),
            validation_on_checkpoint=self.validation_on_checkpoint or wish.validation_on_checkpoint,
            validation_budget_ms=max(self.validation_budget_ms, wish.validation_budget_ms),
            revert=max(self.revert, wish.revert, key=REVERTS.index),
            violation_severity=max(self.violation_severity, wish.violation_severity, key=SEVERITIES.index),
            cleanup_on_failure=self.cleanup_on_failure or wish.cleanup_on_failure,
            max_shadow_size_mb=min(self.max_shadow_size_mb, wish.max_shadow_size_mb),
            max_execution_time_ms=_least(self.max_execution_time_ms, wish.max_execution_time_ms),
            acknowledgement_ms=self.acknowledgement_ms,
            concurrent=min(self.concurrent, wish.concurrent),
            lock_lease_sec=self.lock_lease_sec,
            lock_conflict="wait" if "wait" in (self.lock_conflict, wish.lock_conflict) else "tell",
        )


class ModeSwitch(Contract):
    """How a run goes on when it is resumed; None keeps what it had."""

    execution_mode: ExecutionMode | None = None
    strategy: Strategy | None = None


def strategy_for(wanted: Strategy | None, configured: Strategy | None, *, risky: bool) -> Strategy:
    """The strategy of a step: what the task or the configuration names, else `shadow` for a risky change."""
    return wanted or configured or ("shadow" if risky else "direct")


def _true(value: object) -> bool:
    return value is True or str(value).lower() in ("true", "1", "yes", "on")


def _least(mine: int | None, wish: int | None) -> int | None:
    return min((one for one in (mine, wish) if one is not None), default=None)
