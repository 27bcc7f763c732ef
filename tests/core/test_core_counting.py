"""What is counted, and where a count ends a run: attempts, iterations, red cycles, repetitions, budgets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from run_kit import AGENT_KINDS, OUTCOMES, Log, failed, red

from codepilot.core.artifacts import TestResult
from codepilot.core.contract import JsonObject
from codepilot.core.decide import (
    ASKED_TO_PAUSE,
    LEFT,
    MAX_ATTEMPTS,
    RED_CYCLES_BEFORE_REPLAN,
    SAME_FAILURE_LIMIT,
    Failed,
    Outcome,
    Paused,
    Refused,
    Succeeded,
    ask_cancel,
    ask_pause,
    decide,
    decide_cancel,
    decide_resume,
    decide_start,
)
from codepilot.core.events import (
    TERMINAL,
    WAITING,
    BudgetWarned,
    BundleWritten,
    EventType,
    ModelAsked,
    RunPaused,
    State,
    StepQueued,
    Usage,
)
from codepilot.core.failures import HANDLING, Failure, FailureKind
from codepilot.core.pipeline import PIPELINES
from codepilot.core.run import UNCHARGED, replay
from codepilot.core.spending import must_stop, no_turn_left, over_budget
from codepilot.core.task import Budget, TaskKind

RETRIED = sorted(kind for kind, handling in HANDLING.items() if handling.retryable)
AGENT_STATES = [State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.TEST, State.REVIEW]
MANY = Budget(iterations=1000, wall_sec=1e9)
GREEN = "green, and refused by the review"


def refused(reason: str) -> Refused:
    return Refused(Failure(kind=FailureKind.REVIEW_REFUSED, message=reason))


@given(kinds=st.lists(st.sampled_from(RETRIED), min_size=1, max_size=4), state=st.sampled_from(AGENT_STATES))
def test_a_step_is_attempted_twice_whatever_fails_and_an_attempt_is_no_iteration(
    kinds: list[FailureKind], state: State
) -> None:
    log = Log(budget=MANY)
    log.reach(state)
    entered = log.now.spent.iterations
    for number, kind in enumerate(kinds, start=1):
        step = log.now.step_id
        log.ends(failed(kind, f"failure {number}"))
        if number < MAX_ATTEMPTS:
            assert (log.now.state, log.now.step_id, log.now.attempt) == (state, step, number + 1)
            assert log.now.spent.iterations == entered
        else:
            mended = HANDLING[kind].agent_fixable and state is State.IMPLEMENT
            assert log.now.state is (State.REFLECT if mended else State.FAILED)
            return


@given(
    signs=st.lists(st.sampled_from("abcdefgh") | st.just(GREEN), min_size=1, max_size=12),
    kind=st.sampled_from([kind for kind in AGENT_KINDS if State.PLAN in PIPELINES[kind].states]),
)
@example(signs=["a", GREEN, "b", "c"], kind=TaskKind.BUGFIX)
def test_red_cycles_lead_where_the_rules_say(signs: list[str], kind: TaskKind) -> None:
    """A second implementation of the rule, written as a story: it must go the same way."""
    log = Log(kind=kind, budget=MANY)
    log.reach(State.TEST)
    in_a_row, seen = 0, []
    for number, sign in enumerate(signs):
        if sign == GREEN:
            log.record(EventType.TESTS_JUDGED, TestResult(passed=True, cmd=("t",), exit_code=0))
            log.ends(Succeeded())
            log.ends(refused(f"reason {number}"))
            assert log.now.state is State.IMPLEMENT
            in_a_row = 0
            log.reach(State.TEST)
            continue
        seen.append(sign)
        log.ends(red(sign))
        if seen.count(sign) >= SAME_FAILURE_LIMIT:
            assert (log.now.state, log.now.failure and log.now.failure.kind) == (
                State.FAILED,
                FailureKind.REPEATED_FAILURE,
            )
            return
        assert log.now.state is State.REFLECT
        in_a_row += 1
        repeated = len(set(seen)) < len(seen)
        back = in_a_row >= RED_CYCLES_BEFORE_REPLAN and (kind is not TaskKind.BUILD or repeated)
        log.ends(Succeeded())
        assert log.now.state is (State.PLAN if back else State.IMPLEMENT)
        in_a_row = 0 if back else in_a_row
        log.reach(State.TEST)


@given(reasons=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=10))
def test_a_review_that_asks_for_the_same_three_times_ends_the_run(reasons: list[str]) -> None:
    log = Log(budget=MANY)
    for number, reason in enumerate(reasons, start=1):
        log.reach(State.REVIEW)
        log.ends(refused(reason))
        if reasons[:number].count(reason) >= SAME_FAILURE_LIMIT:
            assert log.now.state is State.FAILED
            return
        assert (log.now.state, log.now.spent.iterations) == (State.IMPLEMENT, number + 1)


@pytest.mark.parametrize("kind", [kind for kind in AGENT_KINDS if State.TEST in PIPELINES[kind].states])
def test_only_new_code_is_warned_and_once_before_its_twelfth_iteration(kind: TaskKind) -> None:
    log = Log(kind=kind, budget=Budget(iterations=15, wall_sec=1e9))
    number = 0
    while not log.now.terminal:
        log.reach(State.TEST)
        log.ends(red(f"sign {(number := number + 1)}"))
        log.ends(Succeeded())
    warned = [event for event in log.events if event.type is EventType.BUDGET_WARNED]
    assert log.now.spent.iterations == 15
    assert len(warned) == (1 if kind is TaskKind.BUILD else 0)
    for event in warned:
        following = log.events[event.seq].data
        assert isinstance(event.data, BudgetWarned)
        assert (event.data.used, event.data.limit) == (12, 15)
        assert isinstance(following, StepQueued)
        assert following.state is State.IMPLEMENT
        assert replay(log.events[: event.seq + 1]).spent.iterations == 12


STOPS: dict[str, tuple[dict[str, Any], Any]] = {
    "wall_sec": ({"wall_sec": 50.0}, lambda log: log.started(60)),
    "tokens": ({"tokens": 1000}, lambda log: log.spend(tokens=1000)),
    "cost_usd": ({"cost_usd": 0.5}, lambda log: log.spend(cost_usd=0.6)),
}
OUTCOMES_THAT_GO_ON: dict[str, tuple[Outcome, State]] = {
    "succeeded": (Succeeded(), State.REVIEW),
    "red": (red(), State.REFLECT),
    "refused": (refused("no"), State.IMPLEMENT),
    "failed": (failed(FailureKind.EXECUTOR_LOST), State.TEST),
}
"""How TEST ends, and what would follow."""


@pytest.mark.parametrize("name", STOPS)
@pytest.mark.parametrize("outcome", OUTCOMES_THAT_GO_ON)
def test_a_spent_budget_stops_whatever_would_follow_and_resume_grants_it_again(name: str, outcome: str) -> None:
    budget, spend = STOPS[name]
    log = Log(budget=Budget(**budget))
    log.reach(State.TEST)
    spend(log)
    ended, following = OUTCOMES_THAT_GO_ON[outcome]
    log.add(decide(log.now, ended, log.clock))
    assert log.now.state is State.ABORTED
    assert log.now.failure is not None
    assert (log.now.failure.kind, log.now.failure.details["budget"]) == (FailureKind.BUDGET_EXCEEDED, name)
    log.add(decide_resume(log.now))
    assert (log.now.state, log.now.grants, log.now.failure) == (following, 2, None), "what was whole is not done again"
    assert log.now.spent.iterations == (2 if following is State.IMPLEMENT else 1)
    assert decide_start(log.now) is None


def test_the_last_turn_is_taken_to_its_end_and_what_needs_none_goes_on() -> None:
    log = Log(budget=Budget(turns=2))
    log.reach(State.IMPLEMENT)
    for _ in range(2):
        assert no_turn_left(log.now) is None
        log.spend()
    assert must_stop(log.now, log.clock) is None
    stopped = no_turn_left(log.now)
    assert stopped is not None and stopped.details == {"budget": "turns", "used": 2, "limit": 2}
    log.ends(Succeeded())
    assert log.now.state is State.TEST
    log.ends(red())
    log.ends(Succeeded())
    assert log.now.state is State.ABORTED and log.now.failure is not None, "to implement takes a turn"
    assert (log.now.failure.details["budget"], log.now.spent.iterations) == ("turns", 1)
    log.add(decide_resume(log.now))
    assert (log.now.state, log.now.spent.iterations) == (State.IMPLEMENT, 2)
    assert no_turn_left(log.now) is None


def test_a_worker_that_stops_in_order_is_no_crash_and_its_time_is_charged() -> None:
    log = Log()
    for _ in range(20):
        log.started(10)
        assert decide_start(log.now) is None
        log.add(decide(log.now, LEFT, log.clock))
    assert (log.now.state, log.now.attempt) == (State.INIT, 1)
    assert log.now.spent.wall_us >= 20 * 10_000_000


@pytest.mark.parametrize(("asked", "state"), [("pause", State.PAUSED), ("cancel", State.ABORTED)])
def test_what_was_asked_of_a_run_is_done_when_its_worker_stops(asked: str, state: State) -> None:
    log = Log()
    log.started(10)
    log.add(ask_pause(log.now) if asked == "pause" else ask_cancel(log.now))
    log.add(decide(log.now, LEFT, log.clock))
    assert log.now.state is state
    paused = log.events[-1].data
    assert not isinstance(paused, RunPaused) or paused.reason == ASKED_TO_PAUSE.reason


def test_a_run_whose_bundle_is_written_is_done_despite_a_cancel() -> None:
    log = Log()
    log.reach(State.FINALIZE)
    log.record(EventType.BUNDLE_WRITTEN, BundleWritten(path="/somewhere", sha256="0" * 64))
    log.add(decide_cancel(log.now))
    assert (log.now.state, log.now.failure) == (State.DONE, None)


@pytest.mark.parametrize("name", ["step_wall_sec", "turns_per_step"])
def test_what_a_step_may_spend_ends_the_run_as_a_budget_and_a_grant_begins_the_step_anew(name: str) -> None:
    log = Log()
    log.reach(State.IMPLEMENT)
    step = log.now.step_id
    log.ends(Failed(over_budget(name, 10, 10)))
    assert log.now.state is State.ABORTED
    assert log.now.failure is not None
    assert (log.now.failure.kind, log.now.failure.details["budget"]) == (FailureKind.BUDGET_EXCEEDED, name)
    log.add(decide_resume(log.now))
    assert (log.now.state, log.now.attempt, log.now.spent.iterations) == (State.IMPLEMENT, 1, 1)
    assert log.now.step_id != step


def test_a_conversation_that_is_too_long_is_a_failure_of_its_own_and_begins_anew_when_resumed() -> None:
    log = Log()
    log.reach(State.IMPLEMENT)
    step = log.now.step_id
    log.ends(failed(FailureKind.CONTEXT_EXCEEDED, "too long"))
    assert log.now.state is State.FAILED
    assert log.now.failure is not None
    assert log.now.failure.kind is FailureKind.CONTEXT_EXCEEDED
    assert "larger context" in log.now.failure.advice and "--agent propose" in log.now.failure.advice
    log.add(decide_resume(log.now))
    assert (log.now.state, log.now.grants, log.now.spent.iterations) == (State.IMPLEMENT, 1, 1)
    assert log.now.step_id != step


@pytest.mark.parametrize("uncharged", [True, False])
def test_a_call_that_the_provider_refused_costs_nothing(uncharged: bool) -> None:
    log = Log()
    log.reach(State.IMPLEMENT)
    estimate = Usage(turns=1, tokens=500, cost_usd=0.5, unpriced_tokens=500)
    log.record(EventType.MODEL_ASKED, ModelAsked(model="m", estimate=estimate))
    assert (log.now.spent.tokens, log.now.spent.known_cost_usd) == (500, None)
    details: JsonObject = {UNCHARGED: True} if uncharged else {}
    outcome = Failed(Failure(kind=FailureKind.MODEL_AUTH, message="no", details=details))
    log.add(decide(log.now, outcome, log.clock))
    left = (log.now.spent.tokens, log.now.spent.cost_usd, log.now.spent.unpriced_tokens)
    assert left == ((0, 0.0, 0) if uncharged else (500, 0.5, 500))


@pytest.mark.parametrize("kind", [FailureKind.DISK_FULL, FailureKind.MODEL_OVERLOADED, FailureKind.MODEL_AUTH])
def test_going_on_after_the_platform_failed_is_no_new_iteration(kind: FailureKind) -> None:
    log = Log(budget=Budget(iterations=1))
    log.reach(State.IMPLEMENT)
    for _ in range(5):
        while not log.now.terminal and log.now.state not in WAITING:
            log.ends(failed(kind))
        log.add(decide_resume(log.now))
        assert (log.now.state, log.now.spent.iterations) == (State.IMPLEMENT, 1)
    log.ends(Succeeded())
    assert log.now.state is State.TEST


@given(
    steps=st.lists(st.tuples(OUTCOMES, st.floats(0, 200), st.floats(0, 1e4)), max_size=40),
    iterations=st.integers(1, 4),
    wall_sec=st.floats(100, 2000),
)
def test_no_budget_is_overdrawn_however_often_a_run_is_resumed(
    steps: list[tuple[Outcome, float, float]], iterations: int, wall_sec: float
) -> None:
    log = Log(budget=Budget(iterations=iterations, wall_sec=wall_sec))
    for outcome, worked, waited in steps:
        if log.now.state in TERMINAL | WAITING:
            log.clock += int(waited * 1e6)
            spent = log.now.spent.wall_us
            log.add(decide_resume(log.now))
            assert log.now.spent.wall_us == spent, "waiting is free"
            if log.now.terminal:
                return
        assert log.now.attempt <= MAX_ATTEMPTS
        if (may_not := decide_start(log.now)) is not None:
            outcome, worked = may_not, 0.0
        log.ends(outcome, worked)
        assert log.now.spent.iterations <= iterations * log.now.grants
        assert log.now.spent.wall_us / 1e6 < wall_sec * log.now.grants + 201
    assert replay(log.events) == log.now


@given(lives=st.lists(st.tuples(st.floats(0, 50), st.integers(0, 3), st.floats(0, 5000)), min_size=1, max_size=8))
def test_the_wall_clock_counts_what_each_worker_was_seen_to_do(lives: list[tuple[float, int, float]]) -> None:
    """A worker that dies is charged up to the last event it left; the time until another comes is free."""
    log = Log(budget=Budget(wall_sec=1e9))
    seen = 0
    for worked, events, dead in lives:
        log.started()
        began = log.clock
        for _ in range(events):
            log.clock += int(worked * 1e6)
            log.spend()
        seen += log.clock - began
        log.clock += int(dead * 1e6)
    log.started()
    assert log.now.spent.wall_us == seen
    log.add(decide(log.now, Paused(), log.clock))
    log.clock += 10**12
    log.add(decide_resume(log.now))
    assert log.now.spent.wall_us <= seen + 2000
