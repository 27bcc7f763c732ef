"""Landing: changes join a branch one after the other, each judged on the merged tree, and no checkout is touched."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from cli_agent_kit import Scripts, scripts, settings
from engine_kit import APPROVE, DONE, MAP, PLAN, checkout, code, drive, runtime, until

from agent_clis import path_with
from agent_script import AgentScript, Bash, results
from codepilot.core.events import EventType, State
from codepilot.core.failures import CodePilotError
from codepilot.core.landing import Landed, LandingQueued, LandingRefused
from codepilot.core.run import Run
from codepilot.core.task import InteractionMode
from codepilot.engine import Request, Runtime, Worker, WorkerPool, make_task, submit
from codepilot.engine.change import landing_queue
from codepilot.engine.change.landing import Landing, land
from codepilot.engine.change.landing_queue import LandingWorker
from configured import configured
from model_server import ModelServer
from model_server import Request as ModelRequest

__all__ = ["checkout", "runtime", "scripts", "settings"]

SHAPES = (
    "\n\n\n".join(f"def {name}(width, height):\n    return width + height" for name in ("area", "perimeter")) + "\n"
)
TESTS = """import unittest
import shapes

class ShapesTest(unittest.TestCase):
    def test_area(self):
        self.assertEqual([shapes.area(2, 5), shapes.area(3, 4)], [10, 12])

    def test_perimeter(self):
        self.assertEqual([shapes.perimeter(2, 5), shapes.perimeter(3, 4)], [14, 14])
