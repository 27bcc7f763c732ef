"""How tightly Python expressions bind, so that an exchanged piece gets parentheses exactly where it needs them."""

from __future__ import annotations

import ast
from functools import lru_cache

BARE, TERNARY, OR, AND, NOT, COMPARE, ADD, MULTIPLY, UNARY, POWER, ATOM = 0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 20
_OPERATORS: dict[type[ast.operator], int] = {
    ast.BitOr: 6,
    ast.BitXor: 7,
    ast.BitAnd: 7,
    ast.LShift: 8,
    ast.RShift: 8,
    ast.Add: ADD,
    ast.Sub: ADD,
    ast.Mult: MULTIPLY,
    ast.MatMult: MULTIPLY,
    ast.Div: MULTIPLY,
    ast.FloorDiv: MULTIPLY,
    ast.Mod: MULTIPLY,
    ast.Pow: POWER,
}


def strength(node: ast.AST) -> int:
    """How tightly the node's own text binds."""
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)]
    if isinstance(node, ast.BoolOp):
        return OR if isinstance(node.op, ast.Or) else AND
    if isinstance(node, ast.UnaryOp):
        return NOT if isinstance(node.op, ast.Not) else UNARY
    if isinstance(node, ast.Compare):
        return COMPARE
    if isinstance(node, ast.IfExp | ast.Lambda):
        return TERNARY
    if isinstance(node, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Tuple | ast.Starred):
        return BARE
    return UNARY if isinstance(node, ast.Await) else ATOM


def operator_strength(operator: ast.operator) -> int:
    return _OPERATORS[type(operator)]


@lru_cache(maxsize=65536)
def text_strength(text: str) -> int:
    """As `strength`, for text; text that is no expression is left alone."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return ATOM
    closed = isinstance(node, ast.Tuple) and text.startswith("(")
    return ATOM if closed else strength(node)


def demand(parent: ast.AST, field: str) -> int:
    """How tightly an expression must bind to stand in this field without parentheses."""
    if isinstance(parent, ast.BoolOp):
        return AND if isinstance(parent.op, ast.Or) else NOT
    if isinstance(parent, ast.BinOp):
        level = _OPERATORS[type(parent.op)]
        if isinstance(parent.op, ast.Pow):
            return ATOM if field == "left" else UNARY
        return level if field == "left" else level + 1
    if isinstance(parent, ast.UnaryOp):
        return NOT if isinstance(parent.op, ast.Not) else UNARY
    if isinstance(parent, ast.Compare):
        return COMPARE + 1
    if isinstance(parent, ast.Attribute | ast.Await) or (isinstance(parent, ast.Call) and field == "func"):
        return ATOM
    if isinstance(parent, ast.Subscript) and field == "value":
        return ATOM
    if isinstance(parent, ast.IfExp | ast.comprehension):
        return OR if field != "orelse" else TERNARY
    if isinstance(parent, ast.List | ast.Tuple | ast.Set | ast.Dict | ast.Call | ast.keyword | ast.FormattedValue):
        return TERNARY
    return TERNARY if isinstance(parent, ast.Starred | ast.Slice) else BARE
