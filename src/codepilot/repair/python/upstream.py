"""Rivals of an edit that moves a value by a constant: the constants from which the function calculates that value.

`while left > 1` for `left > 0` and `width = 3 * n` for `2 * n` may pass the same tests, and one of them is a fudge.
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Iterator

from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.python.source import PythonSource, PythonUnit

_MOST = 10
_DEPTH = 3
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def upstream_rivals(proposal: Proposal) -> Iterator[Edit]:
    """Each whole number in what the moved value is calculated from, one larger and one smaller."""
    source, unit, edit = proposal.source, proposal.unit, proposal.edit
    if not isinstance(source, PythonSource) or not isinstance(unit, PythonUnit):
        return
    around = _around(source, unit, edit)
    if around is None or not _moves_by_a_constant(source, around, edit):
        return
    found = 0
    for node in _constants(unit, _loaded(around), around):
        start, end = source.span(node)
        assert isinstance(node.value, int)
        for value in (node.value + 1, node.value - 1):
            if value >= 0 and found < _MOST:
                found += 1
                yield Edit(start, end, str(value), edit.template)


def _around(source: PythonSource, unit: PythonUnit, edit: Edit) -> ast.expr | None:
    """The calculation or comparison around the edit, as large as it goes."""
    holding = []
    for node in ast.walk(unit.node):
        if isinstance(node, ast.expr):
            start, end = source.span(node)
            if start <= edit.start and edit.end <= end:
                holding.append((end - start, node))
    inward = [node for _, node in sorted(holding, key=lambda one: one[0])]
    outer = itertools.takewhile(lambda node: isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare), inward[1:])
    return [*inward[:1], *outer][-1] if inward else None


def _moves_by_a_constant(source: PythonSource, around: ast.expr, edit: Edit) -> bool:
    """True if the edit changes nothing but whole numbers, what is added, and bounds."""
    start, end = source.span(around)
    text = source.text[start : edit.start] + edit.replacement + source.text[edit.end : end]
    try:
        new = ast.parse(f"({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    before, after = _shape(around), _shape(new)
    return before[0] == after[0] and before[1] != after[1]


def _shape(tree: ast.expr) -> tuple[Counter[str], Counter[str]]:
    """The names, calls and other parts of an expression, and apart from them its whole numbers and bounds."""
    parts, moved = Counter[str](), Counter[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                moved[repr(value)] += 1
            case ast.operator() | ast.BinOp() | ast.expr_context() | ast.UnaryOp() | ast.USub():
                pass
            case ast.cmpop() if isinstance(node, _ORDERS):
                moved[type(node).__name__] += 1
            case ast.Name(id=name) | ast.Attribute(attr=name):
                parts[name] += 1
            case ast.Constant(value=value):
                parts[repr(value)] += 1
            case _:
                parts[type(node).__name__] += 1
    return parts, moved


def _loaded(tree: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}


def _constants(unit: PythonUnit, names: set[str], around: ast.expr) -> Iterator[ast.Constant]:
    """The whole numbers in the assignments that the names come from, the nearest first."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(unit.node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    known: set[str] = set()
    for _ in range(_DEPTH):
        held = [value for name in sorted(names - known) for value in values.get(name, ()) if value is not around]
        known |= names
        names = set().union(*map(_loaded, held)) if held else set()
        for value in held:
            for node in ast.walk(value):
                if isinstance(node, ast.Constant) and type(node.value) is int:
                    yield node
