"""Real commits that fixed one file: the parent with the fix's tests is shown, the fix itself is held out.

Repositories lie next to the list as `repos/NAME.git`, or `repos/OWNER+NAME.git` where two have the same name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codepilot.bench.bugs import Bug, Origin, broken_data, missing_repository

NEEDED = ("repo", "parent", "fix", "src_file", "test_files", "failing_tests")
COMMAND_SEC = 120.0
_ADVICE = "Name the list of commits (realfix-….json), or a directory with one list and repos/NAME.git."


def load(path: Path) -> list[Bug]:
    """Every task of the list, in its order."""
    file = _list(path)
    try:
        tasks = json.loads(file.read_text("utf-8"))["tasks"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise broken_data(file, f"is not a list of commits ({type(error).__name__}: {error}).", _ADVICE) from error
    return [_bug(file, number, task) for number, task in enumerate(tasks, 1)]


def _list(path: Path) -> Path:
    if path.is_file():
        return path
    lists = sorted(path.glob("*.json"))
    if len(lists) != 1:
        raise broken_data(path, f"holds {len(lists)} lists.", _ADVICE)
    return lists[0]


def _bug(file: Path, number: int, task: Any) -> Bug:
    missing = [key for key in NEEDED if not isinstance(task, dict) or not task.get(key)]
    if missing:
        raise broken_data(file, f"task {number} has no {missing[0]!r}.", _ADVICE)
    owner, _, name = str(task["repo"]).partition("/")
    places = [file.parent / "repos" / folder for folder in (f"{owner}+{name}.git", f"{name}.git")]
    repository = next((place for place in places if place.is_dir()), places[1])
    files = tuple(map(str, task["test_files"]))
    added, removed = task.get("src_lines_added", 0), task.get("src_lines_removed", 0)
    return Bug(
        name=f"{name}-{task['fix'][:8]}",
        kind="one line" if added <= 1 and removed <= 1 else "few lines" if added + removed <= 5 else "more lines",
        tests=tuple(_test_id(str(test), files) for test in task["failing_tests"]),
        alone=False,
        command_sec=COMMAND_SEC,
        origin=Origin(
            repository=repository.absolute(),
            parent=str(task["parent"]),
            fix=str(task["fix"]),
            source=str(task["src_file"]),
            test_files=files,
            known_failures=tuple(_test_id(str(t), files) for t in task.get("pre_existing_failures_at_fix", ())),
        ),
    )


def check_repositories(bugs: Sequence[Bug]) -> None:
    """Say before anything is run that no repository is there. If some are, bugs of the others become rows of errors."""
    origins = [bug.origin for bug in bugs if bug.origin is not None]
    if origins and not any(origin.repository.is_dir() for origin in origins):
        raise missing_repository(origins[0].repository)


def _test_id(name: str, files: tuple[str, ...]) -> str:
    """`tests.test_x.TestCase::test_y` as pytest names it: `tests/test_x.py::TestCase::test_y`."""
    place, _, test = name.partition("::")
    for file in files:
        dotted = file.removesuffix(".py").replace("/", ".")
        if place == dotted or place.startswith(dotted + "."):
            classes = [part for part in place[len(dotted) :].split(".") if part]
            return "::".join([file, *classes, test])
    return name
