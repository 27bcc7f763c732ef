"""What every command uses: the application, its common options, the runtime and the console."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli.output import say

if TYPE_CHECKING:
    from codepilot.engine import Runtime

app = typer.Typer(
    name="codepilot",
    help="Coding agents whose changes are proved: the test failed before, passes after, and nothing else broke.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RunArg = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or 'last'.")]


def _remember_json(wanted: bool) -> bool:
    """A failure that ends the command is told in the form that was asked for."""
    told_as_json.append(wanted)
    return wanted


told_as_json = [False]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead.", callback=_remember_json, is_eager=True)
]


MOST_DAYS, MOST_SEC = 36_500.0, 86_400.0
"""A hundred years, and a day: longer spans are mistakes, and no clock could count some of them."""


def open_runtime() -> Runtime:
    from codepilot.engine import Runtime, Settings

    runtime = Runtime.open(Settings.load())
    gc.freeze()  # What is loaded by now stays: the collector need not walk through all of it again and again.
    return runtime


def settled_model(spec: str | None) -> str | None:
    """`replay:RUN` as `replay:FILE`; other models as they are named."""
    kind, _, name = (spec or "").partition(":")
    if kind != "replay" or not name or Path(name).expanduser().exists():
        return spec
    from codepilot.engine import recording

    with open_runtime() as runtime:
        return f"replay:{recording(runtime, name)}"


def say_left(left: Mapping[str, str]) -> None:
    """Runs that were left alone, and why: nothing is guessed of what is not understood."""
    for problem in left.values():
        say(f"Left alone: {problem}")


# What a task is made of, for every command that takes one.
RepoArg = Annotated[str, typer.Argument(metavar="REPO", help="A checkout or a git URL.")]
TestOption = Annotated[
    list[str] | None, typer.Option(metavar="TEST_ID", help="A failing test, as its runner names it.")
]
PromptOption = Annotated[str | None, typer.Option(metavar="TEXT", help="What should be true afterwards.")]
RefOption = Annotated[str | None, typer.Option(metavar="REF", help="Work on this commit only, not the checkout.")]
PythonOption = Annotated[str | None, typer.Option(metavar="PATH", help="The project's interpreter.")]
AgentOption = Annotated[str | None, typer.Option(metavar="NAME", help="By default [agents] default: repair.")]
ModelOption = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="anthropic:NAME, openai:NAME, openai-compatible:URL#NAME or replay:RUN."),
]
FallbackOption = Annotated[
    str | None, typer.Option("--fallback-model", metavar="MODEL", help="Asked when the first cannot be had.")
]
BudgetOption = Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="For example wall_sec=600.")]
HostOption = Annotated[
    list[str] | None, typer.Option(metavar="HOST", help="Let code inside reach this host; none by default.")
]
TestHostOption = Annotated[
    list[str] | None, typer.Option(metavar="HOST", help="Let only the command that runs the tests reach it.")
]
BranchOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Commit the change to this new branch; {run} in it is the run's id."),
]
CapabilityOption = Annotated[str, typer.Option(metavar="LEVEL", help="What the agent may do: read_only … full_shell.")]
NotifyFlag = Annotated[
    bool | None,
    typer.Option("--notify/--no-notify", help="Whether [notify] url is told of its end; by default if there is one."),
]
UnsafeFlag = Annotated[bool, typer.Option("--unsafe-no-sandbox", help="Run code unconfined.")]
