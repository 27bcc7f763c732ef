"""The commands about interactive runs: their checkpoints, messages to the agent, rollbacks, and its live stream."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli import output
from codepilot.cli.options import RUNS, JsonFlag, RunArg
from codepilot.cli.output import console, plain, plain_lines, say
from codepilot.cli.service import UrlOption, open_pilot

if TYPE_CHECKING:
    from codepilot.core.checkpoint import CheckpointRecorded
    from codepilot.core.events import Event
    from codepilot.core.run import Run
    from codepilot.engine import Asked, CodePilot, Listed

WAIT_SEC = 30.0
"""How long a command waits until a worker has carried a request out."""
MOST_SHOWN = 20
"""How many violations of a checkpoint are printed."""
_ROLLBACK = (
    "Examples: codepilot rollback · codepilot rollback r-01m7 --checkpoint ckpt-01m8 · codepilot rollback r-01m7"
    " --files src/app.py · codepilot rollback r-01m7 --smart"
)
_CHECKPOINTS = (
    "Examples: codepilot checkpoints r-01m7 · codepilot checkpoints r-01m7 --diff ckpt-01m8 · codepilot checkpoints"
    " r-01m7 --compare start last"
)
_MESSAGE = "Example: codepilot message r-01m7 'keep the public API as it is'"
CheckpointOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="ID",
        help="The checkpoint to go back to. Default: the last valid one before the present state.",
    ),
]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=RUNS, epilog=_CHECKPOINTS)(checkpoints)
    app.command(rich_help_panel=RUNS, epilog=_ROLLBACK)(rollback)
    app.command(rich_help_panel=RUNS, epilog=_MESSAGE)(message)
    app.command(rich_help_panel=RUNS)(attach)


def _open() -> CodePilot:
    from codepilot.engine import Settings

    return open_pilot(Settings.for_reading())


def checkpoints(
    run_id: RunArg = "last",
    diff: Annotated[
        str | None, typer.Option(metavar="ID", help="Print a checkpoint's change since the one before as a patch.")
    ] = None,
    total: Annotated[bool, typer.Option("--total", help="With --diff: the change since the base.")] = False,
    changes: Annotated[
        str | None, typer.Option(metavar="ID", help="Print every file change that a checkpoint took, as JSON lines.")
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="FROM TO", help="Print the change from one checkpoint to another; start is the base."),
    ] = None,
    take: Annotated[bool, typer.Option("--take", help="Make a checkpoint now.")] = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """List, show or compare the checkpoints of an interactive run.

    A checkpoint is the exact tree at one moment, with what was checked.
    """
    with _open() as pilot:
        if diff is not None:
            _print_patch(pilot.checkpoint_diff(run_id, diff, total=total))
        elif compare is not None:
            _print_patch(pilot.compare_checkpoints(run_id, *compare))
        elif changes is not None:
            say(plain_lines(pilot.checkpoint_changes(run_id, changes).decode("utf-8", "replace")).rstrip("\n"))
        elif take:
            say_asked(pilot.checkpoint(run_id, wait_sec=WAIT_SEC), as_json=as_json)
        else:
            _list(pilot, run_id, as_json=as_json)


def _print_patch(patch: bytes) -> None:
    if sys.stdout.isatty():
        from codepilot.cli.screens import coloured

        console().print(coloured(patch))
    else:
        sys.stdout.buffer.write(patch)
        sys.stdout.flush()


def _list(pilot: CodePilot, run_id: str, *, as_json: bool) -> None:
    from codepilot.cli.screens import when

    found = pilot.find(run_id)
    listed = pilot.checkpoints(found)
    if as_json:
        output.print_json(
            json.dumps({"schema_version": 1, "run_id": found, "checkpoints": [_document(one) for one in listed]})
        )
        return
    if not listed:
        say("This run has no checkpoints. Interactive runs have them: --execution-mode interactive.")
    for one in listed:
        point = one.checkpoint
        flags = [word for word, true in (("promoted", one.promoted), (point.action_taken, _acted(one))) if true]
        notes = f"  {', '.join(flags)}" if flags else ""
        counts = f"{point.files_changed_count:>4} {point.files_changed_total:>5}"
        say(f"{when(one.at)}  {point.checkpoint_id}  {point.trigger:<8}  {counts}  {point.status:<7}{notes}")
        _say_violations(point)


def _say_violations(point: CheckpointRecorded) -> None:
    for broken in point.violations[:MOST_SHOWN]:
        say(f"    {point.severity}: {plain(broken.message)}")
    if more := len(point.violations[MOST_SHOWN:]) + point.violations_left_out:
        say(f"    and {more} more; see them with --json")


def _acted(one: Listed) -> bool:
    return one.checkpoint.action_taken != "none"


def _document(one: Listed) -> dict[str, object]:
    from codepilot.telemetry import rfc3339

    return {
        **one.checkpoint.model_dump(mode="json"),
        "at": rfc3339(one.at),
        "promoted": one.promoted,
        "rolled_back": one.rolled_back,
        "answer": None if one.answer is None else one.answer.model_dump(mode="json"),
    }


def rollback(
    run_id: RunArg = "last",
    checkpoint: CheckpointOption = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--files", metavar="PATH", help="Put back only this file or directory; may be repeated."),
    ] = None,
    smart: Annotated[bool, typer.Option("--smart", help="Put back only the files that break a rule.")] = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Put the files of an interactive run back to a checkpoint.

    The agent is frozen meanwhile and gets a message. The present tree is kept as a checkpoint first.
    """
    if smart and files:
        raise typer.BadParameter("Give --files or --smart, not both.")
    with _open() as pilot:
        say_asked(pilot.rollback(run_id, checkpoint, files or (), smart=smart, wait_sec=WAIT_SEC), as_json=as_json)


