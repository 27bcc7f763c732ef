"""Who asks."""

from __future__ import annotations

from fastapi import APIRouter, Request

from codepilot.api.access import Viewer, csrf_token
from codepilot.api.service import service_of
from codepilot.api.shapes import Me

router = APIRouter(prefix="/v1", tags=["session"])


@router.get("/me")
def me(request: Request, who: Viewer) -> Me:
    """Who makes this request, and what they may do."""
    token = None if who.by == "token" else csrf_token(service_of(request), who)
    return Me(name=who.name, scope=who.scope, by=who.by, csrf_token=token)
