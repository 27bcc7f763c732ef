"""What a person names as the place of a task: a repository, a directory, a file or a test, and names of tests."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project import holding, holds_tests, is_project, locate
from codepilot.workspace import find_root, is_url

_LAST = r"(?:test\w*|\w+_test|(?:\w+\.)*(?:[Tt]est\w*|\w+Test)(?:\.\w+)*)"
_TEST_NAME = re.compile(rf"(?:\w+(?:\.\w+)*::)*{_LAST}(?:\[.*\])?")
"""A name that cannot be a repository: `test_x`, `TestX::test_y`, `tests.test_x.TestX.test_y`."""


@dataclass(frozen=True)
class Place:
    """The repository, and the paths and tests in it that were named, relative to its top."""

    root: Path | None
    """None for a URL."""
    path: str = ""
    within: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()


def understand(named: str, tests: tuple[str, ...]) -> Place:
    """What `named` means from the current directory, with further names of tests."""
    if is_url(named):
        return Place(None, tests=tests)
    here = Path(named).expanduser()
    file = Path(named.partition("::")[0]).expanduser()
    if not _is_there(here):
        if "::" in named and _is_there(file):
            tests, here = (_absolute(named, Path.cwd()), *tests), file
        elif _TEST_NAME.fullmatch(named):
            tests, here = (named, *tests), Path()
    root = find_root(here)
    here = here.resolve()
    here = _holding(root, here, tests) or here
    project = root / _project(root, here, tests)
    bases = (here if here.is_dir() else here.parent, Path.cwd(), project, root)
    tests = tuple(_from_top(test, bases, root) for test in tests)
    path = _relative(here, root)
    elsewhere = here != Path.cwd().resolve() and here not in (root, project)
    scoped = not tests and elsewhere and (here.is_file() or (not is_project(here) and holds_tests(here)))
    return Place(root, path, (path,) if scoped else (), tests)


def _holding(root: Path, here: Path, tests: tuple[str, ...]) -> Path | None:
    """The project that a bare name of a test belongs to, where the top holds several."""
    if here != root or len(tests) != 1 or "/" in tests[0] or Path(tests[0].partition("::")[0]).suffix:
        return None
    try:
        locate(root, root)
    except CodePilotError as error:
        if error.kind is FailureKind.INVALID_SPEC:
            return holding(root, tests[0])
    return None


def _project(root: Path, here: Path, tests: tuple[str, ...]) -> str:
    """The project's folder; empty if only the tests can say which of several it is."""
    try:
        return locate(root, here)
    except CodePilotError as error:
        if error.kind is FailureKind.INVALID_SPEC and tests:
            return ""
        raise


def _from_top(test: str, bases: tuple[Path, ...], root: Path) -> str:
    """A test whose file exists below one of these directories, by its path from the top; any other name as it is."""
    file, mark, rest = test.partition("::")
    if not mark and "/" not in file and not Path(file).suffix:
        return test
    for base in bases:
        place = Path(os.path.normpath(base / file)).resolve()
        if _is_there(place) and (place == root or root in place.parents):
            return _relative(place, root) + mark + rest
    return test


def _is_there(path: Path) -> bool:
    """False also for a path that the system does not look up, for example one that is too long."""
    return os.path.exists(path)  # noqa: PTH110 - `Path.exists` raises then


def _absolute(test: str, base: Path) -> str:
    file, mark, rest = test.partition("::")
    return str(base / Path(file).expanduser()) + mark + rest


def _relative(place: Path, root: Path) -> str:
    return "" if place == root else place.relative_to(root).as_posix()
