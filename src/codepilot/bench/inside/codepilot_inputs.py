"""Inputs like those that a function was seen to take: same shapes, other values, and what held for all still holds.

Deterministic for a seed. Only the standard library, so that it runs wherever the judged code does.
"""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import codepilot_graphs  # type: ignore[import-not-found]  # they lie side by side inside
import codepilot_texts  # type: ignore[import-not-found]

NUMERIC = (int, float)
FEW = 3
"""How many values must agree before what they share is taken for a rule."""
TRIES = 40
_LONGEST = 40


def generate(examples: Sequence[tuple[Any, ...]], seed: int) -> Iterator[tuple[Any, ...]]:
    """Argument tuples without end; those that break a relation between the examples' arguments are left out."""
    if not examples:
        return
    chance = random.Random(seed)
    widths = {len(example) for example in examples}
    width = max(widths, key=lambda each: sum(len(example) == each for example in examples))
    alike = [example for example in examples if len(example) == width]
    if width == 0:
        return
    makers = [maker([example[index] for example in alike], chance) for index in range(width)]
    holds = relations(alike)
    rewire = codepilot_graphs.graphs(alike, chance)
    share = 1.0 if codepilot_graphs.only_graphs(alike) else 0.8
    while True:
        if rewire is not None and chance.random() < share:
            yield rewire()
            continue
        for _ in range(TRIES):
            kept = list(copy.deepcopy(chance.choice(alike)))
            changed = [index for index in range(width) if chance.random() < 0.7] or [chance.randrange(width)]
            for index in changed:
                kept[index] = makers[index]()
            if all(rule(kept) for rule in holds):
                break
        else:
            kept = list(copy.deepcopy(chance.choice(alike)))
        yield tuple(kept)


# --- one value ------------------------------------------------------------------------------------------------


def maker(values: Sequence[Any], chance: random.Random) -> Callable[[], Any]:
    """Something that makes values like these."""
    groups: dict[str, list[Any]] = {}
    for value in values:
        groups.setdefault(_kind(value), []).append(value)
    if set(groups) == {"int", "float"}:
        groups = {"float": list(values)}
    makers = [(len(group), _MAKERS[kind](group, chance)) for kind, group in groups.items()]
    if len(makers) == 1:
        return makers[0][1]
    every = [make for count, make in makers for _ in range(count)]
    return lambda: chance.choice(every)()


def _kind(value: Any) -> str:
    for kind, types in _KINDS:
        if type(value) in types:
            return kind
    return "other"


def _others(values: Sequence[Any], chance: random.Random) -> Callable[[], Any]:
    return lambda: copy.deepcopy(chance.choice(values))


def _booleans(values: Sequence[Any], chance: random.Random) -> Callable[[], Any]:
    return lambda: chance.random() < 0.5


def _integers(values: Sequence[int], chance: random.Random) -> Callable[[], Any]:
    low, high = min(values), max(values)
    margin = max(20, high - low)
    floor = low if low >= 0 else low - margin

    def make() -> int:
        draw = chance.random()
        if draw < 0.4:
            return max(floor, chance.choice(values) + chance.choice((-2, -1, 0, 0, 1, 2)))
        if draw < 0.7:
            return chance.randint(low, high)
        return chance.randint(floor, high + margin)

    return make


def _floats(values: Sequence[float], chance: random.Random) -> Callable[[], Any]:
    finite = [value for value in values if value == value and abs(value) < 1e300]
    if not finite:
        return _others(values, chance)
    low, high = min(finite), max(finite)
    margin = max(1.0, (high - low) / 2)
    floor = low if low >= 0 else low - margin
    whole = all(float(value).is_integer() for value in finite)

    def make() -> float:
        draw = chance.random()
        if draw < 0.3:
            made = chance.choice(finite) + chance.choice((-1, -0.5, 0, 0, 0.5, 1))
        elif draw < 0.5:
            made = float(round(chance.uniform(floor, high + margin)))
        else:
            made = round(chance.uniform(floor, high + margin), chance.choice((1, 2, 3)))
        made = max(floor, made)
        return float(round(made)) if whole else made

    return make


