"""A run that is asked for at this door: say what will run, see it to its end, show what came of it, exit by that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from codepilot.cli import output
from codepilot.cli.base import open_runtime
from codepilot.cli.output import console, say
from codepilot.cli.text import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from codepilot.core.failures import Failure
    from codepilot.core.run import Run
    from codepilot.engine import Begun, Request, Runtime


def start(request: Request, *, apply: bool = False, accept_plausible: bool = False, as_json: bool = False) -> None:
    """Say what will run, where and how confined; then record the run and drive it."""
    from codepilot.cli.screens import opening
    from codepilot.cli.signals import early_interrupts
    from codepilot.engine import Settings, begin, level_of, make_task
    from codepilot.store import new_id

    settings = Settings.load()
    task, run_id = make_task(request, settings), new_id("r-")
    with early_interrupts(run_id) as recorded:
        if not as_json:
            level = level_of(task, settings)
            console().print(opening(task, run_id, settings.home, level, settings.executor.url))
        with open_runtime() as runtime:

            def ask() -> Begun:
                begun = begin(runtime, task, run_id)
                recorded.set()
                return begun

            finish(runtime, ask, apply=apply, accept_plausible=accept_plausible, as_json=as_json)


def finish(
    runtime: Runtime,
    ask: Callable[[], Begun],
    *,
    apply: bool = False,
    accept_plausible: bool = False,
    as_json: bool = False,
) -> None:
    """See the run to its end, show it, apply it if that was asked for, and exit with the code that follows.

    It is asked for when everything is loaded: from then on an interrupt is to pause it, and that must be at hand.
    """
    from codepilot.cli.drive import drive, notify
    from codepilot.cli.screens import ending, failure
    from codepilot.core.failures import CodePilotError
    from codepilot.engine import apply_run, commit_run, fetch_bundle, patch_of
    from codepilot.telemetry import exit_code, exit_code_of

    screen = console()
    found = drive(runtime, ask(), screen, quiet=as_json)
    code, applied, refused = exit_code(found), None, None
    if code == 0 and apply:
        try:
            applied = apply_run(runtime, found.run_id, accept_plausible=accept_plausible)
        except CodePilotError as error:
            refused = error.failure
    if code == 0 and found.uncommitted and found.task.branch:
        try:
            commit_run(runtime, found.run_id, found.task.branch, accept_plausible=accept_plausible)
            found = runtime.store.load(found.run_id)
        except CodePilotError as error:
            refused = error.failure
    if refused is not None:
        code = exit_code_of(refused, found=True)
    if as_json:
        notify(runtime, found)  # before the document, which tells what became of it
        print_json(runtime, found, refused)
    else:
        fetch_bundle(found, runtime.store.events(found.run_id), runtime)
        ending(screen, found, patch_of(runtime, found), runtime, applied=applied is not None)
        if applied is not None:
            say_applied(applied.checkout, applied.files)
        if refused is not None:
            failure(screen, refused)
        notify(runtime, found)
    raise typer.Exit(code)


def say_applied(checkout: str, files: tuple[str, ...]) -> None:
    say(plain(f"Applied to {checkout}: {', '.join(files) or 'it was already there'}."))


def say_requested(before: Run, now: Run, verb: str, *, as_json: bool) -> None:
    """What became of a request to pause or to cancel a run."""
    from codepilot.cli.telling import requested

    said = requested(before, now, verb)
    document = {"schema_version": 1, "run_id": now.run_id, "status": now.state, "message": said}
    say(json.dumps(document) if as_json else said)


def print_json(runtime: Runtime, found: Run, refused: Failure | None = None) -> None:
    from codepilot.engine import report_run
    from codepilot.telemetry import reported

    events = runtime.store.events(found.run_id)
    if found.bundle is not None:
        from codepilot.engine import fetch_bundle

        fetch_bundle(found, events, runtime)
    document = report_run(found, events, runtime.home)
    if found.task.notify:
        from codepilot.engine import notifications_of

        document = document.model_copy(update={"notifications": notifications_of(runtime, found.run_id)})
    if refused is not None:
        document = document.model_copy(update={"failure": reported(refused)})
    output.print_json(document.model_dump_json())
