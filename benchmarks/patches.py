"""Measures unified diffs on one file, and `git apply` and `patch`: exact ones, and ones as models write them."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Table, Times, ratio
from benchmarks.machine import Quiet
from benchmarks.sizes import Size
from codepilot.core.failures import CodePilotError
from codepilot.executor import CreateWorkspace, LocalExecutor, RunCode
from codepilot.sandbox import choose
from codepilot.skills import PatchError, inside_prelude, patch_tree
from codepilot.workspace import Entry, ObjectStore

_FILE = "module.py"
_LINES = 2_000
_SHIFT = 23
_HEADER = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@", re.MULTILINE)
_BLOCK = """\
def function_{0}(value):
    total = value * {0}
    if total > 10:
        return total
    return None


"""
_TEXT = (
    f"A unified diff of 1 or 50 hunks to a file of {_LINES:,} lines: exact; with line numbers {_SHIFT} lines off;"
    " with wrong lengths in the hunk headers; with headers without numbers. Milliseconds, median and 5th to 95th"
    " percentile, from the diff to the written file, which is compared with the intended one. An agent's action"
    " calls the skill in the kernel, isolated. The function is the skill's code, called in this process. The"
    " programs are started each time. *Refused*: the file stayed unchanged and the reason was given."
)

Apply = Callable[[str], bool]
"""Apply a diff to the file; false if it was refused."""


def measure(size: Size, quiet: Quiet) -> list[Table]:
    quiet.look()
    before, diffs = _source(), {}
    for hunks in (1, 50):
        after = _edited(before, hunks)
        for how, diff in _damaged(before, after).items():
            diffs[f"{hunks} hunk{'s' * (hunks > 1)}, {how}"] = (diff, after)
    found: dict[str, dict[str, str | list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="codepilot-bench-") as name, contextlib.ExitStack() as opened:
        home = Path(name).resolve()
        methods = _methods(home, before, opened)
        for turn in range(-1, size.patch_rounds):
            for what, (diff, after) in diffs.items():
                for method, (path, apply) in methods.items():
                    cells = found.setdefault(method, {})
                    result = _once(path, apply, before, diff, after)
                    if isinstance(result, str):
                        cells[what] = result
                    elif turn >= 0:
                        times = cells.setdefault(what, [])
                        assert isinstance(times, list)
                        times.append(result)
    return [_table(list(diffs), found)]


def _once(path: Path, apply: Apply, before: str, diff: str, after: str) -> float | str:
    path.write_text(before)
    started = time.perf_counter()
    applied = apply(diff)
    took = (time.perf_counter() - started) * 1000
    if path.read_text() == (after if applied else before):
        return took if applied else "refused"
    return "**wrong**"


def _methods(home: Path, before: str, opened: contextlib.ExitStack) -> dict[str, tuple[Path, Apply]]:
    place = home / "plain"
    place.mkdir()
    path = place / _FILE
    methods: dict[str, tuple[Path, Apply]] = {}
    try:
        methods["CodePilot skill, isolated"] = opened.enter_context(_skill(home, before))
    except CodePilotError as error:
        methods[f"CodePilot skill: {error}"] = (path, lambda diff: False)
    methods["CodePilot function"] = (path, lambda diff: _function(path, diff))
    programs = {
        "`git apply`": ("git", "apply", "--whitespace=nowarn", "-"),
        "`git apply --recount`": ("git", "apply", "--whitespace=nowarn", "--recount", "-"),
        "`patch -p1`": ("patch", "-p1", "-s", "-f", "--no-backup-if-mismatch", "-r", "-"),
    }
    for name, command in programs.items():
        methods[name] = (path, lambda diff, command=command: _program(command, place, diff))  # type: ignore[misc]
    return methods


@contextlib.contextmanager
def _skill(home: Path, before: str) -> Iterator[tuple[Path, Apply]]:
    with ObjectStore.open(home / "objects", durable=False) as store:
        tree = store.write_tree({_FILE: Entry("100644", store.write_blob(before.encode()))})
    executor = LocalExecutor(home / "workspaces", choose(), prelude=inside_prelude())
    try:
        made = executor.create(CreateWorkspace(workspace="bench", objects=str(home / "objects"), tree=tree))

        def apply(diff: str) -> bool:
            result = executor.run_code(RunCode(workspace="bench", code=f"apply_patch({diff!r})"))
            if result.status == "ok":
                return True
            if result.error is None or result.error.type != "PatchError":
                raise RuntimeError(f"the skill ended as {result.status}: {result.error}")
            return False

        yield Path(made.path) / _FILE, apply
    finally:
        executor.delete("bench")
        executor.close()


def _function(path: Path, diff: str) -> bool:
    try:
        changes = patch_tree(diff, lambda name: path.read_text() if name == _FILE else None)
    except PatchError:
        return False
    path.write_text(changes.files[_FILE] or "")
    return True


def _program(command: tuple[str, ...], place: Path, diff: str) -> bool:
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "GIT_CEILING_DIRECTORIES": str(place.parent),
        "HOME": "/nonexistent",
    }
    done = subprocess.run(command, cwd=place, env=env, input=diff.encode(), capture_output=True, check=False)
    return done.returncode == 0


def _source() -> str:
    """Code as it is: much of it says the same as other parts of it."""
    lines = "".join(_BLOCK.format(number) for number in range(_LINES // 7 + 1)).splitlines(keepends=True)
    return "".join(lines[:_LINES])


def _edited(before: str, hunks: int) -> str:
    lines = before.splitlines(keepends=True)
    step = _LINES // (hunks + 1)
    for number in range(hunks, 0, -1):
        at = number * step // 7 * 7 + 1
        lines[at : at + 1] = [f"    base = value + {number}\n", lines[at].replace("value", "base")]
    return "".join(lines)


def _damaged(before: str, after: str) -> dict[str, str]:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{_FILE}", f"b/{_FILE}"
    )
    exact = "".join(lines)

    def shifted(found: re.Match[str]) -> str:
        return f"@@ -{int(found[1]) + _SHIFT}{found[2]} +{int(found[3]) + _SHIFT}{found[4]} @@"

    return {
        "exact": exact,
        "shifted": _HEADER.sub(shifted, exact),
        "wrong lengths": _HEADER.sub(r"@@ -\1,5 +\3,5 @@", exact),
        "no numbers": _HEADER.sub("@@", exact),
    }


def _table(whats: list[str], found: dict[str, dict[str, str | list[float]]]) -> Table:
    ours = next(iter(found.values()))
    rows = []
    for method, cells in found.items():
        row = [method]
        for what in whats:
            cell, mine = cells[what], ours[what]
            if isinstance(cell, str):
                row.append(cell)
                continue
            times = Times(tuple(cell))
            factor = f", {ratio(times.median, Times(tuple(mine)).median)}" if isinstance(mine, list) else ""
            row.append(f"{times}{factor}")
        rows.append(row)
    return Table("apply_patch", _TEXT + " The factor is relative to the skill.", ["", *whats], rows)
