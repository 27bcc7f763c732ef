"""Brings inside what only the host can answer: which answers an action wants is read from its text before it runs."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from codepilot.agents.asked import ANSWERS, find_repairs, read_output
from codepilot.agents.repairing import repairs
from codepilot.agents.seat import Seat
from codepilot.agents.transcript import Turn, whole_of
from codepilot.core.task import Capability
from codepilot.skills import Registry, SkillPolicy

PIECE = 1 << 20
"""Characters that travel inside at once."""
ASKED: Mapping[str, Callable[..., Any]] = {"read_output": read_output, "find_repairs": find_repairs}

Key = tuple[Any, ...]


def with_asked(registry: Registry) -> Registry:
    """The skills with those that the host answers."""
    extended = registry.only(frozenset(skill.name for skill in registry))
    extended.skill(SkillPolicy())(read_output)
    extended.skill(SkillPolicy(needs=Capability.WRITE_AND_RUN_TESTS))(find_repairs)
    return extended


def wanted(code: str) -> list[Key]:
    """The calls in an action that the host must answer: the function and its arguments, if these are plain values."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = dict.fromkeys(key for node in ast.walk(tree) if (key := _key(node)) is not None)
    return list(found)


def _key(node: ast.AST) -> Key | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in ASKED:
        return None
    name = node.func.id
    try:
        names = list(inspect.signature(ASKED[name]).parameters)
        given = dict(zip(names, node.args, strict=False)) | {word.arg: word.value for word in node.keywords}
        values = {key: ast.literal_eval(given[key]) for key in _TELLING[name] if key in given}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    return _KEYS[name](values)


_TELLING = {"read_output": ("turn",), "find_repairs": ("tests", "limit")}
"""The arguments by which an answer is known."""
_KEYS: Mapping[str, Callable[[dict[str, Any]], Key | None]] = {
    "read_output": lambda values: ("read_output", values["turn"]) if isinstance(values.get("turn"), int) else None,
    "find_repairs": lambda values: _repairs_key(values.get("tests"), values.get("limit", 5)),
}


def _repairs_key(tests: object, limit: object) -> Key | None:
    named = tests is None or (isinstance(tests, (list, tuple)) and all(isinstance(test, str) for test in tests))
    if not named or not isinstance(limit, int):
        return None
    return ("find_repairs", tuple(tests) if isinstance(tests, (list, tuple)) else None, limit)


def answered(key: Key, seat: Seat, turns: Sequence[Turn]) -> str | list[dict[str, Any]] | ValueError:
    """What a call gives, or the error it raises inside."""
    if key[0] == "find_repairs":
        return repairs(seat, key[1], key[2])
    turn = next((turn for turn in turns if turn.number == key[1]), None)
    if turn is None:
        return ValueError(f"there is no earlier turn {key[1]} in this conversation")
    return whole_of(turn, seat.desk.fetch)


def bringing(key: Key, answer: object) -> Iterator[str]:
    """Source that makes an answer known inside, in pieces of a bearable size."""
    if not isinstance(answer, str):
        yield _GIVE.format(module=ANSWERS, key=key, value=repr(answer), how="=")
        return
    for start in range(0, max(1, len(answer)), PIECE):
        how = "+=" if start else "="
        yield _GIVE.format(module=ANSWERS, key=key, value=repr(answer[start : start + PIECE]), how=how)


_GIVE = """\
def _give():
    import sys, types
    here = sys.modules.setdefault({module!r}, types.ModuleType({module!r}))
    here.__dict__.setdefault("answers", {{}})[{key!r}] {how} {value}
_give()
del _give
"""
