"""Texts: messages that miss a space or an `f`, quote what they show, or are not what the tests spell out."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from difflib import SequenceMatcher

from codepilot.repair.python.context import Context
from codepilot.repair.python.templates.template import Proposals, Template

_LIKE = 0.6
_FIELD = re.compile(r"\{([A-Za-z_]\w*)[^{}]*\}")
_OPENING = re.compile(r"([A-Za-z]*)(\"\"\"|'''|\"|')")


def expected(node: ast.Constant, context: Context) -> Proposals:
    """A text that a failing test spells out, where it is much like this one."""
    parent = context.parent(node)
    if not isinstance(node.value, str) or len(node.value) < 3 or isinstance(parent, ast.Expr | ast.JoinedStr):
        return
    rated = []
    for text in context.failure.expected:
        likeness = SequenceMatcher(None, node.value, text).ratio() if text != node.value else 0.0
        if likeness >= _LIKE:
            rated.append((-likeness, text))
    for _, text in sorted(rated)[:4]:
        yield repr(text)


def unformatted(node: ast.Constant, context: Context) -> Proposals:
    """A text with names in braces that is not filled in: the `f` in front of it is missing."""
    if not isinstance(node.value, str) or isinstance(context.parent(node), ast.Expr | ast.JoinedStr):
        return
    names = {match[1] for match in _FIELD.finditer(node.value)}
    if names and names <= {*context.names_at(node), *context.globals, *context.parameters}:
        text = context.text(node)
        pieces, at = [], 0
        for start, end in _strings(text):
            marked = _FIELD.search(text, start, end) and _OPENING.match(text, start)
            pieces += [text[at:start], "f" if marked and "f" not in text[start:end].split("{")[0][:2].lower() else ""]
            at = start
        yield "".join([*pieces, text[at:]])


def _strings(text: str) -> Iterator[tuple[int, int]]:
    """Where the string tokens of an expression lie."""
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    try:
        for token in tokenize.generate_tokens(io.StringIO(f"({text})").readline):
            if token.type == tokenize.STRING:
                (row, column), (last, end) = token.start, token.end
                yield lines[row - 1] + column - (row == 1), lines[last - 1] + end - (last == 1)
    except (tokenize.TokenError, SyntaxError):
        return


def pieces(node: ast.JoinedStr | ast.Constant, context: Context) -> Proposals:
    """A space too few or too many at an end, and quotes around what `!r` would quote itself."""
    if isinstance(node, ast.Constant) and not (isinstance(node.value, str) and _FIELD.search(node.value)):
        return
    if isinstance(context.parent(node), ast.Expr | ast.JoinedStr):
        return
    text = context.text(node)
    if len(list(_strings(text))) != 1 or "\n" in text:
        return
    opening = _OPENING.match(text)
    if opening is None:
        return
    head, quote = opening[0], opening[2]
    body = text[len(head) : -len(quote)]
    changed = [" " + body, body + " ", body.strip(), body + ".", body.rstrip("."), body + ":", body.capitalize()]
    for match in _FIELD.finditer(body):
        before, after = body[: match.start()], body[match.end() :]
        if "!" not in match[0] and ":" not in match[0]:
            shown = f"{match[0][:-1]}!r}}"
            if before[-1:] in ("'", '"') and before[-1:] == after[:1]:
                changed.append(f"{before[:-1]}{shown}{after[1:]}")
            changed.append(f"{before}{shown}{after}")
            changed += [f"{before} {match[0]}{after}", f"{before}{match[0]} {after}"]
            if quote != "'":
                changed.append(f"{before}'{match[0]}'{after}")
    for other in dict.fromkeys(changed):
        if other != body:
            yield f"{head}{other}{quote}"


FAMILY = (
    Template("text.expected", (ast.Constant,), expected),
    Template("text.unformatted", (ast.Constant,), unformatted),
    Template("text.pieces", (ast.JoinedStr, ast.Constant), pieces),
)
