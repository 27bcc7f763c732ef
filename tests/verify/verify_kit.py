"""A small real project with its checkout, objects and executor: what gates and proof are tried on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from codepilot.core.artifacts import TestResult
from codepilot.core.events import ProofRecorded
from codepilot.core.failures import CodePilotError
from codepilot.executor import CreateWorkspace, LocalExecutor, MountSpec
from codepilot.project import Dependencies, Project, detect
from codepilot.sandbox import Level, choose
from codepilot.verify import Baseline, Missing, prove, run_baseline, run_gate
from codepilot.workspace import Entry, ObjectStore

Files = dict[str, str]

CALC = "def add(a, b):\n    return a - b\n\n\ndef mul(a, b):\n    return a * b\n"
MENDED = CALC.replace("a - b", "a + b")
TESTS = """from calc import add, mul


def test_add():
    assert add(1, 2) == 3


def test_mul():
    assert mul(2, 3) == 6


def test_mul_by_zero():
    assert mul(2, 0) == 0


def test_power():
    assert 2**3 == 8
"""
BASE: Files = {
    "calc.py": CALC,
    "tests/test_calc.py": TESTS,
    "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['.']\n",
}
ADD, MUL = "tests/test_calc.py::test_add", "tests/test_calc.py::test_mul"


@dataclass(frozen=True)
class Measured:
    mutants: int = 10
    killed: int = 9
    score: float = 0.9
    near: int = 2
    near_killed: int = 2
    covering: int = 3
    still_failing: tuple[str, ...] = ()


@dataclass
class Lab:
    """A checkout, its objects, and an executor, all private to one test."""

    root: Path
    objects: ObjectStore
    executor: LocalExecutor
    project: Project
    base_tree: str
    command_sec: float = 60.0

    def tree(self, files: Files) -> str:
        entries = {path: Entry("100644", self.objects.write_blob(text.encode())) for path, text in files.items()}
        return self.objects.write_tree(entries)

    def request(self, workspace: str, tree: str) -> CreateWorkspace:
        return CreateWorkspace(
            workspace=workspace,
            objects=str(self.objects.path),
            tree=tree,
            at=str(self.root) if self.executor.level is Level.BUBBLEWRAP else None,
            mounts=tuple(MountSpec(source=source, target=target) for source, target in self.project.mounts),
            env=self.project.env,
        )

    def baseline(self, *targets: str, writes: bool = False, within: tuple[str, ...] = ()) -> Baseline:
        """`writes` says that the agent can write modules that nothing declares."""
        self.executor.delete("before")
        self.executor.create(self.request("before", self.base_tree))
        missing = Missing(Dependencies(self.root).facts, may_be_written=writes)
        return run_baseline(
            self.executor, "before", self.project, targets, self.command_sec, within=within, missing=missing
        )

    def refused(self, *targets: str, within: tuple[str, ...] = ()) -> CodePilotError:
        with pytest.raises(CodePilotError) as caught:
            self.baseline(*targets, within=within)
        return caught.value

    def gate(self, baseline: Baseline, after: Files, narrowed: bool = False) -> TestResult:
        self.executor.delete("after")
        self.executor.create(self.request("after", self.tree(after)))

        def base_workspace() -> str:
            self.executor.delete("base")
            self.executor.create(self.request("base", self.base_tree))
            return "base"

        return run_gate(self.executor, "after", self.project, baseline, self.command_sec, base_workspace, narrowed)

    def prove(self, baseline: Baseline, after: Files, strength: Measured | None = None) -> ProofRecorded:
        tree = self.tree(after)
        return prove(
            self.executor,
            self.objects,
            self.base_tree,
            self.objects.diff(self.base_tree, tree).patch,
            self.project,
            baseline,
            workspace="r-1",
            create=self.request,
            command_sec=self.command_sec,
            tree=tree,
            agreement=0.9,
            measure=lambda workspace, failing: strength,
        )


class LabMaker:
    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self._open: list[Lab] = []

    def __call__(self, files: Files, command_sec: float = 60.0) -> Lab:
        root = self._tmp_path / "checkout"
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        sandbox = choose()
        inside = str(root) if sandbox.remaps else str(self._tmp_path / "workspaces" / "after" / "tree")
        project = detect(root, python=sys.executable, environ={}, inside=inside)
        project = replace(project, env={**project.env, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
        objects = ObjectStore.open(self._tmp_path / "objects.git")
        executor = LocalExecutor(self._tmp_path / "workspaces", sandbox)
        lab = Lab(root, objects, executor, project, "", command_sec)
        lab.base_tree = lab.tree(files)
        self._open.append(lab)
        return lab

    def close(self) -> None:
        for lab in self._open:
            lab.executor.close()
            lab.objects.close()


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[LabMaker]:
    maker = LabMaker(tmp_path)
    yield maker
    maker.close()
