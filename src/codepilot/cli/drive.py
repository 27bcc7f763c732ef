"""A run that this command works on: say what will run, show it, print how it ended, exit accordingly."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import typer

from codepilot.cli import output
from codepilot.cli.output import console, plain, say

if TYPE_CHECKING:
    from codepilot.cli.live import Watcher
    from codepilot.core.failures import Failure
    from codepilot.core.run import Run
    from codepilot.engine import Begun, CodePilot, Request


def start(
    pilot: CodePilot,
    request: Request,
    run_id: str | None = None,
    *,
    apply: bool = False,
    accept_plausible: bool = False,
    as_json: bool = False,
) -> None:
    """Print what will run, where and in which sandbox; then record the run and work on it."""
    from codepilot.cli.screens import opening
    from codepilot.store import new_id

    task, run_id = pilot.task(request), run_id or new_id("r-")
    with early_interrupts(run_id) as recorded:
        if not (as_json or output.quiet()):
            console().print(opening(task, run_id, pilot.settings, pilot.level(task)))

        def begin() -> Begun:
            begun = pilot.begin(task, run_id)
            recorded.set()
            return begun

        finish(pilot, begin, apply=apply, accept_plausible=accept_plausible, as_json=as_json)


def finish(
    pilot: CodePilot,
    begin: Callable[[], Begun],
    *,
    apply: bool = False,
    accept_plausible: bool = False,
    as_json: bool = False,
) -> None:
    """Work on the run until it ends or waits, show it, apply it if asked to, and exit with its code.

    It begins when everything is loaded: from then on an interrupt pauses it.
    """
    from codepilot.cli.screens import ending, failure
    from codepilot.core.failures import CodePilotError
    from codepilot.telemetry import EXIT_PLAUSIBLE, EXIT_VERIFIED, exit_code, exit_code_of

    found = _work(pilot, begin(), quiet=as_json or output.quiet())
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
        notify(pilot, found)  # before the document, which says what became of it
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


def _work(pilot: CodePilot, begun: Begun, *, quiet: bool) -> Run:
    """Work in a thread; the screen and the signals are here."""
    from codepilot.cli.live import make_watcher

    run = begun.run
    watcher = make_watcher(console(), run, pilot.events(run.run_id)[: run.last_seq], quiet=quiet)
    ended: list[Run] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            ended.append(pilot.work(begun, on_event=watcher.show, on_text=watcher.hear))
        except BaseException as error:  # noqa: BLE001 - carried to the main thread and raised there
            failures.append(error)

    thread = threading.Thread(target=work, name="worker", daemon=True)
    with watcher, _signals(pilot, run.run_id, watcher):
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
    if failures:
        raise failures[0]
    return ended[0]


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


def say_applied(checkout: str, files: tuple[str, ...]) -> None:
    say(plain(f"Applied to {checkout}: {', '.join(files) or 'it was already there'}."))


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
def _signals(pilot: CodePilot, run_id: str, watcher: Watcher) -> Iterator[None]:
    """Ctrl+C and SIGTERM pause the run, also in another worker; Ctrl+\\ quits at once. Nothing recorded is lost."""
    asking: list[threading.Thread] = []

    def ask() -> None:
        from codepilot.core.failures import CodePilotError

        try:
            pilot.pause(run_id)
        except CodePilotError as error:
            watcher.say(f"The run could not be paused: {error}")

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        watcher.say("Pausing at the next safe point (Ctrl+\\ quits at once) ...")
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
