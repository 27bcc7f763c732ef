"""One request, opened by a signed link: it can be answered on a phone without signing in, and nothing else can."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from codepilot.api.access import Fields
from codepilot.api.pages.asked import asked_of, title_of
from codepilot.api.problems import not_found, too_many
from codepilot.api.service import Service, service_of
from codepilot.engine.audit import AskedOf
from codepilot.views.dashboard import message_page

router = APIRouter(include_in_schema=False)

_STATUS_TEXTS = {
    "once": "Allowed once. The run goes on.",
    "always": "Allowed for this run. The run goes on.",
    "denied": "Denied. The agent looks for another way.",
}
Signature = Annotated[str, Query(max_length=64)]


@router.get("/answer/{run_id}/{approval_id}")
def look(request: Request, run_id: str, approval_id: str, signature: Signature = "") -> Response:
    service = service_of(request)
    asked = _asked(request, service, run_id, approval_id, signature)
    if asked.status != "open":
        return HTMLResponse(message_page("Already answered", _STATUS_TEXTS[asked.status]))
    shown = asked_of(run_id, asked.request, title_of(service.pilot.run(run_id)))
    address = f"/answer/{run_id}/{approval_id}?signature={signature}"
    left = f", denied in {shown.left}" if shown.left else ""
    about = f"{shown.risk.capitalize()} risk{left}."
    page = message_page(shown.title, shown.link, about, tone="wait", asked=shown, address=address, clean=service.redact)
    return HTMLResponse(page)


@router.post("/answer/{run_id}/{approval_id}")
def answer(request: Request, run_id: str, approval_id: str, fields: Fields, signature: Signature = "") -> Response:
    service = service_of(request)
    before = _asked(request, service, run_id, approval_id, signature)
    if before.status != "open":
        return HTMLResponse(message_page("Already answered", _STATUS_TEXTS[before.status]))
    wanted = "once" if fields.get("decision") == "once" else "denied"
    decision = cast("Literal['once', 'denied']", wanted)
    asked, _ = service.pilot.decide_approval(run_id, decision, approval_id, by="link")
    tone = "warn" if asked.status == "denied" else "good"
    return HTMLResponse(message_page("Thank you", _STATUS_TEXTS[asked.status], tone=tone))


def _asked(request: Request, service: Service, run_id: str, approval_id: str, signature: str) -> AskedOf:
    peer = request.client.host if request.client else "-"
    if wait := service.limits.take(f"link:{peer}", 5.0):
        raise too_many("There were too many attempts.", wait)
    asked = service.pilot.linked_request(run_id, approval_id, signature)
    if asked is None:
        raise not_found("such request", "The link is wrong, or the request was asked anew.")
    return asked
