"""Texts: messages that miss a space or an `f`, quote what they show, or are not what the tests spell out."""

from __future__ import annotations

import ast
from difflib import SequenceMatcher

from codepilot.repair.python.context import Context
from codepilot.repair.python.templates.template import Proposals, Template

_LIKE = 0.6


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


FAMILY = (Template("text.expected", (ast.Constant,), expected),)
