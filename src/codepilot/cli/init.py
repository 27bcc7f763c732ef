"""`codepilot init`: choose an agent, a mode and a budget, and write them to a codepilot.toml."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli.options import UPKEEP, BudgetOption, JsonFlag, ModeName, may_be_left, parse_budget
from codepilot.cli.output import plain, say, show_prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_INIT = "Examples: codepilot init · codepilot init --yes · codepilot init --agent claude --budget cost_usd=2"


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=UPKEEP, epilog=_INIT)(init)


def init(
    agent: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The agent for tasks that name none. Default: one found here."),
    ] = None,
    mode: Annotated[ModeName | None, typer.Option(help="How an agent's files become the change.")] = None,
    budget: BudgetOption = None,
    repository: Annotated[
        bool,
        typer.Option("--repository", help="Write mode and budget for this checkout, in place of your own settings."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take the defaults; ask nothing.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is there; it is kept as codepilot.toml.bak.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a codepilot.toml with your agent, mode and budget.

    It asks for what is not given. Your own file names the agent; a repository's may not, since it would choose for
    everyone who works on it.
    """
    from codepilot.cli.ask import can_ask
    from codepilot.core.failures import CodePilotError, FailureKind
    from codepilot.core.task import TaskKind
    from codepilot.engine import CodePilot, Settings

    settings = Settings.for_reading()
    place = Path.cwd() / "codepilot.toml" if repository else settings.file
    if place is None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "There is no home directory for your settings.",
            next_action="Set HOME or XDG_CONFIG_HOME, or use --repository.",
        )
    if repository and agent is not None:
        raise typer.BadParameter("A repository does not choose the agent; leave it out.", param_hint="--agent")
    if place.exists() and not force:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{place} is there already.",
            next_action="Edit it, or replace it with --force; `codepilot doctor` says what works.",
        )
    asks = can_ask() and not yes and not as_json
    limits = parse_budget(budget or ())
    settings.check_budget(TaskKind.BUGFIX, limits)
    with may_be_left("Nothing was written."):
        if not repository:
            agent = _agent(agent, [one.name for one in CodePilot(settings).agents() if one.ready], asks=asks)
        chosen = mode.value if mode is not None else _choose("Mode", [one.value for one in ModeName], asks=asks)
        if asks and "cost_usd" not in limits:
            limits = {**limits, **_cost(settings.check_budget(TaskKind.BUGFIX, {}).cost_usd)}
            settings.check_budget(TaskKind.BUGFIX, limits)
    text = written(agent, chosen, limits)
    if place.exists():
        place.replace(place.with_name(f"{place.name}.bak"))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    if as_json:
        document = {"schema_version": 1, "file": os.fspath(place), "agent": agent, "mode": chosen, "budget": limits}
        say(json.dumps(document))
        return
    say(plain(f"{place} is written. `codepilot doctor` says what works with it."))


def written(agent: str | None, mode: str, limits: Mapping[str, float]) -> str:
    """The file's text. Names are written as TOML's basic strings, which JSON's strings are."""
    parts = [] if agent is None else [f"[agents]\ndefault = {json.dumps(agent)}\n"]
    parts.append(f"[interactive]\nexecution_mode = {json.dumps(mode)}\n")
    if limits:
        lines = "".join(f"{key} = {value:g}\n" for key, value in limits.items())
        parts.append(f"[budget]\n{lines}")
    return "\n".join(parts)


def _agent(given: str | None, found: Sequence[str], *, asks: bool) -> str:
    """The agent that is named, or chosen among those that work here."""
    from codepilot.agents import agent_spec
    from codepilot.core import DEFAULT_AGENT

    name = given or _choose("Agent", [*found, *(one for one in (DEFAULT_AGENT,) if one not in found)], asks=asks)
    agent_spec(name)
    return name


def _choose(what: str, options: Sequence[str], *, asks: bool) -> str:
    """One of the options, or another name that is typed; the first is the default."""
    if not asks:
        return options[0]
    for number, option in enumerate(options, 1):
        say(f"  {number}. {option}", err=True)
    show_prompt(f"{what} [1]: ", err=True)
    typed = input().strip()
    if typed.isdecimal() and 1 <= int(typed) <= len(options):
        return options[int(typed) - 1]
    if not typed:
        return options[0]
    if what == "Mode" and typed not in options:
        raise typer.BadParameter(f"{typed!r} is not one of {', '.join(options)}.")
    return typed


def _cost(usual: float) -> dict[str, float]:
    show_prompt(f"Most dollars of one run [{usual:g}]: ", err=True)
    typed = input().strip().removeprefix("$")
    return parse_budget([f"cost_usd={typed}"]) if typed else {}
