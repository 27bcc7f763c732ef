"""Finds the directories from which a Python project imports: its own sources and those of its sibling packages.

A sibling is a package of the same repository that the project depends on by its path or by its workspace. Where it is
not installed as editable, it is imported from the workspace all the same, so that a change to it is tested.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from codepilot.core.project_settings import parse_toml
from codepilot.project.boundary import is_within, read_head

MAX_BYTES = 1 << 18
PROJECT = "pyproject.toml"
MAX_INCLUDED = 20
"""Files of requirements that are read for one project."""
MAX_FOLDERS, MAX_PARTS, MAX_DEPTH = 20_000, 20, 100
"""Of a workspace's patterns: the folders that are looked at, the names of one pattern, and those of a folder."""
MAX_PROJECTS = 100
SOURCES = ("*.py", "*/*.py", "*/*/*.py")
"""Where a directory of sources has its modules; packages below the top need no `__init__.py`."""

_NAME = re.compile(r"^[\w.-]+")
_FILE_URL = re.compile(r"@\s*file:(?://)?(?P<path>[^\s;#]+)")
_EDITABLE = re.compile(r"^(?:-e|--editable)[ =]\s*(?:file:(?://)?)?(?P<path>[^\s;#\[]+)|^(?P<plain>\.{1,2}/[^\s;#\[]*)")
_INCLUDED = re.compile(r"^(?:-r|--requirement)[ =]\s*(?P<path>\S+)")
_FINDERS = ("find_packages", "find_namespace_packages")
_HERE = re.compile(r"\$?\{(?:toxinidir|tox_root|PROJECT_ROOT|root|root:uri)\}/?")


def import_paths(repository: Path, project: Path, sites: Iterable[str]) -> tuple[str, ...]:
    """The directories for PYTHONPATH, relative to the repository; the project's own come first."""
    sites = tuple(sites)
    found: dict[Path, None] = {}
    for one in (project, *siblings(repository, project)):
        found.update(dict.fromkeys(source_roots(one, sites, flat=one != project)))
        if one == project:
            found.update(dict.fromkeys(configured_paths(project)))
    inside = [one for one in found if is_within(one.resolve(), repository.resolve())]
    return tuple(os.path.relpath(one, repository) for one in inside)


def source_roots(project: Path, sites: Iterable[str], *, flat: bool) -> Iterator[Path]:
    """The directories that hold a project's packages; with `flat`, also the project's own directory."""
    named = list(_declared_roots(project))
    for root in dict.fromkeys(named or [project / "src"]):
        if root.is_dir() and root != project and not (root / "__init__.py").exists() and not _compiled(root, sites):
            yield root
            flat = False
    if flat:
        yield project


def _compiled(root: Path, sites: Iterable[str]) -> bool:
    """True if there are no modules, or if an installed copy has compiled ones that the sources lack."""
    packages = {path.relative_to(root).parts[0] for pattern in SOURCES for path in root.glob(pattern)}
    built = (Path(site) / name for site in sites for name in packages)
    return not packages or any(one.is_dir() and next(one.rglob("*.so"), None) is not None for one in built)


def _declared_roots(project: Path) -> Iterator[Path]:
    """Where setuptools, Poetry or PDM look for packages."""
    tools = table(read_toml(project / "pyproject.toml"), "tool")
    folder = table(tools, "setuptools", "package-dir").get("")
    if isinstance(folder, str):
        yield project / folder
    where = table(tools, "setuptools", "packages", "find").get("where")
    for one in where if isinstance(where, list) else []:
        yield project / str(one)
    packages = table(tools, "poetry").get("packages")
    for one in packages if isinstance(packages, list) else []:
        if isinstance(one, dict) and isinstance(one.get("from"), str):
            yield project / one["from"]
    folder = table(tools, "pdm", "build").get("package-dir")
    if isinstance(folder, str):
        yield project / folder
    setup = read_ini(project / "setup.cfg")
    found = re.search(r"^[ \t]*=[ \t]*(\S+)", setup.get("options", "package_dir", fallback=""), re.M)
    if found:
        yield project / found[1]
    yield from (project / one for one in _set_up(read_head(project / "setup.py", MAX_BYTES)))


