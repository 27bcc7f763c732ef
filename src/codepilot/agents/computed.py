"""Lets an action call `find_repairs` with arguments that it computes.

The host answers the call, and the search restarts the kernel. So the action is split before the statement that holds
the call: the first part runs, the arguments are evaluated, the search is made, and the rest runs with the values
written in the call. Variables that hold plain data (numbers, text, lists, dicts) are set again.
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import Any

SEARCH = "find_repairs"
MAX_KEPT = 1 << 20
"""Characters of variables that are set again."""


@dataclass(frozen=True)
class Split:
    """An action in two parts, around the arguments of a call."""

    before: str
    call: ast.Call
    rest: str
    rest_line: int

    @property
    def question(self) -> str:
        """Source that prints the call's arguments and the variables that hold plain data."""
        asked = ast.Call(ast.Name("_asked"), self.call.args, self.call.keywords)
        return _QUESTION.format(call=ast.unparse(ast.fix_missing_locations(asked)), most=MAX_KEPT)

    def with_values(self, arguments: dict[str, Any]) -> str:
        """The rest of the action, with the evaluated arguments in the call."""
        lines = self.rest.splitlines(keepends=True)
        first, last = self.call.lineno - self.rest_line, (self.call.end_lineno or 0) - self.rest_line
        head = lines[first].encode()[: self.call.col_offset].decode()
        tail = lines[last].encode()[self.call.end_col_offset :].decode()
        written = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        return "".join([*lines[:first], f"{head}{SEARCH}({written}){tail}", *lines[last + 1 :]])


def split_at_search(code: str) -> Split | None:
    """The action around its first search, if that has an argument which is not a literal."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for statement in tree.body:
        calls = [one for one in ast.walk(statement) if isinstance(one, ast.Call) and _is_search(one)]
        if not calls:
            continue
        lines = code.splitlines(keepends=True)
        start = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", []))])
        alone = not lines[start - 1][: statement.col_offset].strip()
        if not alone or _is_literal(calls[0]):
            return None
        return Split("".join(lines[: start - 1]), calls[0], "".join(lines[start - 1 :]), start)
    return None


def answer_of(output: str) -> tuple[dict[str, Any], str] | None:
    """The arguments that the question printed, and source that sets the plain variables again."""
    try:
        arguments, kept = json.loads(output.rstrip().rpartition("\n")[2])
        variables = "".join(f"{name} = {value}\n" for name, value in kept.items())
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return arguments, variables


def _is_search(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == SEARCH


def _is_literal(call: ast.Call) -> bool:
    try:
        for value in (*call.args, *(word.value for word in call.keywords if word.arg != "limit")):
            ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


_QUESTION = """\
def _asked(tests=None, limit=5, proposals=None):
    import ast, json
    kept, left = {{}}, {most}
    for name, value in list(globals().items()):
        try:
            plain = name[0] != "_" and type(value) in (int, float, str, bool, list, dict, tuple, set)
            text = repr(value) if plain else ""
            if text and len(text) <= left and ast.literal_eval(text) == value:
                kept[name], left = text, left - len(text)
        except Exception:
            continue
    tests, proposals = (given and [str(one) for one in given] for given in (tests, proposals))
    print("\\n" + json.dumps([{{"tests": tests, "proposals": proposals, "limit": limit}}, kept]))
{call}
del _asked
"""
