"""Bodies as they arrive: never more than allowed, never slower than allowed, whatever the headers claim."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

from fastapi import Request
from pydantic import ValidationError

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import protocol

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
