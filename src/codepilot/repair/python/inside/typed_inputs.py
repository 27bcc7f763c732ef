"""Random inputs by type: new values for every parameter, by its annotation and within the ranges of recorded calls.

Recorded arguments decide how large numbers are, which letters texts have and how long lists get; annotations allow
other types. Recorded objects are used unchanged, because the relations between their parts are unknown. The same
function and calls give the same inputs on every machine.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import itertools
import random
import typing
from collections.abc import Callable
from typing import Any

from .behaviour import copied, kind_of, parameters, timed

COUNT = 32
DEEPEST = 3
LONGEST = 12
"""How long a list gets; one within a list, half as long."""
MOST = 64
"""How many recorded values decide the ranges of new ones."""
MOST_LETTERS = 2000
SELDOM = 0.15
"""How often a value has a type that is allowed but was not recorded."""
NUMBERS = (-3, 12)
LETTERS = "abcAB 01"
LISTS = (list, tuple, set, frozenset)
ANY_LIST = (
    *(collections.abc.Sequence, collections.abc.MutableSequence),
    *(collections.abc.Iterable, collections.abc.Collection),
)
ANY_DICT = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
CLOSED = (bool, int, float, complex, str, bytes, dict, type(None), *LISTS)
"""Types that subclasses or stand-ins hardly ever replace."""


class Unknown(Exception):
    """Neither an annotation nor a recorded value shows the type."""


def random_inputs(
    function: Any, inputs: list[tuple[Any, ...]], reset: Callable[[], None] = lambda: None
) -> list[tuple[Any, ...]]:
    """Recorded inputs with new values for all parameters whose type is known; none where nothing was recorded."""
    source = random.Random(0)
    hints = _hints(function)
    code = function.__code__
    names = parameters(code)[: code.co_argcount + code.co_kwonlyargcount]
    pools = [[values[at] for values in inputs[:MOST]] for at in range(len(names))]
    found = []
    for number in range(COUNT if inputs else 0):
        pattern = inputs[number % len(inputs)]
        values = []
        for name, pool, instead in zip(names, pools, pattern):  # noqa: B905 - Python 3.8 knows no other
            # Classes of the project may do anything when their objects are made.
            ended, value = timed(functools.partial(_value, hints.get(name), pool, source, 0), reset)
            values.append(value if ended == "returned" else copied(instead))
        found.append((*values, *pattern[len(names) :]))
    return found


def annotated_kinds(function: Any) -> set[str]:
    """The kinds of results that the annotation allows; empty where it names none, or leaves it open."""
    allowed = [_origin(part) for part in _alternatives(_hints(function).get("return"))]
    return set(map(kind_of, allowed)) if all(part in CLOSED for part in allowed) else set()


def _hints(thing: Any) -> dict[str, Any]:
    """The evaluated annotations, without those that fail at run time."""
    try:
        return typing.get_type_hints(thing)
    except Exception:  # noqa: BLE001 - one name that is not there fails all of them
        scope = getattr(thing, "__globals__", {})
        return {name: _meant(hint, scope) for name, hint in getattr(thing, "__annotations__", {}).items()}


def _meant(hint: Any, scope: dict[str, Any]) -> Any:
    if hint is None or not isinstance(hint, str):
        return type(None) if hint is None else hint
    try:
        return eval(hint, scope)
    except Exception:  # noqa: BLE001 - as above
        return Any


def _value(hint: Any, pool: list[Any], source: random.Random, depth: int) -> Any:
    """One value: like the recorded ones, or sometimes of a type that only the annotation names."""
    parts = _alternatives(hint)
    seen = {kind_of(type(one)) for one in pool}
    unseen = [part for part in parts if _origin(part) in CLOSED and kind_of(_origin(part)) not in seen]
    if pool and depth > DEEPEST:
        return copied(source.choice(pool))
    if pool and not (unseen and source.random() < SELDOM):
        return _like(source.choice(pool), parts, pool, source, depth)
    parts = unseen if pool else parts
    if not parts or depth > DEEPEST:
        raise Unknown
    part = source.choice(parts)
    return _of(_origin(part), part, [], source, depth)


def _like(pattern: Any, parts: list[Any], pool: list[Any], source: random.Random, depth: int) -> Any:
    """Another of the pattern's type."""
    kind = type(pattern)
    for part in parts:
        if _origin(part) is typing.Literal and pattern in typing.get_args(part):
            return source.choice(typing.get_args(part))
    fitting = [part for part in parts if _origin(part) is kind]
    same = [one for one in pool if type(one) is kind]
    return _of(kind, (fitting or parts or [None])[0], same, source, depth)


