"""Bottom-up enumerative synthesis with observational equivalence: small expressions over recorded states, each
behaviour once.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

# ruff: noqa: B905 - Python 3.8 has no strict zip

from __future__ import annotations

import ast
import copy
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .grammar import ADD, ATOM, BINARIES, COMPARE, MAX_LENGTH, MULTIPLY, UNARIES, UNARY

ERROR: Any = type("Error", (), {"__repr__": lambda self: "<error>"})()
"""The value of an expression that raised."""
LARGE = 1 << 256
MAX_TEXT = 90
ALIKE = 0.25
"""How often a made-up state gives two names the same value."""


class Made:
    """An expression and what it gives in each state. `size` counts its parts, `fixed` ones have no name in them."""

    __slots__ = ("fixed", "kind", "size", "strength", "text", "values")

    def __init__(self, text: str, strength: int, size: int, values: list[Any], fixed: bool = False) -> None:
        self.text, self.strength, self.size, self.values = text, strength, size, values
        self.kind = ""
        self.fixed = fixed

    def at(self, level: int) -> str:
        """Its text, in parentheses if it binds looser than `level`."""
        return self.text if self.strength >= level else f"({self.text})"


def kind_of(values: Sequence[Any]) -> str:
    """One word for what all values are; empty if they differ."""
    kinds = {_kind(value) for value in values if value is not ERROR}
    kinds = kinds - {"none"} or kinds
    return kinds.pop() if len(kinds) == 1 else ""


def _kind(value: Any) -> str:
    if value is None:
        return "none"
    for kind, types in _KINDS:
        if isinstance(value, types):
            return kind
    return "callable" if callable(value) else "thing"


_KINDS: tuple[tuple[str, Any], ...] = (
    ("bool", bool),
    ("number", (int, float)),
    ("text", str),
    ("list", (list, tuple)),
    ("dict", dict),
    ("set", (set, frozenset)),
)


class ExpressionBank:
    """Expressions over the states, small ones first. `limit` bounds how many are made for each size."""

    def __init__(
        self, states: Sequence[dict[str, Any]], names: dict[str, Any], late: Callable[[], bool], limit: int
    ) -> None:
        self.states = states
        self.names = names
        self.late = late
        self.limit = limit
        self.seen: set[Any] = set()
        self.made: list[Made] = []
        self.mixed: list[Made] = []
        """Leaves that hold now this, now that, or types."""
        self.conditions: Any = None

    def leaves(self, atoms: Sequence[str], attributes: Sequence[str], stale: Sequence[str] = ()) -> None:
        """Names that hold something in every state, their attributes, then the given texts; none that are stale."""
        first = self.states[0] if self.states else {}
        known = [name for name in first if name not in stale and all(name in state for state in self.states)]
        for name in known:
            values = [state[name] for state in self.states]
            if kind_of(values) == "thing":
                for attribute in attributes:
                    given = [_attribute(value, attribute) for value in values]
                    self.add(Made(f"{name}.{attribute}", ATOM, 1, given))
            if name not in ("self", "cls"):
                self.add(Made(name, ATOM, 1, values))
        for text in atoms:
            made = self.evaluated(text, stale)
            if made is not None:
                self.add(made)
        for one in [one for one in self.made if one.kind == "dict"]:
            self.add(Made(f"{one.at(ATOM)}.values()", ATOM, 1, applied(lambda x: list(x.values()), one.values)))

    def evaluated(self, text: str, stale: Sequence[str] = ()) -> Made | None:
        """A text of the program in each state, on a copy where it may change something."""
        try:
            tree = ast.parse(text, mode="eval")
            code = compile(tree, "<leaf>", "eval")
        except (SyntaxError, ValueError):
            return None
        if stale and any(isinstance(node, ast.Name) and node.id in stale for node in ast.walk(tree)):
            return None
        values = []
        for state in self.states:
            try:
                scope = {**self.names, **(copy.deepcopy(state) if "(" in text else state)}
                values.append(eval(code, scope))
            except Exception:  # noqa: BLE001 - it means nothing in this state
                values.append(ERROR)
        named = any(isinstance(node, ast.Name) and node.id in self.states[0] for node in ast.walk(tree))
        return Made(text, _strength(tree.body), 1, values, fixed=not named)

    def add(self, made: Made) -> bool:
        """Keep it if no expression so far gives the same values in all states."""
        key = tuple([_key(value) for value in made.values])
        if key in self.seen or len(made.text) > MAX_TEXT:
            return False
        self.seen.add(key)
        made.kind = kind_of(made.values)
        if made.kind in ("", "callable"):
            types = made.kind and all(isinstance(value, type) for value in made.values)
            self.mixed += [made] if made.size == 1 and (types or not made.kind) else []
            return False
        self.made.append(made)
        return True

    def grow(self, depth: int) -> list[Made]:
        """Everything up to this depth, within the limit."""
        level = list(self.made)
        first = list(self.made)
        for _ in range(depth):
            before = len(self.made)
            for made in itertools.islice(self._larger(level, first), self.limit):
                self.add(made)
                if self.late():
                    return self.made
            level = self.made[before:]
        return self.made

    def around(self, text: str) -> list[Made]:
        """The text itself taken further by one step: alone, and with each leaf on either side."""
        own = self.evaluated(text)
        if own is None:
            return []
        own.kind = kind_of(own.values)
        leaves = [one for one in self.made if one.size == 1]
        found, seen = [], set()
        for made in self._larger([own], leaves):
            key = tuple([_key(value) for value in made.values])
            made.kind = kind_of(made.values) if key not in seen and key not in self.seen else ""
            seen.add(key)
            if made.kind:
                found.append(made)
        return found

    def _larger(self, level: Sequence[Made], first: Sequence[Made]) -> Iterator[Made]:
        for one in level:
            if one.fixed:
                continue
            for form, need, strength, act in UNARIES.get(one.kind, ()):
                yield Made(form.format(one.at(need)), strength, one.size + 1, applied(act, one.values))
        both = [(one, other) for one in level for other in first]
        if level is not first:
            both += [(other, one) for one in level for other in first if one not in first]
        both.sort(key=lambda pair: pair[0].size + pair[1].size)
        for one, other in both:
            if one.fixed and other.fixed:
                continue
            forms = BINARIES.get((one.kind, other.kind), ())
            if one.fixed and one.kind in ("text", "list"):
                forms = [form for form in forms if form[0] in ("{} + {}", "{}.join({})")]
            yield from joined(one, other, forms)


def _strength(node: ast.expr) -> int:
    """How tightly an expression of the program binds; 0 where that would take long to say."""
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return ADD
        return MULTIPLY if isinstance(node.op, (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)) else 0
    if isinstance(node, ast.Compare):
        return COMPARE
    closed = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.List, ast.Dict, ast.Set, ast.ListComp)
    if isinstance(node, ast.UnaryOp):
        return UNARY if isinstance(node.op, ast.USub) else 0
    return ATOM if isinstance(node, closed) else 0


def joined(one: Made, other: Made, forms: Sequence[Any]) -> Iterator[Made]:
    for form, left, right, strength, act in forms:
        values = applied(act, one.values, other.values)
        yield Made(form.format(one.at(left), other.at(right)), strength, one.size + other.size + 1, values)


def applied(act: Callable[..., Any], *columns: list[Any]) -> list[Any]:
    """The operation's result in each state."""
    given = []
    for row in zip(*columns):
        value = ERROR
        if row[0] is not ERROR and row[-1] is not ERROR:
            try:
                value = act(*row)
                kind = value.__class__
                if (kind is int and not -LARGE < value < LARGE) or (kind in _LONG and len(value) > MAX_LENGTH):
                    value = ERROR
            except Exception:  # noqa: BLE001 - it means nothing in this state
                value = ERROR
        given.append(value)
    return given