def _set_up(text: str) -> Iterator[str]:
    """The directories that a setup.py names as constants: `package_dir={"": "lib"}`, `find_packages("lib")`."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        found: list[ast.expr] = []
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in _FINDERS:
            found = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "where")]
        elif isinstance(node, ast.keyword) and node.arg == "package_dir" and isinstance(node.value, ast.Dict):
            pairs = zip(node.value.keys, node.value.values, strict=True)
            found = [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == ""]
        for one in found:
            if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.strip("./"):
                yield one.value


def configured_paths(project: Path) -> Iterator[Path]:
    """The PYTHONPATH that tox, Hatch or a `.env` file sets."""
    texts: list[str] = []
    for name in ("tox.ini", "setup.cfg"):
        parser = read_ini(project / name)
        for section in parser.sections():
            if section.startswith("testenv"):
                for key in ("setenv", "set_env"):
                    texts += re.findall(
                        r"^[ \t]*PYTHONPATH[ \t]*=[ \t]*(.+)$", parser.get(section, key, fallback=""), re.M
                    )
    environments = table(read_toml(project / "pyproject.toml"), "tool", "hatch", "envs")
    for one in environments.values():
        texts.append(str(table(one, "env-vars").get("PYTHONPATH", "")))
    texts += re.findall(
        r"^[ \t]*(?:export[ \t]+)?PYTHONPATH[ \t]*=[ \t]*['\"]?([^'\"\n]+)", read_head(project / ".env"), re.M
    )
    for text in texts:
        for part in filter(None, re.split(r"[:;]", text.strip())):
            plain = _HERE.sub("", part.strip()) or "."
            if not re.search(r"[{}$%]", plain) and not plain.startswith("/") and (project / plain).is_dir():
                yield Path(os.path.normpath(project / plain))


# Siblings -------------------------------------------------------------------------------------------


def siblings(repository: Path, project: Path) -> tuple[Path, ...]:
    """The projects of the same repository on which this one depends, directly or not."""
    found: dict[Path, None] = {}
    todo = [project]
    while todo and len(found) < MAX_PROJECTS:
        one = todo.pop()
        for path in _dependencies(repository, one):
            place = Path(os.path.normpath(path))
            known = place == project or place in found
            if not known and place.is_dir() and is_within(place.resolve(), repository.resolve()):
                found[place] = None
                todo.append(place)
    return tuple(found)


def sibling_names(repository: Path, project: Path) -> frozenset[str]:
    """The distributions of those projects, which need no installation."""
    documents = [read_toml(one / "pyproject.toml") for one in siblings(repository, project)]
    names = [table(one, "project").get("name") or table(one, "tool", "poetry").get("name") for one in documents]
    return frozenset(canonical(name) for name in names if isinstance(name, str))


def _dependencies(repository: Path, project: Path) -> Iterator[Path]:
    document = read_toml(project / "pyproject.toml")
    yield from _gathered(project, document)
    for text in declared_requirements(document):
        if url := _FILE_URL.search(text):
            yield project / _HERE.sub("", url["path"])
    for name, source in table(document, "tool", "uv", "sources").items():
        for one in source if isinstance(source, list) else [source]:
            if isinstance(one, dict) and isinstance(one.get("path"), str):
                yield project / one["path"]
            elif isinstance(one, dict) and one.get("workspace") is True:
                yield from _members(repository, project, name)
    for dependencies in _poetry_groups(document):
        for one in dependencies.values():
            if isinstance(one, dict) and isinstance(one.get("path"), str):
                yield project / one["path"]
    seen: set[Path] = set()
    for name in ("requirements.txt", "requirements-dev.txt", "dev-requirements.txt", "requirements/dev.txt"):
        yield from _required(project / name, project, seen)


def _members(repository: Path, project: Path, name: str) -> Iterator[Path]:
    """The member of this name in the workspace of uv around a project."""
    for root in (project, *project.parents):
        if not is_within(root, repository):
            return
        document = read_toml(root / "pyproject.toml")
        if not isinstance(table(document, "tool", "uv", "workspace").get("members"), list):
            continue
        for member in _gathered(root, document):
            found = table(read_toml(member / "pyproject.toml"), "project").get("name")
            if canonical(str(found)) == canonical(name):
                yield member
        return


def _gathered(root: Path, document: Mapping[str, Any]) -> Iterator[Path]:
    """The members of the workspace of uv that a project is the root of."""
    listed = table(document, "tool", "uv", "workspace").get("members")
    left = iter(range(MAX_FOLDERS))
    for pattern in listed if isinstance(listed, list) else []:
        parts = [part for part in str(pattern).split("/") if part != "."]
        found = _folders(root, parts, left) if len(parts) <= MAX_PARTS else iter(())
        yield from (one for one in islice(found, MAX_PROJECTS) if (one / PROJECT).is_file())


def _folders(folder: Path, pattern: list[str], left: Iterator[int]) -> Iterator[Path]:
    """The folders that a pattern names. No link is followed, and `left` bounds how many are looked at."""
    if not pattern:
        yield folder
        return
    deep = pattern[0] == "**"
    if len(folder.parts) > MAX_DEPTH:
        return
    if deep:
        yield from _folders(folder, pattern[1:], left)
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in names:
        if next(left, None) is None:
            return
        if deep or fnmatchcase(name, pattern[0]):
            yield from _folders(folder / name, pattern if deep else pattern[1:], left)


def _poetry_groups(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    poetry = table(document, "tool", "poetry")
    yield table(poetry, "dependencies")
    yield table(poetry, "dev-dependencies")
    for group in table(poetry, "group").values():
        yield table(group, "dependencies")


def _required(path: Path, project: Path, seen: set[Path]) -> Iterator[Path]:
    """The local directories that a file of requirements names."""
    place = Path(os.path.normpath(path))
    if place in seen or len(seen) >= MAX_INCLUDED:
        return
    seen.add(place)
    for line in read_head(path, MAX_BYTES, within=project).splitlines():
        if (found := _EDITABLE.match(line.strip())) is not None:
            yield path.parent / (found["path"] or found["plain"])
        elif (found := _INCLUDED.match(line.strip())) is not None:
            yield from _required(path.parent / found["path"], project, seen)


# Files ----------------------------------------------------------------------------------------------


def declared_requirements(document: Mapping[str, Any]) -> Iterator[str]:
    """All requirements of a pyproject.toml in the standard's notation, groups and extras included."""
    lists = [table(document, "project").get("dependencies")]
    lists += table(document, "project", "optional-dependencies").values()
    lists += table(document, "dependency-groups").values()
    lists += table(document, "tool", "pdm", "dev-dependencies").values()
    lists.append(table(document, "tool", "uv").get("dev-dependencies"))
    for entries in lists:
        for one in entries if isinstance(entries, list) else []:
            if isinstance(one, str):
                yield one


def canonical(name: str) -> str:
    """The name of a distribution or module as the package index compares it."""
    found = _NAME.match(name.strip())
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(read_head(path, MAX_BYTES).encode())
    except ValueError:
        return {}


def read_ini(path: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(read_head(path, MAX_BYTES))
    except configparser.Error:
        return configparser.RawConfigParser()
    return parser


def table(document: object, *names: str) -> dict[str, Any]:
    """A table within a TOML document; empty if it is missing or is something else."""
    for name in names:
        document = document.get(name) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}
