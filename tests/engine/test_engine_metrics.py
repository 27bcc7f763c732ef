"""What a worker's process counts, after runs that did what is counted."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, DONE, MAP, PLAN, RIGHT, code, drive, replaced, result, until

from codepilot.core.events import Event, EventType, GuardrailBlocked, RunFinished, State, TurnFinished
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine import Request, Runtime, cancel, make_task, submit
from codepilot.engine.metrics import count
from codepilot.engine.monitor import StepMonitor
from codepilot.store import Store
from codepilot.telemetry import METRICS
from configured import configured

Counted = Callable[[], dict[str, float]]
THOUGHT = result(root_cause="it does not multiply", fix_hypothesis="multiply")


@pytest.fixture
def counted() -> Counted:
    """What was added to counters and histograms since the test began, by the samples that `/metrics` shows."""
    before = samples()
    return lambda: {name: value - before.get(name, 0) for name, value in samples().items()}


def samples() -> dict[str, float]:
    lines = (line.rpartition(" ") for line in METRICS.render().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def named(counted: dict[str, float], metric: str) -> dict[str, float]:
    """The samples of one metric that have grown, by their labels."""
    return {name.removeprefix(metric): value for name, value in counted.items() if name.startswith(metric) and value}


@pytest.mark.variants
def test_a_step_that_is_tried_again_is_a_retry_of_its_role(runtime: Runtime, checkout: Path, counted: Counted) -> None:
    def lost() -> None:
        raise CodePilotError(FailureKind.EXECUTOR_LOST, "it is gone")

    run, events = drive(runtime, checkout, until(MAP, PLAN, "never sent", RIGHT, DONE, APPROVE, before={2: lost}))
    assert run.state is State.DONE
    assert named(counted(), "codepilot_step_retries_total") == {'{role="IMPLEMENT"}': 1}
    steps = named(counted(), "codepilot_step_duration_seconds_count")
    assert steps['{role="IMPLEMENT",status="failed"}'] == steps['{role="IMPLEMENT",status="succeeded"}'] == 1
    assert named(counted(), "codepilot_run_total") == {'{status="success"}': 1}
    (took,) = named(counted(), "codepilot_run_duration_seconds_sum").values()
    assert took == pytest.approx((events[-1].at - events[0].at) / 1e6, abs=0.001)
    seconds = named(counted(), "codepilot_step_duration_seconds_sum")
    assert seconds.keys() == steps.keys(), "no step takes no time"
    assert sum(seconds.values()) <= took
    assert 0 < sum(named(counted(), "codepilot_workspace_snapshot_duration_seconds_sum").values()) <= took


@pytest.mark.variants
def test_a_return_to_the_planner_is_a_backtrack_and_nothing_else_is(
    runtime: Runtime, checkout: Path, counted: Counted
) -> None:
    first, second = replaced("width + height", "width - height"), replaced("width + height", "width // height")
    between: list[dict[str, float]] = []
    after_one: dict[int, Callable[[], None]] = {
        5: lambda: between.append(named(counted(), "codepilot_backtrack_total"))
    }
    drive(runtime, checkout, until(MAP, PLAN, first, DONE, THOUGHT, second, DONE, THOUGHT, before=after_one))
    assert between == [{}], "after one red cycle it is tried again"
    assert named(counted(), "codepilot_backtrack_total") == {"": 1}


def test_every_refusal_and_every_call_is_counted_by_its_kind(
    runtime: Runtime, checkout: Path, counted: Counted
) -> None:
    push = code("try:\n    run_command(['sudo', 'ls'])\nexcept Exception:\n    pass")
    plant = code("import os\nos.makedirs('sub/.git')")
    tidy = code("os.rmdir('sub/.git')")
    _, events = drive(runtime, checkout, until(MAP, PLAN, push, plant, tidy, RIGHT))
    violations = named(counted(), "codepilot_sandbox_violations_total")
    assert violations == reported(events, GuardrailBlocked, lambda one: [f'{{violation_type="{one.rule}"}}'])
    assert violations['{violation_type="nested_git"}'] == 1 and sum(violations.values()) == 2
    calls = named(counted(), "codepilot_tool_calls_total")
    assert calls == reported(
        events, TurnFinished, lambda one: [f'{{status="{call.status}",tool="{call.skill}"}}' for call in one.calls]
    )
    assert calls['{status="success",tool="read_file"}'] == 2 and calls['{status="success",tool="write_file"}'] == 1
    assert sum(value for name, value in calls.items() if "run_command" in name and "success" not in name) == 1


def reported(events: list[Event], kind: type, labels: Callable[..., list[str]]) -> dict[str, float]:
    """What the log says of the same."""
    return dict(Counter(label for event in events if isinstance(event.data, kind) for label in labels(event.data)))


def test_a_step_taken_from_a_dead_worker_is_counted(runtime: Runtime, checkout: Path, counted: Counted) -> None:
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    dead = Store.open(runtime.home.database, locks=runtime.home.locks)
    assert dead.claim_next("w-dead", run.run_id) is not None
    dead.close()
    with StepMonitor(runtime.store, "w-alive"):
        deadline = time.monotonic() + 30
        while not named(counted(), "codepilot_step_heartbeat_reclaim_total") and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1.0)
    assert named(counted(), "codepilot_step_heartbeat_reclaim_total") == {"": 1}, "once, however often it looks"
    started = runtime.store.claim_next("w-alive", run.run_id)
    assert started is not None and started.claim.fence == 3


def test_the_share_of_first_changes_that_held_is_that_of_runs_that_came_to_something(
    runtime: Runtime, checkout: Path
) -> None:
    run = submit(runtime, make_task(Request(repo=str(checkout)), configured()))

    def ends(state: State) -> float:
        data = RunFinished(state=state)
        event = Event(type=EventType.RUN_FINISHED, data=data, event_id="e", seq=2, run_id=run.run_id, at=run.created_at)
        count(run, [event])
        return samples()['codepilot_pass_at_1_ratio{set="runs"}']

    held = ends(State.DONE)
    assert held > 0
    assert ends(State.ABORTED) == held, "a run that was cancelled says nothing of its agent"
    assert ends(State.FAILED) < held


def test_a_run_that_ends_at_a_door_is_counted_there_once(runtime: Runtime, checkout: Path, counted: Counted) -> None:
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    assert cancel(runtime, run.run_id).state is State.ABORTED
    cancel(runtime, run.run_id)
    assert named(counted(), "codepilot_run_total") == {'{status="aborted"}': 1}
    assert named(counted(), "codepilot_run_duration_seconds_count") == {"": 1}
