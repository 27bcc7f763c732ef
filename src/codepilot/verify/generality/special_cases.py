"""Special cases in Python code: what acts otherwise for the values of the failing tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy

from codepilot.verify.generality.answers import answer_signs
from codepilot.verify.generality.conditions import ORDERINGS, condition_signs
from codepilot.verify.generality.nodes import Function, constants
from codepilot.verify.generality.sign import PythonChange, Sign, sign
from codepilot.verify.generality.values import TestValues


def special_cases(change: PythonChange, tests: TestValues) -> Iterator[Sign]:
    """Every place where the change singles out values, or holds those of the tests."""
    names = constants(change)
    yield from _spread(change)
    yield from condition_signs(change, tests, names)
    yield from answer_signs(change, tests, names)


def _spread(change: PythonChange) -> Iterator[Sign]:
    """Every changed function: what it does now may matter for the inputs of the failing test alone.

    One in which only a bound moved is left out: a bound matters at one value.
    """
    before = {_bounded(node) for node in ast.walk(change.old or change.tree) if isinstance(node, Function)}
    if change.old is None:
        before = set()
    for node in ast.walk(change.tree):
        if isinstance(node, Function) and change.fresh(node) and _bounded(node) not in before:
            line = min(
                (one for one in change.lines if node.lineno <= one <= (node.end_lineno or 0)), default=node.lineno
            )
            why = f"`{node.name}` differs from before only for the inputs of the failing test"
            yield sign("special_behaviour", change.path, line, why, weak=True)


def _bounded(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The function with all bounds alike: `<`, `<=`, `>` and `>=`, and the whole numbers they compare with."""
    copy = deepcopy(function)
    for node in ast.walk(copy):
        if isinstance(node, ast.Compare) and all(isinstance(op, ORDERINGS) for op in node.ops):
            node.ops = [ast.Lt() for _ in node.ops]
            for part in (node.left, *node.comparators):
                if isinstance(part, ast.Constant) and type(part.value) is int:
                    part.value = 0
    return ast.dump(copy)
