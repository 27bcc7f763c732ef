"""HumanEvalFix: a function with one bug, its test, and the solution it was made from.

The search is shown the buggy function and the task's `check` as one test. Held out are `example_test` and the
behaviour of `canonical_solution` on inputs like those of the tests.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from codepilot.bench.bugs import Bug, broken_data

NEEDED = ("task_id", "prompt", "canonical_solution", "buggy_solution", "test", "entry_point")
PROGRAM, TEST = "solution.py", "test_solution.py"
_ADVICE = "Name python.jsonl of HumanEvalPack, or the directory that holds it."


def load(path: Path) -> list[Bug]:
    """Every task of the file, in its order."""
    file = path / "python.jsonl" if path.is_dir() else path
    try:
        rows = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise broken_data(file, f"cannot be read ({error}).", _ADVICE) from error
    bugs = [_bug(file, number, row) for number, row in enumerate(rows, 1) if row.strip()]
    if not bugs:
        raise broken_data(file, "holds no task.", _ADVICE)
    return bugs


def _bug(file: Path, number: int, row: str) -> Bug:
    try:
        task = json.loads(row)
    except ValueError as error:
        raise broken_data(file, f"line {number} is not JSON ({error}).", _ADVICE) from error
    missing = [key for key in NEEDED if not isinstance(task, dict) or not isinstance(task.get(key), str)]
    if missing:
        raise broken_data(file, f"line {number} has no text {missing[0]!r}.", _ADVICE)
    try:
        test = _as_test(task)
    except SyntaxError as error:
        raise broken_data(file, f"line {number}: its test is not Python ({error}).", _ADVICE) from error
    return Bug(
        name=task["task_id"],
        kind=str(task.get("bug_type", "unknown")),
        tests=(TEST,),
        files={PROGRAM: task["prompt"] + task["buggy_solution"], TEST: test},
        held_out={
            "path": PROGRAM,
            "entry": task["entry_point"],
            "reference": task["prompt"] + task["canonical_solution"],
            "checks": [task["test"], *([task["example_test"]] if task.get("example_test") else [])],
        },
    )


def _as_test(task: dict[str, Any]) -> str:
    """The task's test as a test file: the call of `check` at its end becomes a test."""
    lines = task["test"].splitlines()
    for node in ast.parse(task["test"]).body:
        called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        if isinstance(called, ast.Name) and called.id == "check":
            for line in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[line] = ""
    name = task["entry_point"]
    body = "\n".join(lines).strip("\n")
    return (
        f"from solution import *\nfrom solution import {name}\n\n\n{body}\n\n\ndef test_{name}():\n    check({name})\n"
    )
