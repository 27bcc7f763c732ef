"""What the page after a form says. It is signed: a link of somebody else cannot speak for the service."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Depends, Query, Request, Response

from codepilot.api.access import see_other
from codepilot.api.service import service_of
from codepilot.core.access import matches

_PURPOSE = "notice"
_MOST = 280


def see_noticed(request: Request, place: str, text: str) -> Response:
    """The answer to a form: the browser gets the page at `place`, which shows the text."""
    shown = text[:_MOST]
    given = {"notice": shown, "seal": service_of(request).pilot.sign(_PURPOSE, shown)}
    return see_other(f"{place}?{urlencode(given, quote_via=quote)}")


def _notice(
    request: Request,
    notice: Annotated[str, Query(max_length=2 * _MOST)] = "",
    seal: Annotated[str, Query(max_length=100)] = "",
) -> str:
    known = notice and matches(seal, service_of(request).pilot.sign(_PURPOSE, notice))
    return notice if known else ""


Notice = Annotated[str, Depends(_notice)]
"""The text that `see_noticed` sent; empty if a page's address holds another one."""
