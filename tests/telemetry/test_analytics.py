"""Figures over runs: counted from their views alone."""

from __future__ import annotations

import pytest

from codepilot.core.events import State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run, Spent
from codepilot.core.task import Goal, TaskSpec
from codepilot.telemetry import analyse


def run(state: State, verdict: str | None = None, iterations: int = 1, agent: str = "repair", **more: object) -> Run:
    task = TaskSpec(task_id="t-1", goal=Goal(natural="x"), repo="/r", agent=agent)
    spent = Spent(iterations=iterations, wall_us=iterations * 10_000_000, tokens=100, cost_usd=0.5)
    return Run.model_validate(
        {"run_id": "r-1", "task": task, "state": state, "verdict": verdict, "spent": spent, **more}
    )


def test_nothing_gives_no_rates() -> None:
    found = analyse([])
    assert (found.total.runs, found.total.pass_rate, found.pass_rate_by_iteration) == (0, None, ())


def test_runs_are_counted_by_what_they_share() -> None:
    failure = Failure(kind=FailureKind.SUITE_TIMEOUT, message="slow")
    found = analyse(
        [
            run(State.DONE, "confirmed", 1),
            run(State.DONE, "plausible", 3, "codeact"),
            run(State.FAILED, None, 2, "codeact", failure=failure, failures=(failure,)),
            run(State.IMPLEMENT, None, 1),
        ],
        {"IMPLEMENT": 2},
        (4, 1),
    )
    assert (found.total.runs, found.total.ended, found.total.green) == (4, 3, 2)
    assert found.total.pass_rate == pytest.approx(2 / 3)
    assert found.pass_rate_by_iteration == pytest.approx((1 / 3, 1 / 3, 2 / 3))
    assert {one.name: one.pass_rate for one in found.by_agent} == {"repair": 1.0, "codeact": 0.5}
    assert found.total.seconds_to_green.mean == pytest.approx(20.0)
    assert found.total.seconds_to_green.deviation == pytest.approx(10.0)
    assert found.total.cost_usd == pytest.approx(2.0)
    assert (found.timeouts, found.failures) == (1, {"suite_timeout": 1})
    assert (found.retries_by_role, found.memory_asked, found.memory_hits) == ({"IMPLEMENT": 2}, 4, 1)
