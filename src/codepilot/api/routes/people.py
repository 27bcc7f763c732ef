"""What people are asked and decide: approvals, the review of a change by hunk, and the audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from codepilot.api.access import Operator, Viewer
from codepilot.api.etags import TaggedRoute
from codepilot.api.service import Service, service_of
from codepilot.api.shapes import BodyIn, Moment
from codepilot.core.approval import Operation, Risk
from codepilot.core.contract import Contract
from codepilot.core.review import HunkChoice, HunkDecision

if TYPE_CHECKING:
    from codepilot.engine.audit import AskedOf

router = APIRouter(prefix="/v1", tags=["people"], route_class=TaggedRoute)

Text = Annotated[str, Field(max_length=4000)]


class ApprovalOut(Contract):
    """A request to a person, and its answer."""

    approval_id: str
    run_id: str
    operation: Operation
    details: str
    risk: Risk
    reasons: tuple[str, ...]
    snippet: str
    expires_at: Moment | None
    status: Literal["open", "once", "always", "denied"]
    by: str
    reason: str


class ApprovalList(Contract):
    approvals: tuple[ApprovalOut, ...]


class AnswerIn(BodyIn):
    """`always` answers the same operation on the same subject for the rest of the run."""

    decision: Literal["once", "always", "denied"]
    reason: Text = ""


class AuditLine(Contract):
    """What happened, to what, by whom, when and why."""

    at: str
    run_id: str
    seq: int
    what: str
    decision: str
    operation: str
    subject: str
    by: str
    rule: str
    reason: str
    score: float | None


class AuditList(Contract):
    entries: tuple[AuditLine, ...]


class ReviewIn(BodyIn):
    """Parts of the change as `FILE`, `FILE:HUNK` or `FILE:HUNK.PART`. `rest` decides on what is not named.

    `reasons` has a reason for a rejected part by its name; `reason` is that of all others.
    """

    accept: tuple[Text, ...] = ()
    reject: tuple[Text, ...] = ()
    reason: Text = ""
    reasons: dict[str, Text] = Field(default={}, max_length=2000)
    rest: HunkChoice | None = None
    again: bool = Field(default=False, description="Also begin a run that works on the rejected parts.")


class ReviewOut(Contract):
    """The recorded review. The runs that it began are queued."""

    run_id: str
    decisions: tuple[HunkDecision, ...]
    judged_by: str | None = Field(description="The run that judges what remains.")
    again: str | None = Field(description="The run that works on the rejected parts.")
    refusal: str = Field(description="Why nothing is judged.")


def approval_out(service: Service, asked: AskedOf) -> ApprovalOut:
    request, clean = asked.request, service.redact
    return ApprovalOut(
        approval_id=request.approval_id,
        run_id=asked.run_id,
        operation=request.operation,
        details=clean(request.details),
        risk=request.risk,
        reasons=tuple(map(clean, request.reasons)),
        snippet=clean(request.snippet),
        expires_at=request.expires_at,
        status=asked.status,
        by=asked.by,
        reason=clean(asked.reason),
    )


@router.get("/approvals")
def approvals(request: Request, who: Viewer) -> ApprovalList:
    """The open requests of all runs, oldest first."""
    service = service_of(request)
    return ApprovalList(approvals=tuple(approval_out(service, one) for one in service.pilot.approvals()))


@router.get("/runs/{run_id}/approvals")
def run_approvals(request: Request, who: Viewer, run_id: str) -> ApprovalList:
    """The requests of a run with their answers."""
    service = service_of(request)
    return ApprovalList(approvals=tuple(approval_out(service, one) for one in service.pilot.approvals(run_id)))


@router.post("/runs/{run_id}/approvals/{approval_id}")
def decide(request: Request, who: Operator, run_id: str, approval_id: str, answer: AnswerIn) -> ApprovalOut:
    """Answer a request; the run goes on. The answer that counts is returned: an earlier one, if there was one."""
    service = service_of(request)
    asked, _ = service.pilot.decide_approval(run_id, answer.decision, approval_id, by=who.name, reason=answer.reason)
    return approval_out(service, asked)


@router.post("/runs/{run_id}/review")
def review(request: Request, who: Operator, run_id: str, wanted: ReviewIn) -> ReviewOut:
    """Take a part of the change; a new run judges exactly what remains."""
    service = service_of(request)
    found = service.pilot.review_for(
        who,
        service.pilot.find(run_id),
        accept=wanted.accept,
        reject=wanted.reject,
        reason={**dict.fromkeys(wanted.reject, wanted.reason), **wanted.reasons} if wanted.reasons else wanted.reason,
        rest=wanted.rest,
        again=wanted.again,
    )
    return ReviewOut(
        run_id=found.run.run_id,
        decisions=found.record.decisions,
        judged_by=found.record.judged_by,
        again=found.record.again,
        refusal=found.refusal,
    )


@router.get("/audit")
def audit(
    request: Request, who: Viewer, run: Annotated[str | None, Query(max_length=100, description="One run.")] = None
) -> AuditList:
    """Every request, answer and decision of the policy: of one run, or of the newest runs; oldest first."""
    service = service_of(request)
    clean = service.redact
    lines = (
        AuditLine.model_validate(
            {**one.model_dump(mode="json"), "subject": clean(one.subject), "reason": clean(one.reason)}
        )
        for one in service.pilot.audit(run)
    )
    return AuditList(entries=tuple(lines))
