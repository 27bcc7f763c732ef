"""Reads request bodies within bounds that their headers cannot change, and writes failures as responses."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import Response
from pydantic import ValidationError

from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.executor import protocol
from codepilot.executor.protocol import UnknownWorkspace
from codepilot.executor.service.admission import Busy

_LEAST_RATE = 64 << 10
"""Bytes per second that an upload must average after its first pause."""

_READ = "codepilot.read"

Asked = TypeVar("Asked", bound=protocol.Request)


class Refused(CodePilotError):
    """A request that the service does not take, with its HTTP status."""

    def __init__(
        self,
        status: int,
        message: str,
        next_action: str = "",
        kind: FailureKind = FailureKind.TOOL_INVALID_ARGS,
        **details: object,
    ) -> None:
        super().__init__(kind, message, next_action, **details)
        self.status = status


def bad_parameter(message: str) -> Refused:
    return Refused(400, message, "See /openapi.json.")


def _too_large(limit: int) -> Refused:
    return Refused(413, f"the body has more than {limit} bytes", "Send less at once.", limit=limit)


def _too_slow() -> Refused:
    return Refused(408, "the body did not arrive in time", "Send it again, faster.", FailureKind.TOOL_TIMEOUT)


async def contract(request: Request, kind: type[Asked], limit: int, seconds: float) -> Asked:
    """A JSON body as the contract it must be."""
    check_type(request, "application/json")
    data = bytearray()
    async for chunk in arriving(request, limit, seconds, whole=True):
        data += chunk
    try:
        return _as_contract(bytes(data), kind)
    except ValidationError as error:
        failure = protocol.refusal(kind.__name__, error).failure
        raise Refused(422, failure.message, kind=failure.kind, fields=failure.details.get("fields")) from error


def _as_contract(data: bytes, kind: type[Asked]) -> Asked:
    """Parse strictly, but take `3.0` as the integer 3: JSON has one kind of number."""
    try:
        return kind.model_validate_json(data, strict=True)
    except ValidationError as error:
        if error.error_count() > protocol.MOST_ERRORS or not any(
            one["type"] == "int_type" and isinstance(one["input"], float) for one in error.errors()
        ):
            raise
        plain = json.dumps(_with_integers(json.loads(data)))
        return kind.model_validate_json(plain, strict=True)


def _with_integers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    return value


async def whole(request: Request, limit: int, seconds: float) -> bytes:
    """A body of plain bytes."""
    check_type(request, "application/octet-stream")
    return b"".join([chunk async for chunk in arriving(request, limit, seconds, whole=True)])


async def spooled(request: Request, file: Path, limit: int, seconds: float) -> None:
    """A large body, into a file."""
    check_type(request, "application/octet-stream")
    with file.open("xb") as out:
        async for chunk in arriving(request, limit, seconds, whole=False):
            out.write(chunk)


async def discarded(request: Request, limit: int, seconds: float) -> None:
    """Read a body to its end and drop it, so that the caller reads the answer."""
    if is_unread(request):
        async for _ in arriving(request, limit, seconds, whole=False):
            pass


def is_unread(request: Request) -> bool:
    """True if a part of the body has not been read."""
    has_one = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    return has_one and _READ not in request.scope


def check_type(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise Refused(415, f"the body's Content-Type must be {wanted}")


async def arriving(request: Request, limit: int, seconds: float, whole: bool) -> AsyncIterator[bytes]:
    """Yield the chunks of a body. `seconds` bounds the whole body, or each pause if `whole` is false."""
    claimed = request.headers.get("content-length", "0")
    if claimed.isdecimal() and int(claimed) > limit:
        raise _too_large(limit)
    begun, total, more = time.monotonic(), 0, True
    while more:
        spent = time.monotonic() - begun
        if not whole and total < (spent - seconds) * _LEAST_RATE:
            raise _too_slow()
        try:
            async with asyncio.timeout(seconds - spent if whole else seconds):
                message = await request.receive()
        except TimeoutError:
            raise _too_slow() from None
        if message["type"] != "http.request":
            raise _too_slow()
        chunk: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        if not more:
            request.scope[_READ] = True
        total += len(chunk)
        if total > limit:
            raise _too_large(limit)
        yield chunk


_K = FailureKind

_BY_KIND: dict[FailureKind, int] = {
    _K.PATH_NOT_FOUND: 404,
    _K.TOOL_PERMISSION_DENIED: 403,
    _K.DENIED: 403,
    _K.TOOL_TIMEOUT: 408,
    _K.DISK_FULL: 507,
    _K.INTERNAL: 500,
}
REASONS: dict[int, str] = {
    400: "A part of the path or the query is not valid",
    401: "The token is missing or wrong",
    403: "The service does not allow it",
    404: "There is no such thing",
    405: "The method does not fit",
    408: "The body came too slowly",
    409: "It contradicts what is there, or cannot be done here",
    413: "The body is too large",
    415: "The body's type does not fit",
    421: "The service has no token and answers to loopback names alone",
    422: "The body is not the contract",
    429: "The service is busy; Retry-After says when to ask again",
    500: "A defect",
    503: "The service is shutting down",
    507: "The disk is full",
}


def respond(failure: Failure, status: int, headers: dict[str, str] | None = None) -> Response:
    shown = failure.model_copy(update={"next_action": failure.advice})
    return Response(shown.model_dump_json(), status, headers, media_type="application/json")


def respond_to(error: CodePilotError) -> Response:
    """The response for an error. Busy names the time to wait, a missing token the way to send one."""
    headers: dict[str, str] = {}
    if isinstance(error, UnknownWorkspace):
        status = 404
    elif isinstance(error, Refused):
        status = error.status
    elif isinstance(error, Busy):
        status = error.status
        headers["Retry-After"] = str(error.retry_sec)
    else:
        status = _BY_KIND.get(error.kind, 409)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return respond(error.failure, status, headers)
