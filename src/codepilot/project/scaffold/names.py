"""The names of the modules that a repository has: a build cannot hold two of the same. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable

from codepilot.core.failures import CodePilotError
from codepilot.core.scaffold import Ecosystem, Scaffold
from codepilot.project.scaffold.reactor import read_pom
from codepilot.project.scaffold.repository import Tree
from codepilot.project.test_files import is_test

MAX_READ = 1000


def namesake_of(tree: Tree, wanted: Scaffold) -> str | None:
    """The build file of another module that is called like the new one; None if there is none."""
    file, name_in = _READ[wanted.ecosystem]
    places = sorted(path for path in tree.paths if path == file or path.endswith(f"/{file}"))
    modules = [path for path in places if not is_test(path) and "node_modules" not in path.split("/")]
    for path in modules[:MAX_READ]:
        try:
            named = name_in(tree.read(path) or b"")
        except (ValueError, RecursionError, CodePilotError):
            continue
        if isinstance(named, str) and _plain(wanted.ecosystem, named) == _plain(wanted.ecosystem, wanted.name):
            return path
    return None


def _plain(ecosystem: Ecosystem, name: str) -> str:
    """The name as its build system compares it."""
    return re.sub(r"[-_.]+", "-", name).lower() if ecosystem is Ecosystem.PYTHON else name


def _artifact(content: bytes) -> object:
    return read_pom("", content).values.get("artifactId")


def _package(content: bytes) -> object:
    document = json.loads(content)
    return document.get("name") if isinstance(document, dict) else None


def _project(content: bytes) -> object:
    project = tomllib.loads(content.decode()).get("project")
    return project.get("name") if isinstance(project, dict) else None


_READ: dict[Ecosystem, tuple[str, Callable[[bytes], object]]] = {
    Ecosystem.MAVEN: ("pom.xml", _artifact),
    Ecosystem.NPM: ("package.json", _package),
    Ecosystem.PYTHON: ("pyproject.toml", _project),
}
"""The build file of each ecosystem, and how the module's name is read from it."""
