"""Shared state: mutable defaults, lists handed out or taken in without a copy, rows multiplied into one."""

from __future__ import annotations

import ast

from codepilot.repair.edit import Edit
from codepilot.repair.python.context import DICT, LIST, Context
from codepilot.repair.python.source import Function
from codepilot.repair.python.templates.template import Proposals, Template


def copy(node: ast.expr, context: Context) -> Proposals:
    """The value copied where it is stored, returned or looped over."""
    parent, field = context.parent(node), context.field_of(node)
    stored = isinstance(
        parent, ast.Return | ast.Assign | ast.For | ast.Call | ast.keyword | ast.Dict | ast.comprehension
    )
    if not stored or field in ("func", "targets", "target") or not isinstance(getattr(node, "ctx", None), ast.Load):
        return
    if isinstance(node, ast.Name) and not (context.may_be(node.id, LIST) or context.may_be(node.id, DICT)):
        return
    text = context.text(node)
    yield from (f"list({text})", f"{text}[:]", f"{text}.copy()", f"dict({text})")
    if "copy" in context.globals:
        yield f"copy.deepcopy({text})"
    if "deepcopy" in context.globals:
        yield f"deepcopy({text})"


def rows(node: ast.BinOp, context: Context) -> Proposals:
    """`[[0] * n] * m` → `[[0] * n for _ in range(m)]`."""
    if isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List) and len(node.left.elts) == 1:
        inner = context.text(node.left.elts[0])
        yield f"[{inner} for _ in range({context.text(node.right)})]"


def default(node: Function, context: Context) -> Proposals:
    """A mutable default argument made anew for each call."""
    arguments = [*node.args.posonlyargs, *node.args.args]
    pairs = list(zip(arguments[len(arguments) - len(node.args.defaults) :], node.args.defaults, strict=True))
    pairs += [(name, value) for name, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value]
    for argument, value in pairs:
        mutable = isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp)
        if not mutable and not (isinstance(value, ast.Call) and not value.args):
            continue
        first = node.body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(node.body) > 1:
            first = node.body[1]
        if not context.owns_lines(first):
            continue
        start, end = context.source.span(value)
        at, indent, line = context.lines(first)[0], context.indent(first), context.source.newline
        made = f"{indent}if {argument.arg} is None:{line}{indent}{context.step}"
        made += f"{argument.arg} = {context.text(value)}{line}"
        yield Edit(start, at, "None" + context.source.text[end:at] + made, "sharing.default")


def instance(node: ast.Assign, context: Context) -> Proposals:
    """A list shared by all objects of a class, where each should have its own, is made in `__init__`."""
    parent = context.parent(node)
    if not isinstance(parent, ast.ClassDef) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
        return
    if not isinstance(node.value, ast.List | ast.Dict | ast.Set | ast.Call):
        return
    for inner in parent.body:
        if isinstance(inner, Function) and inner.name == "__init__" and context.owns_lines(inner.body[0]):
            start, end = context.lines(node)
            at = context.lines(inner.body[0])[0]
            if at >= end:
                row = f"{context.indent(inner.body[0])}self.{context.text(node)}{context.source.newline}"
                yield Edit(start, at, context.source.text[end:at] + row, "sharing.instance")


FAMILY = (
    Template("sharing.copy", (ast.Name, ast.Attribute), copy),
    Template("sharing.rows", (ast.BinOp,), rows),
    Template("sharing.default", (ast.FunctionDef, ast.AsyncFunctionDef), default),
    Template("sharing.instance", (ast.Assign,), instance),
)
