"""None, missing keys and empty values."""

from __future__ import annotations

import ast

from codepilot.repair.python.context import Context
from codepilot.repair.python.precedence import COMPARE
from codepilot.repair.python.templates.template import Proposals, Template

_EMPTY = ("0", "[]", "''", "{}", "False", "1", "set()")


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
    Template("absence.got", (ast.Call,), ungotten),
    Template("absence.presence", (ast.Name, ast.Attribute, ast.Call, ast.Subscript), presence),
    Template("absence.default", (ast.Assign, ast.Expr, ast.If, ast.For, ast.Return, ast.While, ast.With), default_in),
)
