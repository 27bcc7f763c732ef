"""Recorded calls of the project's functions: their callers, arguments and outcomes, and values as source.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import dis
import enum
import sys
import types
from typing import Any

from .behaviour import varied

MAX_SEEDS = 24
MAX_KNOWN = 400
MAX_CALLS = 20000
MAX_MIXED = 300
MAX_TEXT = 160
MAX_SHOWN = 4000
MAX_FLOAT = 8
PLAIN: Any = object


class Subject:
    """A function of the project that can be called by its name, and the inputs that tests gave it."""

    def __init__(self, function: Any, public: Any) -> None:
        self.function = function
        self.public = public
        code = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        self.names = list(code.co_varnames[:count])
        self.places = code.co_argcount
        self.extras = code.co_varnames[count : count + bool(code.co_flags & 4) + bool(code.co_flags & 8)]
        self.seeds: list[tuple[Any, ...]] = []
        self.known: set[str] = set()
        self.calls = 0
        self.callers: set[str] = set()
        self.reaches = False
        """True if the repaired function runs while this one does."""

    def note(self, frame: Any) -> None:
        """One call as it begins; values that cannot be copied or shown are no input."""
        self.calls += 1
        if len(self.known) >= MAX_KNOWN or self.calls > MAX_CALLS:
            return
        try:
            here = frame.f_locals
            if any(here[name] for name in self.extras):
                return
            values = tuple(here[name] for name in self.names)
            key = repr(values)
            if key not in self.known and len(key) <= MAX_SHOWN:
                self.known.add(key)
                if len(self.seeds) < MAX_SEEDS:
                    self.seeds.append(copy.deepcopy(values))
        except Exception:  # noqa: BLE001 - values of the project's may fail at anything
            return

    def call(self, values: tuple[Any, ...]) -> Any:
        getattr(self.public, "cache_clear", lambda: None)()
        named = {name: values[at] for at, name in enumerate(self.names) if at >= self.places}
        return self.public(*values[: self.places], **named)

    def arguments(self, values: tuple[Any, ...], as_source: Any) -> str:
        """The call's arguments as source: optional ones by name, and without those that equal their defaults."""
        function = self.function
        defaults = function.__defaults__ or ()
        first = max(self.places - len(defaults), getattr(function.__code__, "co_posonlyargcount", 0))
        optional = dict(function.__kwdefaults__ or {})
        optional.update((self.names[self.places - len(defaults) + at], value) for at, value in enumerate(defaults))
        given = [as_source(value) for value in values[:first]]
        for name, value in list(zip(self.names, values))[first:]:  # noqa: B905 - Python 3.8 knows no other
            text = as_source(value)
            if name not in optional or text != _shown(optional[name], as_source):
                given.append(name + "=" + text)
        return ", ".join(given)


def mixed(inputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Inputs made of two: an argument as large as another of the same type, or as in another call."""
    found: list[tuple[Any, ...]] = []
    for values in inputs:
        for at, value in enumerate(values):
            others = [other[at] for other in inputs if len(other) > at] + list(values)
            for other in others:
                if type(other) is type(value) and len(found) < MAX_MIXED:
                    found.append((*values[:at], other, *values[at + 1 :]))
    return found


def rebuilt(inputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Inputs in which a record, or one in a list, has another value in one of its fields."""
    found: list[tuple[Any, ...]] = []
    for values in inputs:
        for at, value in enumerate(values):
            inner = [value] if type(value) is not list else value
            for place, record in enumerate(inner):
                for other in _records(record) if len(found) < MAX_MIXED else ():
                    changed = other if inner is not value else [*inner[:place], other, *inner[place + 1 :]]
                    found.append((*values[:at], changed, *values[at + 1 :]))
    return found


def _records(value: Any) -> list[Any]:
    """Others of the same class, as its own constructor makes them of other fields."""
    kind: Any = type(value)
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.init]
    else:
        names = list(getattr(value, "_fields", ())) if isinstance(value, tuple) else []
    if not names:
        return []
    found = []
    for fields in varied([tuple(getattr(value, name) for name in names)])[1:]:
        try:
            found.append(kind(**{name: fields[at] for at, name in enumerate(names)}))
        except Exception:  # noqa: BLE001 - a record may refuse what it is given
            return found
    return found


def _shown(value: Any, as_source: Any) -> str | None:
    try:
        return str(as_source(value))
    except ValueError:
        return None


