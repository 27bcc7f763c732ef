"""Task kinds as data: the states of each kind, its roles, its gates and its budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from codepilot.core.artifacts import GateName
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Budget, TaskKind, TaskSpec

WORK = (State.MAP_REPO, State.PLAN, State.REFLECT, State.IMPLEMENT)
"""The states that lead to a change, in the order in which `back_to` looks for one."""
AGENT_STATES = frozenset({*WORK, State.REVIEW})
TEST_GATES: tuple[GateName, ...] = ("fail_to_pass", "pass_to_pass")


@dataclass(frozen=True)
class Pipeline:
    """How tasks of one kind are worked on."""

    kind: TaskKind
    states: tuple[State, ...]
    """The states in order. `REFLECT` is entered only when gates are red."""
    gates: tuple[GateName, ...]
    """The gates of every task of this kind; `gates_of` adds those of the task."""
    budget: Budget
    roles: frozenset[State] = AGENT_STATES
    """The states in which an agent works, if it has the role."""
    replan: Literal["red_cycles", "repeated_signature"] = "red_cycles"
    """What leads from REFLECT to PLAN: two red cycles in a row, always or only if a failure signature repeats."""
    warn_at_iteration: int | None = None

    def after(self, state: State) -> State:
        """The state that follows when `state` is done."""
        if state is State.REFLECT:
            return State.IMPLEMENT
        forward = [one for one in (*self.states, State.DONE) if one is not State.REFLECT]
        return forward[forward.index(state) + 1]

    def back_to(self, state: State) -> State | None:
        """The first state from `state` on that this kind has; None if this kind has no agent."""
        return next((one for one in WORK[WORK.index(state) :] if one in self.states), None)


_CHANGE = (State.INIT, State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.TEST, State.REFLECT, State.REVIEW)

PIPELINES: Mapping[TaskKind, Pipeline] = {
    TaskKind.BUGFIX: Pipeline(
        kind=TaskKind.BUGFIX, states=(*_CHANGE, State.FINALIZE), gates=TEST_GATES, budget=Budget()
    ),
    TaskKind.CHANGE: Pipeline(
        kind=TaskKind.CHANGE, states=(*_CHANGE, State.FINALIZE), gates=TEST_GATES, budget=Budget(iterations=15)
    ),
    TaskKind.BUILD: Pipeline(
        kind=TaskKind.BUILD,
        states=tuple(one for one in (*_CHANGE, State.FINALIZE) if one is not State.MAP_REPO),
        gates=TEST_GATES,
        budget=Budget(iterations=15),
        replan="repeated_signature",
        warn_at_iteration=12,
    ),
}


def pipeline_of(kind: TaskKind) -> Pipeline:
    """The pipeline of a kind; a kind without one cannot be submitted."""
    if (pipeline := PIPELINES.get(kind)) is None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Tasks of kind {kind} cannot be run yet.",
            next_action=f"Use one of: {', '.join(PIPELINES)}.",
        )
    return pipeline


_CHOSEN: Mapping[str, tuple[GateName, ...]] = {
    "tests_pass": TEST_GATES,
    "compiles": ("compiles",),
    "lint_clean": ("lint",),
}


def gates_of(task: TaskSpec) -> tuple[GateName, ...]:
    """The gates that a task's change must pass, in the order in which they are judged."""
    chosen = (gate for criterion in task.evaluation.success for gate in _CHOSEN[criterion])
    commands: list[GateName] = ["command" for _ in task.accept]
    return (*dict.fromkeys((*pipeline_of(task.kind).gates, *chosen)), *commands)
