"""What a step asks a person before it goes on: the recorded answer, or a request that blocks the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from codepilot.core.approval import (
    ApprovalDecided,
    ApprovalNeeded,
    ApprovalRequested,
    Operation,
    Risk,
    approval_id,
    expired,
    expiry_of,
)
from codepilot.core.events import EventType, NetworkAllowed
from codepilot.core.task import InteractionMode
from codepilot.engine.environment.installs import install_allowed

if TYPE_CHECKING:
    from codepilot.core.run import Run
    from codepilot.engine.work import Work
    from codepilot.project import Project

__all__ = ["ApprovalNeeded", "allowed_hosts", "ask", "denial_reason", "open_again", "require"]

MAX_SNIPPET = 4_000
MAX_SUBJECT = 500


def require(
    work: Work,
    operation: Operation,
    subject: str,
    *,
    risk: Risk = "medium",
    reasons: tuple[str, ...] = (),
    snippet: str = "",
    occasion: str = "",
) -> bool:
    """True if a person allows the operation, or full autonomy does; False if it was denied or nobody answered in time.

    Without an answer on record it raises `ApprovalNeeded`, and the run waits. `occasion` tells requests for the same
    thing apart; by default each step asks once.
    """
    subject = subject[:MAX_SUBJECT]
    seconds = work.run.task.policy.approval_timeout_sec
    request = ApprovalRequested(
        approval_id=approval_id(work.run.run_id, operation, subject, occasion or work.claim.step_id),
        operation=operation,
        details=subject,
        risk=risk,
        reasons=reasons,
        snippet=snippet[:MAX_SNIPPET],
        expires_at=work.store.now() + int(seconds * 1e6),
    )
    answer = work.run.answer_to(request) or _answer_without_a_person(work, request)
    if answer is None:
        raise ApprovalNeeded(request)
    return answer.decision != "denied"


def ask(
    work: Work,
    operation: Operation,
    subject: str,
    *,
    risk: Risk = "medium",
    reasons: tuple[str, ...] = (),
    snippet: str = "",
    occasion: str = "",
) -> bool:
    """`require` for an agent in a step. `open_again` lets its code reach what is allowed."""
    before = allowed_hosts(work)
    if operation == "network" and work.executor.level != "bubblewrap":
        return False  # code could go around the proxy that opens one host alone
    allowed = require(work, operation, subject, risk=risk, reasons=reasons, snippet=snippet, occasion=occasion)
    if allowed and operation == "network" and allowed_hosts(work) != before:
        work.record(EventType.NETWORK_ALLOWED, NetworkAllowed(scope="step", hosts=(subject,), by="person"))
    return allowed


def denial_reason(run: Run, subject: str) -> str:
    """Why the newest request about this was denied, as the person wrote it."""
    answers = [one.decided for one in run.approvals if one.request.details == subject[:MAX_SUBJECT]]
    last = answers[-1] if answers else None
    return last.reason if last is not None and last.decision == "denied" else ""


def open_again(work: Work, project: Project, packages: Sequence[str]) -> None:
    """Install packages that were allowed, and open the workspace with them and with the hosts that are allowed now.

    A kernel that was started without them is ended.
    """
    for subject in packages:
        install_allowed(work, project, subject)
    work.context(project).create(work.workspace, work.base.tree)


def allowed_hosts(work: Work) -> tuple[str, ...]:
    """The hosts that code of the open step may reach: those of the task, and those that a person allowed, for the run
    or once in this step.
    """
    asked_here = {event.data.approval_id for event in work.history() if isinstance(event.data, ApprovalRequested)}
    more = [
        one.request.details
        for one in work.run.approvals
        if one.request.operation == "network" and one.decided is not None
        if one.decided.decision != "denied"
        if one.decided.decision == "always" or one.request.approval_id in asked_here
    ]
    return tuple(dict.fromkeys((*work.run.task.hosts, *more)))


def _answer_without_a_person(work: Work, request: ApprovalRequested) -> ApprovalDecided | None:
    """The answer of a task that does not ask, or the denial of a request whose time is over; both are recorded."""
    asked = next((one.request for one in work.run.approvals if one.request.approval_id == request.approval_id), None)
    if work.run.task.risk_profile.interaction.mode is InteractionMode.FULL_AUTONOMY:
        made = ApprovalDecided(
            approval_id=request.approval_id,
            decision="always",
            by=InteractionMode.FULL_AUTONOMY,
            reason="full_autonomy does not ask",
        )
    elif expired(asked or request, work.store.now()):
        made = expiry_of(request)
    else:
        return None
    requested = [] if asked else [work.draft(EventType.APPROVAL_REQUESTED, request)]
    work.append([*requested, work.draft(EventType.APPROVAL_DECIDED, made)])
    return made