def _alternatives(hint: Any) -> list[Any]:
    """The members of a union."""
    if hint is None or hint is Any:
        return []
    union = typing.get_origin(hint) is typing.Union or type(hint).__name__ == "UnionType"
    return list(typing.get_args(hint)) if union else [hint]


def _origin(part: Any) -> Any:
    return typing.get_origin(part) or part


def _of(kind: Any, part: Any, pool: list[Any], source: random.Random, depth: int) -> Any:
    if kind is typing.Literal:
        return source.choice(typing.get_args(part))
    if kind is type(None):
        return None
    if kind is bool:
        return source.random() < 0.5
    if kind is int:
        return source.randint(*_whole_span(pool))
    if kind is float:
        return float(f"{source.uniform(*_span(pool)):.3g}")
    if kind is str:
        letters = sorted(set(itertools.islice(itertools.chain.from_iterable(pool), MOST_LETTERS))) or list(LETTERS)
        return "".join(source.choice(letters) for _ in range(_length(pool, source, 0)))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return source.choice(list(kind))
    if kind in LISTS or kind in ANY_LIST:
        return _items(kind if kind in LISTS else list, part, pool, source, depth)
    if kind in ANY_DICT:
        return _pairs(part, pool, source, depth)
    if pool:
        return copied(source.choice(pool))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, source, depth)
    raise Unknown


def _whole_span(pool: list[int]) -> tuple[int, int]:
    """The recorded range and half as much again, without crossing zero."""
    if not pool:
        return NUMBERS
    low, high = min(pool), max(pool)
    room = max(3, (high - low) // 2)
    return (
        low - room if low < 0 else max(min(low, 1), low - room),
        high + room if high > 0 or low == 0 else high,
    )


def _span(pool: list[float]) -> tuple[float, float]:
    """The same for numbers that may be small."""
    if not pool:
        return NUMBERS
    low, high = min(pool), max(pool)
    room = (high - low) / 2 or abs(high) / 2 or 1.0
    return low - room if low < 0 else max(low / 2, low - room), high + room if high > 0 or low == 0 else high


def _length(pool: list[Any], source: random.Random, depth: int) -> int:
    """A length; 0 only where an empty value was recorded, or none at all."""
    sizes = [len(one) for one in pool] or [0, 2]
    return source.randint(min(1, *sizes), max(1, min(LONGEST >> depth, max(sizes) + 2)))


def _items(kind: Any, part: Any, pool: list[Any], source: random.Random, depth: int) -> Any:
    inner = _some(one for other in pool for one in _ordered(other))
    hints = [hint for hint in typing.get_args(part) if hint is not Ellipsis]
    size = _fixed_size(pool, typing.get_args(part)) if kind is tuple else None
    if size is not None:
        hints = hints if len(hints) == size else [None] * size
        return tuple(_value(hints[at], [one[at] for one in pool], source, depth + 1) for at in range(size))
    # The order of objects, and relations between them, are unknown.
    if pool and ((not inner and not hints) or any(type(one) not in CLOSED for one in inner)):
        return copied(source.choice(pool))
    hint = hints[0] if hints else None
    return kind(_value(hint, inner, source, depth + 1) for _ in range(_length(pool, source, depth)))


def _fixed_size(pool: list[Any], hints: tuple[Any, ...]) -> int | None:
    """How many parts a tuple has, where that is always the same."""
    sizes = {len(one) for one in pool}
    if not sizes and Ellipsis not in hints:
        return len(hints)
    return sizes.pop() if len(sizes) == 1 else None


def _pairs(part: Any, pool: list[Any], source: random.Random, depth: int) -> Any:
    key, value = (*typing.get_args(part), None, None)[:2]
    keys = _some(one for other in pool for one in other)
    values = _some(one for other in pool for one in other.values())
    if not keys and key is None:
        return copied(source.choice(pool))
    return {
        _value(key, keys, source, depth + 1): _value(value, values, source, depth + 1)
        for _ in range(_length(pool, source, depth))
    }


def _record(kind: Any, source: random.Random, depth: int) -> Any:
    """An instance of a dataclass that was not recorded, made by its constructor."""
    hints = _hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    return kind(**{name: _value(hints.get(name), [], source, depth + 1) for name in names})


def _some(values: Any) -> list[Any]:
    return list(itertools.islice(values, MOST))


def _ordered(values: Any) -> Any:
    """The items of a set in an order that does not depend on hashing."""
    return sorted(values, key=repr) if isinstance(values, (set, frozenset)) else values
