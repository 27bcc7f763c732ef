"""The commands about the policy: what it is, and what it decides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli import output
from codepilot.cli.options import (
    PEOPLE,
    CapabilityName,
    CapabilityOption,
    InteractionName,
    InteractionOption,
    JsonFlag,
    RepoArg,
)
from codepilot.cli.output import plain, say

if TYPE_CHECKING:
    from codepilot.engine import CodePilot

_EXPLAIN = (
    "Examples: codepilot policy explain -- git push --force · codepilot policy explain --kind path -- .github/ci.yml"
)

policy = typer.Typer(help="Show the policy, and explain what it decides.", no_args_is_help=True, rich_markup_mode=None)

WordsArg = Annotated[list[str], typer.Argument(metavar="WORD…", help="The command, or the tool, path or host.")]
KindOption = Annotated[str, typer.Option("--kind", metavar="KIND", help="command, tool, path or host.")]
RoleOption = Annotated[str, typer.Option("--role", metavar="NAME", help="The role that changes the path.")]
RepoOption = Annotated[str, typer.Option("--repo", metavar="PATH", help="The checkout whose policy applies.")]


def register(app: typer.Typer) -> None:
    policy.command()(show)
    policy.command(epilog=_EXPLAIN)(explain)
    app.add_typer(policy, name="policy", rich_help_panel=PEOPLE)


def _open() -> CodePilot:
    from codepilot.engine import CodePilot, Settings

    return CodePilot(Settings.load())


def show(repo: RepoArg = ".", as_json: JsonFlag = False) -> None:
    """Print the effective policy, and where each value comes from."""
    with _open() as pilot:
        found = pilot.policy(repo)
    if as_json:
        rows = [one.model_dump(mode="json") for one in found]
        output.print_json(json.dumps({"schema_version": 1, "policy": rows}, ensure_ascii=False))
        return
    for one in found:
        say(plain(f"{one.name:<22} {json.dumps(one.value):<40} {one.source}"))


def explain(
    words: WordsArg,
    kind: KindOption = "command",
    repo: RepoOption = ".",
    capability: CapabilityOption = CapabilityName.write_and_run_tests,
    interaction: InteractionOption = InteractionName.ask_before_risky,
    role: RoleOption = "implementer",
    as_json: JsonFlag = False,
) -> None:
    """Print what the policy decides about an action, why, and how to change that."""
    with _open() as pilot:
        found = pilot.policy_explain(
            words, repo, kind=kind, capability=capability.value, interaction=interaction.value, role=role
        )
    if as_json:
        document = {"schema_version": 1, **found.model_dump(mode="json")}
        output.print_json(json.dumps(document, ensure_ascii=False))
        return
    say(plain(f"decision  {found.effect}"))
    if found.sanitised is not None:
        say(plain(f"sanitised {found.sanitised}"))
    say(plain(f"rule      {found.rule}: {found.reason}"))
    made_of = f": {', '.join(found.reasons)}" if found.reasons else ""
    say(plain(f"score     {found.score:.2f}{made_of}"))
    say(plain(f"change    {found.change}"))
