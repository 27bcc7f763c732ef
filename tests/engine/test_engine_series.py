"""`fix --all`: which test comes next, and on what base."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from codepilot.cli.series import _print
from codepilot.core.artifacts import TestSummary
from codepilot.core.events import BasePinned, State
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine.series import next_base, next_task

TASK = TaskSpec(task_id="t-1", goal=Goal(natural="first"), repo="/repo", within=("tests",))
BASE = BasePinned(repo_id="x", commit="c", commit_tree="t0", tree="t0")
ALL = ("tests/a.py::one", "tests/a.py::two", "tests/b.py::three", "docs/c.py::four")


def ended(
    verdict: str | None, target: str, before: tuple[str, ...], after: tuple[str, ...] = (), tree: str = "t0"
) -> Any:
    """A run as `next_task` reads it."""
    return SimpleNamespace(
        task=TASK,
        state=State.DONE if verdict else State.FAILED,
        verdict=verdict,
        base=BASE.model_copy(update={"tree": tree}),
        baseline=SimpleNamespace(targets=(target,), before=TestSummary(failed=before), report=None, cut_short=""),
        proof=SimpleNamespace(after=TestSummary(failed=after)) if verdict else None,
        proposal=SimpleNamespace(tree=f"{tree}+{target[-3:]}") if verdict else None,
    )


FIRST = ended("confirmed", ALL[0], ALL, ALL[1:])


@pytest.mark.parametrize(
    ("runs", "accept", "following", "tree"),
    [
        ([], False, "first", None),
        ([FIRST], False, ALL[1], "t0+one"),
        ([ended("confirmed", ALL[0], ALL, ALL[2:])], False, ALL[2], "t0+one"),
        ([ended(None, ALL[0], ALL)], False, ALL[1], "t0"),
        ([ended("plausible", ALL[0], ALL, ALL[1:])], False, ALL[1], "t0"),
        ([ended("plausible", ALL[0], ALL, ALL[2:])], False, ALL[2], "t0"),
        ([ended("plausible", ALL[0], ALL, ALL[1:])], True, ALL[1], "t0+one"),
        (
            [ended("confirmed", ALL[0], ALL, ALL[1:]), ended(None, ALL[1], ALL[1:], tree="t0+one")],
            False,
            ALL[2],
            "t0+one",
        ),
        ([ended("confirmed", ALL[0], ALL[:1])], False, None, None),
        ([ended("confirmed", ALL[0], (ALL[0], ALL[3]), ALL[3:])], False, None, None),
    ],
)
def test_the_next_run_of_a_series(runs: list[Any], accept: bool, following: str | None, tree: str | None) -> None:
    """A trusted change is part of the next base; what was tried or mended is not tried again."""
    task = next_task(TASK, runs, accept_plausible=accept)
    if following == "first":
        assert task is TASK and next_base(runs, accept_plausible=accept) is None
    elif following is None or task is None:
        assert task is following
    else:
        base = next_base(runs, accept_plausible=accept)
        assert (task.tests, task.within, base and base.tree) == ((following,), (), tree)
        assert task.task_id != TASK.task_id


def test_each_change_of_a_series_comes_with_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        ended("confirmed", ALL[0], ALL, ALL[1:]),
        ended("plausible", ALL[1], ALL[1:], ALL[2:]),
        ended(None, ALL[2], ALL),
    ]
    for number, run in enumerate(runs):
        run.run_id, run.failure = f"r-{number}", None
        if run.proof:
            run.proof.reason = "too few mutants"
    _print(runs, None, accept_plausible=False, applied=False)
    shown = capsys.readouterr().out
    assert "codepilot apply r-0\n" in shown and "codepilot apply r-1 --accept-plausible\n" in shown
    assert "apply r-2" not in shown
