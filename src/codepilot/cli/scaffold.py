"""`codepilot scaffold`: a new module that compiles and passes its own tests before it is handed over."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from codepilot.cli.drive import start
from codepilot.cli.options import (
    WORK,
    AgentOption,
    ArtifactsOption,
    BudgetOption,
    DryRunFlag,
    FallbackOption,
    IdOption,
    JsonFlag,
    ModelOption,
    PythonOption,
    StoreOption,
    UnsafeFlag,
    parse_budget,
)


class EcosystemName(StrEnum):
    maven = "maven"
    python = "python"
    npm = "npm"


class CiName(StrEnum):
    github = "github"
    gitlab = "gitlab"


_SCAFFOLD = """Examples: codepilot scaffold python order-history · codepilot scaffold maven billing --into . ·
codepilot scaffold npm @shop/cart --into ~/shop --ci gitlab"""


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=WORK, epilog=_SCAFFOLD)(scaffold)


def scaffold(
    ecosystem: Annotated[EcosystemName, typer.Argument(help="The build system.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The module's name.")],
    package: Annotated[
        str, typer.Option(metavar="NAME", help="The Java or Python package of its code. Default: from the name.")
    ] = "",
    into: Annotated[
        str | None,
        typer.Option(metavar="REPO", help="Add it to this Maven reactor, npm workspace or Python monorepo."),
    ] = None,
    ci: Annotated[
        CiName | None,
        typer.Option(help="The CI stub. Default: github, and none for a repository that has CI.", show_default=False),
    ] = None,
    describe: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the module does: a model writes it and its tests.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="DIR", help="The module's directory; it must not exist. Default: its name.")
    ] = None,
    python: PythonOption = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    fallback_model: FallbackOption = None,
    budget: BudgetOption = None,
    dry_run: DryRunFlag = False,
    unsafe_no_sandbox: UnsafeFlag = False,
    run_id: IdOption = None,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a module that compiles and passes its own tests."""
    from codepilot.core.task import TaskKind
    from codepilot.engine import CodePilot, Request, Settings

    with CodePilot(Settings.load(flags={"store": store, "artifacts": artifacts})) as pilot:
        if describe is None and (agent or model or fallback_model):
            raise typer.BadParameter("Say with --describe what the agent is to write.", param_hint="--model")
        request = Request(
            repo=into if into is not None else out or name.rpartition("/")[2],
            kind=TaskKind.SCAFFOLD,
            scaffold=pilot.module(ecosystem.value, name, package, None if ci is None else ci.value, into, out),
            prompt=describe,
            python=python,
            agent="template" if describe is None else agent or pilot.settings.agent_with_model(),
            model=pilot.model_named(model),
            fallback_model=fallback_model,
            budget=parse_budget(budget or ()),
            unsafe_no_sandbox=unsafe_no_sandbox,
            dry_run=dry_run,
        )
        start(pilot, request, run_id, apply=not dry_run, as_json=as_json)
