"""Parts of Python code that several signs look at."""

from __future__ import annotations

import ast

from codepilot.verify.generality.sign import PythonChange
from codepilot.verify.generality.values import UNKNOWN, fold

Function = ast.FunctionDef | ast.AsyncFunctionDef


def constants(change: PythonChange) -> dict[str, object]:
    """The names that the change binds to constants, once each."""
    found: dict[str, object] = {}
    for node in change.nodes(ast.Assign, ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
        value = node.value  # type: ignore[attr-defined]
        folded = fold(value, found) if value is not None else UNKNOWN
        for target in targets:
            if isinstance(target, ast.Name) and folded is not UNKNOWN:
                found[target.id] = folded
    return found


def called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def owner_of(node: ast.Call) -> list[ast.expr]:
    return [node.func.value] if isinstance(node.func, ast.Attribute) else []


def flat(value: object) -> list[object]:
    """The parts of a folded value; none if it is unknown."""
    if value is UNKNOWN:
        return []
    return [one for part in value for one in flat(part)] if isinstance(value, tuple) else [value]


def other_value(value: object) -> str:
    """The source of a value of the same type that no input has."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | bytes):
        return "None"
    if isinstance(value, str | bytes):
        return repr("\0other" if isinstance(value, str) else b"\0other")
    return repr(value * 7 + 1_000_003)


def named(node: ast.AST) -> str:
    """The last part of a name; empty if the node is none."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