def message(
    run_id: RunArg,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message to the agent.")],
    turn: Annotated[bool, typer.Option("--turn", help="Deliver it at the end of the agent's turn, not now.")] = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Send a message to the agent of an interactive run."""
    with _open() as pilot:
        wait = 0.0 if turn else WAIT_SEC
        asked = pilot.message(run_id, text, when="turn" if turn else "now", wait_sec=wait)
        say_asked(asked, as_json=as_json)


def say_asked(asked: Asked, *, as_json: bool) -> None:
    """What came of a request, or that it waits for a worker."""
    from codepilot.cli.errors import fail
    from codepilot.core.checkpoint import CheckpointFailed, MessageSent, RolledBack
    from codepilot.telemetry import exit_code_of

    done = asked.done
    failure = done.failure if isinstance(done, CheckpointFailed | RolledBack) else None
    if as_json:
        document = {
            "schema_version": 1,
            "run_id": asked.run.run_id,
            "request_id": asked.request_id,
            "result": None if done is None else done.model_dump(mode="json"),
        }
        say(json.dumps(document))
    elif failure is not None:
        fail(failure)
    elif done is None:
        say(f"Recorded. {_later(asked.run)}")
    elif isinstance(done, RolledBack):
        what = plain(", ".join(done.files)) or "Everything"
        say(f"{what} put back to {done.checkpoint_id or 'the beginning'}. Before it: checkpoint {done.before}.")
    elif isinstance(done, MessageSent):
        answered = f" It answered: {plain(done.response)}" if done.response else ""
        ended = f"Not delivered: {asked.run.run_id} has ended, and no agent worked on it after your message."
        refused = ended if asked.run.terminal else "The agent takes no messages; it got none."
        say(f"The agent has it.{answered}" if done.delivered else refused)
    elif not isinstance(done, CheckpointFailed):
        say(f"{done.checkpoint_id} is {done.status}.")
        _say_violations(done)
    if failure is not None:
        raise typer.Exit(exit_code_of(failure))
    if asked.run.terminal if done is None else isinstance(done, MessageSent) and not done.delivered:
        raise typer.Exit(1)


def _later(run: Run) -> str:
    if run.terminal:
        return f"But {run.run_id} has ended before its worker saw it: it is not carried out."
    if run.state in ("PAUSED", "BLOCKED"):
        return f"It happens when the run goes on: codepilot resume {run.run_id}"
    return "The run's worker carries it out while the agent works."


# The stream ------------------------------------------------------------------------------------------


def attach(run_id: RunArg = "last", url: UrlOption = None) -> None:
    """Show what the agent of a run says and does, as it happens.

    On a terminal, a line that you type is a message to the agent. Ctrl+C detaches; the run goes on.
    """
    with _open() as pilot:
        run = pilot.run(run_id)
        if sys.stdin.isatty() and run.task.execution_mode == "interactive":
            say("A line that you type goes to the agent. Ctrl+C detaches; the run goes on.", err=True)
            threading.Thread(target=_forward, args=(pilot, run.run_id), name="typed", daemon=True).start()
        try:
            for event in pilot.follow(run.run_id, _begun(pilot, run.run_id)):
                for line in _lines(event):
                    say(line)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        found = pilot.run(run.run_id)
        say(f"{found.run_id} is {found.state}.", err=True)


def _begun(pilot: CodePilot, run_id: str) -> int:
    """The number of the event before the agent's newest session."""
    from codepilot.telemetry.agent_lines import session_begins

    return session_begins(pilot.events(run_id))


def _forward(pilot: CodePilot, run_id: str) -> None:
    from codepilot.core.failures import CodePilotError

    for line in sys.stdin:
        if line.strip():
            try:
                pilot.message(run_id, line.strip())
            except CodePilotError as error:
                say(plain(str(error)), err=True)


_MARKS = {"text": "", "tool": "→ ", "result": "  ", "event": "· "}


def _lines(event: Event) -> list[str]:
    """An event of the agent's work as lines."""
    from codepilot.telemetry import agent_lines

    return [plain_lines(f"{_MARKS[one.kind]}{one.text}") for one in agent_lines(event)]
