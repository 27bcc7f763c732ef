"""Constants, off-by-one, bounds: indices, slices and ranges."""

from __future__ import annotations

import ast

from codepilot.repair.python.context import Context
from codepilot.repair.python.precedence import ADD
from codepilot.repair.python.templates.template import Proposals, Template


def _number(node: ast.AST | None) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(node: ast.Constant, context: Context) -> Proposals:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    near = [value + 1, value - 1, 0, 1, -value, 2, value * 2, value * 10, value / 10 if value % 10 else value // 10]
    for other in dict.fromkeys(near):
        yield repr(other)
    yield from context.numbers
    if isinstance(value, int):
        yield repr(float(value))
        yield "float('inf')"
        yield "float('-inf')"


def literal(node: ast.Constant, context: Context) -> Proposals:
    """Truth values, None and strings."""
    value = node.value
    if isinstance(value, bool):
        yield repr(not value)
        yield "None"
    elif value is None:
        yield from ("0", "False", "True", "[]", "''", "{}", "-1", "1")
    elif isinstance(value, str) and not isinstance(context.parent(node), ast.Expr | ast.JoinedStr):
        yield from _strings(value, context)


def _strings(value: str, context: Context) -> Proposals:
    changed = [value.swapcase(), value.strip(), value + " ", " " + value, "", " ", "\n", value + "\n"]
    changed += [value + "s", value[:-1], value[1:], value.lower(), value.upper(), value.capitalize()]
    for other in dict.fromkeys(changed):
        if other != value:
            yield repr(other)
    yield from context.strings


_NO_NUMBERS = frozenset(
    {
        "startswith",
        "endswith",
        "isdigit",
        "isalpha",
        "isupper",
        "islower",
        "isalnum",
        "isspace",
        "isnumeric",
        "isdecimal",
    }
    | {
        "isinstance",
        "issubclass",
        "callable",
        "hasattr",
        "bool",
        "all",
        "any",
        "str",
        "repr",
        "lower",
        "upper",
        "strip",
    }
    | {
        "lstrip",
        "rstrip",
        "split",
        "rsplit",
        "splitlines",
        "join",
        "replace",
        "title",
        "capitalize",
        "format",
        "encode",
    }
)
"""Calls whose results are truth values or texts."""


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def off_by_one(node: ast.expr, context: Context) -> Proposals:
    """Any expression used as a number: one more, one less."""
    if isinstance(node, ast.Constant) or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return
    parent, field = context.parent(node), context.field_of(node)
    if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and field == "func"):
        return
    if isinstance(node, ast.Call) and _called(node) in _NO_NUMBERS:
        return
    if isinstance(parent, ast.BoolOp) or field in ("test", "ifs", "operand"):
        return
    if isinstance(parent, ast.Subscript) and field == "value":
        return
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and _number(node.right) is not None:
        step, left = _number(node.right), context.at(node.left, ADD)
        sign = "+" if isinstance(node.op, ast.Add) else "-"
        yield context.text(node.left)
        yield f"{left} {'-' if sign == '+' else '+'} {step}"
        yield f"{left} {sign} {(step or 0) + 1}"
        return
    text = context.at(node, ADD)
    yield f"{text} + 1"
    yield f"{text} - 1"


def index(node: ast.Subscript, context: Context) -> Proposals:
    if isinstance(node.slice, ast.Slice) or not isinstance(node.ctx, ast.Load):
        return
    base, at = context.atom(node.value), context.text(node.slice)
    for other in ("0", "-1", "1", "-2"):
        if at != other:
            yield f"{base}[{other}]"
    if not at.startswith("-"):
        yield f"{base}[-{context.atom(node.slice)}]"
    yield f"{base}[:{at}]"
    yield f"{base}[{at}:]"
    yield base


