"""Requests for approval as the dashboard's panels show them."""

from __future__ import annotations

from codepilot.api.service import Service
from codepilot.core.approval import ApprovalRequested
from codepilot.core.run import Run
from codepilot.telemetry import now_us
from codepilot.views.dashboard import Asked
from codepilot.views.diff import file_diffs

_TITLES = {
    "network": "Network access",
    "command": "A command outside the allowlist",
    "install": "Installing packages",
    "finding": "A finding in generated code",
    "path": "A protected path",
    "spend": "More money",
    "plan": "The plan",
}


def asked_of(run_id: str, request: ApprovalRequested, link: str = "") -> Asked:
    """A request as its panel shows it."""
    left = max(0, request.expires_at - now_us()) // 1_000_000 if request.expires_at else None
    return Asked(
        run_id=run_id,
        approval_id=request.approval_id,
        title=_TITLES.get(request.operation, request.operation),
        operation=request.operation,
        details=request.details,
        risk=request.risk,
        reasons=request.reasons,
        snippet=request.snippet,
        files=file_diffs(request.snippet) if request.snippet.startswith("diff --git ") else (),
        until=request.expires_at,
        left="" if left is None else f"{left // 60}:{left % 60:02}",
        link=link,
    )


def open_requests(service: Service, run: Run | None = None) -> list[Asked]:
    """What waits for an answer: of one run, or of all."""
    if run is not None:
        mine = [one for one in service.pilot.approvals(run.run_id) if one.status == "open"] if run.approvals else []
        return [asked_of(run.run_id, one.request) for one in mine]
    pilot = service.pilot
    return [asked_of(one.run_id, one.request, title_of(pilot.run(one.run_id))) for one in pilot.approvals()]


def title_of(run: Run) -> str:
    """The first line of what was asked."""
    return run.task.goal.natural.strip().partition("\n")[0][:160]
