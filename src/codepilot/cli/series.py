"""`fix --all`: one run for each failing test, one after the other, and one summary at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from codepilot.cli import output
from codepilot.cli.drive import early_interrupts, notify, say_applied, watched
from codepilot.cli.output import console, plain, say
from codepilot.core.text import counted

if TYPE_CHECKING:
    from codepilot.core.failures import Failure
    from codepilot.core.run import Run
    from codepilot.engine import CodePilot, Request

FIXED, PLAUSIBLE, NOT_FIXED = "fixed", "plausible", "not fixed"
STOPS = (3, 4, 130)
"""Exit codes of a run after which no other begins: it waits for a person, the platform failed, or it was paused."""


def repair_all(pilot: CodePilot, request: Request, *, apply: bool, accept_plausible: bool, as_json: bool) -> None:
    """Work on one failing test after the other, print each result, and exit with the code of them all."""
    from codepilot.cli.screens import ending, opening
    from codepilot.store import new_id
    from codepilot.telemetry import exit_code

    task, quiet = pilot.task(request), as_json or output.quiet()
    done: list[Run] = []
    while True:
        run_id = new_id("r-")
        with early_interrupts(run_id) as recorded:
            begun = pilot.following(task, done, run_id, accept_plausible=accept_plausible)
            if begun is None:
                break
            recorded.set()
            if not quiet:
                screen = console()
                screen.print(opening(begun.run.task, run_id, pilot.settings, pilot.level(task)))
        run = watched(pilot, begun, transient=as_json)
        done.append(run)
        notify(pilot, run)
        if not quiet:
            ending(console(), run, pilot, applied=True)
        if exit_code(run) in STOPS:
            break
    refused = _apply(pilot, done, accept_plausible=accept_plausible) if apply else None
    code = _code(done, accept_plausible=accept_plausible, refused=refused)
    if as_json:
        _print_json(pilot, done, refused)
    elif len(done) > 1 or done[0].baseline is not None:
        _print(done, refused, accept_plausible=accept_plausible, applied=apply)
    raise typer.Exit(code)


def _apply(pilot: CodePilot, done: Sequence[Run], *, accept_plausible: bool) -> Failure | None:
    """Write the trusted changes in their order; why the first that could not be written was refused."""
    from codepilot.core.failures import CodePilotError

    for run in done:
        if _fixed(run, accept_plausible=accept_plausible):
            try:
                applied = pilot.apply(run.run_id, accept_plausible=accept_plausible)
            except CodePilotError as error:
                return error.failure
            say_applied(applied.checkout, applied.files, err=True)
    return None


def _fixed(run: Run, *, accept_plausible: bool) -> bool:
    from codepilot.telemetry import EXIT_VERIFIED, exit_code

    return exit_code(run, accept_plausible=accept_plausible) == EXIT_VERIFIED


def _code(done: Sequence[Run], *, accept_plausible: bool, refused: Failure | None) -> int:
    """0 if all is fixed, 5 if some of it is only plausible, 1 if a test was not fixed; or what stopped the series."""
    from codepilot.telemetry import EXIT_PLAUSIBLE, EXIT_VERIFIED, exit_code, exit_code_of

    codes = [exit_code(run, accept_plausible=accept_plausible) for run in done]
    if codes[-1] in STOPS or len(codes) == 1:
        return codes[-1]
    if refused is not None:
        return exit_code_of(refused, found=True)
    if set(codes) <= {EXIT_VERIFIED, EXIT_PLAUSIBLE}:
        return max(codes)
    return 1


def _print(done: Sequence[Run], refused: Failure | None, *, accept_plausible: bool, applied: bool) -> None:
    """One line for each run, in which way its test ended."""
    from codepilot.cli.screens import failure

    rows = [_row(run) for run in done]
    counts = [(sum(row[0] == what for row in rows), what) for what in (FIXED, PLAUSIBLE, NOT_FIXED)]
    screen = console()
    say(f"\n{counted(len(rows), 'run')}: {', '.join(f'{number} {what}' for number, what in counts if number)}")
    for (what, test, why), run in zip(rows, done, strict=True):
        colour = {FIXED: "green", PLAUSIBLE: "magenta"}.get(what, "red")
        screen.print(Text.assemble((what.ljust(10), colour), f" {run.run_id}  ", plain(test)), soft_wrap=True)
        if why:
            screen.print(Text.assemble(" " * 11, (plain(why), "dim")), soft_wrap=True)
    left = [run for run in done if _fixed(run, accept_plausible=True)] if not applied else []
    if left:
        say("Write the changes into the checkout, in this order:")
    for run in left:
        flag = "" if _fixed(run, accept_plausible=False) else " --accept-plausible"
        say(f"  codepilot apply {run.run_id}{flag}")
    if refused is not None:
        failure(screen, refused)


def _row(run: Run) -> tuple[str, str, str]:
    """The result of a run, the tests that it was about, and the reason if they are not fixed."""
    tests = run.baseline.targets if run.baseline else run.task.tests
    more = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
    test = f"{tests[0]}{more}" if tests else run.task.goal.natural
    if _fixed(run, accept_plausible=False):
        return FIXED, test, ""
    if _fixed(run, accept_plausible=True):
        return PLAUSIBLE, test, run.proof.reason if run.proof else ""
    return NOT_FIXED, test, run.failure.message if run.failure else f"the run is {run.state}"


def _print_json(pilot: CodePilot, done: Sequence[Run], refused: Failure | None) -> None:
    from codepilot.telemetry import reported

    document: dict[str, object] = {
        "schema_version": 1,
        "runs": [pilot.report(run.run_id).model_dump(mode="json") for run in done],
        "results": [
            {"run_id": run.run_id, "result": what, "test": test, "reason": why or None}
            for run, (what, test, why) in zip(done, map(_row, done), strict=True)
        ],
        "failure": None if refused is None else reported(refused).model_dump(mode="json"),
    }
    output.print_json(json.dumps(document, ensure_ascii=False))