def _sequences(values: Sequence[Any], chance: random.Random) -> Callable[[], Any]:
    """Lists, tuples and sets: the elements' shapes, and their order, distinctness and length where those are rules."""
    make_item = maker([item for value in values for item in value], chance) if any(values) else None
    lengths = [len(value) for value in values]
    fixed = len(values) >= FEW and len(set(lengths)) == 1
    shortest, longest = min(lengths), max(lengths)
    rules = [rule for rule in _SEQUENCE_RULES if _is_rule(rule, values)]
    by_place = fixed and 2 <= shortest <= 4 and len({type(value) for value in values}) == 1
    makers = [maker([list(value)[i] for value in values], chance) for i in range(shortest)] if by_place else []

    def make() -> Any:
        base = chance.choice(values)
        if by_place:
            return type(base)(each() for each in makers)
        items = list(copy.deepcopy(base))
        if make_item is not None:
            if chance.random() < 0.3:
                top = min(_LONGEST, longest + 3)
                items = [make_item() for _ in range(chance.randint(min(shortest, top), top))]
            else:
                items = _edited(items, make_item, chance, shortest, fixed)
        if fixed and len(items) != shortest:
            items = list(copy.deepcopy(base))
        for _, _, mend in rules:
            items = mend(items)
        items = items if len(items) >= shortest else list(copy.deepcopy(base))
        try:
            return type(base)(items)
        except TypeError:
            return copy.deepcopy(base)

    return make


def _edited(items: list[Any], make: Callable[[], Any], chance: random.Random, shortest: int, fixed: bool) -> list[Any]:
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(items) + 1)
        draw = chance.random()
        if draw < 0.35 and items:
            items[min(place, len(items) - 1)] = make()
        elif draw < 0.6 and not fixed and len(items) < _LONGEST:
            items.insert(place, copy.deepcopy(chance.choice(items)) if items and chance.random() < 0.3 else make())
        elif draw < 0.8 and not fixed and len(items) > shortest:
            items.pop(min(place, len(items) - 1))
        else:
            chance.shuffle(items)
    return items


def _mappings(values: Sequence[dict[Any, Any]], chance: random.Random) -> Callable[[], Any]:
    keys = [key for value in values for key in value]
    if not keys:
        return dict
    make_key, make_value = maker(keys, chance), maker([item for value in values for item in value.values()], chance)
    fewest = min(len(value) for value in values)

    def make() -> dict[Any, Any]:
        made = dict(copy.deepcopy(chance.choice(values)))
        for _ in range(chance.randint(1, 3)):
            draw = chance.random()
            if draw < 0.4 and made:
                made[chance.choice(list(made))] = make_value()
            elif draw < 0.7 and len(made) > fewest:
                made.pop(chance.choice(list(made)))
            else:
                made[make_key()] = make_value()
        return made

    return make


# --- order and distinctness -----------------------------------------------------------------------------------


def _sorted(items: Sequence[Any]) -> bool:
    try:
        return all(left <= right for left, right in itertools.pairwise(items))
    except TypeError:
        return False


def _in_order(items: list[Any]) -> list[Any]:
    try:
        return sorted(items)
    except TypeError:
        return items


def _distinct(items: Sequence[Any]) -> bool:
    return all(item not in items[:place] for place, item in enumerate(items))


def _once(items: list[Any]) -> list[Any]:
    return [item for place, item in enumerate(items) if item not in items[:place]]


def _equally_long(items: Sequence[Any]) -> bool:
    return all(isinstance(item, list | tuple | str) for item in items) and len({len(item) for item in items}) <= 1


def _cut(items: list[Any]) -> list[Any]:
    lengths = [len(item) for item in items if isinstance(item, list | tuple | str)]
    return [item[: min(lengths)] for item in items] if len(lengths) == len(items) and lengths else items


