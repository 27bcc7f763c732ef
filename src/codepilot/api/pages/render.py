"""Renders templates as pages of the service."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from codepilot.api.access import csrf_token
from codepilot.api.problems import Problem
from codepilot.api.service import service_of
from codepilot.core.access import Principal
from codepilot.views import dashboard


def frame_of(request: Request, who: Principal, active: str = "") -> dashboard.Frame:
    """What surrounds a page for this user."""
    service = service_of(request)
    csrf = "" if who.by == "token" else csrf_token(service, who)
    waiting = len(service.pilot.approvals())
    return dashboard.Frame(user=who.name, scope=who.scope.value, csrf=csrf, active=active, waiting=waiting)


def render(
    request: Request, who: Principal, template: str, *, active: str = "Runs", status: int = 200, **values: object
) -> Response:
    """A template of the dashboard as a page, with secrets redacted."""
    values.setdefault("clean", service_of(request).redact)
    return HTMLResponse(dashboard.render(template, frame_of(request, who, active), **values), status)


_FOR_PROGRAMS = ("GET ", "See /v1/", "`codepilot ")
_ADVICE = {404: "Perhaps it was removed, or its address was mistyped.", 405: "Go back and open the page again."}
"""What helps a person where the advice is one for programs."""


def problem_page(request: Request, problem: Problem, headers: dict[str, str] | None) -> Response:
    """A failure as a page; without a login, the one that logs in and goes on to what was asked for."""
    if problem.status == 401:
        place = f"{request.url.path}?{request.url.query}".removesuffix("?") if request.method == "GET" else "/"
        page = dashboard.message_page("Sign in", problem.detail, sign_in=True, place=place)
    else:
        for_programs = problem.next_action.startswith(_FOR_PROGRAMS)
        advice = _ADVICE.get(problem.status, "") if for_programs else problem.next_action
        page = dashboard.message_page(
            problem.title.capitalize(),
            problem.detail,
            advice,
            tone="bad" if problem.status >= 500 else "warn",
            code=str(problem.status),
            request_id=problem.request_id,
        )
    return HTMLResponse(page, problem.status, headers)
