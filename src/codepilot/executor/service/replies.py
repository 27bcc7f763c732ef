"""Failures as HTTP: one JSON form, and the status that fits."""

from __future__ import annotations

from fastapi.responses import Response

from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.executor.errors import Conflict, Unfinished, UnknownWorkspace
from codepilot.executor.service.bodies import BadParameter, Malformed, TooLarge, TooSlow, WrongType
from codepilot.executor.service.gate import Busy, Draining

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