def cut(node: ast.expr, context: Context) -> Proposals:
    """Replace a sequence by a part of it."""
    if not isinstance(node.ctx if isinstance(node, ast.Name | ast.Attribute) else ast.Load(), ast.Load):
        return
    parent, field = context.parent(node), context.field_of(node)
    if isinstance(parent, ast.Attribute | ast.BinOp) or (isinstance(parent, ast.Call) and field == "func"):
        return
    if isinstance(node, ast.Name) and not (context.may_be(node.id, "list") or context.may_be(node.id, "string")):
        return
    if isinstance(parent, ast.For | ast.comprehension | ast.Call | ast.Return | ast.Assign | ast.Compare):
        text = context.atom(node)
        yield from (f"{text}[::-1]", f"{text}[1:]", f"{text}[:-1]", f"{text}[0]", f"{text}[-1]")


def nest(node: ast.expr, context: Context) -> Proposals:
    """A list of one where the thing itself stands, the thing itself where a list of it does."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return
    if isinstance(node, ast.List):
        yield from (f"[{context.text(node)}]", "None") if not node.elts else (f"[{context.text(node)}]",)
        if len(node.elts) == 1:
            yield context.text(node.elts[0])
        return
    used = isinstance(context.parent(node), ast.Return | ast.Assign | ast.BinOp | ast.Call | ast.AugAssign)
    if used and context.field_of(node) not in ("func", "targets", "target"):
        yield f"[{context.text(node)}]"


def cut_at(node: ast.expr, context: Context) -> Proposals:
    """A part of a sequence, from or up to a place that a name holds."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or context.field_of(node) in ("func", "target"):
        return
    if isinstance(node, ast.Name) and not (context.may_be(node.id, "list") or context.may_be(node.id, "string")):
        return
    parent = context.parent(node)
    if isinstance(parent, ast.Subscript | ast.Expr) or (isinstance(parent, ast.BinOp) and isinstance(node, ast.Call)):
        return
    text, own = context.atom(node), {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    for name in context.names_at(node):
        if name not in own and context.may_be(name, "number"):
            yield from (f"{text}[:{name}]", f"{text}[{name}:]", f"{text}[{name}]")
            yield from (f"{text}[:{name} + 1]", f"{text}[{name} + 1:]", f"{text}[-{name}:]")


def ranges(node: ast.Call, context: Context) -> Proposals:
    if not (isinstance(node.func, ast.Name) and node.func.id == "range" and node.args) or node.keywords:
        return
    texts = [context.text(argument) for argument in node.args]
    sums = [context.at(argument, ADD) for argument in node.args]
    if len(texts) == 1:
        yield f"range({sums[0]} + 1)"
        yield f"range(1, {sums[0]} + 1)"
        yield f"range(1, {texts[0]})"
        yield f"range({sums[0]} - 1)"
        yield f"range({sums[0]} - 1, -1, -1)"
        yield f"range({texts[0]}, 0, -1)"
        yield f"range(2, {texts[0]})"
        yield f"range(0, {texts[0]}, 2)"
        yield f"range(len({texts[0]}))"
        return
    rest = "".join(f", {text}" for text in texts[2:])
    yield f"range({texts[0]}, {sums[1]} + 1{rest})"
    yield f"range({sums[0]} + 1, {texts[1]}{rest})"
    yield f"range({sums[0]} + 1, {sums[1]} + 1{rest})"
    yield f"range({sums[0]} - 1, {texts[1]}{rest})"
    yield f"range({texts[0]}, {sums[1]} - 1{rest})"
    yield f"range({texts[1]}, {texts[0]}{rest})"
    yield f"range({texts[1]})"
    if not rest:
        yield f"range({texts[0]}, {texts[1]}, 2)"
        yield f"range({texts[0]}, {texts[1]}, -1)"
        yield f"range({sums[1]} - 1, {sums[0]} - 1, -1)"
    else:
        yield f"range({texts[0]}, {texts[1]})"


FAMILY = (
    Template("value.number", (ast.Constant,), number),
    Template("value.literal", (ast.Constant,), literal),
    Template("value.off_by_one", (ast.Name, ast.Call, ast.BinOp, ast.Attribute, ast.Subscript), off_by_one),
    Template("value.index", (ast.Subscript,), index),
    Template("value.cut", (ast.Name, ast.Attribute, ast.Call), cut),
    Template("value.nest", (ast.List, ast.Name, ast.Call, ast.Subscript), nest),
    Template("value.cut_at", (ast.Name, ast.Attribute, ast.Call), cut_at),
    Template("value.range", (ast.Call,), ranges),
)
