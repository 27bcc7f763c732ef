"""What others ask of a run arrives between any two events of its step, and a door may be slow: nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, DONE, MAP, PLAN, RIGHT, EditingAgent, checkout, drive, runtime, states, until

from codepilot.agents import CodeActAgent
from codepilot.core.events import Event, EventType, State, StepStarted
from codepilot.core.failures import FailureKind
from codepilot.engine import Request, Runtime, Worker, cancel, make_task, pause, resume, submit

__all__ = ["checkout", "runtime"]


@pytest.mark.parametrize(("turn", "state"), [(0, State.MAP_REPO), (1, State.PLAN), (4, State.REVIEW)])
def test_a_cancel_between_two_events_of_a_step_holds(runtime: Runtime, checkout: Path, turn: int, state: State) -> None:
    asked: dict[int, Callable[[], None]] = {turn: lambda: _cancel(runtime)}
    run, events = drive(runtime, checkout, until(MAP, PLAN, RIGHT, DONE, APPROVE, before=asked))
    assert run.state is State.ABORTED
    assert run.failure is not None
    assert run.failure.kind is FailureKind.CANCELLED
    assert states(events)[-1] is state, "no further step was begun"


def test_a_pause_between_two_events_of_a_step_holds(runtime: Runtime, checkout: Path) -> None:
    asked: dict[int, Callable[[], None]] = {0: lambda: pause(runtime, runtime.store.find("last"))}
    model = until(MAP, PLAN, RIGHT, DONE, APPROVE, before=asked)
    run, events = drive(runtime, checkout, model)
    assert run.state is State.PAUSED
    assert states(events)[-1] is State.PLAN, "the call in flight was waited for, and no other was made"
    assert len(model.requests) == 1
    resume(runtime, run.run_id)
    agent = CodeActAgent(model)
    assert Worker(runtime, agent_for=lambda task: agent).drive(run.run_id).state is State.DONE
    runtime.store.check(run.run_id)


@pytest.mark.variants
def test_a_listener_that_is_slow_costs_no_step(runtime: Runtime, checkout: Path) -> None:
    slow = iter(range(2))

    def listen(event: Event) -> None:
        if event.type is EventType.STEP_SUCCEEDED and next(slow, None) is not None:
            time.sleep(1.6)

    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    ended = Worker(runtime, listen, agent_for=lambda task: EditingAgent()).drive(run.run_id)
    assert ended.state is State.DONE
    events = runtime.store.events(run.run_id)
    fences = {event.data.fence for event in events if isinstance(event.data, StepStarted)}
    assert fences == {1}, "no step was given back while its hand was busy"


def _cancel(runtime: Runtime) -> None:
    cancel(runtime, runtime.store.find("last"))
