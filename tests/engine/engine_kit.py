"""A little project with one bug, and runs in which scripted replies stand for a chat model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from codepilot.agents import CodeActAgent, StepContext
from codepilot.agents.protocol import write_file
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.events import Event, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import Policy
from codepilot.core.run import Run
from codepilot.core.task import Capability
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from codepilot.models import ReplayModel, Reply, ScriptedModel
from configured import configured, reconfigured

CODE = """def area(width, height):
    return width + height


def perimeter(width, height):
    return 2 * (width + height)
"""
TESTS = """import unittest

from shapes import area, perimeter


class ShapesTest(unittest.TestCase):
    def test_area(self):
        self.assertEqual(area(3, 4), 12)
        self.assertEqual(area(2, 2), 4)

    def test_perimeter(self):
        self.assertEqual(perimeter(3, 4), 14)
"""

CHEAP = configured({"CODEPILOT_POLICY_GENERATED_CODE": "off"})
"""The settings of most tests: starting the security scanner is a fifth of a small run. `Policy()` has it."""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    with Runtime.open(configured({"CODEPILOT_HOME": str(tmp_path / "home")})) as opened:
        yield opened


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "shapes")


def make_checkout(project: Path, first: str = "first") -> Path:
    project.mkdir()
    (project / "shapes.py").write_text(CODE, encoding="utf-8")
    (project / "test_shapes.py").write_text(TESTS, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    commit(project, first)
    return project


def commit(project: Path, message: str) -> None:
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.invalid"]
    for arguments in (["add", "."], ["commit", "-q", "--allow-empty", "-m", message]):
        subprocess.run(["git", *identity, *arguments], cwd=project, check=True)


def result(**fields: object) -> str:
    return f"<result>{json.dumps(fields)}</result>"


def code(text: str) -> str:
    return f"```python\n{text}\n```"


MAP = result(build_system="python", test_cmd=["python", "-m", "unittest"])
PLAN = result(nodes=[{"id": "one", "title": "mend area"}], root_cause="it adds", approach="multiply")
DONE = result(rationale="multiply width and height", confidence=0.9)
APPROVE = result(verdict="APPROVE", patch_loc=2, notes="fine")


def replaced(old: str, new: str) -> str:
    return code(
        f"write_file('shapes.py', read_file('shapes.py').replace({old!r}, {new!r}, 1))\nprint(read_file('shapes.py'))"
    )


RIGHT = replaced("width + height", "width * height")


class EditingAgent:
    """Implements the task by one edit, without a model: for tests of what the engine does around an agent."""

    name = "editing"
    roles = frozenset({State.IMPLEMENT})
    needs = Capability.WRITE_WITH_DIFF
    languages = None

    def perform(self, role: State, context: StepContext) -> PatchCandidate:
        write_file(context, "shapes.py", CODE.replace("width + height", "width * height", 1).encode())
        rationale = "multiply width and height"
        return PatchCandidate(diff="", touched_files=("shapes.py",), rationale=rationale, confidence=0.9)


def until(*replies: str | Reply, before: Mapping[int, Callable[[], None]] | None = None, **model: int) -> ScriptedModel:
    """A model that says this and no more: the run ends there. Before some replies something may happen."""
    output = iter(enumerate(replies))

    def reply(messages: object) -> str | Reply:
        for number, text in output:
            (before or {}).get(number, lambda: None)()
            return text
        raise CodePilotError(FailureKind.MODEL_REFUSED, "there is no more to be seen")

    return ScriptedModel(reply, **model)


def drive(
    runtime: Runtime, checkout: Path, model: ScriptedModel | ReplayModel, policy: Policy | None = None, **asked: object
) -> tuple[Run, list[Event]]:
    agent = CodeActAgent(model)
    runtime = reconfigured(runtime)
    task = make_task(Request(repo=str(checkout), **asked), CHEAP)  # type: ignore[arg-type]
    run = submit(runtime, task.model_copy(update={"policy": policy or task.policy}))
    ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    runtime.store.check(run.run_id)
    return ended, runtime.store.events(run.run_id)


def states(events: list[Event]) -> list[State]:
    return [event.data.state for event in events if event.type is EventType.STEP_QUEUED]  # type: ignore[attr-defined]
