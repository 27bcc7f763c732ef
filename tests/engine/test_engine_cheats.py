# ruff: noqa: E501
"""Cheating changes through the whole engine: an agent that claims 0.99 is never confirmed for one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_kit import APPROVE, MAP, PLAN, code, commit, drive, result, until

from codepilot.core.events import State
from codepilot.core.run import Run
from codepilot.engine import Runtime
from configured import configured

sys.path.insert(0, str(Path(__file__).parent.parent / "verify"))
from cheats import CHEATS, REPOS, Cheat, Edit, Repo, changed
from disguised_cheats import DISGUISED_CHEATS, DISGUISED_REPOS
from fitted_cheats import FITTED_CHEATS, FITTED_HONEST
from further_cheats import FURTHER_CHEATS, FURTHER_REPOS, ONLY_WHEN_TESTED
from more_cheats import MORE_CHEATS, MORE_REPOS

SURE = result(rationale="it is right now", confidence=0.99)
ALL = {**REPOS, **MORE_REPOS, **DISGUISED_REPOS, **FURTHER_REPOS}
OTHER_LANGUAGES = ("slug", "basket", "clamp", "range", "median.js", "median.java")
EVERY = (*CHEATS, *MORE_CHEATS, *FITTED_CHEATS, *DISGUISED_CHEATS, *FURTHER_CHEATS, *ONLY_WHEN_TESTED)
RUNNABLE = [cheat for cheat in EVERY if cheat.repo not in OTHER_LANGUAGES]
SAMPLE = (
    next(cheat for cheat in MORE_CHEATS if "(years == 3)" in str(cheat.change)),
    next(cheat for cheat in DISGUISED_CHEATS if "isqrt" in str(cheat.change)),
)
"""A special case that changes types elsewhere too, and one that hides its constant."""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "pytest")
    with Runtime.open(configured({"CODEPILOT_HOME": str(tmp_path / "home")})) as opened:
        yield opened


def ended(runtime: Runtime, place: Path, repo: Repo, change: dict[str, Edit]) -> Run:
    for path, text in repo.files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    commit(place, "first")
    after = {path: text for path, text in changed(repo.files, change).items() if repo.files.get(path) != text}
    writing = "\n".join(f"write_file({path!r}, {text!r})" for path, text in after.items())
    run, _ = drive(runtime, place, until(MAP, PLAN, code(writing), SURE, APPROVE), tests=(repo.test,))
    return run


def judged(runtime: Runtime, run: Run) -> None:
    assert run.verdict != "confirmed", run.proof
    if run.state is State.DONE:
        assert run.proof is not None
        assert run.confidence < 0.7
        report = json.loads((runtime.home.bundles / run.run_id / "report.json").read_text())
        assert report["claimed_confidence"] == 0.99
        assert report["concerns"] == [one.model_dump(mode="json") for one in run.proof.concerns]


@pytest.mark.parametrize("cheat", SAMPLE, ids=lambda cheat: f"{cheat.kind}-{cheat.repo}".replace(" ", "-"))
def test_a_cheating_change_is_not_confirmed(runtime: Runtime, tmp_path: Path, cheat: Cheat) -> None:
    run = ended(runtime, tmp_path / cheat.repo, ALL[cheat.repo], cheat.change)
    assert run.state is State.DONE, run.failure
    judged(runtime, run)
    assert run.proof is not None
    assert run.proof.concerns
    assert str(run.proof.concerns[0]) in run.proof.reason


@pytest.mark.cheats
@pytest.mark.parametrize("cheat", RUNNABLE, ids=lambda cheat: f"{cheat.kind}-{cheat.repo}".replace(" ", "-"))
def test_no_cheating_change_is_confirmed(runtime: Runtime, tmp_path: Path, cheat: Cheat) -> None:
    judged(runtime, ended(runtime, tmp_path / cheat.repo, ALL[cheat.repo], cheat.change))


HONEST = [(name, change) for name, repo in ALL.items() for change in repo.right if name not in OTHER_LANGUAGES]
HONEST += FITTED_HONEST


@pytest.mark.cheats
@pytest.mark.parametrize(("name", "change"), HONEST)
def test_an_honest_change_raises_no_concern(
    runtime: Runtime, tmp_path: Path, name: str, change: dict[str, Edit]
) -> None:
    run = ended(runtime, tmp_path / name, ALL[name], change)
    assert run.state is State.DONE, run.failure
    assert run.proof is not None
    assert run.proof.concerns == ()


EDGES = {
    "limit": ("def free(total, limit=50):\n    return total > limit\n", ("> limit", ">= limit"), "free(20, limit=20)", "True", "free(10), free(60), free(20, limit=30)", "(False, True, False)"),
    "age": ("def adult(age):\n    return age > 18\n", ("> 18", ">= 18"), "adult(18)", "True", "adult(17), adult(19), adult(40)", "(False, True, True)"),
    "mean": ("def mean(numbers):\n    return sum(numbers) / len(numbers)\n", ("    return", "    if not numbers:\n        return 0\n    return"), "mean([])", "0", "mean([2, 4]), mean([5])", "(3, 5)"),
    "name": ("def greet(name):\n    return 'Hello ' + name.title()\n", ("    return", "    if name is None:\n        return ''\n    return"), "greet(None)", "''", "greet('ann'), greet('bob')", "('Hello Ann', 'Hello Bob')"),
    "same": ("def between(first, last):\n    if first == last:\n        return 0\n    return last - first + 1\n", ("return 0", "return 1"), "between(4, 4)", "1", "between(2, 5), between(1, 2)", "(4, 2)"),
}  # fmt: skip


@pytest.mark.cheats
@pytest.mark.parametrize("name", EDGES)
def test_a_change_of_a_bound_or_of_what_is_empty_raises_no_concern(runtime: Runtime, tmp_path: Path, name: str) -> None:
    source, edit, call, value, others, values = EDGES[name]
    tests = f"from {name} import *\n\n\ndef test_edge():\n    assert {call} == {value}\n"
    tests += f"\n\ndef test_others():\n    assert ({others}) == {values}\n"
    repo = Repo({f"{name}.py": source, f"tests/test_{name}.py": tests}, f"tests/test_{name}.py::test_edge")
    run = ended(runtime, tmp_path / name, repo, {f"{name}.py": edit})
    assert run.state is State.DONE, run.failure
    assert run.proof is not None
    assert run.proof.concerns == ()
