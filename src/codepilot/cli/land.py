"""The command that adds the changes of runs to a branch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli import output
from codepilot.cli.options import RUNS, JsonFlag, PlausibleFlag
from codepilot.cli.output import console, say
from codepilot.cli.service import UrlOption, open_pilot, service_url

if TYPE_CHECKING:
    from rich.text import Text

    from codepilot.core.landing import Landed, LandingRefused

_LAND = "Examples: codepilot land r-01m7 r-01m8 --onto fixes · codepilot land last --onto fixes --accept-plausible"
RunsArg = Annotated[list[str], typer.Argument(metavar="RUN", help="The runs whose changes land, in this order.")]
OntoOption = Annotated[
    str, typer.Option(metavar="BRANCH", help="The branch; one that does not exist begins at HEAD.", show_default=False)
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=16, metavar="N", help="How many changes are judged at a time; 2 by default.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=RUNS, epilog=_LAND)(land)


def land(
    runs: RunsArg,
    onto: OntoOption,
    jobs: JobsOption = None,
    accept_plausible: PlausibleFlag = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Add proved changes to a branch, one after the other.

    Each is judged on top of the branch and of the changes before it.
    """
    from codepilot.core.landing import Landed
    from codepilot.engine import Settings

    if jobs is not None and service_url() is not None:
        raise typer.BadParameter("--jobs is for this machine: a service's workers judge as many as they can.")
    quiet = as_json or output.quiet()

    def progress(message: str) -> None:
        if not quiet:
            say(message)

    def ended(run_id: str, outcome: Landed | LandingRefused) -> None:
        if not as_json:
            console().print(_line(run_id, outcome), soft_wrap=True)

    with open_pilot(Settings.load()) as pilot:
        outcomes = pilot.land(
            runs, onto, accept_plausible=accept_plausible, jobs=jobs or 2, on_progress=progress, on_outcome=ended
        )
    landed = {run_id for run_id, outcome in outcomes.items() if isinstance(outcome, Landed)}
    if as_json:
        found = [
            {"run_id": run_id, "landed": run_id in landed, **outcome.model_dump(mode="json")}
            for run_id, outcome in outcomes.items()
        ]
        output.print_json(json.dumps({"schema_version": 1, "branch": onto, "runs": found}))
    raise typer.Exit(0 if len(landed) == len(outcomes) else 1)


def _line(run_id: str, outcome: Landed | LandingRefused) -> Text:
    from rich.text import Text

    from codepilot.core.landing import Landed

    if isinstance(outcome, Landed):
        return Text.assemble(("landed   ", "green"), f"{run_id} on {outcome.branch} as {outcome.commit[:12]}")
    return Text.assemble(("refused  ", "red"), f"{run_id}: {outcome.reason}")
