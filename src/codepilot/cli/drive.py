"""Work on a run or watch one: show it as it happens, print how it ended, exit with its code."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import typer

from codepilot.cli import output
from codepilot.cli.output import console, plain, say

if TYPE_CHECKING:
    from codepilot.cli.live import RunView
    from codepilot.core.failures import Failure
    from codepilot.core.run import Run
    from codepilot.core.task import TaskSpec
    from codepilot.engine import Begun, CodePilot, Request

LOOK_SEC = 1.0
"""How often `watch` looks whether anybody works on the run."""


def start(
    pilot: CodePilot,
    request: Request | TaskSpec,
    run_id: str | None = None,
    *,
    apply: bool = False,
    accept_plausible: bool = False,
    as_json: bool = False,
) -> None:
    """Print what will run, where and in which sandbox; then record the run and work on it."""
    from codepilot.cli.screens import opening
    from codepilot.core.task import TaskSpec
    from codepilot.store import new_id

    task = request if isinstance(request, TaskSpec) else pilot.task(request)
    run_id = run_id or new_id("r-")
    with early_interrupts(run_id) as recorded:
        if not (as_json or output.quiet()):
            console().print(opening(task, run_id, pilot.settings, pilot.level(task)))

        def begin() -> Begun:
            begun = pilot.begin(task, run_id)
            recorded.set()
            return begun

        finish(pilot, begin, apply=apply, accept_plausible=accept_plausible, as_json=as_json)


def print_queued(pilot: CodePilot, run_id: str, *, as_json: bool = False) -> None:
    """Print the id of a queued run; on standard error, whether anybody will work on it."""
    from codepilot.cli.screens import activity_note

    say(json.dumps({"schema_version": 1, "run_id": run_id}) if as_json else run_id)
    if not output.quiet() and (note := activity_note(pilot, run_id)):
        say(note, err=True)


def finish(
    pilot: CodePilot,
    begin: Callable[[], Begun],
    *,
    apply: bool = False,
    accept_plausible: bool = False,
    as_json: bool = False,
) -> None:
    """Work on the run until it ends or waits, show it, apply it if asked to, and exit with its code.

    `begin` is called when everything is loaded: from then on an interrupt pauses the run.
    """
    from codepilot.cli.screens import ending, failure
    from codepilot.core.failures import CodePilotError
    from codepilot.telemetry import EXIT_PLAUSIBLE, EXIT_VERIFIED, exit_code, exit_code_of

    found = watched(pilot, begin(), transient=as_json)
    code, applied, refused = exit_code(found, accept_plausible=accept_plausible), None, None
    proved = code in (EXIT_VERIFIED, EXIT_PLAUSIBLE)
    if proved and apply:
        try:
            applied = pilot.apply(found.run_id, accept_plausible=accept_plausible)
        except CodePilotError as error:
            refused = error.failure
    if proved and found.uncommitted and found.task.branch:
        try:
            pilot.commit(found.run_id, found.task.branch, accept_plausible=accept_plausible)
            found = pilot.run(found.run_id)
        except CodePilotError as error:
            refused = error.failure
    if refused is not None:
        code = exit_code_of(refused, found=True)
    if as_json:
        notify(pilot, found)  # before the document, which reports the outcome
        print_report(pilot, found.run_id, refused)
    else:
        pilot.fetch_bundle(found.run_id)
        screen = console()
        ending(screen, found, pilot, applied=applied is not None)
        if applied is not None:
            say_applied(applied.checkout, applied.files)
        if refused is not None:
            failure(screen, refused)
        notify(pilot, found)
    raise typer.Exit(code)


def watched(pilot: CodePilot, begun: Begun, *, transient: bool) -> Run:
    """Work until the run ends or waits. What it asks for is asked here on a terminal; with an answer it goes on."""
    from codepilot.cli.ask import ask_here

    found = _worked(pilot, begun, transient=transient)
    while not transient and ask_here(pilot, found):
        found = _worked(pilot, pilot.reopen(found.run_id), transient=transient)
    return found


def _worked(pilot: CodePilot, begun: Begun, *, transient: bool) -> Run:
    """Work in a thread; the view and the signals are here."""
    from codepilot.cli.live import make_view

    run = begun.run
    view = make_view(console(err=True), run, pilot.events(run.run_id)[: run.last_seq], transient=transient)
    ended: list[Run] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            ended.append(pilot.work(begun, on_event=view.on_event, on_text=view.on_text))
        except BaseException as error:  # noqa: BLE001 - carried to the main thread and raised there
            failures.append(error)

    thread = threading.Thread(target=work, name="worker", daemon=True)
    with view, _signals(pilot, run.run_id, view):
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
    if failures:
        raise failures[0]
    return ended[0]


def watch_run(pilot: CodePilot, run_id: str, *, as_json: bool) -> None:
    """Show a run that any process works on until it ends or waits, then its result. It goes on without us."""
    from codepilot.cli.ask import ask_here
    from codepilot.cli.live import make_view
    from codepilot.cli.screens import activity_note, ending
    from codepilot.telemetry import exit_code

    run = pilot.run(run_id)
    view = make_view(console(err=True), run, [], hint=WATCHED, transient=as_json)
    looked = [0.0]

    def look() -> bool:
        if time.monotonic() - looked[0] >= LOOK_SEC:
            view.message(activity_note(pilot, run.run_id))
            looked[0] = time.monotonic()
        return False

    try:
        after = 0
        while True:
            with view:
                for event in pilot.follow(run.run_id, after, stop=look):
                    view.on_event(event)
                    after = event.seq
            if as_json or not ask_here(pilot, pilot.run(run.run_id)):
                break
            view = make_view(console(err=True), run, pilot.events(run.run_id)[:after], hint=WATCHED)
    except KeyboardInterrupt:
        say(f"{_state_of(pilot, run.run_id)} Watch it again: codepilot watch {run.run_id}", err=True)
        raise typer.Exit(130) from None
    found = pilot.run(run.run_id)
    if as_json:
        print_report(pilot, found.run_id)
    else:
        pilot.fetch_bundle(found.run_id)
        ending(console(), found, pilot, applied=False)
    raise typer.Exit(exit_code(found))


WATCHED = "Ctrl+C stops watching; the run goes on."


def _state_of(pilot: CodePilot, run_id: str) -> str:
    """What becomes of a run that is no longer watched."""
    activity = pilot.activities(run_id).get(run_id)
    return f"The run is {activity}." if activity in ("queued", "interrupted") else "The run goes on."


def notify(pilot: CodePilot, run: Run) -> None:
    """Try once to send what is pending. The command has done its work, whatever comes of this."""
    if not run.task.notify:
        return
    try:
        problem = pilot.notify(run.run_id)
    except KeyboardInterrupt:
        problem = "it was interrupted."
    if problem:
        say(f"The end of the run could not be notified: {problem}", err=True)


def print_report(pilot: CodePilot, run_id: str, refused: Failure | None = None) -> None:
    document = pilot.report(run_id)
    if refused is not None:
        from codepilot.telemetry import reported

        document = document.model_copy(update={"failure": reported(refused)})
    output.print_json(document.model_dump_json())


def say_applied(checkout: str, files: tuple[str, ...], *, err: bool = False) -> None:
    say(plain(f"Applied to {checkout}: {', '.join(files) or 'it was already there'}."), err=err)


@contextmanager
def early_interrupts(run_id: str) -> Iterator[threading.Event]:
    """Set the event once the run is recorded: an interrupt then says how to go on, one before that nothing began."""
    recorded = threading.Event()
    try:
        yield recorded
    except KeyboardInterrupt:
        what = f"Go on with: codepilot resume {run_id}" if recorded.is_set() else "Nothing was begun."
        say(f"\nInterrupted. {what}", err=True)
        raise SystemExit(130) from None


@contextmanager
def _signals(pilot: CodePilot, run_id: str, view: RunView) -> Iterator[None]:
    """Ctrl+C and SIGTERM pause the run, also in another worker; Ctrl+\\ quits at once. Nothing recorded is lost."""
    asking: list[threading.Thread] = []

    def ask() -> None:
        from codepilot.core.failures import CodePilotError

        try:
            pilot.pause(run_id)
        except CodePilotError as error:
            view.message(f"The run could not be paused: {error}")

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        view.message("Pausing at the next safe point (Ctrl+\\ quits at once) ...")
        asking.append(threading.Thread(target=ask, name="pause", daemon=True))
        asking[-1].start()

    def quit_now(signum: int, frame: FrameType | None) -> None:
        if isinstance(sys.stderr, output.SafeStream) and sys.stderr.isatty():
            sys.stderr.write_styled("\x1b[?25h\n")  # show the cursor again
        say(f"Quit. Go on with: codepilot resume {run_id}", err=True)
        sys.stderr.flush()
        os._exit(131)

    previous = {
        signal.SIGINT: signal.signal(signal.SIGINT, on_interrupt),
        signal.SIGTERM: signal.signal(signal.SIGTERM, on_interrupt),
        signal.SIGQUIT: signal.signal(signal.SIGQUIT, quit_now),
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        for thread in asking:
            thread.join()
