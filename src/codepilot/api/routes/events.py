"""Events: as pages of JSON, and live as server-sent events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from codepilot.api.access import Viewer, still_valid
from codepilot.api.etags import TaggedRoute
from codepilot.api.live import KEPT
from codepilot.api.service import service_of
from codepilot.api.shapes import ChangeList, ChangeOut, EventPage, event_object
from codepilot.core.events import TERMINAL
from codepilot.core.run import Run

router = APIRouter(prefix="/v1", tags=["events"], route_class=TaggedRoute)

SSE = "text/event-stream"
_STREAM: dict[str, Any] = {"responses": {"200": {"content": {SSE: {"schema": {"type": "string"}}}}}}
_HEADERS = {"X-Accel-Buffering": "no"}
RECHECK_SEC = 10.0
"""How long a stream may go on before its credentials are looked at again."""

LastEventId = Annotated[
    str, Header(alias="Last-Event-ID", pattern=r"^\d{0,18}$", description="Where a broken stream goes on.")
]


def event_stream(request: Request, frames: AsyncGenerator[bytes]) -> Response:
    """A live stream that ends with its credentials; refused before it begins if too many are open."""
    service_of(request).live.refuse_if_full(_user(request))
    return StreamingResponse(_while_valid(request, frames), media_type=SSE, headers=_HEADERS)


async def _while_valid(request: Request, frames: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    looked = time.monotonic()
    with service_of(request).live.counted(_user(request)):
        async with aclosing(frames):
            async for one in frames:
                if time.monotonic() - looked >= RECHECK_SEC:
                    looked = time.monotonic()
                    if not await still_valid(request):
                        return
                yield one


def _user(request: Request) -> str:
    return str(request.scope.get("codepilot.user", "-"))


def streaming(request: Request) -> bool:
    return SSE in request.headers.get("accept", "")


@router.get("/runs/changes", response_model=ChangeList, openapi_extra=_STREAM)
async def changes(
    request: Request,
    who: Viewer,
    since: Annotated[int, Query(ge=0, lt=1 << 53, description="Microseconds since 1970.")] = 0,
    last_event_id: LastEventId = "",
) -> Response | ChangeList:
    """Which runs changed: as JSON since a time, or live as `text/event-stream`."""
    service = service_of(request)
    if streaming(request):
        resumed = int(last_event_id) if last_event_id else None
        return event_stream(request, service.live.changes(resumed))
    found = await run_in_threadpool(service.pilot.changes, (), since)
    shown = (
        ChangeOut(run_id=one.run_id, status=str(one.state), updated_at=one.updated_at, last_seq=one.last_seq)
        for one in found[-1000:]
    )
    return ChangeList(changes=tuple(shown))


@router.get("/runs/{run_id}/events", response_model=EventPage, openapi_extra=_STREAM)
async def events(
    request: Request,
    who: Viewer,
    run_id: str,
    after: Annotated[int, Query(ge=0, lt=1 << 53, description="The number of the last event that is known.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = KEPT,
    last_event_id: LastEventId = "",
) -> Response | EventPage:
    """The events of a run: a page of JSON, or live as `text/event-stream` until the run has ended."""
    service = service_of(request)
    run: Run = await run_in_threadpool(service.pilot.run, run_id)
    if streaming(request):
        known = max(after, int(last_event_id or 0))
        if last_event_id and run.state in TERMINAL and known >= run.last_seq:
            return Response(status_code=204)  # an EventSource that gets it does not come back
        return event_stream(request, service.live.run_events(run.run_id, known))
    found = await run_in_threadpool(service.pilot.events, run.run_id, after, limit)
    shown = tuple(event_object(event, service.redact) for event in found)
    return EventPage(events=shown, last_seq=found[-1].seq if found else after)
