"""Literals from outside the code: numbers and words of docstrings, and texts of the failing tests."""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher

from codepilot.repair.python.context import NUMBER, Context
from codepilot.repair.python.precedence import COMPARE, NOT
from codepilot.repair.python.source import Function
from codepilot.repair.python.templates.template import Proposals, Template

_MOST = 12
_LIKE = 0.6
_EXAMPLE = re.compile(r"^\s*(>>>|\.\.\.|assert\b)|(==>|=>|->|➞|➔|[A-Za-z_]\w*\([^)]*\)\s*(==?|should|returns?))")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")
_QUOTED = re.compile(r"'([^'\n]{0,20})'|\"([^\"\n]{0,20})\"")


def documented_values(context: Context, examined: bool = True) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Numbers and quoted words of the docstrings, prose before examples (or, if not `examined`, without those)."""
    prose: list[str] = []
    examples: list[str] = []
    for node in context.nodes:
        text = ast.get_docstring(node) if isinstance(node, Function) else None
        for row in (text or "").splitlines():
            (examples if _EXAMPLE.search(row) else prose).append(row)
    rows = "\n".join([*prose, *(examples if examined else ())])
    numbers = tuple(dict.fromkeys(_NUMBER.findall(rows)))[:_MOST]
    quoted = (one or other for one, other in _QUOTED.findall(rows))
    return numbers, tuple(dict.fromkeys(repr(word) for word in quoted))[:_MOST]


def constant(node: ast.Constant, context: Context) -> Proposals:
    """A constant that the docstring names."""
    if isinstance(node.value, bool) or isinstance(context.parent(node), ast.Expr | ast.JoinedStr):
        return
    numbers, words = documented_values(context)
    if isinstance(node.value, int | float):
        yield from numbers
    elif isinstance(node.value, str):
        yield from words


def condition(node: ast.If | ast.While | ast.IfExp, context: Context) -> Proposals:
    """A condition on a number that the docstring names: a multiple, a bound, an equal."""
    numbers, words = documented_values(context)
    names = [name for name in context.names_at(node.test) if context.may_be(name, NUMBER)][:8]
    for number in numbers:
        for name in names:
            for text in (f"{name} % {number} == 0", f"{name} == {number}", f"{name} > {number}", f"{name} < {number}"):
                yield context.replace(node.test, f"{text} and {context.at(node.test, NOT)}", "documented.condition")
                yield context.replace(node.test, f"{text} or {context.at(node.test, COMPARE)}", "documented.condition")
                yield context.replace(node.test, text, "documented.condition")
    for word in words:
        for name in context.names_at(node.test)[:8]:
            text = f"{name} == {word}"
            yield context.replace(node.test, f"{context.at(node.test, COMPARE)} or {text}", "documented.condition")


def expected(node: ast.Constant, context: Context) -> Proposals:
    """A text that a failing test spells out, where it is much like this one."""
    parent = context.parent(node)
    if not isinstance(node.value, str) or len(node.value) < 3 or isinstance(parent, ast.Expr | ast.JoinedStr):
        return
    rated = []
    for text in context.failure.expected:
        likeness = SequenceMatcher(None, node.value, text).ratio() if text != node.value else 0.0
        if likeness >= _LIKE:
            rated.append((-likeness, text))
    for _, text in sorted(rated)[:4]:
        yield repr(text)


FAMILY = (
    Template("documented.constant", (ast.Constant,), constant),
    Template("documented.condition", (ast.If, ast.While, ast.IfExp), condition),
    Template("text.expected", (ast.Constant,), expected),
)
