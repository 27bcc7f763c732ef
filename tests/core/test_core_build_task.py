"""Tasks of builds, and the limits that a resume sets."""

from __future__ import annotations

import pytest
from run_kit import Log, red

from codepilot.core.build_task import check_build_task, directory_name
from codepilot.core.decide import Succeeded, decide_resume
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.spending import check_limits, exhausted, total
from codepilot.core.task import Budget, TaskKind

VAGUE = [
    "make something cool",
    "Build me a really nice app please",
    "Make it work properly",
    "I want the best thing ever",
]
VAGUE += ["Add features to the thing", "a website that looks great", "aaaaaaaaaaaaaaa", "1234567890"]


@pytest.mark.parametrize("text", ["", "short", "x" * 501, "    spaces     ", *VAGUE])
def test_a_task_that_says_nothing_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CodePilotError) as refused:
        check_build_task(text)
    assert refused.value.kind is FailureKind.INVALID_SPEC and "REST API" in refused.value.failure.advice


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Build a REST API with endpoints for creating and listing todos", "rest-api-endpoints-creating"),
        ("Build a CLI tool that converts CSV to JSON", "cli-converts-csv-json"),
        ("Sudoku solver", "sudoku-solver"),
    ],
)
def test_a_task_names_its_directory(text: str, name: str) -> None:
    assert directory_name(check_build_task(text)) == name


def repeated(log: Log, times: int) -> None:
    for _ in range(times):
        log.reach(State.TEST)
        log.ends(red("same"))


def test_a_build_that_fails_the_same_way_gets_the_fallback_model_once_and_then_advice() -> None:
    log = Log(kind=TaskKind.BUILD, model="scripted:a", fallback_model="scripted:b", budget=Budget(iterations=15))
    repeated(log, 3)
    assert (log.now.state, log.now.fell_back) == (State.REFLECT, True)
    repeated(log, 1)
    assert log.now.state is State.FAILED and log.now.failure is not None
    assert log.now.failure.kind is FailureKind.REPEATED_FAILURE and "Split the task" in log.now.failure.advice


def test_a_build_without_a_fallback_ends_at_the_third_time() -> None:
    log = Log(kind=TaskKind.BUILD, budget=Budget(iterations=15))
    repeated(log, 3)
    assert log.now.state is State.FAILED and log.now.failure is not None
    assert "Split the task" in log.now.failure.advice


def spent(log: Log) -> None:
    for _ in range(100):
        log.reach(State.TEST)
        log.ends(red(f"failure {len(log.events)}"))
        log.ends(Succeeded())
        if log.now.terminal:
            return


def test_a_resume_sets_the_limit_that_it_names_and_nothing_else() -> None:
    log = Log(kind=TaskKind.BUILD, budget=Budget(iterations=2))
    spent(log)
    assert log.now.failure is not None and log.now.failure.details["budget"] == "iterations"
    with pytest.raises(CodePilotError, match="iterations=2 is spent"):
        check_limits(log.now, {"iterations": 2})
    log.add(decide_resume(log.now, limits={"iterations": 3, "command_sec": 7}))
    assert (log.now.grants, total(log.now, "iterations"), log.now.task.budget.command_sec) == (1, 3, 7)
    assert total(log.now, "tokens") == log.now.task.budget.tokens
    spent(log)
    assert log.now.spent.iterations == 3
    log.add(decide_resume(log.now))
    assert total(log.now, "iterations") == 5 and exhausted(log.now) is None


def test_a_budget_that_does_not_exist_is_refused() -> None:
    log = Log(kind=TaskKind.BUILD)
    with pytest.raises(CodePilotError, match="no budget called 'iteration'"):
        check_limits(log.now, {"iteration": 2})
