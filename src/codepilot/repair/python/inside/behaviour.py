"""Differential behaviour: the results of a function on inputs like those of the tests, and documented examples.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import itertools
import random
import re
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any

MOST_CALLS = 16
VARIANTS = 6
FEWEST = 48
CRASHES = (
    *("TypeError", "AttributeError", "NameError", "UnboundLocalError", "IndexError", "KeyError"),
    *("RecursionError", "ZeroDivisionError", "AssertionError"),
)
CRASHED = ("stopped:", *(f"raised:{name!r}" for name in CRASHES))
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)
MOST_STAND_INS = 64
CALL_SEC = 0.05
OUTCOMES_SEC = 0.3
MAX_TEXT = 400
MOST_ITEMS = 50
DEEPEST = 3
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Calls:
    """The arguments that a function is called with while something runs."""

    def __init__(self, codes: set[Any]) -> None:
        self.codes = codes
        self.found: list[tuple[Any, ...]] = []
        self.seen: set[str] = set()
        self.busy = False

    def __enter__(self) -> Calls:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or self.busy or code not in self.codes or len(self.found) >= MOST_CALLS:
            return
        self.busy = True
        try:
            values = tuple(copied(frame.f_locals[name]) for name in parameters(code))
            key = described(values)
        except Exception:  # noqa: BLE001 - values without a description are no input
            return
        finally:
            self.busy = False
        if key not in self.seen:
            self.seen.add(key)
            self.found.append(values)


def parameters(code: Any) -> tuple[str, ...]:
    """The names that arguments go by: plain ones, named ones, then what gathers the rest."""
    many = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return tuple(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + many])


def copied(value: Any) -> Any:
    """A copy as deep as the value allows; what cannot be copied stands for itself."""
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 - locks, modules and open files are shared by all candidates alike
        return value


def called(function: Any, values: tuple[Any, ...]) -> Any:
    """Call with what `parameters` names, in that order; a generator is followed for a while."""
    code = function.__code__
    plain, named = code.co_argcount, code.co_kwonlyargcount
    rest = list(values[plain + named :])
    extra = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ()
    more = rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else {}
    keywords = {name: values[plain + at] for at, name in enumerate(code.co_varnames[plain : plain + named])}
    value = function(*values[:plain], *extra, **keywords, **more)
    return list(itertools.islice(value, MOST_ITEMS)) if hasattr(value, "__next__") else value


def described(value: Any, depth: int = 0) -> str:
    """A value as text; an object whose repr is only an address is described by its attributes."""
    kind: Any = type(value)
    name: str = kind.__name__
    if depth < DEEPEST and kind in (list, tuple, set, frozenset):
        inner = [described(one, depth + 1) for one in itertools.islice(value, MOST_ITEMS)]
        return name + "(" + ",".join(inner if kind in (list, tuple) else sorted(inner)) + ")"
    if depth < DEEPEST and kind is dict:
        pairs = itertools.islice(value.items(), MOST_ITEMS)
        return "{" + ",".join(described(key, depth + 1) + ":" + described(one, depth + 1) for key, one in pairs) + "}"
    text = repr(value)[:MAX_TEXT]
    if depth < DEEPEST and kind.__repr__ is object.__repr__ and hasattr(value, "__dict__"):
        return name + described(dict(vars(value)), depth + 1)
    return ADDRESS.sub("", text)


def varied(inputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The inputs, and each with one argument changed a little; the same ones every time."""
    source = random.Random(0)
    found = list(inputs)
    for values in inputs:
        for _ in range(max(VARIANTS, FEWEST // len(inputs)) if values else 0):
            at = source.randrange(len(values))
            changed = _neighbour(values[at], [other[at] for other in inputs if len(other) > at], source)
            found.append((*values[:at], changed, *values[at + 1 :]))
    return found


def with_other_functions(inputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The inputs with other functions in place of those that the tests pass, which hardly ever vary in tests."""
    found = []
    for values in inputs[:MOST_CALLS]:
        for at, value in enumerate(values):
            if isinstance(value, FUNCTIONS):
                found += [(*values[:at], other, *values[at + 1 :]) for other in _stand_ins(value)]
    return found[:MOST_STAND_INS]


def _stand_ins(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Functions of the same arity: with another result, the arguments turned round, or one of the arguments."""
    return [
        lambda *given, **named: _moved(function(*given, **named)),
        lambda *given, **named: function(*given[::-1], **named),
        lambda *given, **named: given[0],
        lambda *given, **named: given[-1],
    ]


def _moved(value: Any) -> Any:
    """Another value of the same type, where the type is simple."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return 3 * value + 1
    return 2 * value if isinstance(value, (str, list, tuple)) else value


def _neighbour(value: Any, pool: list[Any], source: random.Random) -> Any:
    try:
        return _changed(value, pool, source)
    except Exception:  # noqa: BLE001 - whatever the project's own objects do when they are touched
        return copied(value)


def _changed(value: Any, pool: list[Any], source: random.Random, depth: int = 0) -> Any:
    """A neighbour of the same type, of the same sign, made of the same letters."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        moved = value + source.choice((-2, -1, 1, 2, 3, 7))
        return moved if (moved < 0) == (value < 0) else value + 1 if value >= 0 else value - 1
    if isinstance(value, float):
        return value * source.choice((0.5, 1.5, 2.0))
    if isinstance(value, str):
        letters = sorted({letter for other in pool if isinstance(other, str) for letter in other}) or ["a"]
        return "".join(_edited(list(value), lambda: source.choice(letters), source))
    if isinstance(value, (list, tuple)):
        inner = [one for other in pool if isinstance(other, (list, tuple)) for one in other] or [0]
        items = _edited(list(value), lambda: copy.deepcopy(source.choice(inner)), source)
        if items and source.random() < 0.3:
            at = source.randrange(len(items))
            items[at] = _changed(items[at], inner, source)
        return type(value)(items) if type(value) in (list, tuple) else items
    if isinstance(value, dict) and value:
        return _with_other_item(copied(value), source)
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict) and not isinstance(value, (type, types.ModuleType, types.FunctionType)) and depth < 2:
        return _with_other_part(copied(value), source, depth)
    return copied(value)


def _with_other_item(pairs: Any, source: random.Random) -> Any:
    name = source.choice(sorted(pairs, key=repr))
    if source.random() < 0.3:
        del pairs[name]
    else:
        pairs[name] = _changed(pairs[name], list(pairs.values()), source)
    return pairs


def _with_other_part(thing: Any, source: random.Random, depth: int) -> Any:
    """The same object in a state near to its own."""
    parts = [name for name, part in sorted(vars(thing).items()) if part is not None and not callable(part)]
    if parts:
        name = source.choice(parts)
        vars(thing)[name] = _changed(vars(thing)[name], [], source, depth + 1)
    return thing


def _edited(items: list[Any], more: Callable[[], Any], source: random.Random) -> list[Any]:
    at, way = source.randint(0, len(items)), source.random()
    if way < 0.3 and items:
        del items[min(at, len(items) - 1)]
    elif way < 0.6 and items:
        items[min(at, len(items) - 1)] = more()
    elif way < 0.75:
        source.shuffle(items)
    else:
        items.insert(at, more())
    return items


def agreeing(
    examples: list[list[str]], names: dict[str, Any], reset: Callable[[], None] = lambda: None
) -> list[bool | None]:
    """True if each of the documentation's examples holds; None where it cannot be tried here.

    `reset` is called before each, so that no call uses up the budget of the next.
    """
    found: list[bool | None] = []
    for call, want in examples:
        ended, value = timed(lambda call=call: eval(call, dict(names)), reset)  # type: ignore[misc]
        untried = ended == "raised" and value in ("NameError", "ImportError", "ModuleNotFoundError")
        found.append(None if untried else ended == "returned" and _equal(value, want))
    return found


def _equal(value: Any, want: str) -> bool:
    try:
        return bool(value == eval(want, {}) or repr(value) == want)
    except Exception:  # noqa: BLE001 - values that cannot be compared do not agree
        return False


def outcomes(
    function: Callable[..., Any], inputs: list[tuple[Any, ...]], reset: Callable[[], None] = lambda: None
) -> list[str]:
    """The function's behaviour on each input: how it ends, its result, and its arguments afterwards.

    Where that takes long, it is known for the first inputs only.
    """
    found: list[str] = []
    until = time.process_time() + OUTCOMES_SEC
    for values in inputs:
        if found and time.process_time() > until:
            return found
        given = tuple(copied(value) for value in values)
        ended, value = timed(lambda given=given: called(function, given), reset)  # type: ignore[misc]
        try:
            text = described(value)
        except Exception as error:  # noqa: BLE001 - a result that cannot be shown is known by its error
            text = type(error).__name__
        try:
            left = described(given) if ended == "returned" else ""
        except Exception as error:  # noqa: BLE001 - as above
            left = type(error).__name__
        kind = f"{kind_of(type(value))}:" if ended == "returned" else ""
        found.append(f"{ended}:{kind}{text}:{left}")
    return found


def digest(outcomes: list[str]) -> str:
    """One short name for a behaviour."""
    return hashlib.sha256("\0".join(outcomes).encode("utf-8", "replace")).hexdigest()[:16]


def changes(before: list[str], after: list[str]) -> dict[str, float]:
    """The share of inputs that were answered and still are alike, and of those whose result became a crash."""
    both = [(old, new) for old, new in zip(before, after) if not old.startswith(CRASHED)]  # noqa: B905 - Python 3.8
    results = [new for old, new in both if old.startswith("returned:")]
    return {
        "unchanged": round(sum(old == new for old, new in both) / len(both), 3) if both else 1.0,
        "new_crashes": crash_rate(results),
    }


def kinds(outcomes: list[str]) -> list[str]:
    """The kind of each result."""
    return [one.split(":", 2)[1] for one in outcomes if one.startswith("returned:")]


def kind_of(kind: Any) -> str:
    """A type by its name; numbers are of one kind."""
    return "number" if kind in (int, float, complex) else str(getattr(kind, "__name__", ""))


def new_types(outcomes: list[str], known: set[str]) -> float:
    """The share of results that are of no kind that is known of this function."""
    found = kinds(outcomes) if known else []
    return round(sum(kind not in known for kind in found) / len(found), 3) if found else 0.0


def crash_rate(outcomes: list[str]) -> float:
    """The share of inputs that end in a typical programming error, or not at all."""
    return round(sum(one.startswith(CRASHED) for one in outcomes) / len(outcomes), 3) if outcomes else 0.0


def timed(action: Callable[[], Any], reset: Callable[[], None]) -> tuple[str, Any]:
    reset()
    signal.setitimer(signal.ITIMER_PROF, CALL_SEC, CALL_SEC)
    try:
        return "returned", action()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - how it ends is what is asked
        return "raised", type(error).__name__
    except BaseException as stopped:  # noqa: BLE001 - out of steps
        return "stopped", type(stopped).__name__
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