def as_source(value: Any) -> str:
    """The value as source, or ValueError."""
    kind = type(value)
    if value is None or kind in (bool, int, str, bytes):
        text = repr(value)
    elif kind is float:
        text = repr(value)
        if len(text) > MAX_FLOAT or text.strip("-") in ("inf", "nan"):
            raise ValueError(text)
    elif kind is list:
        text = "[" + ", ".join(map(as_source, value)) + "]"
    elif kind is tuple:
        text = "(" + ", ".join(map(as_source, value)) + ("," if len(value) == 1 else "") + ")"
    elif kind is dict:
        text = "{" + ", ".join(as_source(key) + ": " + as_source(item) for key, item in value.items()) + "}"
    elif kind in (set, frozenset):
        inner = "{" + ", ".join(sorted(map(as_source, value))) + "}"
        inner = inner if value else ""
        text = (inner or "set()") if kind is set else "frozenset(" + inner + ")"
    elif isinstance(value, enum.Enum):
        text = kind.__name__ + "." + value.name
    else:
        text = repr(value)
        if kind.__eq__ is PLAIN.__eq__ or not text.startswith(kind.__name__ + "("):
            raise ValueError(text[:MAX_TEXT])
    if len(text) > MAX_TEXT:
        raise ValueError(text[:MAX_TEXT])
    return text


class Outcome:
    """How a call ended."""

    def __init__(self, ended: str, value: Any, own: bool = False) -> None:
        self.ended = ended
        self.value = value
        self.own = own
        """True if the function raised it by a `raise` of its own."""

    def same(self, other: Outcome) -> bool:
        if self.ended != other.ended:
            return False
        if self.ended == "raised":
            return type(self.value) is type(other.value)
        return type(self.value) is type(other.value) and equal(self.value, other.value)


def equal(one: Any, other: Any) -> bool:
    return bool(one == other)


def differs(before: Outcome, after: Outcome) -> bool:
    """True if a test could tell them apart, and the second is meant: a value, or an exception of the function's own."""
    if after.ended == "returned":
        return before.ended == "raised" or not equal(before.value, after.value)
    same = before.ended == "raised" and isinstance(before.value, type(after.value))
    return after.ended == "raised" and after.own and not same


def raised_by(error: BaseException, codes: set[Any]) -> bool:
    """True if a `raise` in one of the functions, not something that it called or tried, raised this."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or place.tb_frame.f_code not in codes or isinstance(error, AssertionError):
        return False
    steps = dis.get_instructions(place.tb_frame.f_code)
    return any(step.offset == place.tb_lasti and step.opname == "RAISE_VARARGS" for step in steps)


def bindings(module: Any, name: str, thing: Any) -> list[str]:
    """By what expressions a module has something."""
    bound = []
    for here, value in list(vars(module).items()):
        if value is thing:
            bound.append(here)
        elif isinstance(value, types.ModuleType) and vars(value).get(name) is thing:
            bound.append(here + "." + name)
    return bound


class Names:
    """The classes that names in a test file and in the project's functions refer to."""

    def __init__(self, module: Any, functions: list[Any]) -> None:
        self.module = module
        self.places = [vars(module), *(function.__globals__ for function in functions)]
        self.classes: dict[str, Any] = {}

    def described(self, subject: Subject) -> dict[str, Any]:
        thing = self.thing(subject.function.__name__, subject.public, subject.function.__module__)
        return {"parameters": subject.names[: subject.places], **thing}

    def thing(self, name: str, thing: Any, module: str) -> dict[str, Any]:
        """The definition of a value, and the expressions by which the test file reaches it."""
        return {"name": name, "module": module, "bound": bindings(self.module, name, thing)}

    def resolve(self, row: dict[str, Any], names: dict[str, Any]) -> bool:
        """True if every class that the row names is known; what is known of them goes to `names`."""
        used = {row["raises"]} if "raises" in row else set()
        for text in (row["args"], row.get("result", "")):
            tree = ast.parse("f(" + text + ")", mode="eval")
            used |= {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)} - {"f"}
        for name in used - set(vars(builtins)):
            if name not in self.classes:
                self.classes[name] = self._class(name)
            thing = self.classes[name]
            if thing is None:
                return False
            names[name] = self.thing(name, thing, thing.__module__)
        return True

    def _class(self, name: str) -> Any:
        """The class of this name; None if there is none, or several."""
        found = {id(place[name]): place[name] for place in self.places if isinstance(place.get(name), type)}
        if len(found) != 1:
            return None
        thing: Any = next(iter(found.values()))
        home: Any = vars(sys.modules.get(thing.__module__, builtins))
        return thing if home.get(thing.__name__) is thing and thing.__name__ == name else None
