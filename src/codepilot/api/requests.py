"""The outer layer of the application: request ids, bounds on bodies, headers, the access log and metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from codepilot.telemetry import METRICS
from codepilot.telemetry.process_log import REQUEST_ID

BODY_SEC = 30.0
"""How long a small body may take."""
_SLOWEST = 16 * 1024
"""How many bytes of a large one have to arrive in a second."""
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
_log = logging.getLogger(__name__)

_requests = METRICS.counter("codepilot_http_requests_total", "Requests answered.", ["method", "route", "status"])
_seconds = METRICS.histogram("codepilot_http_request_duration_seconds", "Time to the answer's first byte.", ["route"])


def request_id_of(request: Request) -> str:
    return str(request.scope.get("codepilot.request_id", ""))


def wants_page(request: Request) -> bool:
    """True if a person reads the answer in a browser."""
    api = request.url.path.startswith("/v1/") and request.url.path != "/v1/docs"
    return not api and "text/html" in request.headers.get("accept", "")


class Outer:
    """Wraps the application. `limit` gives the largest body that a path takes."""

    def __init__(self, app: ASGIApp, limit: Callable[[str], int]) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _GIVEN_ID.fullmatch(given) else secrets.token_hex(8)
        scope["codepilot.request_id"] = request_id
        mark = REQUEST_ID.set(request_id)
        begun, status = time.monotonic(), [0]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                _count(scope, status[0], time.monotonic() - begun)
            await send(message)

        try:
            if _is_ambiguous(scope):
                await _refuse(sending)
                return
            await self._app(scope, _bounded(scope, receive, self._limit(scope["path"])), sending)
        except Exception:  # noqa: BLE001 - the last place that can still answer
            _log.exception("%s %s failed", scope["method"], _route(scope))
            if not status[0]:
                await _defect(scope, request_id, sending)
        finally:
            if scope["path"] not in _QUIET:
                took = round((time.monotonic() - begun) * 1000, 1)
                who = scope.get("codepilot.user", "-")
                _log.info("%s %s %s %s %s ms", who, scope["method"], _route(scope), status[0], took)
            with suppress(ValueError):
                REQUEST_ID.reset(mark)


async def _defect(scope: Scope, request_id: str, send: Send) -> None:
    """The answer to a request that met a defect: a problem, or a page where a person reads it."""
    advice = "Report it with the service's log."
    if wants_page(Request(scope)):
        from codepilot.views.dashboard import message_page

        body = message_page("This is a defect of CodePilot", advice, tone="bad", code="500", request_id=request_id)
        kind = b"text/html; charset=utf-8"
    else:
        about = {"type": "about:blank", "title": "Internal Server Error", "status": 500, "kind": "internal"}
        answer = {"detail": "A defect of CodePilot.", "nextAction": advice, "requestId": request_id, "errors": []}
        body, kind = json.dumps({**about, **answer}), b"application/problem+json"
    headers = [(b"content-type", kind), (b"content-length", str(len(body.encode())).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


async def _refuse(send: Send) -> None:
    """The answer to a request of which two programs could read different bodies. Its connection ends."""
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _is_ambiguous(scope: Scope) -> bool:
    return {b"content-length", b"transfer-encoding"} <= {name.lower() for name, _ in scope["headers"]}


def _route(scope: Scope) -> str:
    """The route's template: paths may hold secrets, and would be endless labels."""
    return str(getattr(scope.get("route"), "path", "other"))


def _count(scope: Scope, status: int, seconds: float) -> None:
    route = _route(scope)
    _requests.inc(method=scope["method"], route=route, status=str(status))
    _seconds.observe(seconds, route=route)


def _bounded(scope: Scope, receive: Receive, limit: int) -> Callable[[], Awaitable[Message]]:
    """The body, refused when it is larger than `limit` or arrives too slowly."""
    claimed = Headers(scope=scope).get("content-length", "")
    too_large = HTTPException(413, f"The body has more than {limit} bytes.")
    done, total = False, 0
    begun = time.monotonic()

    async def receiving() -> Message:
        nonlocal done, total
        if done:
            return await receive()
        if claimed.isdecimal() and int(claimed) > limit:
            raise too_large
        try:
            async with asyncio.timeout(begun + BODY_SEC + total / _SLOWEST - time.monotonic()):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, "The body did not arrive in time.") from None
        total += len(message.get("body", b""))
        done = not message.get("more_body", False)
        if total > limit:
            raise too_large
        return message

    return receiving
