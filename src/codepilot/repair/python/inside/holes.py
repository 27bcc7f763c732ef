"""A hole in a function: what is in reach there, and what is put in its place while tests run.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

# ruff: noqa: B905 - Python 3.8 has no strict zip

from __future__ import annotations

import copy
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from .enumeration import ERROR, Made, applied, joined
from .grammar import AND, COMPARE, NOT, OR, RELATIONS

NAME = "__codepilot_hole__"
MAX_STATES = 120
MAX_TURNS = 20000
MAX_SIZE = 9
"""A condition of more parts only retells the tests."""
SLOW_COPY_SEC = 0.002


class Exhausted(BaseException):
    """The hole was asked more often than any sound repair would."""


class Hole:
    """Stands in the function's globals. It watches, decides, or gives the value of an expression."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.plain = True
        self.watch("")

    def __call__(self) -> Any:
        self.turns += 1
        if self.turns > MAX_TURNS:
            raise Exhausted
        return self.act(sys._getframe(1))

    def watch(self, original: str, default: bool = False, forced: dict[int, bool] | None = None) -> None:
        """Record states. It answers as the original text does (or `default`), but where it is forced."""
        self.turns = 0
        self.copying = 0.0
        self.states: list[dict[str, Any]] = []
        self.answers: list[Any] = []
        self.repeated = False
        self.calls = 0
        self.last: Any = None
        self.default = default
        self.forced = forced or {}
        self.code: Any = compile(original, "<hole>", "eval") if original else None
        self.act = self._record

    def fill(self, code: Any) -> None:
        self.turns = 0
        self.calls = 0
        self.last = None
        self.code = code
        self.nested = any(isinstance(one, types.CodeType) for one in code.co_consts)
        self.act = self._evaluate

    def _record(self, frame: Any) -> Any:
        scope, owner = _scope(frame)
        if owner is self.last or _recursive(owner):
            self.repeated = True
        else:
            self.calls += 1
        self.last = owner
        number = self.turns - 1
        before = self._copied(scope) if len(self.states) < MAX_STATES else None
        answer = self.default if self.code is None else eval(self.code, {**self.names, **scope})
        if number in self.forced:
            answer = self.forced[number]
        if before is not None:
            self.states.append(before)
            self.answers.append(answer)
        return answer

    def _evaluate(self, frame: Any) -> Any:
        scope, _ = _scope(frame)
        if self.nested:
            return eval(self.code, {**self.names, **scope})
        return eval(self.code, self.names, scope)

    def _copied(self, scope: dict[str, Any]) -> dict[str, Any]:
        """The state as it is now. What takes long to copy, or cannot be, is kept as it is."""
        if self.plain and self.copying < SLOW_COPY_SEC:
            begun = time.perf_counter()
            try:
                return copy.deepcopy(scope)
            except Exception:  # noqa: BLE001 - a lock, a file, a generator
                self.plain = False
            finally:
                self.copying += time.perf_counter() - begun
        return {name: _shallow(value) for name, value in scope.items()}


def _shallow(value: Any) -> Any:
    if isinstance(value, (list, dict, set)) and len(value) < 1000:
        try:
            return copy.copy(value)
        except Exception:  # noqa: BLE001 - a subclass may refuse
            return value
    return value


def _scope(frame: Any) -> tuple[dict[str, Any], Any]:
    """The names that the hole sees, and the frame of the function around it."""
    scope = dict(frame.f_locals)
    while frame.f_code.co_name.startswith("<") and frame.f_back is not None:
        frame = frame.f_back
        scope = {**frame.f_locals, **scope}
    scope.pop(".0", None)
    return scope, frame


def _recursive(frame: Any) -> bool:
    above, left = frame.f_back, 30
    while above is not None and left:
        if above.f_code is frame.f_code:
            return True
        above, left = above.f_back, left - 1
    return False


class Condition:
    """A condition: in which states it holds, and in which it cannot be asked, as sets of bits."""

    __slots__ = ("errors", "size", "strength", "text", "truth")

    def __init__(self, text: str, strength: int, size: int, truth: int, errors: int) -> None:
        self.text, self.strength, self.size, self.truth, self.errors = text, strength, size, truth, errors

    def at(self, level: int) -> str:
        return self.text if self.strength >= level else f"({self.text})"


