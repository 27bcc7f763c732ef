"""The command that takes some hunks of a change: on a terminal by keys, elsewhere by options."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from codepilot.cli import output
from codepilot.cli.drive import early_interrupts, watch_run, watched
from codepilot.cli.options import RUNS, JsonFlag, PlausibleFlag, RunArg
from codepilot.cli.output import console, plain, say
from codepilot.cli.service import UrlOption, open_pilot, service_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from codepilot.core.contract import JsonObject
    from codepilot.core.run import Run
    from codepilot.engine import Begun, CodePilot, Reviewed
    from codepilot.workspace import ChangedFile, Piece

_REVIEW = (
    "Examples: codepilot review · codepilot review r-01m7 --json ·"
    " codepilot review r-01m7 --reject shop.py:2 --reason 'Keep the old name' --again"
)
HunkOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE[:HUNK]", help="Accept this part; the rest is rejected. May be repeated."),
]
RejectOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FILE[:HUNK]", help="Reject this part; the rest is accepted. May be repeated."),
]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=RUNS, epilog=_REVIEW)(review)


def review(
    run_id: RunArg = "last",
    accept: HunkOption = None,
    reject: RejectOption = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why it is rejected. With --again the agent reads it.")
    ] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Let the agent work again on what was rejected, in a run of its own.")
    ] = False,
    accept_plausible: PlausibleFlag = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Review a run's change by hunk, and judge what remains.

    With --json and no choice it lists the hunks.
    """
    from codepilot.engine import CodePilot, Settings

    if service_url():
        _by_service(run_id, accept or (), reject or (), reason, again=again, as_json=as_json)
        return
    with CodePilot(Settings.load()) as pilot:
        found = pilot.find(run_id)
        if not (accept or reject):
            files = pilot.changed_files(found)
            if as_json:
                output.print_json(json.dumps({"schema_version": 1, "run_id": found, "files": listed(files)}))
                return
            reviewed = _walked(pilot, found, files, again=again)
        else:
            reviewed = pilot.review(found, accept=accept or (), reject=reject or (), reason=reason, again=again)
        raise typer.Exit(_worked(pilot, reviewed, accept_plausible=accept_plausible, as_json=as_json))


def _by_service(
    run_id: str, accept: Sequence[str], reject: Sequence[str], reason: str, *, again: bool, as_json: bool
) -> None:
    """Review on a service, and watch the run that judges what remains, or the one that works again."""
    from codepilot.core.failures import CodePilotError, FailureKind
    from codepilot.engine import Settings

    with open_pilot(Settings.load()) as pilot:
        if not (accept or reject):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                "Nothing was accepted or rejected.",
                f"Name a part: --accept FILE, --reject FILE:HUNK. The page of the run lists them: /runs/{run_id}/diff",
            )
        taken = pilot.review(run_id, accept=accept, reject=reject, reason=reason, again=again)
        found = cast("dict[str, Any]", taken)  # what a service answers
        following = found["again"] or found["judgedBy"]
        if following is None:
            say(plain(found["refusal"] or "Everything was accepted: the change stays as it was judged."))
            raise typer.Exit(1 if found["refusal"] else 0)
        watch_run(pilot, following, as_json=as_json)


def listed(files: Sequence[ChangedFile]) -> list[JsonObject]:
    """The files and hunks of a change for programs."""
    return [
        {
            "file": file.name,
            "change": file.kind,
            "old_file": file.old_path or None,
            "binary": file.binary,
            "parts": [{"id": piece.id, "text": _text(file, piece)} for piece in file.pieces],
        }
        for file in files
    ]


def _text(file: ChangedFile, piece: Piece) -> str:
    from codepilot.cli.hunk_walk import parts_of

    parts = [small for part in parts_of(file) for small in (part.parts or (part,))]
    return next(part.lines().decode("utf-8", "backslashreplace") for part in parts if part.pieces == (piece,))


# On a terminal --------------------------------------------------------------------------------------


