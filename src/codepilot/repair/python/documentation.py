"""Examples in docstrings: what a function's own documentation promises of single calls."""

from __future__ import annotations

import ast
import doctest
import re

_PROMISE = re.compile(r"\s*(?:==>|=>|-->|->|➞|➔|→|===?|=|,?\s*(?:should\s+)?returns?:?|is)\s*(.+)$")
_MOST = 12


def examples(docstring: str, name: str) -> tuple[tuple[str, str], ...]:
    """Calls of the function and literals that they should equal, as expressions. What is no literal is left out."""
    found: dict[tuple[str, str], None] = {}
    try:
        tested = doctest.DocTestParser().get_examples(docstring)
    except ValueError:
        tested = []
    for example in tested:
        _add(found, example.source.strip(), example.want.strip(), name)
    for row in docstring.splitlines():
        for at in (match.start() for match in re.finditer(rf"\b{re.escape(name)}\(", row)):
            end = _closing(row, at)
            promise = _PROMISE.match(row, end) if end else None
            if promise:
                _add(found, row[at:end], promise[1], name)
    return tuple(found)[:_MOST]


def _closing(row: str, at: int) -> int:
    """The end of the call that begins here: the shortest text that parses."""
    for end in (match.end() for match in re.finditer(r"\)", row[at:])):
        try:
            ast.parse(row[at : at + end], mode="eval")
        except (SyntaxError, ValueError):
            continue
        return at + end
    return 0


def _add(found: dict[tuple[str, str], None], call: str, want: str, name: str) -> None:
    want = want.split("#")[0].strip().rstrip(".").strip() if not want.startswith(("'", '"')) else want.strip()
    try:
        tree = ast.parse(call, mode="eval")
        ast.literal_eval(want)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    if any(getattr(function, "id", getattr(function, "attr", "")) == name for function in called):
        found[call, want] = None
