"""The commands about runs that exist: read, control and apply them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli import output
from codepilot.cli.drive import early_interrupts, finish, notify, print_queued, print_report, say_applied, watch_run
from codepilot.cli.options import (
    RUNS,
    BranchOption,
    DocumentOption,
    JsonFlag,
    JsonLinesFlag,
    ModeName,
    ModeOption,
    PlausibleFlag,
    PythonOption,
    RunArg,
    StrategyName,
    StrategyOption,
    UnsafeFlag,
    parse_budget,
)
from codepilot.cli.output import console, plain, plain_lines, say
from codepilot.cli.service import UrlOption, open_pilot, service_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codepilot.core.interactive import ModeSwitch
    from codepilot.core.run import Run
    from codepilot.engine import CodePilot

MAX_LINK_SEC = 7 * 24 * 3600
_APPLY = "Examples: codepilot apply · codepilot apply r-01m7 --branch fix/{run}"
_RESUME = (
    "Examples: codepilot resume · codepilot resume --budget iterations=20 · codepilot resume r-01m7 --detach ·"
    " codepilot resume --execution-mode deterministic"
)
ResumeBudgetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        metavar="KEY=VALUE",
        help="A new limit, such as iterations=20; may be repeated. Default: the whole budget once more.",
    ),
]


def register(app: typer.Typer) -> None:
    for reading in (watch, history, show, logs, diff, verify):
        app.command(rich_help_panel=RUNS)(reading)
    app.command(rich_help_panel=RUNS, epilog=_APPLY)(apply)
    app.command(rich_help_panel=RUNS, epilog=_RESUME)(resume)
    for control in (pause, cancel, fork, artifacts):
        app.command(rich_help_panel=RUNS)(control)
    app.command("rm", rich_help_panel=RUNS)(remove)


def _open() -> CodePilot:
    from codepilot.engine import Settings

    return open_pilot(Settings.load())


def _without_config() -> CodePilot:
    """For commands that need no configuration: a mistake in it does not stop them."""
    from codepilot.engine import Settings

    return open_pilot(Settings.for_reading())


def history(
    limit: Annotated[int, typer.Option(min=1, max=10**9, help="How many runs to list.")] = 20,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List the runs, newest first."""
    with _without_config() as pilot:
        rows = pilot.runs(limit)
        activities = pilot.activities(*(row.run_id for row in rows))
        if as_json:
            from codepilot.cli.documents import as_document

            found = [{**as_document(row), "activity": activities.get(row.run_id)} for row in rows]
            output.print_json(json.dumps({"schema_version": 1, "runs": found}, ensure_ascii=False))
        elif rows:
            from codepilot.cli.screens import history_table

            screen = console()
            screen.print(history_table(screen, rows, activities), soft_wrap=not screen.is_terminal)
        else:
            say("No runs yet. Try: codepilot demo")


def show(
    run_id: RunArg = "last",
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="With --html: the file to write, - for standard output. Default: RUN.html"),
    ] = None,
    events: Annotated[bool, typer.Option("--events", help="Print the run's events instead, one a line.")] = False,
    html: Annotated[bool, typer.Option("--html", help="Write the run as one self-contained HTML page.")] = False,
    feedback: Annotated[
        bool, typer.Option("--feedback", help="Print summary, changes, errors and references as JSON, for a model.")
    ] = False,
    document: DocumentOption = None,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one run: its state, its cost and its result."""
    with _without_config() as pilot:
        if feedback:
            output.print_json(pilot.feedback(run_id).model_dump_json())
        elif document is not None:
            say(plain_lines(pilot.document(run_id, document).decode("utf-8", "backslashreplace")).rstrip("\n"))
        elif html or file is not None:
            from codepilot.cli.page import write_page

            write_page(pilot, run_id, file, html=html)
        elif events:
            _show_events(pilot, run_id, as_json=as_json)
        elif as_json:
            print_report(pilot, run_id)
        else:
            from codepilot.cli.screens import run_screen

            run_screen(console(), pilot.run(run_id), pilot)


def _show_events(pilot: CodePilot, run_id: str, *, as_json: bool) -> None:
    """The events by their numbers; what is stored of the run is checked against them."""
    from codepilot.cli.screens import when
    from codepilot.telemetry import describe

    run = pilot.run(run_id)
    pilot.check(run.run_id)
    found = pilot.events(run.run_id)
    if as_json:
        from codepilot.cli.documents import as_document

        document = {"run": as_document(run), "events": as_document(found)}
        output.print_json(json.dumps({"schema_version": 1, **document}, ensure_ascii=False))
        return
    for event in found:
        say(f"{event.seq:>5}  {when(event.at)}  {event.type:<20}  {plain(describe(event))}".rstrip())


def watch(run_id: RunArg = "last", url: UrlOption = None, as_json: JsonFlag = False) -> None:
    """Watch a run until it ends or waits, wherever it works.

    Ctrl+C stops watching; the run goes on.
    """
    with _without_config() as pilot:
        watch_run(pilot, run_id, as_json=as_json)


def logs(
    run_id: RunArg = "last",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more lines until the run ends or waits.")
    ] = False,
    url: UrlOption = None,
    as_json: JsonLinesFlag = False,
) -> None:
    """Print a run's log: when, in which state, and what happened."""
    from codepilot.cli.screens import activity_note

    with _without_config() as pilot:
        found = pilot.find(run_id)
        lines = pilot.log(found, follow=follow) if as_json else _log_lines(pilot, found, follow=follow)
        note = activity_note(pilot, found)
        if note and follow:
            say(note, err=True)
        for line in lines:
            if as_json:
                output.print_json(line)
                sys.stdout.flush()
            else:
                say(line)
        if note and not follow:
            say(note, err=as_json)


