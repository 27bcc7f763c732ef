"""Donors beyond the function: what this file, and then others of the package, do with the same names."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice

from codepilot.repair.python.context import Context
from codepilot.repair.python.package import MAX_TEXT, called_name, members
from codepilot.repair.python.precedence import AND, NOT, text_strength
from codepilot.repair.python.source import Function, PythonSource
from codepilot.repair.python.templates.template import Proposals, Template

_MOST = 24
"""Donors for one place, the nearest first."""
_BUILTINS = frozenset(dir(builtins))
_ALIKE = 0.6
"""How much of a statement another implementation must share to stand for it."""
_EVERYWHERE = frozenset(("len", "isinstance", "get", "append", "join", "format", "str", "int", "list", "items"))
"""Names that say nothing of what a condition is about."""
_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Raise)


def _reach(node: ast.AST, context: Context) -> frozenset[str]:
    """Names that mean something at the node: those that it asks itself do."""
    own = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    known = _BUILTINS.union(context.names_at(node), context.globals, context.parameters)
    return (known - context.stale_at(node)) | own


def _fits(donor: ast.AST, reach: frozenset[str]) -> bool:
    """Whether every name of the donor is in reach; those that it binds itself are."""
    names = [part for part in ast.walk(donor) if isinstance(part, ast.Name)]
    own = {part.id for part in names if isinstance(part.ctx, ast.Store)}
    own |= {part.arg for part in ast.walk(donor) if isinstance(part, ast.arg)}
    return all(part.id in reach or part.id in own for part in names)


def _texts(donors: Iterator[tuple[PythonSource, ast.expr]], node: ast.expr, context: Context) -> Iterator[str]:
    """Donors as one line each, those in reach, each once; what stands in the node itself is none."""
    seen, reach = {context.text(node)}, _reach(node, context)
    for source, donor in donors:
        text = source.segment(donor)
        if donor is not node and text not in seen and "\n" not in text and _fits(donor, reach):
            seen.add(text)
            yield text


def keywords(node: ast.Call, context: Context) -> Proposals:
    """A keyword that other calls of the same function are given, or another value for one of this call's."""
    name = called_name(node)
    given = {keyword.arg: keyword for keyword in node.keywords}
    if not name or None in given:
        return
    values: dict[str, ast.keyword] = {}
    reach = _reach(node, context)
    for source, call in context.package.calls(context.source, name):
        for keyword in call.keywords if call is not node else ():
            text = source.segment(keyword)
            if len(text) <= 60 and "\n" not in text and text not in values and _fits(keyword, reach):
                values[text] = keyword
    arguments = [context.text(argument) for argument in node.args]
    for text, keyword in islice(values.items(), _MOST):
        kept = [context.text(own) for key, own in given.items() if key != keyword.arg]
        yield f"{context.text(node.func)}({', '.join([*arguments, *kept, text])})"


def condition(node: ast.If | ast.While | ast.IfExp, context: Context) -> Proposals:
    """A condition that asks the same attribute or function elsewhere: instead of this one, or beside it."""
    names = [name for name in members(node.test) if name not in _EVERYWHERE]
    donors = context.package.conditions(context.source, names)
    for text in islice(_texts(donors, node.test, context), _MOST):
        yield context.replace(node.test, text, "package.condition")
        narrow = text if text_strength(text) >= NOT else f"({text})"
        yield context.replace(node.test, f"{context.at(node.test, NOT)} and {narrow}", "package.condition")
        wide = text if text_strength(text) >= AND else f"({text})"
        yield context.replace(node.test, f"{context.at(node.test, AND)} or {wide}", "package.condition")


def call(node: ast.Call, context: Context) -> Proposals:
    """The same function called as it is called elsewhere."""
    if not isinstance(context.parent(node), ast.Expr) and (name := called_name(node)):
        yield from islice(_texts(context.package.calls(context.source, name), node, context), _MOST)


def sibling(node: ast.stmt, context: Context) -> Proposals:
    """The statement that a function of the same name has for this one, in another class or file."""
    own = context.function_of(node)
    if own is None or not context.owns_lines(node):
        return
    text, reach = context.text(node), _reach(node, context)
    ranked: dict[str, float] = {}
    for told, statement in _statements(own, context):
        if type(statement) is type(node) and told != text and told not in ranked:
            match = SequenceMatcher(None, text, told)
            if match.real_quick_ratio() >= _ALIKE <= match.ratio() and _fits(statement, reach):
                ranked[told] = match.ratio()
    yield from sorted(ranked, key=lambda one: -round(ranked[one], 1))[:_MOST]


def missing(node: ast.stmt, context: Context) -> Proposals:
    """A statement that a function of the same name has, and this one has not, before and behind this place."""
    own = context.function_of(node)
    if own is None or context.parent(node) is not own or not context.owns_lines(node):
        return
    reach = _reach(node, context)
    present = {ast.dump(inner) for inner in ast.walk(own) if isinstance(inner, ast.stmt)}
    lacking = {
        told: None
        for told, statement in _statements(own, context)
        if not isinstance(statement, ast.Return) and ast.dump(statement) not in present and _fits(statement, reach)
    }
    for told in islice(lacking, _MOST):
        yield context.before(node, [told], "package.missing")
        yield context.after(node, [told], "package.missing")


def _statements(own: Function, context: Context) -> Iterator[tuple[str, ast.stmt]]:
    """Plain statements of other functions of the same name, each on one line."""
    functions = context.package.functions(context.source, own.name)
    for other, function in islice(functions, _MOST):
        for statement in ast.walk(function) if function is not own else ():
            documents = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if isinstance(statement, _SIMPLE) and not documents:
                text = other.segment(statement)
                if "\n" not in text and len(text) <= MAX_TEXT:
                    yield text, statement


FAMILY = (
    Template("package.keywords", (ast.Call,), keywords),
    Template("package.condition", (ast.If, ast.While, ast.IfExp), condition),
    Template("package.call", (ast.Call,), call),
    Template("package.sibling", _SIMPLE, sibling),
    Template("package.missing", _SIMPLE, missing),
)
