"""Small projects written on the spot, and a way to run their tests in a real sandbox."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from typing import cast

from codepilot.core.project_settings import ProjectSettings
from codepilot.executor import CommandResult, Executor, RunCommand
from codepilot.project import Project, SuiteRun, detect, run_tests
from codepilot.sandbox import Limits, Mount, Sandbox, SandboxSpec
from levels import level

BARE_PYTEST = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
ENVIRON = {"PATH": os.environ.get("PATH", os.defpath)}


def sandbox(remaps: bool = False) -> Sandbox:
    return level("bubblewrap" if remaps else "best")


class CommandRunner:
    """The part of an executor that runs commands: one workspace directory, shown at one path."""

    def __init__(self, box: Sandbox, tree: Path, inside: Path, mounts: Sequence[tuple[str, str]]) -> None:
        self._box = box
        self._workspace = Mount(tree, inside, writable=True)
        self._mounts = tuple(Mount(Path(source), Path(target)) for source, target in mounts)

    def run_command(self, request: RunCommand) -> CommandResult:
        view = SandboxSpec(self._workspace, self._mounts, cwd=self._workspace.target / request.cwd, env=request.env)
        return self._box.run(request.argv, view, request.limits or Limits(), request.stdin)


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else dedent(content).encode())
    return root


def find(
    root: Path, *, python: str | None = None, runner: str = "auto", environ: Mapping[str, str] = ENVIRON
) -> Project:
    settings = ProjectSettings.model_validate({"runner": runner, "env": BARE_PYTEST})
    return detect(root, python=python, environ=environ, inside=str(root), settings=settings)


def run(
    root: Path,
    tests: Sequence[str] = (),
    *,
    tree: Path | None = None,
    project: Project | None = None,
    runner: str = "auto",
    timeout_sec: float = 60.0,
) -> SuiteRun:
    """Detect the project at `root` and run its tests on `tree`, which stands in its place."""
    project = project or find(root, runner=runner)
    box = sandbox(remaps=tree is not None)
    runner_ = CommandRunner(box, tree or root, root, project.mounts)
    return run_tests(cast(Executor, runner_), "w", project, tests, timeout_sec)


def statuses(suite: SuiteRun) -> dict[str, str]:
    return {name: str(case.status) for name, case in suite.cases.items()}


def make_venv(home: Path, *, pytest_too: bool = True) -> Path:
    """A virtual environment as `python -m venv --without-pip` makes it, sharing this one's pytest through a .pth."""
    import venv

    venv.EnvBuilder(with_pip=False, symlinks=True).create(home)
    if pytest_too:
        ours = next(path for path in sys.path if (Path(path) / "pytest" / "__init__.py").is_file())
        (site_of(home) / "shared.pth").write_text(f"{ours}\n")
    return home


def site_of(home: Path) -> Path:
    return next(home.glob("lib/python*/site-packages"))
