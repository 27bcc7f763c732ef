"""Inputs by type: new values for every parameter, by its annotation and within what recorded calls show of it.

What the tests gave says how large numbers are, which letters texts have and how long lists get; annotations say what
else is allowed. The same inputs come for the same function and calls, under any interpreter.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import random
import typing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codepilot.repair.inside.codepilot_repair_evidence import copied, kind_of, parameters
else:
    from codepilot_repair_evidence import copied, kind_of, parameters

COUNT = 32
DEEPEST = 4
LONGEST = 12
SELDOM = 0.15
"""How often a value is of a type that is allowed and was not seen."""
NUMBERS = (-3, 12)
LETTERS = "abcAB 01"
LISTS = (list, tuple, set, frozenset)
CLOSED = (bool, int, float, complex, str, bytes, dict, type(None), *LISTS)
"""Types whose values are hardly ever of another class that stands for them."""


class Unknown(Exception):
    """Nothing tells what a value would have to be."""


def drawn(function: Any, inputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Recorded inputs with new values for all parameters whose type is known; none where nothing was recorded."""
    source = random.Random(0)
    hints = _hints(function)
    code = function.__code__
    names = parameters(code)[: code.co_argcount + code.co_kwonlyargcount]
    found = []
    for number in range(COUNT if inputs else 0):
        pattern = inputs[number % len(inputs)]
        pools = [[values[at] for values in inputs] for at in range(len(pattern))]
        values = (_drawn(hints.get(name), pools[at], pattern[at], source) for at, name in enumerate(names))
        found.append((*values, *pattern[len(names) :]))
    return found


def promised(function: Any) -> set[str]:
    """The kinds of results that the annotation allows; empty where it names none, or leaves it open."""
    allowed = [_origin(part) for part in _alternatives(_hints(function).get("return"))]
    return set(map(kind_of, allowed)) if all(part in CLOSED for part in allowed) else set()


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - annotations may name what exists for type checkers alone
        return {}


def _drawn(hint: Any, pool: list[Any], instead: Any, source: random.Random) -> Any:
    try:
        return _value(hint, pool, source, 0)
    except Exception:  # noqa: BLE001 - whatever the project's own classes do when they are made
        return copied(instead)


def _value(hint: Any, pool: list[Any], source: random.Random, depth: int) -> Any:
    """One value: like those that were seen, and at times of a type that only the annotation names."""
    parts = _alternatives(hint)
    seen = {kind_of(type(one)) for one in pool}
    unseen = [part for part in parts if _origin(part) in CLOSED and kind_of(_origin(part)) not in seen]
    chosen = [value for part in parts if _origin(part) is typing.Literal for value in typing.get_args(part)]
    if chosen:
        return source.choice(chosen)
    if pool and not (unseen and source.random() < SELDOM):
        pattern = source.choice(pool)
        like = [one for one in pool if type(one) is type(pattern)]
        fitting = [part for part in parts if _origin(part) is type(pattern)]
        return _of(type(pattern), (fitting or parts or [None])[0], like, source, depth)
    parts = unseen if pool else parts
    if not parts or depth > DEEPEST:
        raise Unknown
    part = source.choice(parts)
    return _of(_origin(part), part, [], source, depth)


def _alternatives(hint: Any) -> list[Any]:
    """What a union names, one by one."""
    if hint is None or hint is Any:
        return []
    union = typing.get_origin(hint) is typing.Union or type(hint).__name__ == "UnionType"
    return list(typing.get_args(hint)) if union else [hint]


def _origin(part: Any) -> Any:
    return typing.get_origin(part) or part


def _of(kind: Any, part: Any, pool: list[Any], source: random.Random, depth: int) -> Any:
    if kind is type(None):
        return None
    if kind is bool:
        return source.random() < 0.5
    if kind is int:
        low, high = _span(pool)
        return source.randint(low, high)
    if kind is float:
        low, high = _span(pool)
        return round(source.uniform(low, high), 1)
    if kind is str:
        letters = sorted({letter for text in pool for letter in text}) or list(LETTERS)
        return "".join(source.choice(letters) for _ in range(_length(pool, source)))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return source.choice(list(kind))
    if _plain_list(kind) is not None:
        return _items(_plain_list(kind), part, pool, source, depth)
    if kind is dict or getattr(kind, "__name__", "") in ("Mapping", "MutableMapping"):
        return _pairs(part, pool, source, depth)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, pool, source, depth)
    if not pool:
        raise Unknown
    return copied(source.choice(pool))


def _span(pool: list[Any]) -> tuple[int, int]:
    """As far as numbers went and half as far again, never to the other side of zero."""
    if not pool:
        return NUMBERS
    low, high = int(min(pool)), int(max(pool))
    room = max(3, (high - low) // 2)
    least = low - room if low < 0 else min(low, 1)
    return least, high + room if high > 0 or low == 0 else high


def _length(pool: list[Any], source: random.Random) -> int:
    """Empty only where something empty was seen, or nothing at all."""
    sizes = [len(one) for one in pool] or [0, 2]
    return source.randint(min(1, *sizes), min(LONGEST, max(sizes) + 2))


def _plain_list(kind: Any) -> Any:
    """The type of list to make for one that is asked for."""
    if kind in LISTS:
        return kind
    return list if getattr(kind, "__name__", "") in ("Sequence", "MutableSequence", "Iterable", "Collection") else None


def _items(kind: Any, part: Any, pool: list[Any], source: random.Random, depth: int) -> Any:
    inner = [one for other in pool for one in other]
    hints = [hint for hint in typing.get_args(part) if hint is not Ellipsis]
    fixed = kind is tuple and {len(one) for one in pool}
    if kind is tuple and (len(fixed or ()) == 1 or (not pool and Ellipsis not in typing.get_args(part))):
        size = len(pool[0]) if pool else len(hints)
        hints = hints if len(hints) == size else [None] * size
        return tuple(_value(hints[at], [one[at] for one in pool], source, depth + 1) for at in range(size))
    if not inner and not hints:
        return copy.deepcopy(source.choice(pool))
    hint = hints[0] if hints else None
    return kind(_value(hint, inner, source, depth + 1) for _ in range(_length(pool, source)))


def _pairs(part: Any, pool: list[Any], source: random.Random, depth: int) -> Any:
    key, value = (*typing.get_args(part), None, None)[:2]
    keys, values = [one for other in pool for one in other], [one for other in pool for one in other.values()]
    if not keys and key is None:
        return copied(source.choice(pool))
    return {
        _value(key, keys, source, depth + 1): _value(value, values, source, depth + 1)
        for _ in range(_length(pool, source))
    }


def _record(kind: Any, pool: list[Any], source: random.Random, depth: int) -> Any:
    """Another of the same class, as its own constructor makes it."""
    hints = _hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    seen = {name: [getattr(one, name) for one in pool] for name in names}
    return kind(**{name: _value(hints.get(name), seen[name], source, depth + 1) for name in names})
