"""Deterministic budgets: loops count their iterations, so an endless candidate ends alike on every machine.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable
from typing import Any

NAME = "__codepilot_step__"
NEWLINE = re.compile(r"\r\n|\r|\n")
ROUNDS = 4000
FACTOR = 20


class Stop(BaseException):
    """A test has used up its steps."""


class Steps:
    """How many rounds the loops of a candidate may make in one test, and how many they have made."""

    def __init__(self) -> None:
        self.left = self.given = ROUNDS
        self.before: dict[tuple[str, str], int] = {}
        """Rounds of a function's loops in a test, on the base."""
        setattr(builtins, NAME, self._step)

    def _step(self) -> bool:
        self.left -= 1
        if self.left < 0:
            raise Stop
        return True

    def allow(self, unit: str, test: str, patience: float) -> None:
        self.left = self.given = int(ROUNDS * patience) + FACTOR * self.before.get((unit, test), 0)

    @property
    def made(self) -> int:
        return self.given - self.left


def conditions(segment: str) -> list[tuple[int, int]]:
    """The positions of the conditions of `while` loops."""
    return _places(segment, lambda node: [node.test] if isinstance(node, ast.While) else [])


def bodies(segment: str) -> list[tuple[int, int]]:
    """Where the bodies of functions within the text's own one stand, in whole lines where they have their own."""
    found = []
    for start, end in _places(segment, _body)[1:]:
        before = len(segment[:start]) - len(segment[:start].rstrip(" \t\f"))
        own = start == before or segment[start - before - 1] in "\r\n"
        following = NEWLINE.match(segment, end)
        found.append((start - before if own else start, following.end() if own and following else end))
    return found


def _body(node: ast.AST) -> list[Any]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.body[0], node.body[-1]]
    return [node.body] if isinstance(node, ast.Lambda) else []


def _places(segment: str, parts: Callable[[ast.AST], list[Any]]) -> list[tuple[int, int]]:
    """From the first to the last of the parts of each node that has some."""
    try:
        tree = ast.parse(segment)
    except (SyntaxError, ValueError, RecursionError):
        return []
    starts = [0, *(match.end() for match in NEWLINE.finditer(segment))]

    def offset(line: int, column: int) -> int:
        row = segment[starts[line - 1] : starts[line] if line < len(starts) else len(segment)]
        return starts[line - 1] + len(row.encode()[:column].decode(errors="ignore"))

    found = [parts(node) for node in ast.walk(tree)]
    return [
        (offset(some[0].lineno, some[0].col_offset), offset(some[-1].end_lineno, some[-1].end_col_offset))
        for some in found
        if some
    ]


def counted(segment: str, loops: list[tuple[int, int]], start: int, end: int, text: str) -> str:
    """The segment with the edit made, and each loop that the edit leaves alone, or lies in, counting its rounds."""
    head: list[tuple[int, str]] = []
    tail: list[tuple[int, str]] = []
    for first, last in loops:
        within = first <= start and end <= last
        if within or last <= start or end <= first:
            (head if within or last <= start else tail).append((first, NAME + "() and ("))
            (tail if within or end <= first else head).append((last, ")"))
    return _with(segment[:start], head, 0) + text + _with(segment[end:], tail, end)


def _with(text: str, inserts: list[tuple[int, str]], at: int) -> str:
    for place, what in sorted(inserts, reverse=True):
        text = text[: place - at] + what + text[place - at :]
    return text
