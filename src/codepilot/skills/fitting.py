"""Making a call's arguments fit a skill, or saying how it is called. Standard library only: this source travels."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
}
"""The types that are checked, by their names: annotations may be text. What else there is, the skill checks."""


class SkillError(Exception):
    """A skill could not do what was asked. `kind` is one of the platform's kinds of failure."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BadArguments(SkillError, TypeError):
    """A skill was called in a way that its signature does not allow; the message shows the signature."""

    def __init__(self, message: str) -> None:
        super().__init__("tool_invalid_args", message)


def fitted(function: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]:
    """What turns a call's arguments into keywords of the function: paths into text, None into a plain default."""
    code = function.__code__
    positional = code.co_varnames[: code.co_argcount]
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = function.__defaults__ or ()
    defaults = dict(zip(positional[len(positional) - len(values) :], values))  # noqa: B905 (3.9 runs this too)
    defaults.update(function.__kwdefaults__ or {})
    required = [name for name in names if name not in defaults]
    types = {name: _written(function.__annotations__.get(name, "object")) for name in names}
    told = {name: f"{name}: {types[name]}" for name in names}
    plain = {name: _PLAIN[types[name]] for name in names if types[name] in _PLAIN}

    def refused(why: str) -> BadArguments:
        shown = [told[name] + (f" = {defaults[name]!r}" if name in defaults else "") for name in names]
        if len(names) > len(positional):
            shown.insert(len(positional), "*")
        return BadArguments(f"{function.__name__} {why}. Call it as {function.__name__}({', '.join(shown)}).")

    def fit(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(positional):
            raise refused(f"takes at most {len(positional)} arguments by position, not {len(args)}")
        given = dict(zip(positional, args))  # noqa: B905 (3.9 runs this too)
        for name, value in kwargs.items():
            if name not in told:
                raise refused(f"has no argument {name!r}")
            if name in given:
                raise refused(f"was given {name!r} twice, by position and by name")
            given[name] = value
        for name in required:
            if name not in given:
                raise refused(f"needs {name!r}")
        for name, allowed in plain.items():
            value = given.get(name, allowed)
            if value is allowed or isinstance(value, allowed):
                continue
            if value is None and name in defaults:
                given[name] = defaults[name]
            elif allowed == (str,) and isinstance(value, os.PathLike):
                given[name] = os.fsdecode(value)
            else:
                raise refused(f"takes {name!r} as {types[name]}, not as {type(value).__name__}")
        return given

    return fit


def _written(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
