"""The landing queue: changes on their way to a branch of a checkout on the server."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from codepilot.api.access import Admin, Viewer
from codepilot.api.etags import TaggedRoute
from codepilot.api.service import Service, service_of
from codepilot.api.shapes import BodyIn, Moment
from codepilot.core.access import Principal
from codepilot.core.contract import Contract
from codepilot.core.landing import LandingEntry

router = APIRouter(prefix="/v1", tags=["landing"], route_class=TaggedRoute)

Name = Annotated[str, Field(min_length=1, max_length=200)]


class LandingIn(BodyIn):
    """Runs in the order in which their changes should join the branch."""

    runs: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)]
    onto: Name = Field(description="The branch; one that does not exist begins at HEAD.")
    accept_plausible: bool = False


class LandingOut(Contract):
    """A change on its way to a branch, or what became of it."""

    run_id: str
    goal: str
    branch: str
    status: Literal["queued", "landed", "refused"]
    position: int = Field(description="Its place in the queue; 0 once it landed or was refused.")
    at: Moment
    by: str
    commit: str | None
    judged_by: str | None = Field(description="The run that judged the merged tree.")
    reason: str = Field(description="Why it was refused.")
    conflicts: tuple[str, ...] = Field(description="The files that the branch and the change both changed.")


class LandingList(Contract):
    """What waits, in its order, then what landed or was refused, newest first."""

    landings: tuple[LandingOut, ...]


def landing_out(service: Service, one: LandingEntry) -> LandingOut:
    return LandingOut(
        run_id=one.run_id,
        goal=service.redact(one.goal),
        branch=one.branch,
        status=one.status,
        position=one.position,
        at=one.at,
        by=one.by,
        commit=one.commit or None,
        judged_by=one.judged_by or None,
        reason=service.redact(one.reason),
        conflicts=one.conflicts,
    )


def queue(service: Service, who: Principal, wanted: LandingIn) -> list[LandingEntry]:
    """Let changes wait for a branch, and have the service look at its queue."""
    found = service.pilot.queue_landing(wanted.runs, wanted.onto, accept_plausible=wanted.accept_plausible, by=who.name)
    if service.landing is not None:
        service.landing.wake()
    return found


@router.get("/landings")
def landings(request: Request, who: Viewer) -> LandingList:
    """The landing queue, and what became of changes that were in it."""
    service = service_of(request)
    return LandingList(landings=tuple(landing_out(service, one) for one in service.pilot.landings()))


@router.post("/landings", status_code=202)
def land(request: Request, who: Admin, wanted: LandingIn) -> LandingList:
    """Add proved changes to a branch, each judged on top of it and of those before it. Touches no checkout."""
    service = service_of(request)
    return LandingList(landings=tuple(landing_out(service, one) for one in queue(service, who, wanted)))