def conditions(made: list[Made], mixed: list[Made], real: int, limit: int, late: Callable[[], bool]) -> list[Condition]:
    """Conditions over the expressions, small ones first; those that say the same in every state are made once.

    The first `real` states were seen, the others only tell expressions apart.
    """
    every = (1 << real) - 1
    found: list[Condition] = []
    states = max((len(one.values) for one in made), default=0)
    kept = {(0, 0), ((1 << states) - 1, 0)}

    def add(text: str, strength: int, size: int, values: list[Any]) -> None:
        truth, errors = masks(values)
        if (truth, errors) in kept or errors & every == every:
            return
        kept.add((truth, errors))
        found.append(Condition(text, strength, size, truth & every, errors & every))

    for one in [*made, *mixed]:
        if not one.fixed and (one.kind != "number" or one.size == 1):
            add(one.text, one.strength, one.size, one.values)
            denied = [value if value is ERROR else not value for value in one.values]
            add(f"not {one.at(COMPARE)}", NOT, one.size + 1, denied)
            if any(value is None for value in one.values):
                add(f"{one.at(COMPARE + 1)} is None", COMPARE, one.size + 1, [value is None for value in one.values])
                known = [value is not None for value in one.values]
                add(f"{one.at(COMPARE + 1)} is not None", COMPARE, one.size + 1, known)
    _divided(made, add)
    for one, other in _couples(made, limit):
        if late():
            break
        for whole in joined(one, other, RELATIONS.get((one.kind, other.kind), ())):
            add(whole.text, whole.strength, whole.size, whole.values)
    _quantified(made, add)
    _typed([*mixed, *made], add)
    found.sort(key=lambda one: (one.size, len(one.text)))
    return found


def _divided(made: list[Made], add: Any) -> None:
    """Multiples of the numbers in reach."""
    whole = [one for one in made if one.kind == "number" and one.size == 1]
    for one in whole:
        for other in whole if not one.fixed else ():
            if other is not one and other.text not in ("0", "1", "-1"):
                rest = applied(lambda a, b: a % b, one.values, other.values)
                text = f"{one.at(10)} % {other.at(11)}"
                add(f"{text} == 0", COMPARE, 3, [value if value is ERROR else value == 0 for value in rest])
                add(f"{text} != 0", COMPARE, 3, [value if value is ERROR else value != 0 for value in rest])


def _couples(made: list[Made], limit: int) -> list[tuple[Made, Made]]:
    """Pairs worth comparing, small ones first; numbers one way round, as the relations come both ways."""
    by_size = sorted(made, key=lambda one: one.size)
    couples = []
    for at, one in enumerate(by_size):
        for other_at, other in enumerate(by_size):
            if at != other_at and (one.kind, other.kind) in RELATIONS and not one.fixed:
                if one.kind == other.kind == "number" and other_at < at and not other.fixed:
                    continue
                couples.append((one, other))
        if len(couples) > 20 * limit:
            break
    couples.sort(key=lambda pair: pair[0].size + pair[1].size)
    return couples[:limit]


def _quantified(made: list[Made], add: Any) -> None:
    """`any` and `all` over lists of numbers or texts, against small values in reach."""
    lists = [one for one in made if one.kind in ("list", "set") and one.size <= 2][:8]
    against = [one for one in made if one.kind in ("number", "text") and one.size == 1][:8]
    for many in lists:
        for other in against:
            for sign, act in _SIGNS:
                for word, sums in (("any", any), ("all", all)):
                    values = [_each(sums, act, row, value) for row, value in zip(many.values, other.values)]
                    size = many.size + other.size + 2
                    add(f"{word}(e {sign} {other.at(6)} for e in {many.at(OR)})", 20, size, values)