_SEQUENCE_RULES: list[tuple[int, Callable[[Sequence[Any]], bool], Callable[[list[Any]], list[Any]]]] = [
    (2, _equally_long, _cut),
    (2, _distinct, _once),
    (2, _sorted, _in_order),
    (2, lambda items: _sorted(items[::-1]), lambda items: _in_order(items)[::-1]),
]


def _is_rule(rule: tuple[int, Callable[[Sequence[Any]], bool], Any], values: Sequence[Any]) -> bool:
    """True if it holds for all that could break it, and those are not too few to tell."""
    telling = [list(value) for value in values if isinstance(value, list | tuple) and len(value) >= rule[0]]
    return len(telling) >= FEW and all(rule[1](value) for value in telling)


# --- relations between arguments ------------------------------------------------------------------------------


def relations(examples: Sequence[tuple[Any, ...]]) -> list[Callable[[Sequence[Any]], bool]]:
    """Orders between arguments' values, lengths and extremes, and memberships, that hold for every example."""
    found: list[Callable[[Sequence[Any]], bool]] = []
    if len(examples) < FEW:
        return found
    terms = [(index, term) for index in range(len(examples[0])) for term in _TERMS]
    for index, term in terms:
        for other_index, other_term in terms:
            if index < other_index:
                for relation in _ORDERS:
                    rule = _ordered(index, term, other_index, other_term, relation)
                    if _measurable(examples, index, term, other_index, other_term) and all(map(rule, examples)):
                        found.append(rule)
                        break
    for index in range(len(examples[0])):
        for other in range(len(examples[0])):
            if index != other:
                rule = _member(index, other)
                if all(map(rule, examples)):
                    found.append(rule)
    return found


def _ordered(
    index: int, term: Callable[[Any], Any], other: int, other_term: Callable[[Any], Any], relation: Callable[..., bool]
) -> Callable[[Sequence[Any]], bool]:
    def rule(arguments: Sequence[Any]) -> bool:
        left, right = term(arguments[index]), other_term(arguments[other])
        return left is None or right is None or relation(left, right)

    return rule


def _measurable(
    examples: Sequence[tuple[Any, ...]],
    index: int,
    term: Callable[[Any], Any],
    other: int,
    other_term: Callable[..., Any],
) -> bool:
    both = [term(each[index]) is not None and other_term(each[other]) is not None for each in examples]
    return sum(both) >= FEW


def _member(index: int, other: int) -> Callable[[Sequence[Any]], bool]:
    def rule(arguments: Sequence[Any]) -> bool:
        try:
            return isinstance(arguments[other], list | tuple | set | dict) and arguments[index] in arguments[other]
        except TypeError:
            return False

    return rule


def _number(value: Any) -> Any:
    return value if type(value) in NUMERIC else None


def _length(value: Any) -> Any:
    return len(value) if isinstance(value, list | tuple | set | dict | str) else None


def _numbers(value: Any) -> list[Any]:
    return [item for item in value if type(item) in NUMERIC] if isinstance(value, list | tuple | set) else []


_TERMS: list[Callable[[Any], Any]] = [
    _number,
    _length,
    lambda value: max(_numbers(value), default=None),
    lambda value: min(_numbers(value), default=None),
]
_ORDERS: list[Callable[[Any, Any], bool]] = [
    lambda left, right: left == right,
    lambda left, right: left < right,
    lambda left, right: left > right,
    lambda left, right: left <= right,
    lambda left, right: left >= right,
]
_KINDS = (
    ("bool", (bool,)),
    ("int", (int,)),
    ("float", (float,)),
    ("text", (str,)),
    ("sequence", (list, tuple, set, frozenset)),
    ("mapping", (dict,)),
)
_MAKERS: dict[str, Callable[[Sequence[Any], random.Random], Callable[[], Any]]] = {
    "bool": _booleans,
    "int": _integers,
    "float": _floats,
    "text": codepilot_texts.texts,
    "sequence": _sequences,
    "mapping": _mappings,
    "other": _others,
}
