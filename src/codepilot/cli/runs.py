"""The commands about runs that exist: read, control and apply them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli import output
from codepilot.cli.drive import early_interrupts, finish, notify, print_report, say_applied
from codepilot.cli.options import (
    RUNS,
    BranchOption,
    JsonFlag,
    PlausibleFlag,
    PythonOption,
    RunArg,
    UnsafeFlag,
)
from codepilot.cli.output import console, plain, say

if TYPE_CHECKING:
    from codepilot.core.run import Run
    from codepilot.engine import CodePilot

MAX_LINK_SEC = 7 * 24 * 3600
_APPLY = "Examples: codepilot apply · codepilot apply r-01m7 --branch fix/{run}"
_RESUME = "Examples: codepilot resume · codepilot resume r-01m7 --detach"


def register(app: typer.Typer) -> None:
    for reading in (history, show, logs, diff, verify):
        app.command(rich_help_panel=RUNS)(reading)
    app.command(rich_help_panel=RUNS, epilog=_APPLY)(apply)
    app.command(rich_help_panel=RUNS, epilog=_RESUME)(resume)
    for control in (pause, cancel, fork, artifacts):
        app.command(rich_help_panel=RUNS)(control)


def _open() -> CodePilot:
    from codepilot.engine import CodePilot, Settings

    return CodePilot(Settings.load())


def _read() -> CodePilot:
    """For commands that only read: a mistake in the configuration does not stop them."""
    from codepilot.engine import CodePilot, Settings

    return CodePilot(Settings.for_reading())


def history(
    limit: Annotated[int, typer.Option(min=1, max=10**9, help="How many runs to list.")] = 20, as_json: JsonFlag = False
) -> None:
    """List the runs, newest first."""
    with _read() as pilot:
        rows = pilot.runs(limit)
        if as_json:
            from dataclasses import asdict

            say(json.dumps([asdict(row) for row in rows], default=str))
        elif rows:
            from codepilot.cli.screens import history_table

            screen = console()
            screen.print(history_table(screen, rows), soft_wrap=not screen.is_terminal)
        else:
            say("No runs yet. Try: codepilot demo")


def show(
    run_id: RunArg = "last",
    events: Annotated[bool, typer.Option("--events", help="Print the run's events instead, one a line.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show one run: its state, its cost and its result."""
    with _read() as pilot:
        if events:
            _show_events(pilot, run_id, as_json=as_json)
        elif as_json:
            print_report(pilot, run_id)
        else:
            from codepilot.cli.screens import run_screen

            run_screen(console(), pilot.run(run_id), pilot)


def _show_events(pilot: CodePilot, run_id: str, *, as_json: bool) -> None:
    """The events by their numbers; what is stored of the run is checked against them."""
    from codepilot.cli.progress import describe
    from codepilot.cli.screens import when

    run = pilot.run(run_id)
    pilot.check(run.run_id)
    found = pilot.events(run.run_id)
    if as_json:
        document = {"run": run.model_dump(mode="json"), "events": [event.model_dump(mode="json") for event in found]}
        output.print_json(json.dumps({"schema_version": 1, **document}, ensure_ascii=False))
        return
    for event in found:
        say(f"{event.seq:>5}  {when(event.at)}  {event.type:<20}  {plain(describe(event))}".rstrip())


def logs(
    run_id: RunArg = "last",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more lines until the run ends or waits.")
    ] = False,
) -> None:
    """Print a run's log, one JSON object a line."""
    with _read() as pilot:
        for line in pilot.log(run_id, follow=follow):
            output.print_json(line)
            if follow:
                sys.stdout.flush()


def diff(run_id: RunArg = "last") -> None:
    """Print a run's change as a patch for `git apply`."""
    with _read() as pilot:
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
    as_json: JsonFlag = False,
) -> None:
    """Write a proved change into the checkout, or commit it.

    Files that were changed since the run began are never overwritten.
    """
    with _open() as pilot:
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
    as_json: JsonFlag = False,
) -> None:
    """Prove a bundle again and detect any changed byte.

    The proof needs the bundle's files and the base commit, nothing else.
    """
    from codepilot.cli.options import counted

    with _open() as pilot:
        proof = pilot.verify(bundle, repo=repo, python=python, unsafe_no_sandbox=unsafe_no_sandbox)
    if as_json:
        output.print_json(proof.model_dump_json())
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
    accept_plausible: PlausibleFlag = False,
    detach: Annotated[bool, typer.Option("--detach", help="Queue the run for workers and print its id.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Continue a run that was paused, killed, blocked or out of budget.

    If a worker holds the run, its progress is shown.
    """
    with _open() as pilot:
        found = pilot.find(run_id)
        if detach and not pilot.resume(found).terminal:
            say(json.dumps({"schema_version": 1, "run_id": found}) if as_json else found)
            return
        with early_interrupts(found) as recorded:
            recorded.set()
            finish(pilot, lambda: pilot.reopen(found), accept_plausible=accept_plausible, as_json=as_json)


def pause(run_id: RunArg = "last", as_json: JsonFlag = False) -> None:
    """Stop a run at its next safe point.

    `resume` continues it.
    """
    with _open() as pilot:
        before = pilot.run(run_id)
        _say_requested(before, pilot.pause(before.run_id), "pause", as_json=as_json)


def cancel(run_id: RunArg, as_json: JsonFlag = False) -> None:
    """End a run and remove its workspace."""
    with _open() as pilot:
        before = pilot.run(run_id)
        found = pilot.cancel(before.run_id)
        _say_requested(before, found, "cancel", as_json=as_json)
        notify(pilot, found)


def _say_requested(before: Run, now: Run, verb: str, *, as_json: bool) -> None:
    """What became of a request to pause or to cancel a run."""
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
    as_json: JsonFlag = False,
) -> None:
    """Queue a new run that starts from any point of another run.

    `resume` works on it.
    """
    with _open() as pilot:
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
    as_json: JsonFlag = False,
) -> None:
    """List a run's diffs, reports, snapshots and transcripts."""
    with _read() as pilot:
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
