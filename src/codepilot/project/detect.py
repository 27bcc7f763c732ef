"""Decides how to test a checkout. Its files are read as data; none is imported or run."""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.project_settings import ProjectSettings, parse_toml
from codepilot.project import django
from codepilot.project.boundary import is_within, read_head
from codepilot.project.build import PLUGIN_DIR, Build, Checkout
from codepilot.project.import_paths import import_paths
from codepilot.project.interpreter import OWN, find_interpreter
from codepilot.project.jvm import Gradle, Maven
from codepilot.project.npm import Npm
from codepilot.project.run import with_command
from codepilot.project.suite import Interpreter, Project, RunnerName

BUILDS: tuple[Build, ...] = (Maven(), Gradle(), Npm())
PYTHON_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "requirements.txt")
"""A checkout that has one of these at its top is a Python project, even if it builds other parts."""

FOREIGN = {
    "Cargo.toml": "Rust",
    "go.mod": "Go",
    "Gemfile": "Ruby",
    "composer.json": "PHP",
    "mix.exs": "Elixir",
    "Package.swift": "Swift",
    "CMakeLists.txt": "C or C++",
}
"""Files of languages whose tests cannot be run."""

MAX_FILES = 100_000
MAX_READ = 400
MAX_BYTES = 1 << 18

_PRUNED = {"node_modules", "__pycache__", "site-packages", "build", "dist", "venv", "env"}
_TEST_FILE = re.compile(r"(test.*|.*_test)\.py")
_PYTEST_STYLE = re.compile(
    r"^(?:import\s+pytest|from\s+pytest\b|(?:async\s+)?def\s+test|class\s+Test\w*\s*(?:\(\s*(?:object)?\s*\))?\s*:)",
    re.M,
)
_UNITTEST_STYLE = re.compile(r"\bTestCase\b")


@dataclass(frozen=True)
class Tests:
    """The signs of tests in a checkout."""

    configured: bool
    pytest_style: bool
    unittest_style: bool

    @property
    def any(self) -> bool:
        return self.configured or self.pytest_style or self.unittest_style

    @property
    def needs_pytest(self) -> bool:
        return self.configured or self.pytest_style


def detect(
    root: Path,
    *,
    python: str | None,
    environ: Mapping[str, str],
    inside: str,
    settings: ProjectSettings | None = None,
    named_by_user: bool = False,
    folder: str = "",
    environment: Path | None = None,
    prepared: Path | None = None,
) -> Project:
    """How to test the project in `folder` of the repository at `root`, which the sandbox mounts at `inside`.

    `named_by_user` says that `settings.python` is the user's own choice and not the repository's. `environment` is the
    checkout whose environment runs the tests, if `root` is a copy of it; `prepared` has the `node_modules` that were
    installed for it.
    """
    settings = settings or ProjectSettings()
    checkout = Checkout(root.absolute(), inside, environ, folder, prepared)
    find = partial(
        find_interpreter,
        (environment or root).absolute(),
        python=python,
        configured=settings.python,
        named_by_user=named_by_user,
        folder=folder,
    )
    build = _build(checkout.root, settings.runner)
    if build is not None:
        return _built(build, checkout, find, settings)
    tests = survey(checkout.root)
    if not tests.any and settings.runner == "auto":
        raise _no_suite(checkout.root)
    interpreter = find(environ=environ)
    project = Project(
        runner=_choose(tests, interpreter, settings),
        interpreter=interpreter,
        root=inside,
        mounts=mounts_of(interpreter),
        env={**environment_of(interpreter, checkout), **settings.env},
        folder=folder,
    )
    return with_command(project)


def _no_suite(root: Path) -> CodePilotError:
    missing = f"No pytest or unittest suite was found in {root}, nor a project of Maven, Gradle or npm with tests."
    for name, language in FOREIGN.items():
        if (root / name).is_file():
            return CodePilotError(
                FailureKind.NO_TEST_RUNNER,
                f"This is a {language} project ({name}), whose tests cannot be run. {missing}",
                next_action="Name a repository whose tests pytest, unittest, Maven, Gradle or npm runs.",
            )
    advice = "Add a test (tests/test_*.py), or set [project] runner in codepilot.toml."
    return CodePilotError(FailureKind.NO_TEST_RUNNER, missing, next_action=advice)


def _build(root: Path, wanted: str) -> Build | None:
    """The build system that the user names; else the first that is found, unless Python's own files are there."""
    if wanted != "auto":
        return next((build for build in BUILDS if build.name == wanted), None)
    if any((root / name).is_file() for name in PYTHON_PROJECT) and survey(root).any:
        return None
    return next((build for build in BUILDS if build.found(root)), None)


