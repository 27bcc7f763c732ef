"""The inbox of requests that wait for an answer."""

from __future__ import annotations

from typing import Literal, cast

from fastapi import APIRouter, Request, Response

from codepilot.api.access import Fields, Operator, Viewer
from codepilot.api.pages.asked import open_requests
from codepilot.api.pages.notices import see_noticed
from codepilot.api.pages.render import render
from codepilot.api.problems import Refused
from codepilot.api.service import service_of
from codepilot.telemetry import now_us

router = APIRouter(include_in_schema=False)

ANSWERS = ("once", "always", "denied")


@router.get("/approvals")
def approvals(request: Request, who: Viewer) -> Response:
    service = service_of(request)
    answered = [one for one in reversed(service.pilot.audit()) if one.what == "answered"][:20]
    decided = [
        {
            "decision": one.decision,
            "operation": one.operation,
            "details": one.subject,
            "run_id": one.run_id,
            "by": one.by,
            "at": one.at,
        }
        for one in answered
    ]
    return render(
        request, who, "approvals", active="Approvals", asks=open_requests(service), decided=decided, now=now_us()
    )


@router.post("/runs/{run_id}/approvals/{approval_id}")
def answer(request: Request, who: Operator, run_id: str, approval_id: str, fields: Fields) -> Response:
    """Answer one request; the run goes on by itself."""
    decision = fields.get("decision", "")
    if decision not in ANSWERS:
        raise Refused(422, f"The answer {decision!r} is none.", f"Use one of {', '.join(ANSWERS)}.")
    pilot = service_of(request).pilot
    wanted = cast("Literal['once', 'always', 'denied']", decision)
    asked, run = pilot.decide_approval(run_id, wanted, approval_id, by=who.name, reason=fields.get("reason", "")[:500])
    notices = {
        "once": "Allowed once.",
        "always": "Allowed for this run.",
        "denied": "Denied: the agent is looking for another way.",
    }
    taken = notices.get(asked.status, "The request was answered before.")
    return see_noticed(request, f"/runs/{run.run_id}", taken)
