"""The application, and what several commands share: options, groups of the help page, small formatters."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

WORK, RUNS, TEAM, UPKEEP, MEASURE = "Work", "Runs", "Team", "Upkeep", "Measure"


class GroupedCommands(TyperGroup):
    """Lists commands below a heading for each group, in the order in which they were added."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        widest = max(map(len, self.commands), default=0)
        for name, command in self.commands.items():
            panel = str(getattr(command, "rich_help_panel", None) or "Commands")
            room = formatter.width - widest - 6
            groups.setdefault(panel, []).append((name.ljust(widest), command.get_short_help_str(max(30, room))))
        for panel, rows in groups.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


app = typer.Typer(
    name="codepilot",
    cls=GroupedCommands,
    help="Repair code with agents, and prove every change: the test failed before, passes after, and nothing else"
    " broke.",
    epilog="Start with: codepilot doctor, then codepilot demo, then codepilot fix in your own checkout.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _remember_json(wanted: bool) -> bool:
    """Remember --json, so that a failure is printed as JSON too."""
    json_wanted.append(wanted)
    return wanted


json_wanted = [False]

MAX_DAYS, MAX_SEC = 36_500.0, 86_400.0
"""A hundred years, and a day. Longer spans are mistakes, and some overflow the clock."""


class CapabilityName(StrEnum):
    """What an agent may do, weakest first."""

    read_only = "read_only"
    write_with_diff = "write_with_diff"
    write_and_run_tests = "write_and_run_tests"
    full_shell = "full_shell"


class LevelName(StrEnum):
    best = "best"
    bubblewrap = "bubblewrap"
    landlock = "landlock"
    none = "none"


JsonFlag = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document instead of text.", callback=_remember_json, is_eager=True),
]
RunArg = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, the start of an id, or 'last'.")]
PythonOption = Annotated[str | None, typer.Option(metavar="PATH", help="The Python interpreter that runs the project.")]
UnsafeFlag = Annotated[bool, typer.Option("--unsafe-no-sandbox", help="Run the project's code without a sandbox.")]
PlausibleFlag = Annotated[
    bool, typer.Option("--accept-plausible", help="Accept a change whose tests are too weak to confirm it.")
]
BranchOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Commit the change to this new branch; {run} is replaced by the run's id."),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where runs are recorded: postgresql://… or a file. Default: $CODEPILOT_STORE, else a file in the home.",
    ),
]
ArtifactsOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where files of runs are kept: s3://… or a directory. Default: $CODEPILOT_ARTIFACTS, else the home.",
    ),
]
RepoArg = Annotated[str, typer.Argument(metavar="REPO", help="A git checkout or a git URL.")]
TestOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEST_ID",
        help="A failing test, named as its runner names it; may be repeated. Default: the tests that fail.",
    ),
]
PromptOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="What should be true after the change, in words.")
]
RefOption = Annotated[
    str | None,
    typer.Option(metavar="REF", help="Work on this commit. Default: the checkout with its uncommitted changes."),
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="repair (needs no model), codeact, or an installed agent. Default: from the configuration, else repair.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="anthropic:NAME, openai:NAME, openai-compatible:URL#NAME or replay:RUN."),
]
FallbackOption = Annotated[
    str | None,
    typer.Option("--fallback-model", metavar="MODEL", help="The model to use when the first one is unavailable."),
]
BudgetOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="A limit, for example wall_sec=600; may be repeated.")
]
HostOption = Annotated[
    list[str] | None, typer.Option(metavar="HOST", help="Let code in the sandbox reach this host; may be repeated.")
]
TestHostOption = Annotated[
    list[str] | None,
    typer.Option(metavar="HOST", help="Let only the command that runs the tests reach this host; may be repeated."),
]
CapabilityOption = Annotated[CapabilityName, typer.Option(help="What the agent is allowed to do.")]
NotifyFlag = Annotated[
    bool | None,
    typer.Option(
        "--notify/--no-notify", help="Send a notification when the run ends. Default: if [notify] url is configured."
    ),
]
ApplyFlag = Annotated[bool, typer.Option("--apply", help="Write the proved change into the checkout.")]
DetachFlag = Annotated[
    bool, typer.Option("--detach", help="Queue the run for workers and print its id, as `submit` does.")
]
PriorityOption = Annotated[int, typer.Option(min=-100, max=100, help="Workers take runs with a higher priority first.")]
IdOption = Annotated[
    str | None,
    typer.Option("--run", metavar="ID", help="The id of the new run; submitting the same id again changes nothing."),
]


def counted(number: int, noun: str) -> str:
    """`1 test`, `2 tests`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def read_address(listen: str) -> tuple[str, int]:
    """HOST:PORT as a pair."""
    from codepilot.core.failures import CodePilotError, FailureKind

    host, colon, port = listen.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{listen!r} is not an address.",
            "Use HOST:PORT, for example 127.0.0.1:8700; port 0 takes any free port.",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
