"""Conditions: negated, strengthened, weakened, forced, added to a comprehension."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codepilot.repair.edit import Edit
from codepilot.repair.python.context import DICT, LIST, NUMBER, STRING, Context
from codepilot.repair.python.precedence import AND, COMPARE, NOT, text_strength
from codepilot.repair.python.templates.template import Proposals, Template

_LIMIT = 8
_OPPOSITES: dict[type[ast.cmpop], str] = {
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}


def atoms(node: ast.AST, context: Context) -> Iterator[str]:
    """Small conditions over the names in reach, likely ones first."""
    over = re.compile(r"\b(?:" + "|".join(context.stale_at(node) or {"0x"}) + r")\b")
    known = [text for text in context.conditions if not over.search(text)]
    yield from known
    yield from (_opposite(text) for text in known)
    names = context.names_at(node)[:_LIMIT]
    for name in names:
        yield from _about(name, context)
    for one in names:
        for other in names:
            if one != other and _comparable(one, other, context):
                yield from (f"{one} {sign} {other}" for sign in ("<", "==", "!=", "<="))
            if one != other and (context.may_be(other, LIST) or context.may_be(other, DICT)):
                yield from (f"{one} in {other}", f"{one} not in {other}")
    for text in context.conditions:
        if text not in known:
            yield from (text, _opposite(text))


def _opposite(text: str) -> str:
    test = ast.parse(text.strip(), mode="eval").body
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        sign = _OPPOSITES[type(test.ops[0])]
        return f"{ast.unparse(test.left)} {sign} {ast.unparse(test.comparators[0])}"
    return f"not {text if text_strength(text) >= COMPARE else f'({text})'}"


def _comparable(one: str, other: str, context: Context) -> bool:
    first, second = context.kinds.get(one), context.kinds.get(other)
    return not first or not second or bool(first & second)


def _about(name: str, context: Context) -> Iterator[str]:
    yield from (name, f"not {name}")
    if not context.kinds.get(name) or len(context.kinds[name]) > 1:
        yield from (f"{name} is None", f"{name} is not None")
    if context.may_be(name, NUMBER):
        yield from (f"{name} > 0", f"{name} == 0", f"{name} < 0", f"{name} != 0", f"{name} == 1", f"{name} > 1")
        yield from (f"{name} % 2 == 0", f"{name} % 2 == 1", f"{name} < 2", f"{name} <= 0", f"{name} >= 0")
    if context.may_be(name, LIST) or context.may_be(name, STRING):
        yield from (f"len({name}) == 0", f"len({name}) > 1", f"len({name}) == 1", f"len({name}) > 0")


def negate(node: ast.If | ast.While | ast.IfExp | ast.Assert, context: Context) -> Proposals:
    test = node.test
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield context.replace(test, context.text(test.operand), "condition.negate")
    else:
        yield context.replace(test, f"not {context.at(test, COMPARE)}", "condition.negate")


def negate_value(node: ast.expr, context: Context) -> Proposals:
    """`return c` → `return not c`, and the same in calls and filters."""
    parent = context.parent(node)
    used = isinstance(parent, ast.Return | ast.Assign | ast.comprehension | ast.keyword | ast.BoolOp)
    used = used and not (isinstance(node, ast.Compare) and len(node.ops) == 1)
    if used and isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and context.field_of(node) != "iter":
        yield f"not {context.at(node, COMPARE)}"


def strengthen(node: ast.If | ast.While | ast.IfExp, context: Context) -> Proposals:
    own = context.text(node.test)
    for atom in atoms(node.test, context):
        if atom != own:
            text = atom if text_strength(atom) >= NOT else f"({atom})"
            for joined in _either_way(context.at(node.test, NOT), "and", text, context):
                yield context.replace(node.test, joined, "condition.strengthen")


def weaken(node: ast.If | ast.While | ast.IfExp, context: Context) -> Proposals:
    own = context.text(node.test)
    for atom in atoms(node.test, context):
        if atom != own:
            text = atom if text_strength(atom) >= AND else f"({atom})"
            for joined in _either_way(context.at(node.test, AND), "or", text, context):
                yield context.replace(node.test, joined, "condition.weaken")


def _either_way(own: str, word: str, atom: str, context: Context) -> Iterator[str]:
    """The new condition behind the old one, and in front of it where it may have to keep an exception away."""
    if any(name != "AssertionError" for name in context.failure.exceptions):
        yield f"{atom} {word} {own}"
    yield f"{own} {word} {atom}"


def answer(node: ast.Return, context: Context) -> Proposals:
    """`return True` where a condition decides."""
    if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
        for atom in atoms(node, context):
            yield context.replace(node.value, atom, "condition.answer")


def filter_comprehension(node: ast.comprehension, context: Context) -> Proposals:
    """A filter added to a comprehension, taken from its filter, or made of small conditions."""
    for index, condition in enumerate(node.ifs):
        before = node.ifs[index - 1] if index else node.iter
        start = context.source.span(before)[1]
        end = context.source.span(condition)[1]
        if ")" not in context.source.text[start : context.source.span(condition)[0]]:
            yield Edit(start, end, "", "condition.filter")
    last = node.ifs[-1] if node.ifs else node.iter
    for atom in atoms(last if node.ifs else node.target, context):
        if node.ifs:
            text = atom if text_strength(atom) >= NOT else f"({atom})"
            yield context.replace(last, f"{context.at(last, NOT)} and {text}", "condition.filter")
        else:
            text = atom if text_strength(atom) > 1 else f"({atom})"
            yield context.replace(last, f"{context.at(last, 2)} if {text}", "condition.filter")


def swap_branches(node: ast.IfExp, context: Context) -> Proposals:
    test = context.at(node.test, 2)
    yield f"{context.at(node.orelse, 2)} if {test} else {context.text(node.body)}"
    yield context.text(node.body)
    yield context.text(node.orelse)


_TESTS = (ast.If, ast.While, ast.IfExp)
FAMILY = (
    Template("condition.negate", (*_TESTS, ast.Assert), negate),
    Template("condition.negate_value", (ast.Compare, ast.Call, ast.BoolOp, ast.Name, ast.Attribute), negate_value),
    Template("condition.strengthen", _TESTS, strengthen),
    Template("condition.weaken", _TESTS, weaken),
    Template("condition.answer", (ast.Return,), answer),
    Template("condition.filter", (ast.comprehension,), filter_comprehension),
    Template("condition.branches", (ast.IfExp,), swap_branches),
)
