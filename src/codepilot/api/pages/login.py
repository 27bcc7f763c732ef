"""Logging in by a one-time link or a token, and out."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from codepilot.api.access import COOKIE, Fields, Viewer, see_other, set_session
from codepilot.api.problems import not_allowed, too_many
from codepilot.api.service import Service, service_of
from codepilot.core.access import IssuedCredential
from codepilot.views import dashboard

router = APIRouter(include_in_schema=False)

_NEXT = "Ask for another one where the service runs: codepilot serve --login"


_PLACE = re.compile(r"/(?!/)[\w./?&=%:@,+~-]*", re.ASCII)
"""A page of this service: it begins with one slash, and has nothing that a browser reads as another host."""


@router.get("/login")
def login(request: Request, link: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Open a session for a login link."""
    service = service_of(request)
    if not link:
        return HTMLResponse(dashboard.message_page("Sign in", sign_in=True))
    if _foreign(request):  # somebody else's page may not choose whose session this browser gets
        return HTMLResponse(dashboard.message_page("Sign in?", "Another site led you to this link.", link=link))
    return _by_link(request, service, link)


def _by_link(request: Request, service: Service, link: str) -> Response:
    _limit(request, service)
    session = service.pilot.log_in(link, service.settings.session_hours)
    if session is None:
        wrong = "The link is wrong, too old or already used."
        return HTMLResponse(dashboard.message_page("Sign in", wrong, _NEXT, sign_in=True, tone="warn"), 401)
    return _welcome(request, service, session)


@router.post("/login")
def login_by_token(request: Request, fields: Fields) -> Response:
    """Open a session for the bearer of a token, or for a link that another site led to."""
    service = service_of(request)
    if _foreign(request):
        raise not_allowed("Another site may not sign you in.", "Open /login and sign in there.")
    if link := fields.get("link", ""):
        return _by_link(request, service, link)
    _limit(request, service)
    place = page_of(fields.get("next", ""))
    session = service.pilot.log_in_with_token(fields.get("token", "").strip(), service.settings.session_hours)
    if session is None:
        wrong = "The token is wrong, revoked or expired."
        return HTMLResponse(dashboard.message_page("Sign in", wrong, sign_in=True, tone="warn", place=place), 401)
    return _welcome(request, service, session, place)


def page_of(place: str) -> str:
    """The page that was wanted, if it is one of this service; else the board."""
    return place if _PLACE.fullmatch(place) and not place.startswith(("/login", "/logout")) else "/"


def _foreign(request: Request) -> bool:
    return request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def _limit(request: Request, service: Service) -> None:
    peer = request.client.host if request.client else "-"
    if wait := service.limits.take(f"login:{peer}", 10.0):
        raise too_many("There were too many attempts to sign in.", wait)


def _welcome(request: Request, service: Service, session: IssuedCredential, place: str = "/") -> Response:
    """The browser goes on by itself: a redirect would not carry a cookie that is strict."""
    response = HTMLResponse(dashboard.welcome_page(session.credential.name, place))
    set_session(response, request, session.secret, service.settings.session_hours)
    return response


@router.post("/logout")
def logout(request: Request, who: Viewer) -> Response:
    service_of(request).pilot.log_out(request.cookies.get(COOKIE, ""))
    response = see_other("/login")
    response.delete_cookie(COOKIE, path="/")
    return response
