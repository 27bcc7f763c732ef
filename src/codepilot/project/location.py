"""Finds the project that a path of a repository belongs to. Files are read as data; none is run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project.boundary import read_head
from codepilot.project.import_paths import read_toml, table
from codepilot.project.test_files import is_test_file

PYTHON = ("pyproject.toml", "setup.py", "setup.cfg")
JVM = ("pom.xml", "build.gradle", "build.gradle.kts")
NODE = ("package.json",)
MARKERS = (*PYTHON, *JVM, *NODE)
WEAK_MARKERS = ("requirements.txt", "Pipfile", "manage.py", "environment.yml")
"""Files that make a directory a project if no directory around it has one of `MARKERS`, or none that speaks of it."""
LANGUAGES = {
    **dict.fromkeys((".py",), PYTHON),
    **dict.fromkeys((".java", ".kt", ".groovy", ".scala"), JVM),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts"), NODE),
}
"""The markers of the projects that a file with this suffix may belong to."""
SETTINGS_FILES = ("settings.gradle", "settings.gradle.kts")
PRUNED = frozenset(("node_modules", "__pycache__", "site-packages", "build", "dist", "venv", "env", "target"))
BESIDE = frozenset(("test", "tests", "testing", "docs", "doc", "examples", "example", "fixtures", "requirements"))
"""Directories that are part of the project around them, whatever they hold."""
MAX_FOLDERS = 20_000
MAX_SHOWN = 5


def locate(root: Path, place: Path) -> str:
    """The folder of the nearest project around `place`, relative to the repository's `root`; "" is the root itself.

    A repository without a project or a test of its own is its only nested project; several are an error that lists
    them.
    """
    wanted = LANGUAGES.get(place.suffix, MARKERS) if place.is_file() else MARKERS
    start = place.parent if place.is_file() else place
    around = [folder for folder in (start, *start.parents) if folder == root or root in folder.parents]
    found = next((folder for folder in around if _has(folder, wanted)), None)
    found = found or next((folder for folder in around if _has(folder, MARKERS)), None)
    found = _own_project(around, start if place.is_dir() else None, found) or found
    if found == root == start and _only_gathers(root):
        return _only_nested(root)
    if found is None and start != root and any((start / name).is_dir() for name in ("tests", "test")):
        found = start
    if found is not None:
        return _relative(_whole_build(found, root), root)
    return _only_nested(root) if start == root else ""


def is_project(folder: Path) -> bool:
    """True if the folder has a file of its own that makes it a project, whatever is around it."""
    return _has(folder, MARKERS)


def _own_project(around: list[Path], named: Path | None, found: Path | None) -> Path | None:
    """The nearest folder within the project `found` that is one by itself: Django's, or a named one that has tests.

    A folder that the settings of `found` speak of is a part of it.
    """
    for one in around:
        if one == found:
            return None
        if one.name in BESIDE or not _has(one, WEAK_MARKERS):
            continue
        own = found is None or (one / "manage.py").is_file() or (one == named and holds_tests(one))
        if own and (found is None or not _speaks_of(found, one.name)):
            return one
    return None


def _speaks_of(project: Path, name: str) -> bool:
    files = ("pyproject.toml", "setup.cfg", "setup.py", "pytest.ini", "tox.ini")
    return any(re.search(rf"\b{re.escape(name)}\b", read_head(project / file)) for file in files)


def holds_tests(folder: Path) -> bool:
    """True if there is a test file in the folder or below it."""
    return any(is_test_file(name) for _, names in walk(folder) for name in names)


def _has(folder: Path, names: tuple[str, ...]) -> bool:
    return any((folder / name).is_file() for name in names)


def _relative(folder: Path, root: Path) -> str:
    return "" if folder == root else folder.relative_to(root).as_posix()


def _whole_build(folder: Path, root: Path) -> Path:
    """The build that a module of Maven or Gradle is a part of: its own tool builds it from there."""
    if (folder / "pom.xml").is_file():
        while folder != root and _lists_module(folder.parent, folder.name):
            folder = folder.parent
    elif _has(folder, JVM):
        around = [one for one in (folder, *folder.parents) if one == root or root in one.parents]
        folder = next((one for one in around if _has(one, SETTINGS_FILES)), folder)
    return folder


def _lists_module(parent: Path, name: str) -> bool:
    text = read_head(parent / "pom.xml")
    return re.search(rf"<module>\s*(?:\./)?{re.escape(name)}/?\s*</module>", text) is not None


def _only_gathers(root: Path) -> bool:
    """True if the only project file of a directory gathers other projects and describes none itself."""
    if any((root / name).is_file() for name in MARKERS if name != "pyproject.toml"):
        return False
    document = read_toml(root / "pyproject.toml")
    tools = table(document, "tool")
    own = document.get("project") or table(tools, "poetry").get("name") or "pytest" in tools or _is_configured(root)
    return not own and not any((root / name).is_dir() for name in ("src", "tests", "test"))


def _is_configured(root: Path) -> bool:
    return any(
        (root / name).is_file() for name in ("pytest.ini", ".pytest.ini", "tox.ini", "conftest.py", "noxfile.py")
    )


def _only_nested(root: Path) -> str:
    tested = projects_below(root)
    if len(tested) > 1:
        folders = [_relative(folder, root) for folder in tested]
        more = f" and {len(folders) - MAX_SHOWN} more" if len(folders) > MAX_SHOWN else ""
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{root} holds {len(folders)} projects: {', '.join(folders[:MAX_SHOWN])}{more}.",
            next_action=f"Name one of them, for example `codepilot fix {folders[0]}`, or set [project] root in"
            " codepilot.toml.",
        )
    return _relative(tested[0], root) if tested else ""


def projects_below(root: Path) -> list[Path]:
    """The outermost projects with tests below a directory that has no test of its own; none if it has."""
    nested: list[Path] = []
    for folder, names in walk(root):
        if any(inner in folder.parents or inner == folder for inner in nested):
            continue
        parts = folder.relative_to(root).parts
        if folder != root and not BESIDE & set(parts) and set(names) & set(MARKERS):
            nested.append(folder)
        elif any(is_test_file(name) or name == "conftest.py" for name in names):
            return []
    return [folder for folder in nested if holds_tests(folder)]


def holding(root: Path, test: str) -> Path | None:
    """The only project below `root` whose test files define a test of this name; None if several do, or none."""
    name = re.split(r"::|\.|#", test.partition("[")[0])[-1]
    defined = re.compile(rf"\b(?:def|void|fun)\s+{re.escape(name)}\b")
    found = [
        project
        for project in projects_below(root)
        if any(
            defined.search(read_head(folder / file))
            for folder, files in walk(project)
            for file in files
            if is_test_file(file)
        )
    ]
    return found[0] if len(found) == 1 else None


def walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders and their file names, outermost first; a bounded number of them, and no link is followed."""
    for folder, inner, names in islice(os.walk(root), MAX_FOLDERS):
        inner[:] = sorted(name for name in inner if name not in PRUNED and not name.startswith("."))
        yield Path(folder), names
