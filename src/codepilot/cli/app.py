"""The `codepilot` command: its global options, and how it ends when something fails."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from codepilot.cli import (
    approvals,
    batch,
    build,
    demo,
    init,
    land,
    memory,
    output,
    policy,
    prepare,
    review,
    runs,
    scaffold,
    serve,
    sessions,
    team,
    upkeep,
    work,
)
from codepilot.cli.bench import bench
from codepilot.cli.errors import fail, failure_of, refuse_other_bytes
from codepilot.cli.options import MEASURE, app, be_quiet_or_verbose


def run() -> None:
    """Run the command. A failure becomes two lines and an exit code."""
    ignore_signals_without_inheritance()
    output.prepare()
    try:
        refuse_other_bytes(sys.argv[1:])
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # the reader has read enough
        output.give_up(sys.stdout)
        raise SystemExit(1) from None
    except Exception as error:
        raise SystemExit(fail(failure_of(error))) from error


def ignore_signals_without_inheritance() -> None:
    """Replace ignored signals by empty handlers. Child processes inherit SIG_IGN, which nohup and background shells
    set, but no handlers: they can be interrupted.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python restores these for children
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no progress.")] = False,
    verbose: Annotated[
        int,
        typer.Option("--verbose", "-v", count=True, show_default=False, help="Log to standard error; -vv logs more."),
    ] = 0,
) -> None:
    be_quiet_or_verbose(quiet=quiet, verbose=verbose)
    if version:
        from codepilot import __version__

        output.say(f"codepilot {__version__}")
        raise typer.Exit


work.register(app)
build.register(app)
scaffold.register(app)
batch.register(app)
demo.register(app)
runs.register(app)
sessions.register(app)
review.register(app)
land.register(app)
approvals.register(app)
policy.register(app)
memory.register(app)
team.register(app)
serve.register(app)
init.register(app)
prepare.register(app)
upkeep.register(app)
app.add_typer(bench, name="bench", rich_help_panel=MEASURE)
