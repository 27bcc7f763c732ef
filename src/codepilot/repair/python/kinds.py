"""Guesses the kind of value of each name from annotations and uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

_STRING_METHODS = (
    *("lower", "upper", "strip", "lstrip", "rstrip", "split", "rsplit", "join", "startswith", "endswith", "replace"),
    *("isdigit", "isalpha", "isupper", "islower", "isalnum", "isspace", "title", "capitalize", "swapcase", "find"),
    *("rfind", "encode", "format", "zfill", "splitlines", "casefold"),
)
_LIST_METHODS = ("append", "extend", "insert", "sort", "reverse")
_DICT_METHODS = ("get", "items", "keys", "values", "setdefault", "update")
NUMBER, STRING, LIST, DICT, BOOL = "number", "string", "list", "dict", "bool"
ANNOTATIONS = {
    "int": NUMBER,
    "float": NUMBER,
    "complex": NUMBER,
    "str": STRING,
    "bytes": STRING,
    "list": LIST,
    "List": LIST,
    "Sequence": LIST,
    "Iterable": LIST,
    "tuple": LIST,
    "Tuple": LIST,
    "set": LIST,
    "Set": LIST,
    "dict": DICT,
    "Dict": DICT,
    "Mapping": DICT,
    "bool": BOOL,
}


def kinds_of(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The kinds that one node implies for the names in it."""
    if isinstance(node, ast.arg) and node.annotation is not None:
        outer = node.annotation.value if isinstance(node.annotation, ast.Subscript) else node.annotation
        if isinstance(outer, ast.Name) and outer.id in ANNOTATIONS:
            yield node.arg, ANNOTATIONS[outer.id]
    elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        kind = kind_of_value(node.value)
        if kind:
            yield node.targets[0].id, kind
    elif isinstance(node, ast.AugAssign | ast.BinOp):
        yield from _kinds_of_arithmetic(node)
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for one, other in pairwise(sides):
            for name, value in ((one, other), (other, one)):
                kind = kind_of_value(value)
                if isinstance(name, ast.Name) and kind:
                    yield name.id, kind
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        for methods, kind in ((_STRING_METHODS, STRING), (_LIST_METHODS, LIST), (_DICT_METHODS, DICT)):
            if node.attr in methods:
                yield node.value.id, kind
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        yield node.value.id, LIST
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            yield node.value.id, DICT
    elif isinstance(node, ast.For | ast.comprehension):
        if isinstance(node.iter, ast.Name):
            yield node.iter.id, LIST
        ranged = isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) and node.iter.func.id
        if ranged == "range" and isinstance(node.target, ast.Name):
            yield node.target.id, NUMBER
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Name) and node.func.id in ("len", "sorted", "sum", "enumerate", "reversed"):
            yield first.id, LIST
        elif isinstance(first, ast.Name) and node.func.id in ("range", "abs", "round", "chr"):
            yield first.id, NUMBER


def _kinds_of_arithmetic(node: ast.AugAssign | ast.BinOp) -> Iterator[tuple[str, str]]:
    one, other = (node.target, node.value) if isinstance(node, ast.AugAssign) else (node.left, node.right)
    for name, value in ((one, other), (other, one)):
        if isinstance(name, ast.Name):
            kind = kind_of_value(value)
            if kind:
                yield name.id, kind
            elif isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.Pow):
                yield name.id, NUMBER


def kind_of_value(value: ast.expr) -> str | None:
    if isinstance(value, ast.Constant):
        for kind, types in ((BOOL, bool), (NUMBER, int | float), (STRING, str | bytes)):
            if isinstance(value.value, types):
                return kind
    if isinstance(value, ast.List | ast.ListComp | ast.Tuple | ast.Set):
        return LIST
    if isinstance(value, ast.Dict | ast.DictComp):
        return DICT
    if isinstance(value, ast.JoinedStr):
        return STRING
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        calls = {"len": NUMBER, "int": NUMBER, "float": NUMBER, "sum": NUMBER, "abs": NUMBER, "str": STRING}
        return {**calls, "list": LIST, "sorted": LIST, "set": LIST, "dict": DICT}.get(value.func.id)
    return None
