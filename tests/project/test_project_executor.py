"""A project's tests through the real executor, at every level this machine gives."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from project_kit import BARE_PYTEST, ENVIRON, make_venv, site_of, statuses, write

from codepilot.core.project_settings import ProjectSettings
from codepilot.executor import CreateWorkspace, LocalExecutor, MountSpec
from codepilot.project import Project, check_level, detect, run_tests
from codepilot.sandbox import Sandbox
from codepilot.workspace import ObjectStore, pin_base
from levels import level

T = "tests/test_a.py"
U = "tests/test_b.py"


@pytest.fixture(params=["bubblewrap", "landlock"])
def box(request: pytest.FixtureRequest) -> Sandbox:
    return level(request.param)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A src layout with an environment of its own, which git ignores."""
    root = write(
        tmp_path / "a repo é",
        {
            ".gitignore": ".venv/\n",
            "src/pack/__init__.py": "def f(): return 1\n",
            T: "import dependency, pack\ndef test_a(): assert pack.f() == 1\ndef test_b(): assert pack.f() == 2\n",
            U: """
                import unittest, pack
                class A(unittest.TestCase):
                    def test_a(self): self.assertEqual(pack.f(), 1)
            """,
        },
    )
    write(site_of(make_venv(root / ".venv")), {"dependency.py": ""})
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "base"]):
        subprocess.run(["git", *command], cwd=root, check=True, env={**ENVIRON, "HOME": str(tmp_path)})
    return root


@pytest.fixture
def executor(box: Sandbox, tmp_path: Path) -> Iterator[LocalExecutor]:
    made = LocalExecutor(tmp_path / "workspaces", box)
    yield made
    made.close()


def place(executor: LocalExecutor, checkout: Path, box: Sandbox, home: Path, runner: str) -> tuple[Project, str]:
    objects = ObjectStore.open(home / "objects.git")
    tree = pin_base(checkout, objects).tree
    objects.close()
    inside = str(checkout) if box.remaps else str(home / "workspaces" / "w" / "tree")
    settings = ProjectSettings.model_validate({"env": BARE_PYTEST, "runner": runner})
    project = detect(checkout, python=None, environ=ENVIRON, inside=inside, settings=settings)
    check_level(project, box.remaps, inside)
    mounts = tuple(MountSpec(source=source, target=target) for source, target in project.mounts)
    info = executor.create(
        CreateWorkspace(
            workspace="w",
            objects=str(home / "objects.git"),
            tree=tree,
            at=str(checkout) if box.remaps else None,
            mounts=mounts,
            env=project.env,
        )
    )
    assert info.inside == inside
    return project, tree


def test_pytest_through_the_executor(executor: LocalExecutor, checkout: Path, box: Sandbox, tmp_path: Path) -> None:
    project, tree = place(executor, checkout, box, tmp_path, "auto")
    suite = run_tests(executor, "w", project)
    assert suite.status == "finished", suite.log_tail
    assert statuses(suite) == {f"{T}::test_a": "passed", f"{T}::test_b": "failed", f"{U}::A::test_a": "passed"}
    left = executor.diff("w", tree)
    assert left.changes == ()
    assert set(left.ignored) <= {".venv/"}, "only the mount point is left"


def test_unittest_through_the_executor(executor: LocalExecutor, checkout: Path, box: Sandbox, tmp_path: Path) -> None:
    project, _ = place(executor, checkout, box, tmp_path, "unittest")
    suite = run_tests(executor, "w", project, [f"{U}::A::test_a"])
    assert suite.status == "finished", suite.log_tail
    assert statuses(suite) == {"tests.test_b.A.test_a": "passed"}
