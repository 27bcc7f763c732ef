"""Operators: arithmetic, comparison, boolean, and the assignments that carry one."""

from __future__ import annotations

import ast
import itertools

from codepilot.repair.python.context import LIST, NUMBER, STRING, Context
from codepilot.repair.python.precedence import AND, COMPARE, NOT, operator_strength
from codepilot.repair.python.source import Function
from codepilot.repair.python.templates.template import Proposals, Template

_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.MatMult: "@",
}
_OTHERS: dict[str, str] = {
    "+": "- * // / %",
    "-": "+ // * / %",
    "*": "** // + / -",
    "/": "// * % -",
    "//": "/ % * -",
    "%": "// / * -",
    "**": "* // +",
    "&": "| ^",
    "|": "& ^",
    "^": "& |",
    "<<": ">> *",
    ">>": "<< //",
    "@": "*",
}
_BY_SIGN = {sign: kind for kind, sign in _SIGNS.items()}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<= > >= != =="),
    ast.LtE: ("<=", "< >= > == !="),
    ast.Gt: (">", ">= < <= != =="),
    ast.GtE: (">=", "> <= < == !="),
    ast.Eq: ("==", "!= <= >= < >"),
    ast.NotEq: ("!=", "== < > <= >="),
    ast.Is: ("is", "is~not =="),
    ast.IsNot: ("is not", "is !="),
    ast.In: ("in", "not~in =="),
    ast.NotIn: ("not in", "in !="),
}


def swap_binary(node: ast.BinOp, context: Context) -> Proposals:
    for sign in _OTHERS[_SIGNS[type(node.op)]].split():
        level = operator_strength(_BY_SIGN[sign]())
        yield f"{context.at(node.left, level)} {sign} {context.at(node.right, level + 1)}"


def swap_operands(node: ast.BinOp, context: Context) -> Proposals:
    level = operator_strength(node.op)
    yield f"{context.at(node.right, level)} {_SIGNS[type(node.op)]} {context.at(node.left, level + 1)}"


def keep_operand(node: ast.BinOp, context: Context) -> Proposals:
    """One side alone, or a chain without its middle: `a * b + c` → `a * c`, `a + c`."""
    yield context.text(node.left)
    yield context.text(node.right)
    chains = []
    if isinstance(node.left, ast.BinOp):
        chains = [(node.left.left, operator, node.right) for operator in (node.left.op, node.op)]
    if isinstance(node.right, ast.BinOp):
        chains += [(node.left, operator, node.right.right) for operator in (node.op, node.right.op)]
    for first, operator, last in chains:
        level = operator_strength(operator)
        left = level + 1 if isinstance(operator, ast.Pow) else level
        yield f"{context.at(first, left)} {_SIGNS[type(operator)]} {context.at(last, level + 1)}"


def compare(node: ast.Compare, context: Context) -> Proposals:
    """Every operator of the comparison in turn, boundaries first; no order where a method says what is equal."""
    function = context.function_of(node)
    equal = isinstance(function, ast.FunctionDef) and function.name in ("__eq__", "__ne__")
    sides = [node.left, *node.comparators]
    signs = [_COMPARISONS[type(operator)] for operator in node.ops]
    for index, (_, others) in enumerate(signs):
        for other in others.split():
            if equal and other in ("<", "<=", ">", ">="):
                continue
            chosen = [other.replace("~", " ") if at == index else sign for at, (sign, _) in enumerate(signs)]
            text = context.at(sides[0], COMPARE + 1)
            for sign, side in zip(chosen, sides[1:], strict=True):
                text += f" {sign} {context.at(side, COMPARE + 1)}"
            yield text


def compare_swapped(node: ast.Compare, context: Context) -> Proposals:
    if len(node.ops) == 1 and isinstance(node.ops[0], ast.In | ast.NotIn | ast.Lt | ast.Gt | ast.LtE | ast.GtE):
        sign = _COMPARISONS[type(node.ops[0])][0]
        yield f"{context.at(node.comparators[0], COMPARE + 1)} {sign} {context.at(node.left, COMPARE + 1)}"


def boolean(node: ast.BoolOp, context: Context) -> Proposals:
    other, level = (" or ", AND) if isinstance(node.op, ast.And) else (" and ", NOT)
    yield other.join(context.at(value, level) for value in node.values)
    same = " and " if isinstance(node.op, ast.And) else " or "
    if len(node.values) > 2:
        for index in range(1, len(node.values)):
            head = same.join(context.at(value, level) for value in node.values[:index])
            tail = same.join(context.at(value, level) for value in node.values[index:])
            yield f"({head}){other}({tail})"


