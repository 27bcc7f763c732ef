"""Installs what a project needs, in a sandbox that reaches the package registries and nothing else.

What comes out of the sandbox is one archive. It is unpacked into `envs/<key>`, where later runs find it.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import time
import venv
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from io import FileIO
from pathlib import Path

from codepilot.core.contract import Contract
from codepilot.core.events import BasePinned, EnvironmentPrepared
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskSpec
from codepilot.engine.base import open_objects, pin
from codepilot.engine.environment.registries import Registries, npm_registries, registries
from codepilot.engine.execution_context import ExecutionContext, open_task_executor, proxied
from codepilot.engine.runtime import Runtime
from codepilot.executor import Executor, RunCommand
from codepilot.project import Project, find_interpreter, locate, mounts_of
from codepilot.project.build import Checkout, installation, search_path, shown
from codepilot.project.recipe import COMPLETE, MODULES, PACKAGES, Recipe, npm_recipe, own_version, python_recipe
from codepilot.sandbox import Limits
from codepilot.store import new_id

INSTALL_SEC = 900.0
MAX_BYTES = 4 << 30
MAX_MEMBERS = 500_000
MAX_HEADER = 1 << 20
LIMITS = Limits(wall_sec=INSTALL_SEC, memory_bytes=4 << 30, processes=200, disk_bytes=MAX_BYTES, file_bytes=MAX_BYTES)
LEFT_SEC = 86_400.0
"""An environment that has been unpacked for so long is nobody's."""
_UNPACKED = "preparing-"
ARCHIVE = "packages.tar"
_INSTALL = """
import subprocess, sys, tarfile
target, archive, *arguments = sys.argv[1:]
done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check",
                       "--no-cache-dir", "--no-compile", "--target", target, *arguments])
if done.returncode:
    sys.exit(done.returncode)
with tarfile.open(archive, "w") as made:
    made.add(target, ".")
"""
_INSTALL_NPM = """
import os, subprocess, sys, tarfile
place, archive, *arguments = sys.argv[1:]
cache = os.path.abspath(".codepilot-npm-cache")
done = subprocess.run(["npm", *arguments, "--no-audit", "--no-fund", "--loglevel=error", "--cache", cache], cwd=place)
if done.returncode:
    sys.exit(done.returncode)
with tarfile.open(archive, "w") as made:
    for folder, names, _ in os.walk("."):
        if "node_modules" in names:
            there = os.path.normpath(os.path.join(folder, "node_modules"))
            made.add(there, there)
        names[:] = [name for name in names if name not in ("node_modules", ".codepilot-npm-cache")]
"""


class Preparation(Contract):
    """What `prepare` would install, or has installed."""

    root: str
    key: str
    path: str
    subject: str
    hosts: tuple[str, ...]
    done: bool
    """True if the environment is there."""


def look(runtime: Runtime, repo: Path) -> tuple[Preparation, Recipe]:
    """What a project needs, and whether it was prepared before."""
    place = repo.resolve()
    root = next((one for one in (place, *place.parents) if (one / ".git").exists()), place)
    folder = locate(root, place)
    recipe = python_recipe(root, folder) or npm_recipe(root, folder)
    if recipe is None:
        raise _nothing_to_install(place, root / folder)
    found = runtime.home.envs / recipe.key
    hosts = _registries(runtime, root, recipe).hosts
    return Preparation(
        root=str(root),
        key=recipe.key,
        path=str(found),
        subject=recipe.subject,
        hosts=hosts,
        done=(found / COMPLETE).is_file(),
    ), recipe


def _nothing_to_install(place: Path, project: Path) -> CodePilotError:
    advice = "Add a requirements.txt, or [project] dependencies to pyproject.toml."
    by_others = {
        "pom.xml": "Run `mvn test-compile` once: runs are shown the repository of Maven that it fills.",
        **dict.fromkeys(
            ("build.gradle", "build.gradle.kts"), "Run `gradle testClasses` once: runs are shown its cache."
        ),
        "pnpm-lock.yaml": "Run `pnpm install` in the checkout.",
        "yarn.lock": "Run `yarn install` in the checkout.",
        "package.json": "Its package.json names no dependencies: nothing has to be installed.",
    }
    advice = next((how for name, how in by_others.items() if (project / name).is_file()), advice)
    return CodePilotError(
        FailureKind.INVALID_SPEC, f"{place} declares no dependencies that pip or npm could install.", next_action=advice
    )


def _registries(runtime: Runtime, root: Path, recipe: Recipe) -> Registries:
    environ = runtime.settings.environ
    return registries(environ) if recipe.manager == "pip" else npm_registries(_npm(root, environ), environ)


def _npm(root: Path, environ: Mapping[str, str]) -> Path:
    found = Checkout(root, str(root), environ).program("npm")
    if found is None:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            "There is no `npm` on this machine.",
            next_action="Install Node.js with npm.",
        )
    return found


def prepare(runtime: Runtime, task: TaskSpec, recipe: Recipe, on_progress: Callable[[str], None]) -> None:
    """Install a project's dependencies into the environment of their key."""
    on_progress("copying the checkout")
    base = pin(task, runtime.home, runtime.settings.service.repository_hosts)
    with closing(open_task_executor(task, runtime.settings)) as executor:
        install(runtime, executor, base, recipe, on_progress)


