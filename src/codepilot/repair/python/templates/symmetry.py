"""Things in the wrong order or on one side only: elements, names and answers exchanged, both sides treated alike."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from codepilot.repair.edit import Edit
from codepilot.repair.python.context import Context
from codepilot.repair.python.precedence import COMPARE
from codepilot.repair.python.source import Function
from codepilot.repair.python.templates.template import Proposals, Template

_WRAPPERS = ("set", "sorted", "len", "abs", "str", "int", "sum", "list", "tuple", "float", "bool", "max", "min")
_METHODS = ("lower", "strip", "upper", "keys", "values", "split")


def elements(node: ast.Tuple | ast.List, context: Context) -> Proposals:
    """Two elements of a tuple or list exchanged, targets of an assignment too."""
    for one, other in itertools.combinations(node.elts[:6], 2):
        yield _exchanged(one, other, context, "symmetry.elements")


def _exchanged(one: ast.expr, other: ast.expr, context: Context, template: str) -> Edit | None:
    (a, b), (c, d) = sorted((context.source.span(one), context.source.span(other)))
    text = context.source.text
    if b > c or text[a:b] == text[c:d]:
        return None
    return Edit(a, d, text[c:d] + text[b:c] + text[a:b], template)


def _renamed(text: str, start: int, end: int, places: list[tuple[int, int]], one: str, other: str) -> str:
    pieces, at = [], start
    for first, last in places:
        pieces += [text[at:first], other if text[first:last] == one else one]
        at = last
    return "".join([*pieces, text[at:end]])


def both_sides(node: ast.Compare, context: Context) -> Proposals:
    """Both sides of a comparison passed through the same function."""
    if len(node.ops) != 1:
        return
    one, other = context.text(node.left), context.text(node.comparators[0])
    sign = context.source.text[context.source.span(node.left)[1] : context.source.span(node.comparators[0])[0]]
    if "(" in sign or ")" in sign or "\n" in sign:
        return
    for name in _WRAPPERS:
        yield f"{name}({one}){sign}{name}({other})"
    for name in _METHODS:
        first, second = context.atom(node.left), context.atom(node.comparators[0])
        yield f"{first}.{name}(){sign}{second}.{name}()"


def answers(node: ast.Return, context: Context) -> Proposals:
    """Two constants that the function returns exchanged wherever it does: it says the opposite."""
    function = context.function_of(node)
    if function is None:
        return
    found: dict[str, list[tuple[int, int]]] = {}
    for inner in _returns(function):
        for part in ast.walk(inner):
            if isinstance(part, ast.Constant) and not isinstance(context.parent(part), ast.JoinedStr):
                found.setdefault(context.text(part), []).append(context.source.span(part))
    for one, other in itertools.combinations(list(found)[:6], 2):
        places = sorted(found[one] + found[other])
        start, end = places[0][0], places[-1][1]
        text = _renamed(context.source.text, start, end, places, one, other)
        yield Edit(start, end, text, "symmetry.answers")


def _returns(function: Function) -> list[ast.Return]:
    found = [node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def sibling(node: ast.BoolOp | ast.Compare, context: Context) -> Proposals:
    """A further condition like one that is there, its names exchanged or turned round: `a + b == c or b + c == a`."""
    whole = node if isinstance(node, ast.BoolOp) else None
    if whole is None and isinstance(context.parent(node), ast.BoolOp):
        return
    values = whole.values if whole else [node]
    present = {_plain(context.text(value)) for value in values}
    signs = ["and", "or"] if whole is None else ["and" if isinstance(whole.op, ast.And) else "or"]
    for value in values:
        for other in _permuted(value, context):
            if _plain(other) not in present:
                present.add(_plain(other))
                for sign in signs:
                    yield (
                        f"{context.text(node)} {sign} ({other})"
                        if whole or sign == "or"
                        else (f"{context.at(node, COMPARE)} and ({other})")
                    )


def _plain(text: str) -> str:
    return re.sub(r"[\s()]", "", text)


def _permuted(node: ast.expr, context: Context) -> Iterator[str]:
    """The expression with its names permuted, then with one name put in another's place."""
    start, end = context.source.span(node)
    own = sorted((n for n in ast.walk(node) if isinstance(n, ast.Name)), key=lambda n: context.source.span(n))
    known = context.names_at(node)
    used = [name for name in dict.fromkeys(n.id for n in own) if name in known][:4]
    targets = [dict(zip(used, order, strict=True)) for order in itertools.permutations(used)][1:]
    targets += [{name: other} for name in used for other in known[:8] if other not in used]
    for renamed in targets:
        pieces, at = [], start
        for name in own:
            first, last = context.source.span(name)
            pieces += [context.source.text[at:first], renamed.get(name.id, name.id)]
            at = last
        yield "".join([*pieces, context.source.text[at:end]])


FAMILY = (
    Template("symmetry.elements", (ast.Tuple, ast.List), elements),
    Template("symmetry.both_sides", (ast.Compare,), both_sides),
    Template("symmetry.answers", (ast.Return,), answers),
    Template("symmetry.sibling", (ast.BoolOp, ast.Compare), sibling),
)
