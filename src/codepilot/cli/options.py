"""The application, and what several commands share: options, groups of the help page, small formatters."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from codepilot.cli import output

WORK, RUNS, PEOPLE, TEAM, UPKEEP, MEASURE = "Work", "Runs", "People", "Team", "Upkeep", "Measure"


def be_quiet_or_verbose(*, quiet: bool, verbose: int) -> None:
    """Apply -q and -v."""
    if quiet:
        output.be_quiet(quiet)
    if verbose:
        from codepilot.telemetry import Redactor
        from codepilot.telemetry.process_log import text_logging

        output.be_verbose(verbose)
        text_logging(verbose, Redactor(os.environ))


def _applied(ctx: Any, option: Any, value: Any) -> None:
    be_quiet_or_verbose(**{"quiet": False, "verbose": 0, option.name: value})


class GroupedCommands(TyperGroup):
    """Lists commands below a heading for each group, in the order in which they were added."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command; it takes -q and -v as `codepilot` itself does, so that they may stand anywhere."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and not any("-q" in one.opts for one in command.params):
            for option in (copy.copy(one) for one in self.params if one.name in ("quiet", "verbose")):
                option.hidden, option.expose_value, option.callback = True, False, _applied  # type: ignore[attr-defined]
                command.params.append(option)
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a wrong choice is named without the words of the library that noticed it."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

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


@contextlib.contextmanager
def may_be_left(outcome: str) -> Iterator[None]:
    """End the command if the person leaves a question with Ctrl+C or Ctrl+D, and say what that means."""
    try:
        yield
    except (typer.Abort, EOFError, KeyboardInterrupt):
        output.say(f"\n{outcome}")
        raise typer.Exit(131) from None


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


class InteractionName(StrEnum):
    """When a person is asked."""

    full_autonomy = "full_autonomy"
    ask_before_risky = "ask_before_risky"
    ask_every_step = "ask_every_step"


class ModeName(StrEnum):
    """How an agent's files become the change."""

    deterministic = "deterministic"
    interactive = "interactive"


class StrategyName(StrEnum):
    """Where an interactive agent works."""

    direct = "direct"
    shadow = "shadow"


class LevelName(StrEnum):
    best = "best"
    bubblewrap = "bubblewrap"
    landlock = "landlock"
    none = "none"


JsonFlag = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document instead of text.", callback=_remember_json, is_eager=True),
]
JsonLinesFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object a line.", callback=_remember_json, is_eager=True)
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
RepoArg = Annotated[
    str, typer.Argument(metavar="WHERE", help="A checkout or git URL; or a directory, file or test in a checkout.")
]
TestOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEST_ID",
        help="A failing test as its runner names it, or a unique end of its name; may be repeated."
        " Default: the first that fails.",
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
        help="repair (needs no model), codeact, claude, codex, gemini, opencode, acp:COMMAND, stdio:COMMAND,"
        " pty:COMMAND or an installed agent. Default: from the configuration, else repair.",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="anthropic:NAME, openai:NAME, openai-compatible:URL#NAME or replay:RUN; of a program, its model's name.",
    ),
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
InteractionOption = Annotated[
    InteractionName,
    typer.Option(help="When a person is asked: before risky operations, before the plan too, or never."),
]
CapabilityOption = Annotated[CapabilityName, typer.Option(help="What the agent is allowed to do.")]
ModeOption = Annotated[
    ModeName | None,
    typer.Option(
        help="deterministic checks the change at the end of a step, interactive at checkpoints while the agent works."
    ),
]
StrategyOption = Annotated[
    StrategyName | None,
    typer.Option(help="Let an interactive agent work in the run's tree, or in a shadow of it."),
]
WorktreeOption = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="Lay the run's tree out here, so that you can look and edit while it runs."),
]
NotifyFlag = Annotated[
    bool | None,
    typer.Option(
        "--notify/--no-notify", help="Send a notification when the run ends. Default: if [notify] url is configured."
    ),
]
DryRunFlag = Annotated[
    bool, typer.Option("--dry-run", help="Work in the sandbox and show plan, commands and diff; write nothing.")
]
DocumentOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Print one of its documents: answer; or plan, commands, diff of a dry run."),
]
ApplyFlag = Annotated[bool, typer.Option("--apply", help="Write the proved change into the checkout.")]
AllFlag = Annotated[
    bool, typer.Option("--all", help="Repair all failing tests, one after the other, each on top of the last change.")
]
DetachFlag = Annotated[
    bool, typer.Option("--detach", help="Queue the run for workers and print its id, as `submit` does.")
]
PriorityOption = Annotated[int, typer.Option(min=-100, max=100, help="Workers take runs with a higher priority first.")]
IdOption = Annotated[
    str | None,
    typer.Option("--run", metavar="ID", help="The id of the new run; submitting the same id again changes nothing."),
]


def named(choice: ModeName | StrategyName | None) -> Any:
    """The value of a choice, if one was made."""
    return None if choice is None else choice.value


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


def parse_budget(pairs: Sequence[str]) -> dict[str, float]:
    """`KEY=VALUE` pairs as numbers."""
    values: dict[str, float] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if number != number:
            from codepilot.core.failures import CodePilotError, FailureKind

            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"--budget {pair!r} is not KEY=VALUE with a number.",
                next_action="For example: --budget wall_sec=600 --budget iterations=3.",
            )
        values[key.strip()] = number
    return values
