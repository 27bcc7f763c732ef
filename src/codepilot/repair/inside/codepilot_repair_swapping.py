"""One function's code, compiled alone and put into the living functions.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codepilot.repair.inside.codepilot_repair_ground import Ground
    from codepilot.repair.inside.codepilot_repair_running import compile_text
    from codepilot.repair.inside.codepilot_repair_steps import conditions, counted
else:
    from codepilot_repair_running import compile_text
    from codepilot_repair_steps import conditions, counted


def prepare(unit: dict[str, Any]) -> None:
    """Find out once what every candidate of the function needs: where its loops are."""
    unit["loops"] = conditions(unit["segment"])


def unchanged(unit: dict[str, Any], key: str) -> dict[str, Any]:
    """The job that leaves a function as it is, but for its loops, which count."""
    end = len(unit["segment"])
    return {"unit": key, "start": end, "end": end, "text": ""}


def swap(
    ground: Ground, job: dict[str, Any], units: dict[str, Any], thorough: bool = False
) -> str | list[tuple[Any, Any, Any, Any]]:
    """Put the candidate's code into the living functions; what was there before, or why it cannot be."""
    if "content" in job:
        return "cold"
    unit = units[job["unit"]]
    name = unit["qualname"].rpartition(".")[2]
    living = ground.living(unit)
    entered = (unit["line"], name) in ground.entered.get(unit["path"], ())
    called_otherwise = job["start"] < unit["body"]
    if not living or (thorough and (entered or called_otherwise)) or (entered and not _reached(ground, unit)):
        return "cold"
    try:
        text = counted(unit["segment"], unit["loops"], job["start"], job["end"], job["text"])
        code = compile_text(text, unit, living[0].__code__.co_filename)
        if any(code.co_freevars != function.__code__.co_freevars for function in living):
            return "cold"
        defaults = _defaults(text, unit, living[0]) if called_otherwise else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "invalid"
    old = [(function, *_parts(function)) for function in living]
    for function in living:
        function.__code__ = code
        if defaults is not None:
            function.__defaults__, function.__kwdefaults__ = defaults
    return old


def _parts(function: Any) -> tuple[Any, Any, Any]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _defaults(text: str, unit: dict[str, Any], living: Any) -> tuple[Any, Any]:
    """What the text's function would take for arguments that are not given."""
    names = dict(living.__globals__)
    try:
        exec(compile(text, living.__code__.co_filename, "exec", dont_inherit=True), names)
        function: Any = names[unit["qualname"].partition(".")[0]]
        for part in unit["qualname"].split(".")[1:]:
            function = getattr(function, part)
    except Exception as error:
        raise ValueError from error
    return function.__defaults__, function.__kwdefaults__


def _reached(ground: Ground, unit: dict[str, Any]) -> bool:
    """Whether the targets run a function that ran while the project was loaded as well.

    Swapping it tells enough for a first try then. What is kept has to be loaded with it.
    """
    lines = range(unit["line"], unit["line"] + unit["segment"].count("\n") + 1)
    return not ground.ran.get(unit["path"], set()).isdisjoint(lines)


def put_back(old: list[tuple[Any, Any, Any, Any]]) -> None:
    for function, code, defaults, named in old:
        function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, named
