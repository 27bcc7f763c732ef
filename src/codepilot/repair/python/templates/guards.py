"""Guards: an early return, a skipped round, a statement made conditional."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codepilot.repair.edit import Edit
from codepilot.repair.python.context import BOOL, DICT, LIST, NUMBER, STRING, Context
from codepilot.repair.python.kinds import ANNOTATIONS, kind_of_value
from codepilot.repair.python.source import Function
from codepilot.repair.python.templates.conditions import atoms
from codepilot.repair.python.templates.template import Proposals, Template

PLAIN: dict[str, str | None] = {
    "None": None,
    "True": BOOL,
    "False": BOOL,
    "0": NUMBER,
    "[]": LIST,
    "''": STRING,
    "-1": NUMBER,
    "1": NUMBER,
    "{}": DICT,
}
"""Values that functions return at edges, with their kinds."""
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Raise, ast.Delete)
_PLACES = (*_SIMPLE, ast.For, ast.While, ast.If, ast.With, ast.Try)


def returned(function: Function, context: Context) -> set[str]:
    """The kinds of values that the function returns, as far as its syntax shows."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            if isinstance(node.value, ast.Compare) or (isinstance(node.value, ast.UnaryOp) and _denies(node.value)):
                found.add(BOOL)
            elif isinstance(node.value, ast.Name):
                found |= context.kinds.get(node.value.id, set())
            else:
                kind = kind_of_value(node.value)
                found |= {kind} if kind else set()
    name = function.returns.id if isinstance(function.returns, ast.Name) else ""
    return found | ({ANNOTATIONS[name]} if name in ANNOTATIONS else set())


def _denies(node: ast.UnaryOp) -> bool:
    return isinstance(node.op, ast.Not)


def results(node: ast.AST, context: Context) -> list[str]:
    """Values for an early return: those returned elsewhere, empty values, and the function's own names."""
    found: dict[str, None] = {}
    function = context.function_of(node)
    for inner in ast.walk(function) if function else ():
        if isinstance(inner, ast.Return) and inner.value is not None:
            text = context.text(inner.value)
            if len(text) <= 40 and "\n" not in text:
                found[text] = None
    returns = list(found)
    simple = [text for text in returns if len(text) <= 12]
    kinds = returned(function, context) if function else set()
    plain = sorted(PLAIN, key=lambda text: bool(kinds) and PLAIN[text] not in (kinds | {None}))
    names = [name for name in context.names_at(node) if name in context.locals]
    return list(dict.fromkeys([*simple, *plain, *names[:6], *returns]))


def edges(node: ast.AST, context: Context) -> Iterator[str]:
    """Conditions that single out an edge: nothing, zero, less than zero; then any other small condition."""
    names = context.names_at(node)
    for name in names:
        if not context.kinds.get(name) or len(context.kinds[name]) > 1:
            yield f"{name} is None"
        yield f"not {name}"
        if context.may_be(name, NUMBER):
            yield from (f"{name} < 0", f"{name} == 0", f"{name} <= 0", f"{name} == 1", f"{name} < 2")
        if context.may_be(name, LIST) or context.may_be(name, STRING):
            yield from (f"len({name}) == 0", f"len({name}) < 2", f"len({name}) == 1")
    yield from atoms(node, context)


def early_return(node: ast.stmt, context: Context) -> Proposals:
    """`if edge: return value` in front of a statement, cheap combinations first."""
    if not isinstance(context.parent(node), Function):
        return
    yield from _returns(node, context, "guard.return")


def _returns(node: ast.stmt, context: Context, template: str) -> Proposals:
    cases = list(dict.fromkeys(edges(node, context)))[:120]
    values = results(node, context)[:14]
    for total in range(len(cases) + len(values)):
        for second in range(min(total + 1, len(values))):
            if total - second < len(cases):
                edge, result = cases[total - second], values[second]
                yield context.before(node, [f"if {edge}:", f"{context.step}return {result}"], template)


def skip(node: ast.stmt, context: Context) -> Proposals:
    """`if condition: continue` (or break) in a loop."""
    if not context.in_loop(node):
        return
    for edge in dict.fromkeys(edges(node, context)):
        yield context.before(node, [f"if {edge}:", f"{context.step}continue"], "guard.skip")
        yield context.before(node, [f"if {edge}:", f"{context.step}break"], "guard.skip")


def wrap(node: ast.stmt, context: Context) -> Proposals:
    """The statement only under a condition."""
    if not context.owns_lines(node) or isinstance(node, ast.Return) or node.lineno != node.end_lineno:
        return
    start, end = context.lines(node)
    text, indent = context.source.text[start:end], context.indent(node)
    for atom in atoms(node, context):
        yield Edit(
            start,
            end,
            f"{indent}if {atom}:{context.source.newline}{context.step}{text}"
            if not indent
            else f"{indent}if {atom}:{context.source.newline}{indent}{context.step}{text[len(indent) :]}",
            "guard.wrap",
        )


FAMILY = (
    Template("guard.return", _PLACES, early_return),
    Template("guard.skip", _PLACES, skip),
    Template("guard.wrap", _SIMPLE, wrap),
)