"""
AREA = ("def area(width, height):\n    return width + height", "def area(width, height):\n    return width * height")
PERIMETER = (
    "def perimeter(width, height):\n    return width + height",
    "def perimeter(width, height):\n    return 2 * (width + height)",
)
AREA_TEST, PERIMETER_TEST = "test_shapes.ShapesTest.test_area", "test_shapes.ShapesTest.test_perimeter"


def git(where: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=where, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def shapes(checkout: Path) -> Path:
    (checkout / "shapes.py").write_text(SHAPES)
    (checkout / "test_shapes.py").write_text(TESTS)
    git(checkout, "add", "-A")
    git(checkout, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "two bugs")
    return checkout


def fixed(runtime: Runtime, shapes: Path, edit: tuple[str, str], test: str) -> Run:
    writing = code(f"write_file('shapes.py', read_file('shapes.py').replace({edit[0]!r}, {edit[1]!r}, 1))")
    run, _ = drive(runtime, shapes, until(MAP, PLAN, writing, DONE, APPROVE), tests=(test,))
    assert run.state is State.DONE, run.failure
    return run


def state_of(shapes: Path) -> tuple[str, str, str]:
    files = (shapes / "shapes.py").read_text()
    return git(shapes, "rev-parse", "HEAD"), git(shapes, "status", "--porcelain"), files


def landed(runtime: Runtime, *runs: Run, branch: str = "fixes") -> list[Landed | LandingRefused]:
    outcomes = land(runtime, [run.run_id for run in runs], Landing(branch, accept_plausible=True))
    for run in runs:
        runtime.store.check(run.run_id)
    return [outcomes[run.run_id] for run in runs]


def test_changes_of_the_same_base_land_in_one_go_and_again_changes_nothing(runtime: Runtime, shapes: Path) -> None:
    runs = [fixed(runtime, shapes, AREA, AREA_TEST), fixed(runtime, shapes, PERIMETER, PERIMETER_TEST)]
    before = state_of(shapes)
    first, second = landed(runtime, *runs)
    assert isinstance(first, Landed) and isinstance(second, Landed), (first, second)
    assert (first.parent, second.parent) == (before[0], first.commit)
    assert git(shapes, "rev-parse", "fixes") == second.commit
    assert git(shapes, "show", "fixes:shapes.py") == SHAPES.replace(*AREA).replace(*PERIMETER).strip()
    assert state_of(shapes) == before
    events = runtime.store.events(runs[0].run_id)
    assert [event.type for event in events[-2:]] == [EventType.LANDING_QUEUED, EventType.LANDED]
    assert runtime.store.load(runs[0].run_id).landing == first
    assert landed(runtime, *runs) == [first, second]
    assert git(shapes, "rev-parse", "fixes") == second.commit


@pytest.mark.variants
def test_two_that_conflict_are_both_named(runtime: Runtime, shapes: Path) -> None:
    other = (AREA[0], AREA[1].replace("width * height", "height * width"))
    runs = [fixed(runtime, shapes, AREA, AREA_TEST), fixed(runtime, shapes, other, AREA_TEST)]
    first, second = landed(runtime, *runs)
    assert isinstance(first, Landed) and isinstance(second, LandingRefused), (first, second)
    assert second.reason == f"it and {runs[0].run_id} changed the same lines of shapes.py"


def test_one_that_conflicts_and_one_that_is_red_are_refused_and_the_rest_lands(runtime: Runtime, shapes: Path) -> None:
    good = fixed(runtime, shapes, PERIMETER, PERIMETER_TEST)
    other = (AREA[0], AREA[1].replace("width * height", "height * width"))
    conflicting = fixed(runtime, shapes, other, AREA_TEST)
    git(shapes, "switch", "-qc", "work")
    git(shapes, "branch", "fixes")
    git(shapes, "switch", "-q", "fixes")
    (shapes / "shapes.py").write_text(SHAPES.replace(*AREA))
    git(shapes, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qam", "by hand")
    git(shapes, "switch", "-q", "work")
    refused, fine = landed(runtime, conflicting, good)
    assert isinstance(refused, LandingRefused) and refused.conflicts == ("shapes.py",)
    assert isinstance(fine, Landed) and git(shapes, "rev-parse", "fixes") == fine.commit
    assert git(shapes, "rev-parse", "fixes^") == fine.parent

    git(shapes, "switch", "-q", "fixes")
    (shapes / "shapes.py").write_text(SHAPES)
    (shapes / "test_shapes.py").write_text(TESTS.replace("[10, 12])", "[7, 7])"))
    git(shapes, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qam", "another idea of areas")
    git(shapes, "switch", "-q", "work")
    tip = git(shapes, "rev-parse", "fixes")
    (red,) = landed(runtime, conflicting)
    assert isinstance(red, LandingRefused) and red.judged_by is not None, red
    assert git(shapes, "rev-parse", "fixes") == tip


def test_a_branch_that_is_checked_out_is_refused_before_anything_is_judged(runtime: Runtime, shapes: Path) -> None:
    run = fixed(runtime, shapes, AREA, AREA_TEST)
    branch = git(shapes, "symbolic-ref", "--short", "HEAD")
    with pytest.raises(CodePilotError, match="checked out"):
        landed(runtime, run, branch=branch)
    assert not isinstance(runtime.store.load(run.run_id).landing, LandingQueued)


@pytest.mark.variants
def test_who_was_killed_after_the_commit_finds_it_landed(
    runtime: Runtime, shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fixed(runtime, shapes, AREA, AREA_TEST)

    def killed(*args: object) -> None:
        if isinstance(args[-1], Landed):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("codepilot.engine.change.landing.record", killed)
        landed(runtime, run)
    commit = git(shapes, "rev-parse", "fixes")
    (found,) = landed(runtime, run)
    assert isinstance(found, Landed) and found.commit == commit == git(shapes, "rev-parse", "fixes")


@pytest.mark.agents
def test_two_real_agents_and_eight_programs_at_once_land_in_one_go(
    settings: Mapping[str, str], scripts: Scripts, tmp_path: Path
) -> None:
    """All ten work interactively; an eleventh, whose change conflicts, is reported with the one that landed."""
    names = [f"part{number}" for number in range(10)]
    for number, name in enumerate(names):
        (scripts.checkout / f"{name}.py").write_text(f"def value():\n    return {number}\n")
        check = f"    def test_it(self):\n        self.assertEqual({name}.value(), {number + 1})\n"
        test = f"import unittest\nimport {name}\n\nclass ValueTest(unittest.TestCase):\n{check}"
        (scripts.checkout / f"test_{name}.py").write_text(test)
    right = [f"def value():\n    return {number} + 1\n" for number in range(10)]
    programs = [
        scripts.add(["write", f"{names[number]}.py", text], name=f"script{place}")
        for place, (number, text) in enumerate([*enumerate(right[:8]), (0, "def value():\n    return 1 + 0\n")])
    ]
    agents = [*programs[:8], "claude", "codex", programs[8]]

    def at(request: ModelRequest) -> int:
        """The step of the agent whose task the request is about."""
        done = results(request)
        return 2 if done else int("test_part9" in request.text)

    fixes = [Bash(f"printf 'def value():\\n    return {number} + 1\\n' > part{number}.py") for number in (8, 9)]
    with ModelServer(AgentScript(*fixes, "It is one more.", at=at)) as server:
        path = path_with("claude", "codex")
        chosen = configured({**settings, **server.environ, "PATH": path, "HOME": str(tmp_path / "user")})
        with Runtime.open(chosen) as runtime:
            runs = []
            for name, agent in zip([*names, names[0]], agents, strict=True):
                asked = Request(
                    repo=str(scripts.checkout),
                    agent=agent,
                    tests=(f"test_{name}.ValueTest.test_it",),
                    execution_mode="interactive",
                    interaction=InteractionMode.FULL_AUTONOMY,
                )
                runs.append(submit(runtime, make_task(asked, chosen)))
            WorkerPool(runtime, Worker(runtime), concurrency=10, until_idle=True).run()
            ended = [runtime.store.load(run.run_id) for run in runs]
            assert [run.state for run in ended] == [State.DONE] * 11, [run.failure for run in ended]
            outcomes = landed(runtime, *ended)
    assert [isinstance(one, Landed) for one in outcomes] == [True] * 10 + [False], outcomes
    assert isinstance(outcomes[-1], LandingRefused)
    assert outcomes[-1].reason == f"it and {ended[0].run_id} changed the same lines of part0.py"
    for name, text in zip(names, right, strict=True):
        assert git(scripts.checkout, "show", f"fixes:{name}.py") == text.strip()
    assert git(scripts.checkout, "rev-list", "--count", "HEAD..fixes") == "10"


@pytest.mark.slow
def test_ten_programs_at_once_land_in_one_go_and_one_that_conflicts_is_reported(
    settings: Mapping[str, str], scripts: Scripts
) -> None:
    names = [f"part{number}" for number in range(10)]
    bug, right = "def value():\n    return {0}\n", "def value():\n    return {0} + 1\n"
    other = "def value():\n    return 1 + {0}\n"
    for number, name in enumerate(names):
        (scripts.checkout / f"{name}.py").write_text(bug.format(number))
        body = f"self.assertEqual({name}.value(), {number + 1})"
        header = f"import unittest\nimport {name}\n\nclass ValueTest(unittest.TestCase):\n    def test_it(self):\n"
        test = f"{header}        {body}\n"
        (scripts.checkout / f"test_{name}.py").write_text(test)
    plan = [*((name, right) for name in names), (names[0], other)]
    agents = [
        scripts.add(["write", f"{name}.py", text.format(names.index(name))], name=f"script{number}")
        for number, (name, text) in enumerate(plan)
    ]
    chosen = configured(settings)
    with Runtime.open(chosen) as runtime:
        runs = []
        for (name, _), agent in zip(plan, agents, strict=True):
            asked = Request(
                repo=str(scripts.checkout),
                agent=agent,
                tests=(f"test_{name}.ValueTest.test_it",),
                interaction=InteractionMode.FULL_AUTONOMY,
            )
            runs.append(submit(runtime, make_task(asked, chosen)))
        WorkerPool(runtime, Worker(runtime), concurrency=10, until_idle=True).run()
        ended = [runtime.store.load(run.run_id) for run in runs]
        assert [run.state for run in ended] == [State.DONE] * len(runs), [run.failure for run in ended]
        outcomes = landed(runtime, *ended)
    assert [isinstance(one, Landed) for one in outcomes] == [True] * 10 + [False], outcomes
    assert isinstance(outcomes[-1], LandingRefused) and outcomes[-1].conflicts == ("part0.py",)
    assert outcomes[-1].reason == f"it and {ended[0].run_id} changed the same lines of part0.py"
    for number, name in enumerate(names):
        assert git(scripts.checkout, "show", f"fixes:{name}.py") == right.format(number).strip()
    assert git(scripts.checkout, "rev-list", "--count", "HEAD..fixes") == "10"


def test_the_queue_goes_on_after_a_defect(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    tried, again = [], threading.Event()

    def land_next(worker: LandingWorker) -> bool:
        tried.append(worker)
        if len(tried) == 1:
            raise RuntimeError("a defect")
        again.set()
        return False

    monkeypatch.setattr(landing_queue, "DEFECT_SEC", 0.01)
    monkeypatch.setattr(LandingWorker, "_land_next", land_next)
    with LandingWorker(runtime):
        assert again.wait(60)