def _typed(made: list[Made], add: Any) -> None:
    """True if a name holds something of a type that some state has."""
    for one in made:
        if one.size == 1 and not one.fixed:
            for word, kind in _TYPES:
                if isinstance(one.values[0], type):
                    add(f"{one.text} == {word}", COMPARE, 3, [value is kind for value in one.values])
                    continue
                values = [value if value is ERROR else isinstance(value, kind) for value in one.values]
                if any(value is True for value in values):
                    add(f"isinstance({one.text}, {word})", 20, 3, values)
                    denied = [value if value is ERROR else not value for value in values]
                    add(f"not isinstance({one.text}, {word})", NOT, 4, denied)


_TYPES: tuple[tuple[str, Any], ...] = (
    *(("str", str), ("int", int), ("list", list), ("dict", dict), ("tuple", tuple), ("float", float), ("bool", bool)),
    *(("set", set), ("bytes", bytes)),
)
_SIGNS: tuple[tuple[str, Any], ...] = (
    ("<", lambda a, b: a < b),
    (">", lambda a, b: a > b),
    ("<=", lambda a, b: a <= b),
    (">=", lambda a, b: a >= b),
    ("==", lambda a, b: a == b),
    ("!=", lambda a, b: a != b),
)


def _each(sums: Any, act: Any, row: Any, value: Any) -> Any:
    if row is ERROR or value is ERROR:
        return ERROR
    try:
        return sums(act(one, value) for one in row)
    except Exception:  # noqa: BLE001 - not comparable
        return ERROR


def bounds(made: list[Made], wanted: int, real: int) -> Iterator[str]:
    """Constants for states that no number of the program divides as wanted: one seen, or the one value wanted."""
    for one in sorted(made, key=lambda one: one.size):
        values = one.values[:real]
        if one.fixed or one.size > 2 or one.kind not in ("number", "text") or ERROR in values:
            continue
        inside = {value for at, value in enumerate(values) if wanted >> at & 1}
        outside = {value for at, value in enumerate(values) if not wanted >> at & 1}
        if len(inside) == 1 and not inside & outside and len(repr(min(inside))) <= 12:
            yield f"{one.at(COMPARE + 1)} == {min(inside)!r}"
        if one.kind == "number" and inside and outside and all(isinstance(value, int) for value in values):
            if min(inside) > max(outside):
                yield f"{one.at(COMPARE + 1)} > {max(outside)!r}"
                yield f"{one.at(COMPARE + 1)} >= {min(inside)!r}"
            elif max(inside) < min(outside):
                yield f"{one.at(COMPARE + 1)} < {min(outside)!r}"
                yield f"{one.at(COMPARE + 1)} <= {max(inside)!r}"


def masks(values: list[Any]) -> tuple[int, int]:
    truth = errors = 0
    for at, value in enumerate(values):
        if value is ERROR:
            errors |= 1 << at
            continue
        try:
            truth |= (1 << at) if value else 0
        except Exception:  # noqa: BLE001 - a value without truth
            errors |= 1 << at
    return truth, errors


def exact(found: list[Condition], wanted: int, every: int, pairs: int) -> list[Condition]:
    """Conditions that decide as wanted in each state: single ones, then two joined by `and` or `or`."""
    answers = [one for one in found if not one.errors and one.truth == wanted]
    wide = [one for one in found if one.truth & wanted == wanted and not one.errors & wanted][:pairs]
    for at, one in enumerate(wide):
        for other in wide[at + 1 :]:
            first, second = (one, other) if not one.errors else (other, one)
            if not first.errors and not second.errors & first.truth and first.truth & second.truth == wanted:
                text = f"{first.at(NOT)} and {second.at(NOT)}"
                answers.append(Condition(text, AND, one.size + other.size + 1, wanted, 0))
    narrow = [one for one in found if one.truth & ~wanted & every == 0 and one.truth][:pairs]
    for at, one in enumerate(narrow):
        for other in narrow[at + 1 :]:
            first, second = (one, other) if not one.errors else (other, one)
            unasked = every & ~first.truth
            if not first.errors and not second.errors & unasked and first.truth | second.truth == wanted:
                text = f"{first.at(AND)} or {second.at(AND)}"
                answers.append(Condition(text, OR, one.size + other.size + 1, wanted, 0))
    answers.sort(key=lambda one: (one.size, len(one.text)))
    return [one for one in answers if one.size <= MAX_SIZE]
