"""The commands by which people answer runs, and see what was asked and decided."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from codepilot.cli import output
from codepilot.cli.drive import early_interrupts, finish
from codepilot.cli.options import PEOPLE, JsonFlag, RunArg
from codepilot.cli.output import plain, say
from codepilot.cli.service import UrlOption, open_pilot, service_url

if TYPE_CHECKING:
    from codepilot.engine import CodePilot

_APPROVE = "Examples: codepilot approve · codepilot approve r-01m7 --always · codepilot approve r-01m7 --work"

AskedRun = Annotated[str | None, typer.Argument(metavar="RUN", help="A run. Default: the open requests of all runs.")]
AuditedRun = Annotated[str | None, typer.Argument(metavar="RUN", help="A run. Default: the newest 50 runs.")]
RequestArg = Annotated[str, typer.Argument(metavar="ID", help="The request. Default: the one that the run waits for.")]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; it is on record, and the agent reads it.")
]
WorkFlag = Annotated[bool, typer.Option("--work", help="Go on with the run here, as `resume` does.")]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PEOPLE)(approvals)
    app.command(rich_help_panel=PEOPLE, epilog=_APPROVE)(approve)
    app.command(rich_help_panel=PEOPLE)(deny)
    app.command(rich_help_panel=PEOPLE)(audit)


def _open() -> CodePilot:
    from codepilot.engine import Settings

    return open_pilot(Settings.load())


def approvals(run_id: AskedRun = None, url: UrlOption = None, as_json: JsonFlag = False) -> None:
    """List the open requests of all runs, or every request of one."""
    from codepilot.telemetry import rfc3339

    with _open() as pilot:
        found = pilot.approvals(run_id)
    if as_json:
        from codepilot.cli.documents import as_document

        document = {"schema_version": 1, "approvals": as_document(found)}
        output.print_json(json.dumps(document, ensure_ascii=False))
        return
    if not found:
        say("No run waits for an answer." if run_id is None else "The run has asked for nothing.")
    for one in found:
        request = one.request
        until = f" until {rfc3339(request.expires_at)}" if one.status == "open" and request.expires_at else ""
        by = f" by {one.by}" if one.by else ""
        say(plain(f"{one.run_id}  {one.id}  {one.status}{by}{until}  {request.operation} {request.details}"))
        for why in request.reasons:
            say(plain(f"    {why}"))


def approve(
    run_id: RunArg = "last",
    approval_id: RequestArg = "",
    always: Annotated[
        bool, typer.Option("--always", help="Allow the same operation and subject for the rest of this run.")
    ] = False,
    reason: ReasonOption = "",
    work: WorkFlag = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Allow what a run asks for; then a worker continues it."""
    _answer(run_id, approval_id, "always" if always else "once", reason, work=work, as_json=as_json)


def deny(
    run_id: RunArg = "last",
    approval_id: RequestArg = "",
    reason: ReasonOption = "",
    work: WorkFlag = False,
    url: UrlOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Deny what a run asks for; its agent must find another way."""
    _answer(run_id, approval_id, "denied", reason, work=work, as_json=as_json)


def _answer(
    run_id: str,
    approval_id: str,
    decision: Literal["once", "always", "denied"],
    reason: str,
    *,
    work: bool,
    as_json: bool,
) -> None:
    from codepilot.cli.ask import person
    from codepilot.core.failures import CodePilotError, FailureKind

    with _open() as pilot:
        run_id = pilot.find(run_id)
        asked, run = pilot.decide_approval(run_id, decision, approval_id, by=person(pilot), reason=reason)
        goes_on = "" if run.terminal or run.open_request is not None else _goes_on(pilot, run_id)
        goes_on = "" if work and not service_url() else goes_on
        if asked.by == "expiry" and decision != "denied":
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The request {asked.id} has expired: it is denied.",
                next_action=goes_on or f"`codepilot show {run_id}` shows the run's state.",
            )
        message = f"{asked.id} ({asked.request.operation} {asked.request.details}): {asked.status} by {asked.by}."
        if not (as_json and work):
            from codepilot.cli.documents import as_document

            document = {"schema_version": 1, **as_document(asked), "next": goes_on}
            answer = json.dumps(document, ensure_ascii=False) if as_json else plain(f"{message} {goes_on}".rstrip())
            output.print_json(answer) if as_json else say(answer)
        if work and not run.terminal and not service_url():
            with early_interrupts(run_id) as recorded:
                recorded.set()
                finish(pilot, lambda: pilot.reopen(run_id), as_json=as_json)


def _goes_on(pilot: CodePilot, run_id: str) -> str:
    """What happens next, or what the person has to do for it."""
    if any(worker.takes_queued for worker in pilot.workers()):
        return f"A worker continues the run. Watch it: codepilot watch {run_id}"
    return f"No worker is running. Continue the run: codepilot resume {run_id}"


def audit(run_id: AuditedRun = None, url: UrlOption = None, as_json: JsonFlag = False) -> None:
    """List every request, answer and policy decision."""
    with _open() as pilot:
        found = pilot.audit(run_id)
    if as_json:
        rows = [one.model_dump(mode="json") for one in found]
        output.print_json(json.dumps({"schema_version": 1, "entries": rows}, ensure_ascii=False))
        return
    if not found:
        say("Nothing was asked and nothing was decided.")
    for one in found:
        where = (one.run_id or "-") if run_id is None else f"{one.seq:>5}"
        why = " · ".join(part for part in (one.rule, one.reason) if part)
        line = f"{one.at}  {where}  {one.decision:<8} {one.operation} {one.subject} (by {one.by})"
        say(plain(f"{line}{f': {why}' if why else ''}"))
