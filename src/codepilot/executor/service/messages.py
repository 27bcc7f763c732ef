"""Bodies as they arrive, within bounds whatever the headers claim, and failures as responses."""

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
from codepilot.executor.protocol import Conflict, Unfinished, UnknownWorkspace
from codepilot.executor.service.admission import Busy, Draining

_LEAST_RATE = 64 << 10
"""Bytes a second that an upload must keep up, once its first pause is over."""

_READ = "codepilot.read"

Asked = TypeVar("Asked", bound=protocol.Request)


class TooLarge(CodePilotError):
    def __init__(self, limit: int) -> None:
        super().__init__(
            FailureKind.TOOL_INVALID_ARGS, f"the body has more than {limit} bytes", "Send less at once.", limit=limit
        )


class TooSlow(CodePilotError):
    def __init__(self) -> None:
        super().__init__(FailureKind.TOOL_TIMEOUT, "the body did not arrive in time", "Send it again, faster.")


class WrongType(CodePilotError):
    def __init__(self, wanted: str) -> None:
        super().__init__(FailureKind.TOOL_INVALID_ARGS, f"the body's Content-Type must be {wanted}")


class BadParameter(CodePilotError):
    def __init__(self, message: str) -> None:
        super().__init__(FailureKind.TOOL_INVALID_ARGS, message, "See /openapi.json.")


class Malformed(CodePilotError):
    """The body is not the contract that the operation takes."""

    def __init__(self, what: str, error: ValidationError) -> None:
        failure = protocol.refusal(what, error).failure
        super().__init__(failure.kind, failure.message, fields=failure.details.get("fields"))


async def contract(request: Request, kind: type[Asked], limit: int, seconds: float) -> Asked:
    """A JSON body as the contract it must be."""
    check_type(request, "application/json")
    data = bytearray()
    async for chunk in arriving(request, limit, seconds, whole=True):
        data += chunk
    try:
        return _as_contract(bytes(data), kind)
    except ValidationError as error:
        raise Malformed(kind.__name__, error) from error


def _as_contract(data: bytes, kind: type[Asked]) -> Asked:
    """JSON knows one sort of number: `3.0` is as good an integer as `3`."""
    try:
        return kind.model_validate_json(data, strict=True)
    except ValidationError as error:
        if error.error_count() > protocol.TOLD or not any(
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
    """Let a caller finish, so that it hears why its body is not wanted now."""
    if is_unread(request):
        async for _ in arriving(request, limit, seconds, whole=False):
            pass


def is_unread(request: Request) -> bool:
    """Whether there is a body of which not all has come."""
    has_one = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    return has_one and _READ not in request.scope


def check_type(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise WrongType(wanted)


async def arriving(request: Request, limit: int, seconds: float, whole: bool) -> AsyncIterator[bytes]:
    """The chunks of a body. `seconds` bounds all of it, or each pause if it need not come as a whole."""
    claimed = request.headers.get("content-length", "0")
    if claimed.isdecimal() and int(claimed) > limit:
        raise TooLarge(limit)
    begun, total, more = time.monotonic(), 0, True
    while more:
        spent = time.monotonic() - begun
        if not whole and total < (spent - seconds) * _LEAST_RATE:
            raise TooSlow
        try:
            async with asyncio.timeout(seconds - spent if whole else seconds):
                message = await request.receive()
        except TimeoutError:
            raise TooSlow from None
        if message["type"] != "http.request":
            raise TooSlow
        chunk: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        if not more:
            request.scope[_READ] = True
        total += len(chunk)
        if total > limit:
            raise TooLarge(limit)
        yield chunk


_K = FailureKind

_BY_TYPE: dict[type[CodePilotError], int] = {
    UnknownWorkspace: 404,
    Unfinished: 409,
    Conflict: 409,
    Draining: 503,
    Busy: 429,
    TooLarge: 413,
    TooSlow: 408,
    WrongType: 415,
    BadParameter: 400,
    Malformed: 422,
}
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


class Unauthorised(CodePilotError):
    def __init__(self) -> None:
        super().__init__(
            FailureKind.TOOL_PERMISSION_DENIED,
            "the bearer token is missing or wrong",
            "Set CODEPILOT_EXECUTOR_TOKEN to the token of the service.",
        )


class Misdirected(CodePilotError):
    """Somebody else's name leads here: a web page may be speaking through a browser on this machine."""

    def __init__(self) -> None:
        super().__init__(
            FailureKind.TOOL_PERMISSION_DENIED,
            "without a token the executor answers to loopback names alone",
            "Ask for 127.0.0.1, ::1 or localhost, or start it with a token.",
        )


def status_of(error: CodePilotError) -> int:
    if isinstance(error, Unauthorised):
        return 401
    if isinstance(error, Misdirected):
        return 421
    for kind, status in _BY_TYPE.items():
        if isinstance(error, kind):
            return status
    return _BY_KIND.get(error.kind, 409)


def failed(failure: Failure, status: int, headers: dict[str, str] | None = None) -> Response:
    shown = failure.model_copy(update={"next_action": failure.advice})
    return Response(shown.model_dump_json(), status, headers, media_type="application/json")


def told(error: CodePilotError) -> Response:
    """A failure as its response."""
    status = status_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, Busy):
        headers["Retry-After"] = str(error.retry_sec)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return failed(error.failure, status, headers)
