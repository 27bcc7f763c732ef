"""See to a run from this process: the worker in a thread, the screen and the signals here."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from codepilot.cli.live import Watcher, make_watcher
from codepilot.cli.output import SafeStream, say
from codepilot.core.failures import CodePilotError
from codepilot.core.run import Run
from codepilot.engine import Begun, Runtime, Worker, pause


def drive(runtime: Runtime, begun: Begun, console: Console, *, quiet: bool) -> Run:
    """Work on the run, or follow whoever does, until it ends or waits; returns it as it then is.

    What happened since it was as it is given is shown.
    """
    run = begun.run
    history = runtime.store.events(run.run_id, limit=run.last_seq)
    watcher = make_watcher(console, run, history, quiet=quiet)
    worker = Worker(runtime, on_event=watcher.show, on_text=watcher.hear, begun=begun)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            worker.drive(run.run_id, run.last_seq)
        except BaseException as error:  # noqa: BLE001 - carried to the main thread and raised there
            failures.append(error)

    thread = threading.Thread(target=work, name="worker", daemon=True)
    with watcher, _signals(runtime, run.run_id, watcher):
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
    if failures:
        raise failures[0]
    return runtime.store.load(run.run_id)


def notify(runtime: Runtime, run: Run) -> None:
    """Post the run's end once. The command has done its work, whatever comes of this."""
    if not run.task.notify:
        return
    from codepilot.engine import notify as post

    try:
        problem = post(runtime, run.run_id)
    except KeyboardInterrupt:
        problem = "it was interrupted."
    if problem:
        say(f"Its end could not be notified: {problem}", err=True)


@contextmanager
def _signals(runtime: Runtime, run_id: str, watcher: Watcher) -> Iterator[None]:
    """Ctrl+C and SIGTERM pause, whoever works on the run; Ctrl+\\ quits at once. Nothing durable is lost by either."""
    asking: list[threading.Thread] = []

    def ask() -> None:
        try:
            pause(runtime, run_id)
        except CodePilotError as error:
            watcher.say(f"It could not be asked to pause: {error}")

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        watcher.say("Pausing at the next safe point (Ctrl+\\ quits at once) ...")
        asking.append(threading.Thread(target=ask, name="pause", daemon=True))
        asking[-1].start()

    def quit_now(signum: int, frame: FrameType | None) -> None:
        if isinstance(sys.stderr, SafeStream) and sys.stderr.isatty():
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
