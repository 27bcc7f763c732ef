"""Whether a change is tested: new tests assert something, and a test would notice if the mistake came back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from codepilot.core.artifacts import PolicyCheck
from codepilot.core.task import TaskKind
from codepilot.project import is_test
from codepilot.verify import brace_tests, python_tests

DEMANDED = frozenset({TaskKind.BUGFIX, TaskKind.CHANGE})
"""Task kinds whose changes need a test; to others it is said and no more."""
_CODE = (".py", *brace_tests.JVM, *brace_tests.SCRIPT)
_ASSERTING = re.compile(r"assert|raises|warns|expect|verif|should|fail|check|ensure|must|approx|match", re.IGNORECASE)


class Changed(Protocol):
    """One file of a change, with its content on either side."""

    @property
    def path(self) -> str: ...

    @property
    def before(self) -> bytes | None: ...

    @property
    def after(self) -> bytes | None: ...


def silent_tests(files: Sequence[Changed]) -> Iterator[str]:
    """Tests that the change adds and that assert nothing."""
    for file in files:
        if is_test(file.path):
            yield from (f"{file.path}: {name} asserts nothing" for name in _new_silent(file))


def _new_silent(file: Changed) -> list[str]:
    if file.path.endswith(".py"):
        return _silent_python(file)
    known = brace_tests.silent_tests(file.path, file.before)
    return [
        name for name, silent in brace_tests.silent_tests(file.path, file.after).items() if silent and name not in known
    ]


def _silent_python(file: Changed) -> list[str]:
    new, old = python_tests.parsed(file.after), python_tests.parsed(file.before)
    if new is None:
        return []
    known = python_tests.test_functions(old) if old is not None else {}
    functions = [node for node in ast.walk(new) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    helpers = frozenset(node.name for node in functions if _asserts(node, frozenset()))
    fresh = {name: node for name, node in python_tests.test_functions(new).items() if name not in known}
    silent = (name for name, node in fresh.items() if not _asserts(node, helpers | _from_elsewhere(node, new)))
    return [name for name in silent if not _is_abstract(fresh[name])]


def _from_elsewhere(function: ast.FunctionDef | ast.AsyncFunctionDef, module: ast.Module) -> frozenset[str]:
    """Names that may assert and cannot be followed: the test's fixtures, and what comes from files that help tests."""
    given = (argument.arg for argument in (*function.args.args, *function.args.kwonlyargs))
    imports = (node for node in ast.walk(module) if isinstance(node, ast.ImportFrom))
    helping = (node for node in imports if node.level or brace_tests.HELPS.search(node.module or ""))
    return frozenset((*given, *(alias.asname or alias.name for node in helping for alias in node.names)))


def _asserts(function: ast.AST, helpers: frozenset[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in helpers or _ASSERTING.search(name):
                return True
    return False


def _is_abstract(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A fixture or hook by a test's name is no test: pytest does not run it as one."""
    return any("fixture" in ast.dump(mark) for mark in function.decorator_list)


def regression_test(files: Sequence[Changed], kind: TaskKind, failing: Sequence[str]) -> PolicyCheck:
    """A test that failed before is one; else the change must bring one, where the kind of task demands it."""
    name = "has_regression_test"
    if failing:
        return PolicyCheck(name=name, ok=True, evidence=f"{', '.join(failing[:3])} failed before")
    brought = [file.path for file in files if is_test(file.path) and file.after is not None]
    code = [file.path for file in files if file.path.endswith(_CODE) and not is_test(file.path)]
    if brought or not code:
        return PolicyCheck(name=name, ok=True, evidence=", ".join(brought[:3]) or "no code was changed")
    evidence = f"no test was added for {', '.join(code[:3])}".encode("utf-8", "backslashreplace").decode()
    return PolicyCheck(name=name, ok=kind not in DEMANDED, evidence=evidence)
