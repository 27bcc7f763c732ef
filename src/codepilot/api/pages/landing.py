"""The landing queue: what waits for a branch, what joined it, what was refused, and what could be sent."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from codepilot.api.access import Admin, FieldLists, Viewer
from codepilot.api.pages.notices import Notice, see_noticed
from codepilot.api.pages.render import render
from codepilot.api.problems import Refused
from codepilot.api.routes.landings import LandingIn, queue
from codepilot.api.service import Service, service_of
from codepilot.core.access import Scope
from codepilot.core.events import State
from codepilot.core.text import counted
from codepilot.engine.change.landing_queue import can_land
from codepilot.store import RunFilter
from codepilot.telemetry import now_us
from codepilot.views.board import Card, card_of

router = APIRouter(include_in_schema=False)

LOOKED_AT = 100
"""Ended runs that are looked at for those that could land."""


@router.get("/landing")
def landing(
    request: Request,
    who: Viewer,
    notice: Notice,
    run: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    service = service_of(request)
    entries = service.pilot.landings()
    return render(
        request,
        who,
        "landing",
        active="Landing",
        waiting=[one for one in entries if one.status == "queued"],
        ended=[one for one in entries if one.status != "queued"][:50],
        ready=_ready(service) if who.scope.allows(Scope.ADMIN) else [],
        may_land=who.scope.allows(Scope.ADMIN),
        chosen=run,
        notice=notice,
        now=now_us(),
    )


@router.post("/landing")
def send(request: Request, who: Admin, fields: FieldLists) -> Response:
    """Let the chosen changes wait for a branch."""
    runs, onto = fields.get("run", []), (fields.get("onto") or [""])[-1].strip()
    try:
        wanted = LandingIn(runs=tuple(runs[:100]), onto=onto[:200], accept_plausible="accept_plausible" in fields)
    except ValidationError as error:
        raise Refused(422, "Choose a run and name a branch.", "Go back and do both.") from error
    found = queue(service_of(request), who, wanted)
    notice = f"{counted(len(found), 'change')} in the queue for {onto}."
    return see_noticed(request, "/landing", notice)


def _ready(service: Service) -> list[Card]:
    """Proved changes of checkouts on this machine that are not on their way to a branch, the oldest first."""
    rows = service.pilot.page(RunFilter(states=(State.DONE,)), LOOKED_AT)
    now, views = now_us(), service.pilot.views([row.run_id for row in rows])
    oldest_first = [views[row.run_id] for row in reversed(rows) if row.run_id in views]
    return [card_of(run, None, now) for run in oldest_first if can_land(run)]
