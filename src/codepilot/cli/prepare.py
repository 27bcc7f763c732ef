"""`codepilot prepare`: install a project's dependencies in a sandbox, once a person allows it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from codepilot.cli import output
from codepilot.cli.options import UPKEEP, JsonFlag, RepoArg
from codepilot.cli.output import console, plain, say

YesFlag = Annotated[bool, typer.Option("--yes", "-y", help="Allow the installation without being asked.")]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=UPKEEP)(prepare)


def prepare(repo: RepoArg = ".", yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """Install a project's dependencies for later runs.

    The installation runs in a sandbox that reaches the configured package registries and nothing else.
    """
    from codepilot.cli.ask import ask_to_install, person
    from codepilot.cli.live import Stages
    from codepilot.engine import CodePilot, Settings

    with CodePilot(Settings.load()) as pilot:
        found = pilot.look_at_dependencies(repo)
        if not found.done:
            answer = (True, "--yes") if yes else ask_to_install(found)
            if answer is None:
                raise typer.Exit(3)
            allowed, reason = answer
            if not allowed:
                pilot.refuse_dependencies(repo, by=person(pilot), reason=reason)
                raise typer.Exit(3)
            with Stages(console(err=True)) as stages:
                found = pilot.prepare(repo, stages.begin, by=person(pilot), reason=reason)
    if as_json:
        document = {"schema_version": 1, **found.model_dump(mode="json")}
        output.print_json(json.dumps(document, ensure_ascii=False))
    else:
        say(plain(f"The environment of {found.root} is ready: {found.path}"))
