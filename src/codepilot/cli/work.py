"""The commands that give work: fix, submit, demo."""

from __future__ import annotations

import inspect
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli.drive import print_queued, start
from codepilot.cli.options import (
    WORK,
    AgentOption,
    AllFlag,
    ApplyFlag,
    ArtifactsOption,
    BranchOption,
    BudgetOption,
    CapabilityName,
    CapabilityOption,
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
    PlausibleFlag,
    PriorityOption,
    PromptOption,
    PythonOption,
    RefOption,
    RepoArg,
    StoreOption,
    StrategyOption,
    TestHostOption,
    TestOption,
    UnsafeFlag,
    WorktreeOption,
    named,
    parse_budget,
)
from codepilot.cli.output import say
from codepilot.cli.series import repair_all
from codepilot.cli.service import UrlOption, open_pilot

if TYPE_CHECKING:
    from codepilot.engine import CodePilot

_EXITS = """

Exit codes: 0 confirmed, 5 plausible (0 with --accept-plausible), 1 nothing that holds, 2 bad input, 3 waits for a
person, 4 CodePilot failed."""
_FIX = """Examples: codepilot fix · codepilot fix services/api · codepilot fix tests/test_x.py::test_y ·
codepilot fix --all --apply · codepilot fix --budget wall_sec=600 ·
codepilot fix --agent codeact --model anthropic:claude-sonnet-4-6 --prompt 'Totals include tax'"""
_CHANGE = "Example: codepilot change 'Totals are rounded to cents' --accept tests/test_totals.py::test_cents"
_PROVE = "Examples: codepilot prove · codepilot prove --branch fix-rounding · git diff main | codepilot prove --diff -"
_SUBMIT = "Example: codepilot submit https://example.org/shop.git --test tests/test_x.py::test_y --priority 10"


class SpecKind(StrEnum):
    """The kinds of task that have an example."""

    bugfix = "bugfix"
    change = "change"
    prove = "prove"
    build = "build"
    scaffold = "scaffold"
    question = "question"
    batch = "batch"


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=WORK, epilog=_FIX + _EXITS)(fix)
    app.command(rich_help_panel=WORK, epilog=_SUBMIT)(submit)
    app.command(rich_help_panel=WORK, epilog=_CHANGE + _EXITS)(change)
    app.command(rich_help_panel=WORK, epilog=_PROVE + _EXITS)(prove)
    app.command("run", rich_help_panel=WORK)(run_task)
    app.command(rich_help_panel=WORK)(spec)


