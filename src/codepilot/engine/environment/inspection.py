"""What `codepilot doctor` says about a project: how it is tested, with which interpreter, and how long that takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from codepilot.core.failures import CodePilotError
from codepilot.core.task import TaskSpec
from codepilot.engine.base import local_checkout, open_objects, pin
from codepilot.engine.execution_context import ExecutionContext, find_project, open_task_executor, seen_at
from codepilot.engine.runtime import Runtime
from codepilot.executor import RunCommand
from codepilot.project import Dependencies, Project, SuiteRun, run_tests, summarise
from codepilot.project.boundary import read_head
from codepilot.project.import_paths import canonical, read_ini, read_toml, sibling_names, table
from codepilot.store import new_id

ASK_SEC = 30.0
MOST_BYTES = 1 << 18
_NAME = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^;\]]*\])?\s*(?:[(<>=!~][^;@]*)?")
"""A requirement without a marker and without an address."""
_INSTALLED = """
import importlib.metadata as m, json, sys
def have(name):
    try: m.version(name)
    except Exception: return False
    return True
print(json.dumps([name for name in json.load(sys.stdin) if not have(name)]))
"""


@dataclass(frozen=True)
class Inspection:
    """A project as a run would find it."""

    root: str
    """The project's directory in the repository."""
    runner: str
    language: str
    interpreter: str
    origin: str
    """Why that interpreter was chosen."""
    declared: tuple[str, ...] = ()
    """The packages that every installation of the project needs."""
    missing: tuple[str, ...] | None = ()
    """Those of them that are not installed; None if the interpreter could not be asked."""
    install: str = ""
    """The project's own command that installs the first of the missing ones."""
    suite: SuiteRun | None = None
    """The run of the whole suite, if it was asked for."""

    @property
    def tests(self) -> str:
        """How the suite ran, in words."""
        if self.suite is None:
            return ""
        found = summarise(self.suite)
        red = len(found.failed) + len(found.errors)
        counts = f"{found.passed} pass, {red} fail"
        if self.suite.status == "finished":
            return f"{counts} in {self.suite.duration_sec:.1f} s"
        ending = self.suite.message or self.suite.status
        return f"{counts} in {self.suite.duration_sec:.1f} s, then: {ending}"


def inspect_project(
    runtime: Runtime, task: TaskSpec, tests_sec: float | None, on_progress: Callable[[str], None]
) -> Inspection:
    """Look at the task's repository as a run would. Its tests run for at most `tests_sec`, and not at all for None."""
    on_progress("copying the checkout")
    base, name = pin(task, runtime.home, runtime.settings.service.repository_hosts), new_id("v-")
    settings = runtime.settings
    with (
        closing(open_task_executor(task, settings)) as executor,
        closing(open_objects(runtime.home, base.repo_id)) as objects,
    ):
        root = local_checkout(runtime.home, base, objects)
        hosts = settings.policy.test_hosts
        project = find_project(task, base, root, executor, lambda: seen_at(executor, objects, name), settings, hosts)
        carry = settings.for_repository(root).project.carry
        context = ExecutionContext(executor, objects, base, project, settings.policy.hosts, carry)
        try:
            executor.delete(name)
            context.create(name, base.tree)
            on_progress("asking the interpreter for the project's dependencies")
            declared = _declared(root, root / project.folder) if project.language == "python" else ()
            missing = _missing(context, name, declared) if declared else ()
            suite = None
            if tests_sec is not None:
                on_progress("running the tests")
                suite = run_tests(executor, name, project, (), tests_sec)
        finally:
            executor.delete(name)
    return _described(project, root, declared, missing, suite)


def _declared(root: Path, project: Path) -> tuple[str, ...]:
    """The packages that must be installed: those of the repository are imported from the workspace."""
    siblings = sibling_names(root, project)
    return tuple(name for name in declared_packages(project) if canonical(name) not in siblings)


def _described(
    project: Project, root: Path, declared: tuple[str, ...], missing: tuple[str, ...] | None, suite: SuiteRun | None
) -> Inspection:
    python = project.interpreter
    first = Dependencies(root, project.folder).facts(missing[0]).declared if missing else None
    return Inspection(
        root=str(root / project.folder),
        runner=project.runner,
        language=project.language,
        interpreter=python.executable,
        origin=python.origin,
        declared=declared,
        missing=missing,
        install="" if first is None else "codepilot prepare" if first.prepared else first.install,
        suite=suite,
    )


def _missing(context: ExecutionContext, workspace: str, declared: tuple[str, ...]) -> tuple[str, ...] | None:
    """Ask the project's interpreter, inside the sandbox."""
    asked = RunCommand(
        workspace=workspace,
        argv=(context.project.interpreter.executable, "-c", _INSTALLED),
        stdin=json.dumps(declared).encode(),
        timeout_sec=ASK_SEC,
        env=context.project.env,
    )
    try:
        found = json.loads(context.executor.run_command(asked).stdout)
    except (CodePilotError, ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    return tuple(name for name in declared if name in found)


def declared_packages(project: Path) -> tuple[str, ...]:
    """The packages that every installation of the project needs, by the declarations that have no condition."""
    listed = [
        *_strings(table(read_toml(project / "pyproject.toml"), "project").get("dependencies")),
        *_of_poetry(table(read_toml(project / "pyproject.toml"), "tool", "poetry", "dependencies")),
        *read_ini(project / "setup.cfg").get("options", "install_requires", fallback="").splitlines(),
        *read_head(project / "requirements.txt", MOST_BYTES, within=project).splitlines(),
    ]
    found = (_NAME.fullmatch(line.partition("#")[0].strip()) for line in listed)
    return tuple(dict.fromkeys(one[1] for one in found if one))


def _strings(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _of_poetry(entries: Mapping[str, object]) -> list[str]:
    return [name for name, wanted in entries.items() if name != "python" and isinstance(wanted, str)]
