"""Budgets of real runs: what a step used in one life is not given back in the next, and who nears the end is warned."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_kit import CHEAP, CODE, checkout, runtime

from codepilot.agents import StepContext
from codepilot.agents.protocol import write_file
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.events import BudgetWarned, EventDraft, EventType, SearchProgressed, State, StepQueued
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.pipeline import PIPELINES
from codepilot.core.task import Capability, TaskKind
from codepilot.engine import Request, Runtime, Worker, make_task, pause, resume, submit

__all__ = ["checkout", "runtime"]

WORKED_SEC = 1.5


class TwoLives:
    """Works for a while and is stopped; in its next life it asks what is left."""

    name = "two lives"
    roles = frozenset({State.IMPLEMENT})
    needs = Capability.WRITE_WITH_DIFF
    languages = None

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self.left: list[float] = []

    def perform(self, role: State, context: StepContext) -> PatchCandidate:
        self.left.append(context.seconds_left())
        if len(self.left) > 1:
            raise CodePilotError(FailureKind.MODEL_REFUSED, "That was all.")
        time.sleep(WORKED_SEC)
        seen = SearchProgressed(position=1, tried=1, plausible=0)
        context.record(EventDraft(type=EventType.SEARCH_PROGRESSED, data=seen))
        self._stop()
        context.raise_if_stopped()
        raise AssertionError("the step was to stop at its safe point")


@pytest.mark.variants
@pytest.mark.parametrize("paused", [True, False])
def test_the_time_of_a_step_is_one_budget_for_all_its_lives(runtime: Runtime, checkout: Path, paused: bool) -> None:
    run = submit(
        runtime, make_task(Request(repo=str(checkout), budget={"step_wall_sec": 300, "wall_sec": 9000}), CHEAP)
    )
    agent = TwoLives(lambda: pause(runtime, run.run_id) if paused else first.abort())
    first = Worker(runtime, agent_for=lambda task: agent)
    if paused:
        assert first.drive(run.run_id).state is State.PAUSED
        resume(runtime, run.run_id)
    else:
        start = runtime.store.claim_next(first.name, run.run_id)
        assert start is not None
        first.execute(start)
        assert runtime.store.load(run.run_id).state is State.IMPLEMENT
    Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    before, after = agent.left
    assert 250 < before <= 300
    assert after <= before - WORKED_SEC, "what it had used is used"
    runtime.store.check(run.run_id)


ERRORS = [error.__name__ for error in (ValueError, TypeError, KeyError, IndexError, OSError, NameError)]
ERRORS += [
    error.__name__ for error in (LookupError, OverflowError, RuntimeError, BufferError, EOFError, ArithmeticError)
]


class AlwaysWrong:
    """Each of its changes fails in a way of its own."""

    name = "always wrong"
    roles = frozenset({State.IMPLEMENT})
    needs = Capability.WRITE_WITH_DIFF
    languages = None

    def __init__(self, breaks: str = "    return width + height") -> None:
        self._breaks = breaks

    def perform(self, role: State, context: StepContext) -> PatchCandidate:
        if context.run.spent.iterations > len(ERRORS):
            raise CodePilotError(FailureKind.MODEL_REFUSED, "That was all.")
        error = ERRORS[context.run.spent.iterations - 1]
        write_file(context, "shapes.py", CODE.replace(self._breaks, f"    raise {error}\n{self._breaks}").encode())
        return PatchCandidate(diff="", touched_files=("shapes.py",), rationale="another try")


@pytest.mark.slow
def test_new_code_is_warned_of_its_last_iterations(runtime: Runtime, checkout: Path) -> None:
    task = make_task(Request(repo=str(checkout), tests=("test_shapes.ShapesTest.test_area",)), CHEAP)
    building = task.model_copy(update={"kind": TaskKind.BUILD, "budget": PIPELINES[TaskKind.BUILD].budget})
    run = submit(runtime, building)
    agent = AlwaysWrong(breaks="    return")
    ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    events = runtime.store.events(run.run_id)
    (warned,) = [event for event in events if isinstance(event.data, BudgetWarned)]
    assert warned.data == BudgetWarned(budget="iterations", used=12, limit=15)
    following = events[warned.seq].data
    assert isinstance(following, StepQueued)
    assert following.state is State.IMPLEMENT
    entered = [event for event in events[: warned.seq] if isinstance(event.data, StepQueued)]
    assert sum(event.data.state is State.IMPLEMENT for event in entered) == 11  # type: ignore[attr-defined]
    assert ended.spent.iterations == len(ERRORS) + 1, "a warning ends nothing"
