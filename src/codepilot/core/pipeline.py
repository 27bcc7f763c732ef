"""Task kinds as data: the states of each kind, its roles, its gates and its budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from codepilot.core.artifacts import GateName
from codepilot.core.events import State
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
    keeps_files: bool = False
    """True if an iteration goes on with the files of the one before; else it starts from the base."""

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
        gates=("security", "own_tests"),
        budget=Budget(iterations=15, wall_sec=7200.0, step_wall_sec=1800.0, turns_per_step=60, patch_lines=50_000),
        roles=frozenset({State.PLAN, State.IMPLEMENT, State.REFLECT}),
        replan="repeated_signature",
        warn_at_iteration=12,
        keeps_files=True,
    ),
    TaskKind.SCAFFOLD: Pipeline(
        kind=TaskKind.SCAFFOLD,
        states=(State.INIT, State.IMPLEMENT, State.TEST, State.FINALIZE),
        gates=("pass_to_pass", "compiles", "own_tests"),
        budget=Budget(patch_lines=2_000),
        roles=frozenset({State.IMPLEMENT}),
    ),
    TaskKind.QUESTION: Pipeline(
        kind=TaskKind.QUESTION,
        states=(State.INIT, State.IMPLEMENT, State.FINALIZE),
        gates=(),
        budget=Budget(iterations=2),
        roles=frozenset({State.IMPLEMENT}),
    ),
    TaskKind.PROMPT: Pipeline(
        kind=TaskKind.PROMPT,
        states=(State.INIT, State.IMPLEMENT, State.FINALIZE),
        gates=(),
        budget=Budget(iterations=1, patch_lines=1_000_000),
        roles=frozenset({State.IMPLEMENT}),
    ),
    TaskKind.PROVE: Pipeline(
        kind=TaskKind.PROVE,
        states=(State.INIT, State.TEST, State.REVIEW, State.FINALIZE),
        gates=(*TEST_GATES, "base_tests"),
        budget=Budget(patch_lines=1_000_000),
        roles=frozenset(),
    ),
}


def pipeline_of(kind: TaskKind) -> Pipeline:
    """The pipeline of a kind."""
    return PIPELINES[kind]


def pipeline_for(task: TaskSpec) -> Pipeline:
    """The pipeline of a task: that of its kind, or of a child run, whose change is judged with its parent's."""
    pipeline = pipeline_of(task.kind)
    if task.parent_run_id is None:
        return pipeline
    return replace(
        pipeline,
        states=(State.INIT, State.IMPLEMENT),
        gates=(),
        roles=frozenset({State.IMPLEMENT}),
        warn_at_iteration=None,
        keeps_files=False,
    )


_CHOSEN: Mapping[str, tuple[GateName, ...]] = {
    "tests_pass": (),  # every kind has its gates of tests
    "compiles": ("compiles",),
    "lint_clean": ("lint",),
}


def gates_of(task: TaskSpec) -> tuple[GateName, ...]:
    """The gates that a task's change must pass, in the order in which they are judged."""
    chosen = (gate for criterion in task.evaluation.success for gate in _CHOSEN[criterion])
    commands: list[GateName] = ["command" for _ in task.accept]
    return (*dict.fromkeys((*pipeline_of(task.kind).gates, *chosen)), *commands)
