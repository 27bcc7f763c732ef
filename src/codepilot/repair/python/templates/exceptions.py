"""Exceptions: caught more widely, raised as another kind, caught at all."""

from __future__ import annotations

import ast
import itertools
import re

from codepilot.repair.python.context import Context
from codepilot.repair.python.templates.guards import edges
from codepilot.repair.python.templates.template import Proposals, Template

_COMMON = ("ValueError", "TypeError", "KeyError", "IndexError", "AttributeError", "ZeroDivisionError", "OSError")
_NOT_RAISED = re.compile(r"DID NOT RAISE (?:<class ')?(?:\w+\.)*(\w+)")
_MOST_EDGES = 40


def widen(node: ast.ExceptHandler, context: Context) -> Proposals:
    """The exceptions that the failing tests met, then the usual ones, caught too."""
    if node.type is None:
        return
    caught = [context.text(part) for part in (node.type.elts if isinstance(node.type, ast.Tuple) else [node.type])]
    for name in dict.fromkeys((*context.failure.exceptions, *_COMMON, "Exception")):
        if name not in caught and name.isidentifier():
            if name != "Exception":
                yield context.replace(node.type, f"({', '.join([*caught, name])})", "exception.widen")
            yield context.replace(node.type, name, "exception.widen")
    if len(caught) > 1:
        for name in caught:
            yield context.replace(node.type, name, "exception.widen")


def unraised(messages: tuple[str, ...]) -> list[str]:
    """Names of exceptions that tests waited for in vain."""
    return list(dict.fromkeys(name for text in messages for name in _NOT_RAISED.findall(text)))


def raises(name: str, context: Context) -> list[str]:
    """Statements that raise it: plainly, then as the file does elsewhere."""
    found: dict[str, None] = {f"raise {name}": None}
    for node in context.source.nodes:
        if isinstance(node, ast.Raise) and node.lineno == node.end_lineno:
            text = context.text(node)
            if re.match(rf"raise {name}\b", text):
                found[text] = None
    return list(found)[:4]


def refuse(node: ast.stmt, context: Context) -> Proposals:
    """An edge refused, where the tests expect an exception that does not come."""
    function = context.function_of(node)
    if function is None or context.parent(node) is not function:
        return
    for name in unraised(context.failure.messages):
        for row in raises(name, context):
            for edge in itertools.islice(dict.fromkeys(edges(node, context)), _MOST_EDGES):
                yield context.before(node, [f"if {edge}:", f"{context.step}{row}"], "exception.refuse")


FAMILY = (
    Template(
        "exception.refuse", (ast.Assign, ast.Return, ast.Expr, ast.If, ast.For, ast.While, ast.Try, ast.With), refuse
    ),
    Template("exception.widen", (ast.ExceptHandler,), widen),
)
