"""Entity tags: a client that has the newest answer gets 304 and no body."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute


class TaggedRoute(APIRoute):
    """A route whose whole answers to GET carry an entity tag; streams do not."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        inner = super().get_route_handler()

        async def handler(request: Request) -> Response:
            response = await inner(request)
            whole = response.status_code == 200 and not isinstance(response, StreamingResponse)
            return etagged(request, response) if request.method == "GET" and whole else response

        return handler


def etagged(request: Request, response: Response) -> Response:
    headers = {"ETag": f'"{hashlib.sha256(response.body).hexdigest()[:32]}"', "Cache-Control": "private, no-cache"}
    if known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response


def known(request: Request, tag: str) -> bool:
    """True if the client has the answer with this tag."""
    given = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    return tag in given or given == ["*"]
