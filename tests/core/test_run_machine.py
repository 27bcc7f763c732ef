"""The state machine under every sequence of outcomes."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_kit import AGENT_KINDS, OUTCOMES, Log, failed, red

from codepilot.core.artifacts import TestResult, TestSummary
from codepilot.core.decide import (
    Failed,
    Outcome,
    Paused,
    Red,
    Refused,
    Succeeded,
    decide,
    decide_cancel,
    decide_resume,
    decide_start,
)
from codepilot.core.events import (
    TERMINAL,
    WAITING,
    BaselineRecorded,
    BundleWritten,
    DependencyDegraded,
    EventType,
    GuardrailBlocked,
    Requested,
    SandboxChosen,
    SnapshotTaken,
    State,
    StepQueued,
    TurnStarted,
    Usage,
)
from codepilot.core.failures import HANDLING, Failure, FailureKind, Origin
from codepilot.core.run import replay
from codepilot.core.spending import exhausted
from codepilot.core.task import Budget, TaskKind

BASELINE = BaselineRecorded(targets=("t",), signature="s", before=TestSummary(failed=("t",)), suite="full")


@given(
    outcomes=st.lists(st.tuples(OUTCOMES, st.floats(0, 400)), max_size=60),
    kind=st.sampled_from(AGENT_KINDS),
    iterations=st.integers(1, 6),
)
def test_no_sequence_of_outcomes_leaves_a_run_stuck_or_over_budget(
    outcomes: list[tuple[Outcome, float]], kind: TaskKind, iterations: int
) -> None:
    log = Log(kind=kind, budget=Budget(iterations=iterations, wall_sec=1000))
    for outcome, seconds in outcomes:
        run = log.now
        if run.terminal:
            assert decide(run, outcome, log.clock) == []
            break
        if run.state in WAITING:
            log.add(decide_resume(run))
            assert log.now.state not in WAITING
            continue
        before = len(log.events)
        log.ends(outcome, seconds)
        ends = [e for e in log.events[before:] if e.type in (EventType.STEP_QUEUED, EventType.RUN_FINISHED)]
        waits = [e for e in log.events[before:] if e.type in (EventType.RUN_PAUSED, EventType.RUN_BLOCKED)]
        assert len(ends) + len(waits) == 1, "exactly one thing follows a step"
        assert log.now.spent.iterations <= iterations * log.now.grants
        if log.now.state not in TERMINAL | WAITING:
            assert exhausted(log.now) is None
    assert replay(log.events) == log.now
    assert [event.seq for event in log.events] == list(range(1, len(log.events) + 1))


@given(st.lists(OUTCOMES, min_size=200, max_size=200))
@settings(max_examples=10)
def test_every_run_ends(outcomes: list[Outcome]) -> None:
    log = Log()
    for outcome in outcomes:
        if log.now.terminal:
            return
        if log.now.state in WAITING:
            log.add(decide_resume(log.now))
        else:
            log.ends(outcome, seconds=20)
    assert log.now.terminal


def test_two_red_cycles_ask_for_a_new_plan_and_a_third_does_not_at_once() -> None:
    log = Log()
    states = []
    log.reach(State.TEST)
    for signature in ("a", "b", "c"):
        log.ends(red(signature))
        assert log.now.state is State.REFLECT
        log.ends(Succeeded())
        states.append(log.now.state)
        log.reach(State.TEST)
    assert states == [State.IMPLEMENT, State.PLAN, State.IMPLEMENT]


def test_build_replans_only_when_a_failure_repeats() -> None:
    log = Log(kind=TaskKind.BUILD, budget=Budget(iterations=15))
    log.reach(State.TEST)
    for signature in ("a", "b"):
        log.ends(red(signature))
        log.ends(Succeeded())
        assert log.now.state is State.IMPLEMENT
        log.reach(State.TEST)
    log.ends(red("a"))
    log.ends(Succeeded())
    assert log.now.state is State.PLAN


def test_the_same_failure_three_times_ends_the_run_with_a_diagnosis() -> None:
    log = Log(budget=Budget(iterations=20))
    log.reach(State.TEST)
    for _ in range(3):
        assert not log.now.terminal
        log.reach(State.TEST)
        log.ends(red("same"))
    assert log.now.state is State.FAILED
    assert log.now.failure is not None
    assert log.now.failure.kind is FailureKind.REPEATED_FAILURE


def test_infrastructure_failures_are_tried_twice() -> None:
    log = Log()
    log.reach(State.TEST)
    log.ends(failed(FailureKind.EXECUTOR_LOST))
    assert (log.now.state, log.now.attempt) == (State.TEST, 2)
    step = log.now.step_id
    log.ends(failed(FailureKind.EXECUTOR_LOST))
    assert log.now.state is State.FAILED
    assert log.now.step_id == step


def test_a_retry_is_not_an_iteration() -> None:
    log = Log()
    log.reach(State.IMPLEMENT)
    log.ends(failed(FailureKind.EXECUTOR_LOST))
    assert log.now.spent.iterations == 1


def test_a_missing_tool_maps_the_repository_again() -> None:
    log = Log()
    log.reach(State.TEST)
    log.ends(failed(FailureKind.TOOL_MISSING))
    assert log.now.state is State.MAP_REPO


def queued(log: Log) -> list[bool]:
    return [event.data.narrowed for event in log.events if isinstance(event.data, StepQueued)]


def slow_messages(log: Log) -> list[str]:
    return [event.data.failure.message for event in log.events if isinstance(event.data, DependencyDegraded)]


def test_a_suite_that_takes_too_long_before_the_change_narrows_all_that_follows() -> None:
    log = Log(tests=("t",))
    log.started()
    log.record(EventType.BASELINE_RECORDED, BASELINE.model_copy(update={"suite": "partial", "cut_short": "Too long."}))
    log.add(decide(log.now, Succeeded(), log.clock))
    assert (log.now.state, log.now.narrowed) == (State.MAP_REPO, True)
    log.reach(State.REVIEW)
    log.ends(Refused(Failure(kind=FailureKind.REVIEW_REFUSED, message="no")))
    log.reach(State.DONE)
    assert queued(log) == [False] + [True] * (len(queued(log)) - 1)
    assert slow_messages(log) == ["Too long."], "it is reported once"


@pytest.mark.parametrize(
    ("passed", "suite", "narrows"), [(True, "partial", True), (True, "full", False), (False, "partial", False)]
)
def test_a_suite_that_takes_too_long_with_the_change_narrows_unless_the_change_is_to_blame(
    passed: bool, suite: Literal["partial", "full"], narrows: bool
) -> None:
    log = Log(tests=("t",))
    log.started()
    log.record(EventType.BASELINE_RECORDED, BASELINE)
    log.reach(State.TEST)
    result = TestResult(passed=passed, cmd=("t",), exit_code=0, suite=suite, signature="" if passed else "s")
    log.record(EventType.TESTS_JUDGED, result)
    log.ends(Succeeded() if passed else Red(result))
    assert log.now.narrowed is narrows
    assert len(slow_messages(log)) == (1 if narrows else 0)
    log.ends(failed(FailureKind.EXECUTOR_LOST))
    assert (log.now.attempt, log.now.narrowed) == (2, narrows), "a retry does not forget it"


def test_a_suite_that_was_narrowed_stays_so_when_a_budget_is_granted_again() -> None:
    log = Log(tests=("t",), budget=Budget(wall_sec=50.0))
    log.started()
    log.record(EventType.BASELINE_RECORDED, BASELINE)
    log.reach(State.TEST)
    log.started(60)
    result = TestResult(passed=True, cmd=("t",), exit_code=0, suite="partial")
    log.record(EventType.TESTS_JUDGED, result)
    log.add(decide(log.now, Succeeded(), log.clock))
    assert log.now.state is State.ABORTED
    log.add(decide_resume(log.now))
    assert (log.now.state, log.now.narrowed) == (State.REVIEW, True)


def test_a_suite_that_takes_too_long_and_shows_nothing_to_repair_ends_the_run() -> None:
    log = Log()
    log.ends(failed(FailureKind.SUITE_TIMEOUT))
    assert log.now.state is State.FAILED


def test_the_third_violation_ends_the_run() -> None:
    log = Log()
    log.reach(State.IMPLEMENT)
    for number in range(3):
        log.record(EventType.GUARDRAIL_BLOCKED, GuardrailBlocked(skill="s", rule="r", attempt="a"))
        log.ends(failed(FailureKind.POLICY_VIOLATION, f"number {number}"))
        if number < 2:
            assert not log.now.terminal
            log.reach(State.IMPLEMENT)
    assert log.now.state is State.FAILED
    assert log.now.failure is not None
    assert log.now.failure.kind is FailureKind.POLICY_VIOLATION


def test_iterations_are_a_budget_that_resume_grants_again() -> None:
    log = Log(budget=Budget(iterations=1))
    log.reach(State.TEST)
    log.ends(red("one"))
    log.ends(Succeeded())
    assert log.now.state is State.ABORTED
    assert log.now.failure is not None
    assert log.now.failure.kind is FailureKind.BUDGET_EXCEEDED
    log.add(decide_resume(log.now))
    assert (log.now.state, log.now.spent.iterations) == (State.IMPLEMENT, 2), "what was reflected holds"


def test_wall_time_counts_open_steps_only_and_survives_a_dead_worker() -> None:
    log = Log(budget=Budget(wall_sec=100))
    log.started(30)
    log.record(EventType.TURN_STARTED, TurnStarted(turn=1, action={}, usage=Usage(turns=1)))
    log.clock += int(500e6)
    log.started(30)
    assert 29 < log.now.spent.wall_us / 1e6 < 31
    log.add(decide(log.now, Succeeded(), log.clock))
    assert 59 < log.now.spent.wall_us / 1e6 < 61


def test_a_worker_that_dies_ten_times_without_progress_is_stopped() -> None:
    log = Log()
    for _ in range(10):
        log.started()
        assert decide_start(log.now) is None
        log.record(EventType.SANDBOX_CHOSEN, SandboxChosen(level="bubblewrap"))
        log.record(EventType.SNAPSHOT_TAKEN, SnapshotTaken(snapshot="s", tree="t"))
    log.started()
    refusal = decide_start(log.now)
    assert isinstance(refusal, Failed)
    assert refusal.failure.kind is FailureKind.CRASH_LOOP
    assert "died 10 times" in refusal.failure.message


def test_pause_and_resume_return_to_the_same_state_and_step() -> None:
    log = Log()
    log.reach(State.IMPLEMENT)
    step = log.now.step_id
    log.record(EventType.PAUSE_REQUESTED, Requested())
    log.ends(Paused())
    assert log.now.state is State.PAUSED
    log.add(decide_resume(log.now))
    assert (log.now.state, log.now.step_id, log.now.pause_requested) == (State.IMPLEMENT, step, False)


def test_cancel_wins_over_whatever_the_step_reports() -> None:
    log = Log()
    log.record(EventType.CANCEL_REQUESTED, Requested())
    log.ends(Succeeded())
    assert log.now.state is State.ABORTED
    assert log.now.failure is not None
    assert log.now.failure.kind is FailureKind.CANCELLED
    assert decide_cancel(log.now) == []
    assert decide_resume(log.now) == []


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if "resume" in HANDLING[kind].next_action])
def test_a_failure_that_advises_to_resume_can_be_resumed(kind: FailureKind) -> None:
    log = Log()
    log.reach(State.TEST)
    log.ends(failed(kind))
    if not log.now.terminal and log.now.state is State.TEST:
        log.ends(failed(kind))
    assert log.now.terminal or log.now.state is State.BLOCKED
    log.add(decide_resume(log.now))
    assert log.now.state is State.TEST
    assert log.now.failure is None


def test_a_failure_before_the_baseline_ends_the_run() -> None:
    for kind in (FailureKind.POLICY_VIOLATION, FailureKind.TOOL_MISSING):
        log = Log()
        log.ends(failed(kind))
        assert log.now.state is State.FAILED


def test_a_cancel_after_the_bundle_comes_too_late() -> None:
    log = Log()
    log.reach(State.FINALIZE)
    log.record(EventType.BUNDLE_WRITTEN, BundleWritten(path="/b", sha256="0"))
    log.record(EventType.CANCEL_REQUESTED, Requested())
    log.ends(Succeeded())
    assert log.now.state is State.DONE


def test_nothing_may_be_spent_where_the_budget_is_zero() -> None:
    log = Log(budget=Budget(cost_usd=0))
    assert exhausted(log.now) is None
    log.record(EventType.TURN_STARTED, TurnStarted(turn=1, action={}, usage=Usage(turns=1, cost_usd=0.01)))
    assert exhausted(log.now) is not None


def test_what_a_person_must_mend_blocks_instead_of_failing() -> None:
    log = Log()
    log.reach(State.PLAN)
    log.ends(failed(FailureKind.MODEL_AUTH))
    assert log.now.state is State.BLOCKED
    log.add(decide_resume(log.now))
    assert log.now.state is State.PLAN


def test_every_failure_kind_is_handled_and_says_what_to_do() -> None:
    assert set(HANDLING) == set(FailureKind)
    for kind, handling in HANDLING.items():
        assert handling.next_action.endswith("."), kind
        assert isinstance(handling.origin, Origin)


def test_a_queued_step_is_named_in_order() -> None:
    log = Log()
    log.reach(State.PLAN)
    steps = [e.step_id for e in log.events if isinstance(e.data, StepQueued)]
    assert steps == sorted(steps, key=str)
    assert len(set(steps)) == 3
