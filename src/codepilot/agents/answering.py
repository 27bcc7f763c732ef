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
MAX_TURN = 1_000_000
ASKED: Mapping[str, Callable[..., Any]] = {"read_output": read_output, "find_repairs": find_repairs}
_TELLING = {"read_output": ("turn",), "find_repairs": ("tests", "proposals")}
"""The arguments that tell one answer from another."""

Key = tuple[Any, ...]


def with_asked(registry: Registry) -> Registry:
    """The skills with those that the host answers."""
    extended = registry.only(frozenset(skill.name for skill in registry))
    extended.skill(SkillPolicy())(read_output)
    extended.skill(SkillPolicy(needs=Capability.WRITE_AND_RUN_TESTS))(find_repairs)
    return extended


def wanted(code: str, turns: tuple[int, ...] = ()) -> list[Key]:
    """The calls in an action that the host must answer: the function and its arguments as plain values.

    A `read_output` of a computed turn wants all `turns`. Of searches, which take long, an action gets one.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    found = list(dict.fromkeys(key for node in calls if (key := _key(node)) is not None))
    if any(isinstance(node.func, ast.Name) and node.func.id == "read_output" and _key(node) is None for node in calls):
        found = list(dict.fromkeys([*found, *(("read_output", turn) for turn in turns)]))
    searches = [key for key in found if key[0] == "find_repairs"]
    return [key for key in found if key not in searches[1:]]


def _key(call: ast.Call) -> Key | None:
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name not in ASKED:
        return None
    try:
        names = list(inspect.signature(ASKED[name]).parameters)
        given = dict(zip(names, call.args, strict=False))
        for word in call.keywords:
            given |= {word.arg: word.value} if word.arg else _spread(word.value)
        values = {name: ast.literal_eval(given[name]) for name in _TELLING[name] if name in given}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None
    if name == "read_output":
        value = values.get("turn")
        return (name, value) if isinstance(value, int) and 0 <= value <= MAX_TURN else None
    lists = [values.get(telling) or () for telling in _TELLING[name]]
    plain = all(isinstance(one, list | tuple) and all(isinstance(text, str) for text in one) for one in lists)
    return (name, tuple(tuple(one) or None for one in lists)) if plain else None


def _spread(value: ast.expr) -> dict[str, ast.expr]:
    """The arguments in `**{…}`."""
    if not isinstance(value, ast.Dict):
        raise ValueError("not written in the call itself")
    return {ast.literal_eval(key): item for key, item in zip(value.keys, value.values, strict=True) if key is not None}


def answered(key: Key, seat: Seat, turns: Sequence[Turn]) -> str | list[dict[str, Any]] | ValueError:
    """What a call gives, or the error it raises inside."""
    if key[0] == "find_repairs":
        return repairs(seat, *key[1])
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