def _built(build: Build, checkout: Checkout, find: Callable[..., Interpreter], settings: ProjectSettings) -> Project:
    needs = build.needs(checkout)
    interpreter = find(environ={name: value for name, value in checkout.environ.items() if name != "VIRTUAL_ENV"})
    own = {"PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
    project = Project(
        runner=build.name,
        interpreter=interpreter,
        root=checkout.top,
        mounts=tuple(dict.fromkeys((*mounts_of(interpreter), *needs.mounts))),
        env={**own, **needs.env, **settings.env},
        driver=needs.driver,
        remedy=needs.remedy,
        folder=checkout.folder,
    )
    return with_command(project)


def check_level(project: Project, remaps: bool, inside: str) -> None:
    """Refuse mounts and editable installs that need remapped paths where the sandbox level cannot remap."""
    placed = [target for source, target in project.mounts if source != target]
    if placed and not remaps:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The project's packages must be seen at {placed[0]}, and this sandbox level cannot put them there.",
            next_action="Install bubblewrap (see `codepilot doctor`).",
            paths=placed,
        )
    stray = [path for path in project.interpreter.editable if not is_within(Path(path), Path(inside))]
    if remaps or not stray:
        return
    raise CodePilotError(
        FailureKind.ENVIRONMENT_MISSING,
        f"The environment {project.interpreter.prefix} holds an editable install of the project itself ({stray[0]}). "
        "This sandbox level cannot put the workspace in the checkout's place, so tests would not see the change.",
        next_action="Install bubblewrap (see `codepilot doctor`), or use an environment without that install.",
        paths=stray,
    )


def survey(root: Path) -> Tests:
    """Look at configuration and at the text of test files, up to a bounded number of them."""
    configured = _pytest_configured(root)
    pytest_style = unittest_style = False
    read = 0
    for path in _python_files(root):
        if path.name == "conftest.py":
            configured = True
        elif _TEST_FILE.fullmatch(path.name) and read < MAX_READ:
            read += 1
            text = read_head(path, MAX_BYTES, within=root)
            pytest_style = pytest_style or _PYTEST_STYLE.search(text) is not None
            unittest_style = unittest_style or _UNITTEST_STYLE.search(text) is not None
        if configured and pytest_style and unittest_style:
            break
    return Tests(configured, pytest_style, unittest_style)


def _pytest_configured(root: Path) -> bool:
    if any((root / name).is_file() for name in ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")):
        return True
    for name, section in (("setup.cfg", "tool:pytest"), ("tox.ini", "pytest")):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(read_head(root / name, MAX_BYTES, within=root))
        except configparser.Error:
            continue
        if parser.has_section(section):
            return True
    try:
        tool = parse_toml(read_head(root / "pyproject.toml", MAX_BYTES, within=root).encode()).get("tool", {})
    except ValueError:
        return False
    return isinstance(tool, dict) and "pytest" in tool


def _python_files(root: Path) -> Iterator[Path]:
    seen = 0
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if _enters(Path(folder, name)))
        for name in sorted(files):
            seen += 1
            if seen > MAX_FILES:
                return
            if name.endswith(".py"):
                yield Path(folder, name)


def _enters(folder: Path) -> bool:
    name = folder.name
    return not name.startswith(".") and name not in _PRUNED and not (folder / "pyvenv.cfg").exists()


def _choose(tests: Tests, interpreter: Interpreter, settings: ProjectSettings) -> RunnerName:
    if settings.runner == "unittest":
        return "unittest"
    if interpreter.has_pytest:
        return "pytest"
    if tests.needs_pytest or settings.runner == "pytest":
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The project's tests need pytest, and {interpreter.executable} ({interpreter.origin}) does not have it.",
            next_action=f"Run `{interpreter.executable} -m pip install pytest` with the project's other dependencies, "
            "or name the project's environment with --python.",
            python=interpreter.executable,
        )
    return "unittest"


def mounts_of(interpreter: Interpreter) -> tuple[tuple[str, str], ...]:
    paths = list(interpreter.mounts)
    if not any(is_within(PLUGIN_DIR, Path(path)) for path in paths):
        paths.append(str(PLUGIN_DIR))
    return tuple((path, path) for path in paths)


def environment_of(interpreter: Interpreter, checkout: Checkout) -> dict[str, str]:
    """A plain, repeatable environment. A src layout is imported from the tree, so that the change is tested."""
    binaries = str(Path(interpreter.executable).parent)
    env = {
        "PATH": ":".join(dict.fromkeys([binaries, "/usr/local/bin", "/usr/bin", "/bin"])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "NO_COLOR": "1",
    }
    if interpreter.origin == OWN:
        # Hypothesis may be here for CodePilot's sake alone, and its plugin adds a second to every start of pytest.
        env["PYTEST_ADDOPTS"] = "-p no:hypothesispytest"
    if interpreter.prefix != interpreter.base_prefix:
        env["VIRTUAL_ENV"] = interpreter.prefix
    paths = import_paths(checkout.repository, checkout.root, interpreter.sites)
    if settings := django.settings_module(checkout.root, tuple(checkout.repository / path for path in paths)):
        env[django.VARIABLE] = settings
    if paths:
        env["PYTHONPATH"] = ":".join(os.path.normpath(Path(checkout.top, path)) for path in paths)
    return env
