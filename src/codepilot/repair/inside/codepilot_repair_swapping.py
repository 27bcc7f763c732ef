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


def swap(
    ground: Ground, job: dict[str, Any], units: dict[str, Any], thorough: bool = False
) -> str | list[tuple[Any, Any]]:
    """Put the candidate's code into the living functions; what was there before, or why it cannot be."""
    if "content" in job:
        return "cold"
    unit = units[job["unit"]]
    name = unit["qualname"].rpartition(".")[2]
    living = ground.living(unit)
    entered = (unit["line"], name) in ground.entered.get(unit["path"], ())
    if not living or (entered and (thorough or not _reached(ground, unit))):
        return "cold"
    try:
        text = counted(unit["segment"], unit["loops"], job["start"], job["end"], job["text"])
        code = compile_text(text, unit, living[0].__code__.co_filename)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "invalid"
    if any(code.co_freevars != function.__code__.co_freevars for function in living):
        return "cold"
    old = [(function, function.__code__) for function in living]
    for function in living:
        function.__code__ = code
    return old


def _reached(ground: Ground, unit: dict[str, Any]) -> bool:
    """Whether the targets run a function that ran while the project was loaded as well.

    Swapping it tells enough for a first try then. What is kept has to be loaded with it.
    """
    lines = range(unit["line"], unit["line"] + unit["segment"].count("\n") + 1)
    return not ground.ran.get(unit["path"], set()).isdisjoint(lines)


def put_back(old: list[tuple[Any, Any]]) -> None:
    for function, code in old:
        function.__code__ = code