def _log_lines(pilot: CodePilot, run_id: str, *, follow: bool) -> Iterator[str]:
    """The events as lines, without secrets."""
    from codepilot.cli.screens import when
    from codepilot.core.events import StepQueued
    from codepilot.telemetry import describe

    state = ""
    for event in pilot.follow(run_id) if follow else pilot.events(run_id):
        state = event.data.state if isinstance(event.data, StepQueued) else state
        text = plain(pilot.settings.redact(describe(event)))
        yield f"{when(event.at)}  {state:<9}  {event.type.replace('_', ' ')}{f': {text}' if text else ''}"


def diff(run_id: RunArg = "last", url: UrlOption = None) -> None:
    """Print a run's change as a patch for `git apply`."""
    with _without_config() as pilot:
        patch = pilot.diff(run_id)
    if sys.stdout.isatty():
        from codepilot.cli.screens import coloured

        console().print(coloured(patch))
    else:
        sys.stdout.buffer.write(patch)
        sys.stdout.flush()


def apply(
    run_id: RunArg = "last",
    branch: BranchOption = None,
    accept_plausible: PlausibleFlag = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a proved change into the checkout, or commit it.

    Files that were changed since the run began are never overwritten.
    """
    if branch is not None and service_url():
        raise typer.BadParameter("A service commits to no branch of yours: run `codepilot diff | git apply`.")
    with _without_config() as pilot:
        if branch is not None:
            made = pilot.commit(run_id, branch, accept_plausible=accept_plausible)
            done = f"Committed to {made.branch} of {made.checkout}: {made.commit}."
            say(json.dumps({"schema_version": 1, **made.model_dump()}) if as_json else done)
            return
        applied = pilot.apply(run_id, accept_plausible=accept_plausible)
        if as_json:
            say(json.dumps({"schema_version": 1, "checkout": applied.checkout, "files": list(applied.files)}))
        else:
            say_applied(applied.checkout, applied.files)


def verify(
    bundle: Annotated[
        str, typer.Argument(metavar="BUNDLE", help="A bundle's directory, or the run that made it.")
    ] = "last",
    repo: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A clone that has the base commit. Default: the repository of the run."),
    ] = None,
    python: PythonOption = None,
    unsafe_no_sandbox: UnsafeFlag = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Prove a bundle again and detect any changed byte.

    The proof needs the bundle's files and the base commit, nothing else.
    """
    from codepilot.cli.live import Stages
    from codepilot.core.text import counted

    with _open() as pilot, Stages(console(err=True)) as stages:
        proof = pilot.verify(
            bundle, repo=repo, python=python, unsafe_no_sandbox=unsafe_no_sandbox, on_progress=stages.begin
        )
    if as_json:
        document = {"schema_version": 1, **proof.model_dump(mode="json")}
        output.print_json(json.dumps(document, ensure_ascii=False))
    elif proof.ok:
        from codepilot.verify import REGRESSION_TEST

        passed = proof.after.passed
        verb = "passes" if passed == 1 else "pass"
        say(f"The bundle holds: {counted(passed, 'test')} {verb} after the change; verdict {proof.verdict}.")
        for check in proof.checks:
            if check.name == REGRESSION_TEST and not check.ok:
                say(plain(f"Its regression test does not hold here: {check.evidence}."))
    else:
        say(plain(proof.reason))
    raise typer.Exit(0 if proof.ok else 1)


def resume(
    run_id: RunArg = "last",
    budget: ResumeBudgetOption = None,
    execution_mode: ModeOption = None,
    strategy: StrategyOption = None,
    accept_plausible: PlausibleFlag = False,
    detach: Annotated[bool, typer.Option("--detach", help="Queue the run for workers and print its id.")] = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Continue a run that was paused, killed or blocked.

    If a worker holds the run, its progress is shown.
    """
    with _open() as pilot:
        found = pilot.find(run_id)
        limits = parse_budget(budget or ())
        mode = _mode(execution_mode, strategy)
        if service_url() and not detach:
            pilot.resume(found, limits=limits, mode=mode)
            watch_run(pilot, found, as_json=as_json)
            return
        if detach and not pilot.resume(found, limits=limits, mode=mode).terminal:
            print_queued(pilot, found, as_json=as_json)
            return
        with early_interrupts(found) as recorded:
            recorded.set()
            finish(pilot, lambda: pilot.reopen(found, limits, mode), accept_plausible=accept_plausible, as_json=as_json)


def _mode(execution_mode: ModeName | None, strategy: StrategyName | None) -> ModeSwitch | None:
    """Another mode or strategy, if one is named."""
    from codepilot.core.interactive import ModeSwitch

    if execution_mode is None and strategy is None:
        return None
    return ModeSwitch.model_validate({"execution_mode": execution_mode, "strategy": strategy})


def pause(run_id: RunArg = "last", url: UrlOption = None, as_json: JsonFlag = False) -> None:
    """Stop a run at its next safe point.

    `resume` continues it.
    """
    with _without_config() as pilot:
        before = pilot.run(run_id)
        _say_requested(before, pilot.pause(before.run_id), "pause", as_json=as_json)


def cancel(run_id: RunArg, url: UrlOption = None, as_json: JsonFlag = False) -> None:
    """End a run and remove its workspace."""
    with _without_config() as pilot:
        before = pilot.run(run_id)
        found = pilot.cancel(before.run_id)
        _say_requested(before, found, "cancel", as_json=as_json)
        notify(pilot, found)


def _say_requested(before: Run, now: Run, verb: str, *, as_json: bool) -> None:
    """The outcome of a request to pause or to cancel a run."""
    from codepilot.core.events import TERMINAL, WAITING

    if before.terminal:
        message = f"{now.run_id} is {now.state} already: there is nothing to {verb}."
    elif now.state in TERMINAL | WAITING:
        message = f"{now.run_id} is {now.state}."
    else:
        asked = "is being cancelled" if now.cancel_requested else "pauses after the current action"
        message = f"{now.run_id} {asked}."
    document = {"schema_version": 1, "run_id": now.run_id, "status": now.state, "message": message}
    say(json.dumps(document) if as_json else message)


def fork(
    run_id: RunArg = "last",
    at: Annotated[
        int | None,
        typer.Option(
            metavar="EVENT",
            help="The last event to copy; `show --events` lists them. Default: the newest before the run ended.",
        ),
    ] = None,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Queue a new run that starts from any point of another run.

    `resume` works on it.
    """
    with _without_config() as pilot:
        found = pilot.fork(run_id, at)
        say(json.dumps({"schema_version": 1, "run_id": found.run_id}) if as_json else found.run_id)


def artifacts(
    run_id: RunArg = "last",
    link: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=MAX_LINK_SEC,
            help="Also print where to read each artifact: its file, or on S3 a link valid for this long.",
        ),
    ] = None,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List a run's diffs, reports, snapshots and transcripts."""
    with _without_config() as pilot:
        found = pilot.find(run_id)
        rows = pilot.artifacts(found, link)
    if as_json:
        named = [
            {
                **row.ref.model_dump(mode="json"),
                "uri": row.ref.uri,
                "seq": row.seq,
                "event": row.event,
                "step_id": row.step_id,
                "state": row.state,
                "link": where,
            }
            for row, where in rows
        ]
        say(json.dumps({"schema_version": 1, "run_id": found, "artifacts": named}))
        return
    for row, where in rows:
        line = f"{row.seq:6} {row.event:20} {row.state or '':10} {row.ref.size_bytes:10} {row.ref.uri}"
        say(line if link is None else f"{line} {where or 'gone'}")
    if not rows:
        say("This run has no artifacts.")


def remove(
    run_ids: Annotated[list[str], typer.Argument(metavar="RUN", help="Ids of runs, starts of ids, or 'last'.")],
    force: Annotated[bool, typer.Option("--force", help="Cancel a run that is at work, then remove it.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove runs with all that only they need."""
    from dataclasses import asdict

    from codepilot.core.text import counted

    if service_url():
        raise typer.BadParameter("Runs of a service are removed on its machine: unset CODEPILOT_URL there.")
    with _without_config() as pilot:
        removed = [pilot.remove(run_id, force=force) for run_id in run_ids]
    if as_json:
        say(json.dumps({"schema_version": 1, "runs": [asdict(one) for one in removed]}))
        return
    for one in removed:
        if not one.existed:
            say(f"{one.run_id} was removed before.")
            continue
        say(f"{one.run_id} removed, with {counted(one.artifacts, 'artifact')}.")
        if one.artifacts_left:
            say(f"{counted(one.artifacts_left, 'artifact')} may be needed; `codepilot gc --artifacts 1` decides.")