def drop_condition(node: ast.BoolOp, context: Context) -> Proposals:
    same, level = (" and ", NOT) if isinstance(node.op, ast.And) else (" or ", AND)
    for index in range(len(node.values)):
        rest = [value for at, value in enumerate(node.values) if at != index]
        yield same.join(context.at(value, level) if len(rest) > 1 else context.text(value) for value in rest)


def drop_unary(node: ast.UnaryOp, context: Context) -> Proposals:
    yield context.text(node.operand)


def augmented(node: ast.AugAssign, context: Context) -> Proposals:
    target, value = context.text(node.target), context.text(node.value)
    for sign in _OTHERS[_SIGNS[type(node.op)]].split():
        yield f"{target} {sign}= {value}"
    yield f"{target} = {value}"
    sign = _SIGNS[type(node.op)]
    level = operator_strength(node.op)
    yield f"{target} = {context.at(node.value, level)} {sign} {target}"


def extreme(node: ast.Assign, context: Context) -> Proposals:
    """A loop that overwrites what it should only raise or lower: `end = x` → `end = max(end, x)`."""
    if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name) or not _in_loop(node, context):
        return
    target, value = node.targets[0].id, context.text(node.value)
    if not any(isinstance(part, ast.Name) and part.id == target for part in ast.walk(node.value)):
        yield f"{target} = max({target}, {value})"
        yield f"{target} = min({target}, {value})"


def _in_loop(node: ast.AST, context: Context) -> bool:
    inside = itertools.takewhile(lambda above: not isinstance(above, Function), context.ancestors(node))
    return any(isinstance(above, ast.For | ast.AsyncFor | ast.While) for above in inside)


def combine(node: ast.expr, context: Context) -> Proposals:
    """A value on its own where another one belongs to it: `price` → `price * count`, `a.b` → `a.b * a.c`."""
    parent, field = context.parent(node), context.field_of(node)
    loads = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
    places = (
        ast.Return | ast.Assign | ast.AugAssign | ast.Call | ast.GeneratorExp | ast.ListComp | ast.BinOp | ast.Slice
    )
    if not loads or not isinstance(parent, places) or field in ("func", "targets", "target"):
        return
    own = context.text(node)
    names = [name for name in context.names_at(node) if context.may_be(name, NUMBER)]
    others = context.operands_at(node)
    others = [*others, *names] if isinstance(node, ast.Attribute) else [*names, *others]
    for sign in ("*", "+", "-", "//", "/", "%"):
        level = operator_strength(_BY_SIGN[sign]())
        for other in others:
            if other != own:
                yield f"{context.at(node, level)} {sign} {other}"


def join(node: ast.expr, context: Context) -> Proposals:
    """A sequence on its own where another one belongs in front of it or behind: `rest` → `first + rest`."""
    parent, field = context.parent(node), context.field_of(node)
    sequence = isinstance(node, ast.ListComp | ast.List | ast.BinOp | ast.Name | ast.Call | ast.JoinedStr)
    if not sequence or not isinstance(parent, ast.Return | ast.Assign | ast.AugAssign | ast.Call):
        return
    if field in ("func", "targets", "target") or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return
    level = operator_strength(ast.Add())
    for name in context.names_at(node):
        if name != context.text(node) and (context.may_be(name, LIST) or context.may_be(name, STRING)):
            yield f"{name} + {context.at(node, level + 1)}"
            yield f"{context.at(node, level)} + {name}"
            yield f"{context.at(node, level)} + [{name}]"


FAMILY = (
    Template("operator.binary", (ast.BinOp,), swap_binary),
    Template("operator.operands", (ast.BinOp,), swap_operands),
    Template("operator.keep_one", (ast.BinOp,), keep_operand),
    Template("operator.compare", (ast.Compare,), compare),
    Template("operator.compare_swapped", (ast.Compare,), compare_swapped),
    Template("operator.boolean", (ast.BoolOp,), boolean),
    Template("operator.drop_condition", (ast.BoolOp,), drop_condition),
    Template("operator.drop_unary", (ast.UnaryOp,), drop_unary),
    Template("operator.augmented", (ast.AugAssign,), augmented),
    Template("operator.extreme", (ast.Assign,), extreme),
    Template("operator.combine", (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.BinOp), combine),
    Template("operator.join", (ast.Name, ast.Call, ast.ListComp, ast.List, ast.BinOp), join),
)