def _walked(pilot: CodePilot, run_id: str, files: Sequence[ChangedFile], *, again: bool) -> Reviewed:
    """Ask about each hunk, and record what the person decided."""
    from codepilot.cli.hunk_walk import HunkWalk, Keyboard
    from codepilot.core.failures import CodePilotError, FailureKind

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "Without a terminal nobody can be asked.",
            f"List the parts with `codepilot review {run_id} --json`, then use --accept or --reject.",
        )
    run = pilot.run(run_id)
    try:
        with Keyboard() as keys:
            walk = HunkWalk(files, console(), keys.key, keys.line, lambda file: _remark(run, file))
            walk.run()
            say(walk.summary())
            wanted = bool(walk.decided)
            if wanted and _needs_judging(walk.decided, files):
                wanted = keys.key("Judge what remains [y,n]? ") == "y"
            if wanted and walk.of("rejected") and run.task.model and not again:
                again = keys.key("Let the agent work again on what you rejected [y,n]? ") == "y"
    except KeyboardInterrupt:
        say("\nNothing was recorded.", err=True)
        raise typer.Exit(130) from None
    if not wanted:
        say("Nothing was recorded.")
        raise typer.Exit(0)
    accepted, rejected = walk.of("accepted"), walk.of("rejected")
    return pilot.review(run_id, accept=accepted, reject=rejected, reason=walk.reasons, rest="left", again=again)


def _needs_judging(decided: Mapping[Piece, str], files: Sequence[ChangedFile]) -> bool:
    choices = [decided.get(piece) for file in files for piece in file.pieces]
    return "accepted" in choices and any(choice != "accepted" for choice in choices)


def _remark(run: Run, file: ChangedFile) -> str:
    from codepilot.project import is_test

    test = run.proof.regression_test if run.proof else None
    if test is not None and test.path == file.path:
        return plain(f"  · the regression test {test.test}")
    return "  · a test" if is_test(file.path) else ""


# What follows ---------------------------------------------------------------------------------------


def _worked(pilot: CodePilot, reviewed: Reviewed, *, accept_plausible: bool, as_json: bool) -> int:
    """Work on the runs that follow from the review, and print how they ended; the worst exit code."""
    from codepilot.telemetry import exit_code

    document: dict[str, object] = {
        "schema_version": 1,
        "run_id": reviewed.run.run_id,
        **reviewed.record.model_dump(mode="json"),
        "refusal": reviewed.refusal or None,
        "remaining": None,
        "worked_again": None,
    }
    codes = []
    for name, begun in (("remaining", reviewed.judging), ("worked_again", reviewed.again)):
        if begun is None:
            continue
        found = _finished(pilot, begun, name, as_json=as_json)
        codes.append(exit_code(found, accept_plausible=accept_plausible))
        document[name] = json.loads(pilot.report(found.run_id).model_dump_json())
    if reviewed.refusal and reviewed.again is None:
        codes.append(1)
    if not codes:
        codes.append(exit_code(reviewed.run, accept_plausible=accept_plausible))
    if as_json:
        output.print_json(json.dumps(document))
    elif reviewed.refusal:
        say(reviewed.refusal)
    elif reviewed.judging is None:
        from codepilot.cli.screens import apply_command

        say(f"Everything was accepted: the change stays as it was judged. Apply it: {apply_command(reviewed.run)}")
    return next(code for code in (4, 3, 1, 2, 130, 5, 0) if code in codes)


def _finished(pilot: CodePilot, begun: Begun, name: str, *, as_json: bool) -> Run:
    from codepilot.cli.screens import ending

    run_id = begun.run.run_id
    if not as_json and not output.quiet():
        what = "Judging what remains" if name == "remaining" else "Working on what was rejected"
        say(f"{what}: {run_id}", err=True)
    with early_interrupts(run_id) as recorded:
        recorded.set()
        found = watched(pilot, begun, transient=as_json)
    if not as_json:
        pilot.fetch_bundle(run_id)
        ending(console(), found, pilot, applied=False)
    return found