_LONG = (str, list, tuple)


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name)
    except Exception:  # noqa: BLE001 - not every object has it
        return ERROR


def _key(value: Any) -> Any:
    """Tells values apart as the program would."""
    if isinstance(value, (int, float, str, bool)) or value is None or value is ERROR:
        return (value.__class__, value)
    if isinstance(value, (list, tuple, dict, set, frozenset, range)):
        return (value.__class__, repr(value)[:200])
    return (value.__class__, id(value))


def shaken(states: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """States like those seen, with other numbers, letters and elements; the same ones every time."""
    source = random.Random(0)
    made = []
    for at in range(count if states else 0):
        state = {name: _shaken(value, source) for name, value in states[at % len(states)].items()}
        for name, value in list(state.items()):
            alike = [other for other in state.values() if type(other) is type(value)]
            if source.random() < ALIKE:
                state[name] = source.choice(alike)
        made.append(state)
    return made


def _shaken(value: Any, source: random.Random) -> Any:
    if isinstance(value, bool):
        return source.random() < 0.5
    if isinstance(value, (int, float)):
        return value + source.choice((-2, -1, 1, 2, 3, 5, 7, 12))
    if isinstance(value, str):
        letters = [*value, source.choice("aB3 ")]
        source.shuffle(letters)
        return "".join(letters)
    if type(value) in (list, tuple) and value:
        items = [_shaken(one, source) for one in value[:20]] + [source.choice(value)]
        source.shuffle(items)
        return type(value)(items)
    return value
