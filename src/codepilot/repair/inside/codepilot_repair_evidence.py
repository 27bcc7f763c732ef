"""What speaks for a candidate beside its tests: examples of the documentation, and what it does on further inputs.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import copy
import hashlib
import random
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_CALLS = 24
VARIANTS = 6
CALL_SEC = 0.05
MAX_TEXT = 400


class Calls:
    """The arguments that a function is called with while something runs."""

    def __init__(self, codes: set[Any]) -> None:
        self.codes = codes
        self.found: list[tuple[Any, ...]] = []
        self.seen: set[str] = set()

    def __enter__(self) -> Calls:
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _event(self, frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code not in self.codes or len(self.found) >= MOST_CALLS:
            return
        names = code.co_varnames[: code.co_argcount]
        try:
            values = tuple(copy.deepcopy(frame.f_locals[name]) for name in names)
            key = repr(values)[:MAX_TEXT]
        except Exception:  # noqa: BLE001 - what cannot be copied or told apart is no input
            return
        if key not in self.seen:
            self.seen.add(key)
            self.found.append(values)


def varied(inputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The inputs, and each with one argument changed a little; the same ones every time."""
    source = random.Random(0)
    found = list(inputs)
    for values in inputs:
        for _ in range(VARIANTS if values else 0):
            at = source.randrange(len(values))
            changed = _changed(values[at], [other[at] for other in inputs if len(other) > at], source)
            found.append((*values[:at], changed, *values[at + 1 :]))
    return found


def _changed(value: Any, pool: list[Any], source: random.Random) -> Any:
    """A neighbour of the same type, of the same sign, made of the same letters."""
    if isinstance(value, bool):
        return value
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
    return copy.deepcopy(value)


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


def agreeing(examples: list[list[str]], names: dict[str, Any]) -> int:
    """How many of the documentation's examples hold."""
    held = 0
    for call, want in examples:
        ended, value = _timed(lambda call=call: eval(call, dict(names)))  # type: ignore[misc]
        held += ended == "returned" and _equal(value, want)
    return held


def _equal(value: Any, want: str) -> bool:
    try:
        return bool(value == eval(want, {}) or repr(value) == want)
    except Exception:  # noqa: BLE001 - values that cannot be compared do not agree
        return False


def behaviour(function: Callable[..., Any], inputs: list[tuple[Any, ...]]) -> str:
    """What the function makes of the inputs, told as one short name."""
    digest = hashlib.sha256()
    for values in inputs:
        given = copy.deepcopy(values)
        ended, value = _timed(lambda given=given: function(*given))  # type: ignore[misc]
        try:
            text = repr(list(value) if hasattr(value, "__next__") else value)[:MAX_TEXT]
        except Exception as error:  # noqa: BLE001 - a result that cannot be shown is known by its error
            text = type(error).__name__
        digest.update(f"{ended}:{text}\0".encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


def _timed(action: Callable[[], Any]) -> tuple[str, Any]:
    signal.setitimer(signal.ITIMER_PROF, CALL_SEC)
    try:
        return "returned", action()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - how it ends is what is asked
        return "raised", type(error).__name__
    except BaseException as stopped:  # noqa: BLE001 - out of steps
        return "stopped", type(stopped).__name__
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
