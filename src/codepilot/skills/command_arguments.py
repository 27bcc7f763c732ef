"""How programs read their arguments: options in every spelling, values, operands, paths. Standard library only."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from codepilot.skills.command_rules import Program

PYTHON = sys.executable


def spelled(program: Program, option: str, argument: str) -> bool:
    return attached(program, option, argument) is not None


def attached(program: Program, option: str, argument: str) -> str | None:
    """The value within an argument that spells an option (empty if there is none), or None if it spells another."""
    if not argument.startswith("-"):
        return None
    name, _, value = argument.partition("=")
    if name in program.harmless.split():
        return None
    if option.endswith(":"):
        return argument.removeprefix(option) if argument.startswith(option) else None
    if len(option) == 2:
        return in_cluster(program, option[1], argument)
    if program.loose and option.startswith("--"):
        name = "--" + name.lstrip("-")
    beginning = program.abbreviates and option.startswith("--") and len(name) > 2 and option.startswith(name)
    return value if name == option or beginning else None


def in_cluster(program: Program, letter: str, argument: str) -> str | None:
    """The same for a short option, alone or after others: `-nf`, `-nfvalue`."""
    if argument.startswith("--"):
        return None
    for place, flag in enumerate(argument[1:], 2):
        if flag == letter:
            return argument[place:].removeprefix("=")
        if flag in program.flags or not flag.isalnum():
            return None
    return None


def values(program: Program, option: str, arguments: list[str], number: int) -> Iterator[str]:
    given = attached(program, option, arguments[number])
    if given:
        yield given
    elif given is not None:
        yield from arguments[number + 1 : number + 2]


def operands(program: Program, arguments: list[str], everything: bool = False) -> Iterator[str]:
    """The arguments that are neither options nor values of options. A lone `--` makes operands of all that follow."""
    valued = frozenset(program.valued.split())
    skip = False
    for number, argument in enumerate(arguments):
        if skip:
            skip = False
        elif argument == "--" and everything:
            yield from arguments[number + 1 :]
            return
        elif argument.startswith("-") and argument != "-":
            skip = argument in valued
        else:
            yield argument


def outside(path: str, root: str, readable: bool = False) -> bool:
    """Whether a path leads out of the workspace, through links too. Reading extends to libraries and scratch."""
    if path in ("-", "/dev/null") or "\0" in path:
        return False
    places = [Path(root)]
    if readable:
        places += [
            Path(os.__file__).parent,
            Path(PYTHON).parent.parent / "lib",
            Path(os.environ.get("TMPDIR") or "/tmp"),
        ]
    real = os.path.realpath(Path(root, path))
    return not any(f"{real}/".startswith(os.path.realpath(place).rstrip("/") + "/") for place in places)