def install(
    runtime: Runtime,
    executor: Executor,
    base: BasePinned,
    recipe: Recipe,
    on_progress: Callable[[str], None] = lambda stage: None,
) -> EnvironmentPrepared:
    """Make `envs/<key>`, unless it is there."""
    place = runtime.home.envs / recipe.key
    root = Path(base.checkout or runtime.home.workspaces)
    found = _registries(runtime, root, recipe)
    prepared = EnvironmentPrepared(
        key=recipe.key, path=str(place), packages=recipe.requirements, files=recipe.files, hosts=found.hosts
    )
    if (place / COMPLETE).is_file():
        return prepared
    if runtime.settings.executor.url is not None:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            "An environment is prepared on the machine that uses it, and the executor is another one.",
            next_action="Install the dependencies there.",
        )
    name = new_id("v-")
    with closing(open_objects(runtime.home, base.repo_id)) as objects:
        context = ExecutionContext(executor, objects, base, _installer(runtime, base, recipe, found))
        try:
            path = Path(context.create(name, base.tree))
            on_progress(f"installing {recipe.subject}")
            _run(executor, name, context.project, recipe, found)
            on_progress("unpacking the environment")
            _unpack(path / ARCHIVE, place, recipe)
        finally:
            executor.delete(name)
    return prepared


def _installer(runtime: Runtime, base: BasePinned, recipe: Recipe, found: Registries) -> Project:
    """CodePilot's own Python, whose pip installs, or npm, with the directories that they are configured with."""
    environ = {name: value for name, value in runtime.settings.environ.items() if name != "VIRTUAL_ENV"}
    with tempfile.TemporaryDirectory() as nowhere:
        python = find_interpreter(Path(nowhere), python=None, configured=None, environ=environ)
    folders = tuple((folder, folder) for folder in found.folders)
    root = base.checkout or str(runtime.home.workspaces)
    env: dict[str, str] = {}
    if recipe.manager == "npm":
        checkout = Checkout(Path(root), root, environ)
        npm = _npm(checkout.repository, environ)
        folders += shown(checkout, *installation(npm))
        env = {"PATH": search_path(npm, npm.resolve())}
    return Project(runner="pytest", interpreter=python, root=root, mounts=(*mounts_of(python), *folders), env=env)


def _arguments(recipe: Recipe) -> tuple[str, ...]:
    """The script that installs inside, with its arguments."""
    if recipe.manager == "npm":
        place = str(Path(recipe.files[0]).parent) if recipe.files else "."
        locked = len(recipe.files) > 1 and not recipe.requirements
        wanted = ("ci",) if locked else ("install", "--no-save", *recipe.requirements)
        return (_INSTALL_NPM, place, ARCHIVE, *wanted)
    arguments = [word for file in recipe.files for word in ("-r", file)] + list(recipe.requirements)
    if recipe.python and recipe.python != own_version():
        arguments = ["--python-version", recipe.python, "--only-binary=:all:", *arguments]
    return (_INSTALL, ".codepilot-packages", ARCHIVE, *arguments)


def _run(executor: Executor, workspace: str, installer: Project, recipe: Recipe, found: Registries) -> None:
    done = executor.run_command(
        RunCommand(
            workspace=workspace,
            argv=(installer.interpreter.executable, "-I", "-c", *_arguments(recipe)),
            timeout_sec=INSTALL_SEC,
            hosts=found.hosts,
            private_network=True,
            env={**proxied(found.hosts), **found.env, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            limits=LIMITS,
        )
    )
    if done.status != "ok" or done.exit_code:
        output = done.stderr[-1500:].decode("utf-8", "replace").strip()
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The dependencies could not be installed ({done.limit or done.status}): {output}",
            next_action=f"Correct what the project declares, or {recipe.manager}'s configuration of the registries.",
        )


def _unpack(archive: Path, place: Path, recipe: Recipe) -> None:
    """Unpack what the sandbox made next to its place, and move it there when it is complete."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(place.parent)
    made = Path(tempfile.mkdtemp(prefix=_UNPACKED, dir=place.parent))
    try:
        if recipe.manager == "npm":
            packages = made / MODULES
            packages.mkdir()
        elif recipe.whole:
            venv.create(made, symlinks=True, with_pip=False)
            packages = next(made.glob("lib/python*/site-packages"))
        else:
            packages = made / PACKAGES
            packages.mkdir()
        extract(archive, packages, links=recipe.manager == "npm")
        (made / COMPLETE).write_text("", encoding="utf-8")
        try:
            made.rename(place)
        except OSError:
            if not (place / COMPLETE).is_file():
                shutil.rmtree(place)
                made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _remove_left(place: Path) -> None:
    """What processes left there that were killed while they unpacked."""
    for one in place.glob(f"{_UNPACKED}*"):
        with suppress(OSError):
            if time.time() - one.stat().st_mtime > LEFT_SEC:
                shutil.rmtree(one, ignore_errors=True)


class _Bounded(FileIO):
    """A file that refuses to be read in large pieces, as an archive with an endless header asks for."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= MAX_HEADER:
            raise CodePilotError(FailureKind.TOOL_FAILED, "The archive of the packages has a header that is too long.")
        return super().read(size) or b""


def extract(archive: Path, into: Path, *, links: bool) -> None:
    """Only files and directories, and links that stay below `into` if wanted: the archive was made in the sandbox."""
    descriptor = os.open(archive, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb"):
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CodePilotError(FailureKind.TOOL_FAILED, "The sandbox left no archive of the packages.")
        total = 0
        with tarfile.open(fileobj=_Bounded(descriptor, closefd=False), mode="r:") as packed:
            for number, member in enumerate(packed):
                total += member.size
                if number > MAX_MEMBERS or total > MAX_BYTES:
                    raise CodePilotError(FailureKind.TOOL_FAILED, "The packages are larger than an environment may be.")
                if member.isfile() or member.isdir() or (links and member.issym()):
                    with suppress(tarfile.FilterError):
                        packed.extract(member, into, filter="data")