def fix(
    repo: RepoArg = ".",
    test: TestOption = None,
    prompt: PromptOption = None,
    ref: RefOption = None,
    python: PythonOption = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    fallback_model: FallbackOption = None,
    execution_mode: ModeOption = None,
    strategy: StrategyOption = None,
    worktree: WorktreeOption = None,
    budget: BudgetOption = None,
    apply: ApplyFlag = False,
    dry_run: DryRunFlag = False,
    branch: BranchOption = None,
    accept_plausible: PlausibleFlag = False,
    allow_host: HostOption = None,
    allow_test_host: TestHostOption = None,
    capability: CapabilityOption = CapabilityName.write_and_run_tests,
    interaction: InteractionOption = InteractionName.ask_before_risky,
    unsafe_no_sandbox: UnsafeFlag = False,
    notify: NotifyFlag = None,
    priority: PriorityOption = 0,
    run_id: IdOption = None,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    every: AllFlag = False,
    detach: DetachFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Repair a failing test and prove the change."""
    from codepilot.engine import CodePilot, Request, Settings

    refuse_both(dry_run, apply)
    if every and (clash := next((name for name, given in _one(run_id, branch, detach) if given), None)):
        raise typer.BadParameter(f"It works on several runs, and {clash} is about one.", param_hint="--all")
    settings = Settings.load(flags={"store": store, "artifacts": artifacts})
    with open_pilot(settings) if detach else CodePilot(settings) as pilot:
        request = Request(
            repo=repo,
            tests=tuple(test or ()),
            prompt=prompt,
            ref=ref,
            python=python,
            agent=agent,
            model=pilot.model_named(model),
            fallback_model=fallback_model,
            execution_mode=named(execution_mode),
            strategy=named(strategy),
            worktree=worktree,
            elsewhere=detach,
            budget=parse_budget(budget or ()),
            unsafe_no_sandbox=unsafe_no_sandbox,
            hosts=tuple(allow_host or ()),
            test_hosts=tuple(allow_test_host or ()),
            priority=priority,
            capability=capability.value,
            interaction=interaction.value,
            branch=branch,
            notify=notify,
            dry_run=dry_run,
        )
        if every:
            repair_all(pilot, request, apply=apply, accept_plausible=accept_plausible, as_json=as_json)
        if not detach:
            start(pilot, request, run_id, apply=apply, accept_plausible=accept_plausible, as_json=as_json)
            return
        if apply:
            raise typer.BadParameter("A worker does not write into your checkout.", param_hint="--apply")
        print_queued(pilot, pilot.submit(request, run_id).run_id, as_json=as_json)
        if pilot.warning:
            say(pilot.warning, err=True)


def _one(run_id: str | None, branch: str | None, detach: bool) -> tuple[tuple[str, object], ...]:
    """The options that are about one run."""
    return (("--run", run_id), ("--branch", branch), ("--detach", detach))


def submit(url: UrlOption = None, **options: object) -> None:
    """Queue a task for workers and print the run's id.

    The same as `fix --detach`. A service gets the checkout as it is now.
    """
    fix(**options, detach=True)  # type: ignore[arg-type]


_ONLY_FIX = ("apply", "accept_plausible", "every", "detach")
_signature = inspect.signature(fix, eval_str=True)
submit.__signature__ = _signature.replace(  # type: ignore[attr-defined]
    parameters=[
        *(one for name, one in _signature.parameters.items() if name not in _ONLY_FIX),
        inspect.signature(submit, eval_str=True).parameters["url"],
    ]
)


def change(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="What should be true after the change, in words.")],
    repo: RepoArg = ".",
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEST_OR_COMMAND",
            help="A test that must fail before and pass after, or a command that must succeed after; may be repeated.",
        ),
    ] = None,
    alter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEST", help="An existing test that the change may edit or remove; the others judge it. Repeatable."
        ),
    ] = None,
    ref: RefOption = None,
    python: PythonOption = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    fallback_model: FallbackOption = None,
    execution_mode: ModeOption = None,
    strategy: StrategyOption = None,
    worktree: WorktreeOption = None,
    budget: BudgetOption = None,
    apply: ApplyFlag = False,
    dry_run: DryRunFlag = False,
    branch: BranchOption = None,
    accept_plausible: PlausibleFlag = False,
    allow_host: HostOption = None,
    allow_test_host: TestHostOption = None,
    capability: CapabilityOption = CapabilityName.write_and_run_tests,
    interaction: InteractionOption = InteractionName.ask_before_risky,
    unsafe_no_sandbox: UnsafeFlag = False,
    run_id: IdOption = None,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a change that you describe, under your criteria."""
    from codepilot.core.task import TaskKind
    from codepilot.engine import CodePilot, Request, Settings

    refuse_both(dry_run, apply)
    from codepilot.core.task import split_criteria

    tests, commands = split_criteria(accept or ())
    with CodePilot(Settings.load(flags={"store": store, "artifacts": artifacts})) as pilot:
        request = Request(
            repo=repo,
            kind=TaskKind.CHANGE,
            prompt=what,
            tests=tests,
            accept=commands,
            alters=tuple(alter or ()),
            ref=ref,
            python=python,
            agent=agent or pilot.settings.agent_with_model(),
            model=pilot.model_named(model),
            fallback_model=fallback_model,
            execution_mode=named(execution_mode),
            strategy=named(strategy),
            worktree=worktree,
            budget=parse_budget(budget or ()),
            unsafe_no_sandbox=unsafe_no_sandbox,
            hosts=tuple(allow_host or ()),
            test_hosts=tuple(allow_test_host or ()),
            capability=capability.value,
            interaction=interaction.value,
            branch=branch,
            dry_run=dry_run,
        )
        start(pilot, request, run_id, apply=apply, accept_plausible=accept_plausible, as_json=as_json)


def run_task(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A file with a task as JSON; - reads standard input.")],
    repo: RepoArg = ".",
    apply: ApplyFlag = False,
    dry_run: DryRunFlag = False,
    accept_plausible: PlausibleFlag = False,
    run_id: IdOption = None,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    detach: DetachFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Work on a task that is written down as JSON."""
    from codepilot.engine import CodePilot, Settings

    refuse_both(dry_run, apply)
    with CodePilot(Settings.load(flags={"store": store, "artifacts": artifacts})) as pilot:
        task = pilot.read_task(read_file(spec).decode("utf-8", "replace"), repo)
        if dry_run:
            task = task.model_copy(update={"dry_run": True, "branch": None})
        written = apply or (task.scaffold is not None and not task.dry_run)
        if not detach:
            start(pilot, task, run_id, apply=written, accept_plausible=accept_plausible, as_json=as_json)
        print_queued(pilot, pilot.submit(task, run_id).run_id, as_json=as_json)


def spec(kind: Annotated[SpecKind, typer.Argument(help="The kind of task.")] = SpecKind.bugfix) -> None:
    """Print an example of a task, or of a tasks file for `batch`."""
    from codepilot.core.task_document import EXAMPLES

    if kind is SpecKind.batch:
        from codepilot.batch import EXAMPLE

        say(EXAMPLE.rstrip())
        return
    say(EXAMPLES[kind.value].rstrip())  # type: ignore[index]


def prove(
    repo: RepoArg = ".",
    diff: Annotated[
        str | None, typer.Option(metavar="FILE", help="The change as a diff; - reads standard input.")
    ] = None,
    branch: Annotated[str | None, typer.Option(metavar="NAME", help="The change is this branch.")] = None,
    commit: Annotated[str | None, typer.Option(metavar="REV", help="The change is this commit.")] = None,
    onto: Annotated[
        str | None,
        typer.Option(
            metavar="REV", help="Judge it on this commit. Default: where the branch began, or the commit's parent."
        ),
    ] = None,
    test: TestOption = None,
    python: PythonOption = None,
    budget: BudgetOption = None,
    accept_plausible: PlausibleFlag = False,
    dry_run: DryRunFlag = False,
    allow_test_host: TestHostOption = None,
    unsafe_no_sandbox: UnsafeFlag = False,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as JUnit XML.")] = None,
    sarif: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as SARIF.")] = None,
    run_id: IdOption = None,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Judge a change that anybody made."""
    from codepilot.core.task import TaskKind
    from codepilot.engine import CodePilot, Request, Settings
    from codepilot.store import new_id

    if sum(one is not None for one in (diff, branch, commit)) > 1:
        raise typer.BadParameter("Name one change: by --diff, --branch or --commit.")
    _make_place(junit, "--junit")
    _make_place(sarif, "--sarif")
    with CodePilot(Settings.load(flags={"store": store, "artifacts": artifacts})) as pilot:
        request = Request(
            repo=repo,
            kind=TaskKind.PROVE,
            diff=None if diff is None else read_file(diff),
            changed=branch or commit,
            single=commit is not None,
            ref=onto,
            tests=tuple(test or ()),
            python=python,
            budget=parse_budget(budget or ()),
            test_hosts=tuple(allow_test_host or ()),
            unsafe_no_sandbox=unsafe_no_sandbox,
            dry_run=dry_run,
        )
        run_id = run_id or new_id("r-")
        try:
            start(pilot, request, run_id, accept_plausible=accept_plausible, as_json=as_json)
        except typer.Exit:
            _write_reports(pilot, run_id, junit, sarif)
            raise


def refuse_both(dry_run: bool, apply: bool) -> None:
    if dry_run and apply:
        raise typer.BadParameter("A dry run writes nothing, and --apply writes the change.", param_hint="--dry-run")


def read_file(name: str) -> bytes:
    """The content of a file; `-` is standard input."""
    import sys

    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be read: {error.strerror}.") from error


def _make_place(report: Path | None, option: str) -> None:
    """The directory of a report, before minutes are spent on what it reports."""
    if report is None:
        return
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"{report.parent} cannot be made: {error.strerror}.", param_hint=option) from error
    if report.is_dir() or not os.access(report if report.exists() else report.parent, os.W_OK):
        raise typer.BadParameter(f"{report} cannot be written.", param_hint=option)


def _write_reports(pilot: CodePilot, run_id: str, junit: Path | None, sarif: Path | None) -> None:
    from codepilot.telemetry import junit_xml, sarif_json

    for path, form in ((junit, junit_xml), (sarif, sarif_json)):
        if path is not None:
            path.write_bytes(form(pilot.run(run_id)))
