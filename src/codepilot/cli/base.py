"""What every command uses: the application, its common options, the house and the console."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from codepilot.engine import House

app = typer.Typer(
    name="codepilot",
    help="Coding agents whose changes are proved: the test failed before, passes after, and nothing else broke.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
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


def open_house() -> House:
    from codepilot.engine import House

    return House.open(os.environ)


def console() -> Console:
    from rich.console import Console

    return Console()
