"""None, missing keys and empty values."""

from __future__ import annotations

import ast

from codepilot.repair.python.context import Context
from codepilot.repair.python.precedence import COMPARE
from codepilot.repair.python.templates.template import Proposals, Template

_EMPTY = ("0", "[]", "''", "{}", "False", "1", "set()")


def get(node: ast.Subscript, context: Context) -> Proposals:
    """`d[k]` → `d.get(k)` with a default."""
    if not isinstance(node.ctx, ast.Load) or isinstance(node.slice, ast.Slice):
        return
    if isinstance(node.slice, ast.UnaryOp):
        return
    base, key = context.atom(node.value), context.text(node.slice)
    yield f"{base}.get({key})"
    for default in _EMPTY:
        yield f"{base}.get({key}, {default})"
    yield f"{base}.get({key}, {key})"


def ungotten(node: ast.Call, context: Context) -> Proposals:
    """`d.get(k, x)`: another default, the key's presence, or the plain lookup."""
    if not (isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault") and node.args):
        return
    base, key = context.atom(node.func.value), context.text(node.args[0])
    if node.func.attr == "get":
        yield f"{key} in {base}"
        yield f"{base}[{key}]"
    for default in (*_EMPTY, "None", *context.names_at(node)[:6]):
        yield f"{base}.{node.func.attr}({key}, {default})"


def presence(node: ast.expr, context: Context) -> Proposals:
    """A truth test where only None was meant, and the other way round."""
    parent, field = context.parent(node), context.field_of(node)
    tested = isinstance(parent, ast.If | ast.While | ast.IfExp) and field == "test"
    tested = tested or isinstance(parent, ast.BoolOp)
    tested = tested or (isinstance(parent, ast.comprehension) and field == "ifs")
    if tested and isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
        yield f"{context.at(node, COMPARE + 1)} is not None"
        yield f"{context.at(node, COMPARE + 1)} is None"
    inverted = isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)
    if inverted and isinstance(parent, ast.UnaryOp):
        yield context.replace(parent, f"{context.at(node, COMPARE + 1)} is None", "absence.presence")
        yield context.replace(parent, f"len({context.text(node)}) == 0", "absence.presence")


def truth(node: ast.Compare, context: Context) -> Proposals:
    """`x is not None` → `x`."""
    against_none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
    if len(node.ops) == 1 and against_none:
        positive = isinstance(node.ops[0], ast.IsNot | ast.NotEq)
        text = context.at(node.left, COMPARE)
        yield text if positive else f"not {text}"


def fallback(node: ast.BoolOp, context: Context) -> Proposals:
    """`x or y` → `x if x is not None else y`."""
    if isinstance(node.op, ast.Or) and len(node.values) == 2:
        first = context.at(node.values[0], COMPARE + 1)
        yield f"{first} if {first} is not None else {context.at(node.values[1], 1)}"


def otherwise(node: ast.expr, context: Context) -> Proposals:
    """A value with a fallback for when there is none."""
    parent = context.parent(node)
    if not isinstance(parent, ast.Return | ast.Assign | ast.For | ast.BinOp | ast.Call | ast.keyword):
        return
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or context.field_of(node) == "func":
        return
    text = context.text(node)
    for default in ("[]", "''", "0", "{}", "None"):
        yield f"{context.at(node, 3)} or {default}"
    if isinstance(node, ast.Subscript | ast.Attribute):
        base = context.text(node.value)
        for default in ("None", "0", "''", "[]"):
            yield f"{text} if {base} else {default}"
        yield f"{text} if {base} is not None else None"


def default_in(node: ast.stmt, context: Context) -> Proposals:
    """`if name is None: name = empty` in front of a statement."""
    function = context.function_of(node)
    if function is None or context.parent(node) is not function or function.body[0] is not node:
        return
    for name in context.parameters:
        for empty in _EMPTY[:4]:
            row = f"{context.step}{name} = {empty}"
            yield context.before(node, [f"if {name} is None:", row], "absence.default")


FAMILY = (
    Template("absence.get", (ast.Subscript,), get),
    Template("absence.got", (ast.Call,), ungotten),
    Template("absence.presence", (ast.Name, ast.Attribute, ast.Call, ast.Subscript), presence),
    Template("absence.truth", (ast.Compare,), truth),
    Template("absence.fallback", (ast.BoolOp,), fallback),
    Template("absence.otherwise", (ast.Name, ast.Attribute, ast.Call, ast.Subscript), otherwise),
    Template("absence.default", (ast.Assign, ast.Expr, ast.If, ast.For, ast.Return, ast.While, ast.With), default_in),
)
