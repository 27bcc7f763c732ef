"""What the agent of a run says and does, as it happens, with a line to answer it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from codepilot.api.access import Viewer
from codepilot.api.pages.notices import Notice
from codepilot.api.pages.render import render
from codepilot.api.service import service_of
from codepilot.core.events import EventType
from codepilot.telemetry import agent_lines
from codepilot.telemetry.agent_lines import session_begins

router = APIRouter(include_in_schema=False)

NEWEST = 400
"""Lines that are shown."""
MOST_TEXT = 4_000
_EVENTS = " ".join(kind.value for kind in EventType)


@router.get("/runs/{run_id}/live")
def live(request: Request, who: Viewer, run_id: str, notice: Notice) -> Response:
    service = service_of(request)
    run = service.pilot.run(run_id)
    events = service.events.of(run.run_id)
    begun = session_begins(events)
    lines = [line for event in events if event.seq > begun for line in agent_lines(event)]
    return render(
        request,
        who,
        "live",
        run=run,
        title=run.task.goal.natural.strip().partition("\n")[0][:160],
        lines=lines[-NEWEST:],
        most=MOST_TEXT,
        interactive=run.task.execution_mode == "interactive",
        notice=notice,
        events=_EVENTS,
    )
