"""Exceptions: caught more widely, raised as another kind, caught at all."""

from __future__ import annotations

import ast
import itertools
import re

from codepilot.repair.edit import Edit
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


def raised(node: ast.Raise, context: Context) -> Proposals:
    """Another kind of exception: those the file knows, then the usual ones."""
    name = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    if isinstance(name, ast.Name):
        own = [other for other in context.globals if other.endswith(("Error", "Exception", "Warning"))]
        for other in dict.fromkeys((*own, *_COMMON, "RuntimeError", "NotImplementedError", "LookupError")):
            if other != name.id:
                yield context.replace(name, other, "exception.raised")


def catch(node: ast.stmt, context: Context) -> Proposals:
    """The statement tried, with a way out where the failing tests met an exception."""
    if not context.owns_lines(node) or node.lineno != node.end_lineno or context.function_of(node) is None:
        return
    met = [name for name in context.failure.exceptions if name != "AssertionError" and name.isidentifier()]
    indent, line = context.indent(node), context.source.newline
    exits = ["return None", "return []", "return 0", "return False", "return ''", "pass"]
    exits += ["break", "continue"] if context.in_loop(node) else []
    for name in met:
        for way in exits:
            text = f"try:{line}{indent}{context.step}{context.text(node)}{line}"
            text += f"{indent}except {name}:{line}{indent}{context.step}{way}"
            yield Edit(*context.source.span(node), text, "exception.catch")


def said(node: ast.Subscript, context: Context) -> Proposals:
    """`error.args[0]` → `str(error)`: not every exception has arguments."""
    if isinstance(node.value, ast.Attribute) and node.value.attr == "args" and isinstance(node.ctx, ast.Load):
        yield f"str({context.text(node.value.value)})"


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
    Template("exception.said", (ast.Subscript,), said),
    Template(
        "exception.refuse", (ast.Assign, ast.Return, ast.Expr, ast.If, ast.For, ast.While, ast.Try, ast.With), refuse
    ),
    Template("exception.widen", (ast.ExceptHandler,), widen),
    Template("exception.raised", (ast.Raise,), raised),
    Template("exception.catch", (ast.Assign, ast.Return, ast.Expr, ast.AugAssign), catch),
)
