"""A project's map from the names of its files alone: the same names give the same map."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from codepilot.core.artifacts import RepoMap
from codepilot.project.suite import Project, RunnerName
from codepilot.project.test_files import is_test_file

MAX_LISTED = 500

_KEY_NAMES = {
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "requirements.txt",
    "tox.ini",
    "noxfile.py",
    "pytest.ini",
    "conftest.py",
    "Makefile",
    "README.md",
    "README.rst",
    "CONTRIBUTING.md",
    "codepilot.toml",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "settings.gradle",
    "settings.gradle.kts",
    "package.json",
    "tsconfig.json",
}
_BUILDS = (("poetry.lock", "poetry"), ("uv.lock", "uv"), ("Pipfile", "pipenv"), ("hatch.toml", "hatch"))
_COMMANDS: dict[RunnerName, tuple[str, ...]] = {
    "pytest": ("python", "-m", "pytest"),
    "unittest": ("python", "-m", "unittest", "discover"),
    "maven": ("mvn", "-B", "-o", "test"),
    "gradle": ("gradle", "--offline", "--no-daemon", "test"),
    "npm": ("npm", "test"),
}
_TEST_FOLDERS = {"test", "tests", "testing"}


def map_repo(paths: Iterable[str], project: Project) -> RepoMap:
    """Build system, commands, packages, key files and tests. `paths` are relative, with forward slashes."""
    files = sorted(PurePosixPath(path) for path in set(paths))
    python = [path for path in files if path.suffix == ".py"]
    tests = [path for path in files if is_test_file(path.name)]
    names = {str(path) for path in files}
    return RepoMap(
        build_system=_build_system(names) if project.is_python else project.runner,
        test_cmd=_COMMANDS[project.runner],
        lint_cmd=("ruff", "check") if names & {"ruff.toml", ".ruff.toml"} else (),
        modules=_listed(_modules(python, set(tests))),
        key_files=_listed([str(path) for path in files if path.name in _KEY_NAMES and len(path.parts) <= 2]),
        test_files=_listed([str(path) for path in tests]),
    )


def _build_system(names: set[str]) -> str:
    for name, build in _BUILDS:
        if name in names:
            return build
    if "pyproject.toml" in names:
        return "pyproject"
    return "setuptools" if names & {"setup.py", "setup.cfg"} else "python"


def _modules(python: list[PurePosixPath], tests: set[PurePosixPath]) -> list[str]:
    """Packages, and modules that lie in none, by their dotted names; tests are left out."""
    packages = {path.parent for path in python if path.name == "__init__.py"}
    found: set[str] = set()
    for path in python:
        if path in tests or _TEST_FOLDERS & set(path.parts) or path.name in ("conftest.py", "setup.py", "noxfile.py"):
            continue
        if path.parent in packages:
            found.add(_dotted(path.parent))
        elif len(path.parts) == 1 or path.parts[0] == "src":
            found.add(_dotted(path.with_suffix("")))
    return sorted(found - {""})


def _dotted(path: PurePosixPath) -> str:
    parts = path.parts[1:] if path.parts[:1] == ("src",) else path.parts
    return ".".join(parts)


def _listed(names: list[str]) -> tuple[str, ...]:
    return tuple(names[:MAX_LISTED])
