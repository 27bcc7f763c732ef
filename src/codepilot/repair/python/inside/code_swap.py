"""Hot swapping: compiles one function alone and puts its code into the running functions.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from .calling import compile_text
from .step_budget import bodies, conditions, counted

if TYPE_CHECKING:
    from .worker_state import WorkerState


def prepare(unit: dict[str, Any]) -> None:
    """Find out once what every candidate of the function needs: where its loops and its inner functions are."""
    unit["loops"] = conditions(unit["segment"])
    unit["bodies"] = bodies(unit["segment"])


def unchanged(unit: dict[str, Any], key: str) -> dict[str, Any]:
    """The job that leaves a function as it is, but for its loops, which count."""
    end = len(unit["segment"])
    return {"unit": key, "start": end, "end": end, "text": ""}


def swap(
    state: WorkerState, job: dict[str, Any], units: dict[str, Any], thorough: bool = False
) -> str | list[tuple[Any, Any, Any, Any]]:
    """Put the candidate's code into the function objects. Returns the old code, or the reason why it cannot be done."""
    if "content" in job:
        return "reload"
    unit = units[job["unit"]]
    name = unit["qualname"].rpartition(".")[2]
    functions = state.functions_of(unit)
    imported = (unit["line"], name) in state.import_time.get(unit["path"], ())
    called_otherwise = job["start"] < unit["body"]
    if not functions or (thorough and (imported or called_otherwise)) or (imported and not _reached(state, unit, job)):
        return "reload"
    try:
        text = counted(unit["segment"], unit["loops"], job["start"], job["end"], job["text"])
        code = compile_text(text, unit, functions[0].__code__.co_filename)
        new = [(function, code) for function in functions] + _inner(state, unit["path"], functions[0].__code__, code)
        if any(code.co_freevars != function.__code__.co_freevars for function, code in new):
            return "reload"
        defaults = _defaults(text, unit, functions[0]) if called_otherwise else None
    except Restructured:
        return "reload"
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "invalid"
    old = [(function, *_parts(function)) for function, _ in new]
    for function, code in new:
        function.__code__ = code
    if defaults is not None:
        for function in functions:
            function.__defaults__, function.__kwdefaults__ = defaults
    return old


class Restructured(Exception):
    """Functions that live on have no counterpart in the candidate."""


def _inner(state: WorkerState, path: str, old: Any, new: Any) -> list[tuple[Any, Any]]:
    """What the function made while the project was loaded and still lives (a decorator's wrappers), with its new code.

    Those keep what they were given when they were made.
    """
    before, after = ([one for one in code.co_consts if isinstance(one, types.CodeType)] for code in (old, new))
    functions = [state.functions.get((path, code.co_firstlineno, code.co_name), []) for code in before]
    alike = [code.co_name for code in before] == [code.co_name for code in after]
    found = []
    for at, code in enumerate(before):
        deeper = _inner(state, path, code, after[at] if alike else code)
        if (functions[at] or deeper) and not alike:
            raise Restructured
        found += [(function, after[at]) for function in functions[at]] + deeper
    return found


def _parts(function: Any) -> tuple[Any, Any, Any]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _defaults(text: str, unit: dict[str, Any], functions: Any) -> tuple[Any, Any]:
    """The defaults of the text's function."""
    names = dict(functions.__globals__)
    try:
        exec(compile(text, functions.__code__.co_filename, "exec", dont_inherit=True), names)
        function: Any = names[unit["qualname"].partition(".")[0]]
        for part in unit["qualname"].split(".")[1:]:
            function = getattr(function, part)
    except Exception as error:
        raise ValueError from error
    return function.__defaults__, function.__kwdefaults__


def _reached(state: WorkerState, unit: dict[str, Any], job: dict[str, Any]) -> bool:
    """True if the targets run a function that ran while the project was loaded as well.

    Then swapping it is enough for a first try, and a candidate that is kept is loaded with the project. A call of
    what the function made (a decorator's wrapper) does not count: a change around it is not seen there.
    """
    segment, first = unit["segment"], unit["shift"] + 1
    lines = set(range(unit["line"], first + segment.count("\n") + 1))
    changes = job["text"] or job["end"] > job["start"]
    if changes and not any(start <= job["start"] and job["end"] <= end for start, end in unit["bodies"]):
        for start, end in unit["bodies"]:
            lines.difference_update(range(first + segment.count("\n", 0, start), first + segment.count("\n", 0, end)))
    return not state.ran.get(unit["path"], set()).isdisjoint(lines)


def put_back(old: list[tuple[Any, Any, Any, Any]]) -> None:
    for function, code, defaults, named in old:
        function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, named
