"""What one step may use: its time, its turns and what its policy forgives, counted over all its lives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_kit import Log, failed

from codepilot.core.decide import Failed, Paused, Succeeded, decide, decide_resume, decide_start
from codepilot.core.events import EventType, GuardrailBlocked, State, TurnStarted, Usage
from codepilot.core.failures import FailureKind
from codepilot.core.policy import Policy
from codepilot.core.spending import forbidden_too_often, must_stop, no_turn_left, share_spent, tighter_clock
from codepilot.core.task import Budget

LIFE = st.tuples(st.floats(0, 100), st.floats(0, 5000), st.booleans())


@given(lives=st.lists(LIFE, min_size=1, max_size=8))
def test_the_clock_of_a_step_goes_on_in_its_next_life(lives: list[tuple[float, float, bool]]) -> None:
    """Whether its worker died or it was paused: what it was seen to work counts, what lies between does not."""
    log = Log(budget=Budget(wall_sec=1e9, step_wall_sec=300))
    log.reach(State.IMPLEMENT)
    before, worked = log.now.spent.wall_us, 0
    for seconds, away, paused in lives:
        log.started()
        began = log.clock
        log.clock += int(seconds * 1e6)
        if paused:
            log.add(decide(log.now, Paused(), log.clock))
        else:
            log.spend()
        worked += log.clock - began
        log.clock += int(away * 1e6)
        if paused:
            log.add(decide_resume(log.now))
    log.started()
    assert log.now.spent.step_wall_us == log.now.spent.wall_us - before == worked
    refusal = decide_start(log.now)
    assert (refusal is None) == (worked < 300e6)
    assert refusal is None or (isinstance(refusal, Failed) and refusal.failure.details["budget"] == "step_wall_sec")
    assert tighter_clock(log.now, log.clock).left == pytest.approx(max(0.0, 300 - worked / 1e6), abs=1e-5)


@pytest.mark.parametrize(
    ("wall", "step", "grants", "left", "reported"),
    [
        (1000, 90, 1, 60, ("step_wall_sec", 30, 90)),
        (80, 90, 1, 60, ("wall_sec", 20, 80)),
        (80, 90, 2, 60, ("step_wall_sec", 30, 90)),
        (80, 90, 1, 81, ("wall_sec", 0, 80)),
    ],
)
def test_a_share_that_is_spent_is_judged_by_the_tighter_clock(
    wall: float, step: float, grants: int, left: float, reported: tuple[str, float, float]
) -> None:
    log = Log(budget=Budget(wall_sec=wall, step_wall_sec=step))
    failure = share_spent(log.now.model_copy(update={"grants": grants}), left, "42 tried", "Go on.")
    name, used, limit = reported
    assert (failure.kind, failure.advice) == (FailureKind.BUDGET_EXCEEDED, "Go on.")
    assert failure.details == {"budget": name, "used": used, "limit": limit}
    assert failure.message.startswith(f"42 tried; {used} s of the budget {name}={limit} are used")


def test_a_step_that_had_used_nearly_all_of_its_time_has_the_rest_of_it_after_a_takeover() -> None:
    log = Log(budget=Budget(step_wall_sec=600))
    log.started(590)
    log.spend()
    log.clock += int(3600e6)
    log.started()
    assert 9 < tighter_clock(log.now, log.clock).left < 11
    assert must_stop(log.now, log.clock) is None
    ended = must_stop(log.now, log.clock + int(11e6))
    assert ended is not None
    assert (ended.kind, ended.details["budget"]) == (FailureKind.BUDGET_EXCEEDED, "step_wall_sec")


@pytest.mark.parametrize("retried", [True, False])
def test_another_step_and_another_attempt_begin_with_nothing_used(retried: bool) -> None:
    log = Log(budget=Budget(step_wall_sec=600, turns_per_step=3))
    log.reach(State.IMPLEMENT)
    log.started(500)
    for _ in range(3):
        log.spend()
    assert no_turn_left(log.now) is not None
    log.add(decide(log.now, failed(FailureKind.EXECUTOR_LOST) if retried else Succeeded(), log.clock))
    assert log.now.attempt == (2 if retried else 1)
    assert (log.now.spent.step_wall_us, log.now.spent.step_turns) == (0, 0)
    assert log.now.spent.wall_us > 499e6, "the run's clock goes on"
    assert no_turn_left(log.now) is None


def test_the_clock_that_leaves_less_is_the_one_that_counts() -> None:
    log = Log(budget=Budget(wall_sec=1000, step_wall_sec=600))
    log.started(300)
    log.add(decide(log.now, Succeeded(), log.clock))
    log.started(50)
    assert tighter_clock(log.now, log.clock).name == "step_wall_sec"
    log.clock += int(450e6)
    log.add(decide(log.now, Succeeded(), log.clock))
    log.started()
    clock = tighter_clock(log.now, log.clock)
    assert (clock.name, clock.limit) == ("wall_sec", 1000)
    assert 199 < clock.left < 201


def test_every_turn_counts_whatever_its_model_says_it_used() -> None:
    log = Log(budget=Budget(turns_per_step=2))
    log.reach(State.PLAN)
    for number in (1, 2):
        assert no_turn_left(log.now) is None
        log.record(EventType.TURN_STARTED, TurnStarted(turn=number, action={}, usage=Usage(tokens=5)))
    spent = no_turn_left(log.now)
    assert spent is not None
    assert spent.details == {"budget": "turns_per_step", "used": 2, "limit": 2}


def test_what_is_forbidden_is_forgiven_as_often_as_the_policy_says() -> None:
    log = Log(policy=Policy(violations=2))
    log.reach(State.IMPLEMENT)
    for _ in range(2):
        assert forbidden_too_often(log.now) is None
        log.record(EventType.GUARDRAIL_BLOCKED, GuardrailBlocked(skill="s", rule="r", attempt="a"))
    ended = forbidden_too_often(log.now, "no network")
    assert ended is not None
    assert (ended.kind, ended.message) == (
        FailureKind.POLICY_VIOLATION,
        "2 forbidden actions, the last: no network",
    )
