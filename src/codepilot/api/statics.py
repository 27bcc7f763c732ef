"""The style sheet, the script and the icon of the pages."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from codepilot.api.etags import etagged
from codepilot.views import dashboard

router = APIRouter(include_in_schema=False)


@router.get("/static/style.css")
def style(request: Request) -> Response:
    return etagged(request, Response(dashboard.stylesheet(), media_type="text/css"))


@router.get("/static/dashboard.js")
def script(request: Request) -> Response:
    return etagged(request, Response(dashboard.script(), media_type="text/javascript"))


@router.get("/static/icon.svg")
def icon(request: Request) -> Response:
    return etagged(request, Response(dashboard.ICON, media_type="image/svg+xml"))
