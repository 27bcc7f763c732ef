"""`codepilot build`: from a description to a tested program in a new directory."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli.drive import print_queued, start
from codepilot.cli.options import (
    WORK,
    AgentOption,
    ArtifactsOption,
    BudgetOption,
    DetachFlag,
    DryRunFlag,
    FallbackOption,
    HostOption,
    IdOption,
    InteractionName,
    InteractionOption,
    JsonFlag,
    ModelOption,
    ModeOption,
    NotifyFlag,
    PriorityOption,
    PythonOption,
    StoreOption,
    StrategyOption,
    TestHostOption,
    UnsafeFlag,
    WorktreeOption,
    may_be_left,
    named,
    parse_budget,
)
from codepilot.cli.output import console, plain, say

if TYPE_CHECKING:
    from rich.table import Table

    from codepilot.core.task import TaskSpec
    from codepilot.engine import CodePilot

_BUILD = """Examples: codepilot build "A REST API for todos with creating, listing and deleting" ·
codepilot build "A CLI that converts CSV to JSON" --language node --out csv2json --yes"""


class LanguageName(StrEnum):
    """The languages in which programs are built."""

    python = "python"
    node = "node"
    java = "java"


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=WORK, epilog=_BUILD)(build)


def build(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="What the program does, in 10 to 500 characters.")
    ] = None,
    language: Annotated[
        LanguageName | None, typer.Option("--language", "-l", help="The program's language. Default: python.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="The program's directory. Default: named after the task."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin without asking.")] = False,
    python: PythonOption = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    fallback_model: FallbackOption = None,
    execution_mode: ModeOption = None,
    strategy: StrategyOption = None,
    worktree: WorktreeOption = None,
    budget: BudgetOption = None,
    allow_host: HostOption = None,
    allow_test_host: TestHostOption = None,
    interaction: InteractionOption = InteractionName.ask_before_risky,
    dry_run: DryRunFlag = False,
    unsafe_no_sandbox: UnsafeFlag = False,
    notify: NotifyFlag = None,
    priority: PriorityOption = 0,
    run_id: IdOption = None,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    detach: DetachFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Build a program with tests from a description.

    Without TASK it asks for one. On a terminal it shows a summary with the estimated cost first.
    """

    from codepilot.core.build_task import check_build_task, directory_name
    from codepilot.core.task import TaskKind
    from codepilot.engine import CodePilot, Request, Settings

    asks = sys.stdin.isatty() and sys.stdout.isatty() and not (yes or as_json or detach)
    if task is None:
        with may_be_left(NOTHING):
            task, language = ask_task(language)
    asked = check_build_task(task)
    directory = (out or free_directory(Path.cwd(), directory_name(asked))).expanduser().absolute()
    with CodePilot(Settings.load(flags={"store": store, "artifacts": artifacts})) as pilot:
        request = Request(
            repo=str(directory),
            kind=TaskKind.BUILD,
            language=(language or LanguageName.python).value,
            prompt=asked,
            python=python,
            agent=agent,
            model=pilot.model_named(model),
            fallback_model=fallback_model,
            execution_mode=named(execution_mode),
            strategy=named(strategy),
            worktree=worktree,
            elsewhere=detach,
            budget=parse_budget(budget or ()),
            interaction=interaction.value,
            dry_run=dry_run,
            unsafe_no_sandbox=unsafe_no_sandbox,
            hosts=tuple(allow_host or ()),
            test_hosts=tuple(allow_test_host or ()),
            priority=priority,
            notify=notify,
        )
        spec = pilot.task(request)
        if asks:
            console().print(summary(spec, pilot))
        with may_be_left(NOTHING):
            refused = asks and not typer.confirm("Proceed?", default=True)
        if refused:
            say(NOTHING)
            raise typer.Exit(131)
        if not detach:
            start(pilot, spec, run_id, as_json=as_json)
        print_queued(pilot, pilot.submit(spec, run_id).run_id, as_json=as_json)


NOTHING = "Nothing was begun."


def ask_task(language: LanguageName | None) -> tuple[str, LanguageName]:
    """Ask for the task and the language on a terminal; elsewhere a missing task is a mistake."""
    from codepilot.core.build_task import check_build_task
    from codepilot.core.failures import CodePilotError

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        check_build_task("")
    while True:
        try:
            task = check_build_task(typer.prompt("What should the program do?", prompt_suffix=" "))
            break
        except CodePilotError as error:
            say(plain(f"{error} {error.failure.advice}"), err=True)
    if language is None:
        names = "/".join(LanguageName)
        while (given := typer.prompt(f"Language ({names})", default="python").strip().lower()) not in list(
            LanguageName
        ):
            say(plain(f"Programs are not built in {given!r}."), err=True)
        language = LanguageName(given)
    return task, language


MOST_NUMBERED = 1000


def free_directory(parent: Path, name: str) -> Path:
    """A directory of this name that is not there or empty; else the same with a number."""
    for number in range(1, MOST_NUMBERED):
        place = parent / (name if number == 1 else f"{name}-{number}")
        if not place.exists() or (place.is_dir() and next(place.iterdir(), None) is None):
            return place
    raise typer.BadParameter(f"There are {MOST_NUMBERED} directories called {name}.", param_hint="--out")


def summary(task: TaskSpec, pilot: CodePilot) -> Table:
    """What will be built, where, and what that may cost."""
    from rich.text import Text

    from codepilot.cli.screens import facts

    table = facts()
    table.add_row("task", Text(plain(task.goal.natural)))
    table.add_row("language", Text(task.language or "python"))
    table.add_row("directory", Text(plain(task.repo)))
    table.add_row("iterations", Text(f"at most {task.budget.iterations}"))
    table.add_row("estimated cost", Text(plain(str(pilot.estimate(task)))))
    return table
