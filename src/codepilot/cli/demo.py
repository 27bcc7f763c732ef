"""`codepilot demo`: a repair and a build that anyone can watch, offline."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli.drive import start
from codepilot.cli.options import WORK, JsonFlag
from codepilot.cli.output import plain, say

if TYPE_CHECKING:
    from codepilot.engine import CodePilot


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=WORK)(demo)


class DemoKind(StrEnum):
    """What the demonstration shows."""

    fix = "fix"
    build = "build"


def demo(
    kind: Annotated[DemoKind, typer.Argument(help="fix repairs a bug, build makes a program.")] = DemoKind.fix,
    as_json: JsonFlag = False,
) -> None:
    """Repair a real bug, or build a small program, offline.

    The build replays the recorded replies of a model; sandbox, scan and tests are real.
    """
    from codepilot.engine import CodePilot, Request, Settings

    with CodePilot(Settings.load()) as pilot:
        if kind is DemoKind.build:
            demo_build(pilot, as_json=as_json)
            return
        checkout = prepare_example(pilot.settings.home.ensure().path / "demo", pilot.settings.environ)
        if not as_json:
            say(plain(f"A small library with a test suite and one bug: {checkout}"))
        asked = "Free slots must not overlap bookings that lie inside longer ones"
        start(pilot, Request(repo=str(checkout), prompt=asked), as_json=as_json)


def demo_build(pilot: CodePilot, *, as_json: bool) -> None:
    """Build the example's program again from the recorded replies."""
    import shutil
    from importlib.resources import as_file, files

    from codepilot.core.build_task import EXAMPLE
    from codepilot.core.task import TaskKind
    from codepilot.engine import Request

    out = pilot.settings.home.ensure().path / "demo" / "todos"
    shutil.rmtree(out, ignore_errors=True)
    with as_file(files("codepilot.cli") / "example_build.json") as replies:
        if not as_json:
            say(plain(f"A program is built from recorded replies of a model, into {out}"))
        model = f"scripted:{replies}"
        request = Request(
            repo=str(out), kind=TaskKind.BUILD, language="python", prompt=EXAMPLE, agent="codeact", model=model
        )
        start(pilot, request, as_json=as_json)


_GIT = ("git", "-c", "user.name=CodePilot", "-c", "user.email=demo@codepilot.invalid", "-c", "commit.gpgsign=false")


def prepare_example(directory: Path, environ: Mapping[str, str]) -> Path:
    """A fresh git checkout of the example below `directory`; an earlier one is replaced."""
    import os
    import shutil
    import subprocess
    from importlib.resources import as_file, files

    checkout = directory / "agenda"
    if checkout.exists():
        shutil.rmtree(checkout)
    directory.mkdir(parents=True, exist_ok=True)
    with as_file(files("codepilot.cli") / "example") as example:
        shutil.copytree(example, checkout, ignore=shutil.ignore_patterns("__pycache__"))
    kept = {
        "PATH": environ.get("PATH", os.defpath),
        "HOME": str(directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "Agenda 1.0")):
        subprocess.run([*_GIT, *arguments], cwd=checkout, env=kept, check=True, capture_output=True)
    return checkout
