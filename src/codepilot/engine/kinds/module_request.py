"""From what a person asks for to the module of a scaffold task. What cannot work is refused here."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.scaffold import Scaffold
from codepilot.core.task import Goal
from codepilot.engine.settings import first_mistake
from codepilot.engine.target import Place
from codepilot.workspace import find_root


def make_scaffold(
    ecosystem: str, name: str, package: str, ci: str | None, into: str | None, out: str | None
) -> Scaffold:
    """The module; `out` is a directory of the repository `into`, relative to the place that `into` names."""
    inside = "" if into is None or out is None else _inside(Path(into).expanduser(), out)
    try:
        return Scaffold.model_validate(
            {
                "ecosystem": ecosystem,
                "name": name,
                "package": package,
                "ci": ci,
                "join": into is not None,
                "out": inside,
            }
        )
    except ValidationError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The module cannot be made: {first_mistake(error).removeprefix(': ')}",
            next_action="Correct the name or the option, then try again.",
        ) from error


def module_place(wanted: Scaffold, named: str) -> Place:
    """The repository that the module joins and the directory in it; none for a module in a directory of its own."""
    if not wanted.join:
        return Place(None)
    here = Path(named).expanduser()
    root = find_root(here)
    here = here.resolve() if here.is_dir() else here.resolve().parent
    return Place(root, "" if here == root else here.relative_to(root).as_posix())


def _inside(here: Path, out: str) -> str:
    root = find_root(here)
    place = Path(os.path.normpath(here.resolve() / out))
    if root not in place.parents:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"--out {out} is not in {root}.",
            next_action="Name a directory of the repository.",
        )
    return place.relative_to(root).as_posix()


def new_directory(named: str) -> str:
    """The absolute path of a directory that a task makes; one that exists is refused."""
    path = Path(os.path.abspath(Path(named).expanduser()))  # noqa: PTH100 - there is nothing to resolve yet
    if os.path.lexists(path):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{path} exists, and nothing there is overwritten.",
            next_action="Choose another name, or another directory with --out.",
        )
    if not str(path).isprintable():
        raise CodePilotError(
            FailureKind.INVALID_SPEC, f"{str(path)!r} cannot be a directory's name.", next_action="Choose another."
        )
    return str(path)


def scaffold_goal(wanted: Scaffold, described: str | None) -> Goal:
    """What the module is for, if that was described; else that it is made."""
    module = f"{wanted.ecosystem} module {wanted.name}"
    if described is None:
        return Goal(natural=f"Make the {module}")
    if not described.strip():
        raise CodePilotError(
            FailureKind.INVALID_SPEC, "--describe is empty.", next_action="Describe the module, or leave it out."
        )
    asked = (
        f"Fill in the {module}: {described.strip()}\n\nA template of the module is in the workspace. Replace its"
        " example code and its example tests by what is described, keep the build file, and change nothing outside the"
        " module. Every behaviour that is described has a test."
    )
    return Goal(natural=asked)
