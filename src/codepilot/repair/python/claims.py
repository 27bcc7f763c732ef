"""Reads assertions on single calls from tests: `assert roman(7) == "VII"`, in parametrised tests too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from codepilot.repair.python.source import Function

_MOST_ROWS = 200
_EQUAL = ("assertEqual", "assertEquals")


class Claim(NamedTuple):
    test: str
    """The end of the test's id: its function with its parameters."""
    function: str
    call: str
    value: str

    @property
    def text(self) -> str:
        return f"{self.call} == {self.value}"


def claims(tree: ast.AST) -> Iterator[Claim]:
    """Calls of named functions with literals only, and the literals that tests compare them with."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            rows = list(_rows(node))
            for suffix, values in rows or [("", {})]:
                for call, value in _compared(node):
                    claim = _claim(node.name + suffix, call, value, values)
                    if claim is not None:
                        yield claim


def _compared(function: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Both sides of each equality that the test asserts, either way round."""
    for node in ast.walk(function):
        pair: tuple[ast.expr, ...] = ()
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            pair = (node.left, node.comparators[0])
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _EQUAL:
            pair = tuple(node.args[:2])
        if len(pair) == 2:
            yield pair[0], pair[1]
            yield pair[1], pair[0]


def _claim(test: str, call: ast.expr, value: ast.expr, values: Mapping[str, ast.expr]) -> Claim | None:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords or not call.args:
        return None
    try:
        given = [repr(ast.literal_eval(_put(argument, values))) for argument in call.args]
        wanted = repr(ast.literal_eval(_put(value, values)))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return Claim(test, call.func.id, f"{call.func.id}({', '.join(given)})", wanted)


def _put(node: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    return values.get(node.id, node) if isinstance(node, ast.Name) else node


def _rows(function: Function) -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """The rows of `parametrize` as they are written, each with the end that pytest gives its id."""
    for mark in function.decorator_list:
        if not (isinstance(mark, ast.Call) and getattr(mark.func, "attr", "") == "parametrize" and len(mark.args) > 1):
            continue
        names, rows = mark.args[:2]
        wanted = _names(names)
        for row in rows.elts[:_MOST_ROWS] if isinstance(rows, ast.List | ast.Tuple) else ():
            parts = row.elts if isinstance(row, ast.Tuple | ast.List) and len(wanted) > 1 else [row]
            if len(parts) == len(wanted):
                yield f"[{'-'.join(map(_shown, parts))}]", dict(zip(wanted, parts, strict=True))


def _names(node: ast.expr) -> list[str]:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return []
    return [one.strip() for one in value.split(",")] if isinstance(value, str) else [str(one) for one in value]


def _shown(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)
