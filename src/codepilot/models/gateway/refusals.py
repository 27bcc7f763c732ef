"""The gateway's own refusals, as each dialect's clients understand them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal

from codepilot.models.gateway.endpoint import Dialect

Why = Literal["budget", "request", "key", "path", "size", "upstream", "busy"]

_STATUS: dict[Why, int] = {
    "budget": 400,  # clients retry 402, 403 or 429 in some dialect; a bad request they report at once
    "request": 400,
    "key": 401,
    "path": 404,
    "size": 413,
    "upstream": 502,
    "busy": 503,
}
_ANTHROPIC: dict[Why, str] = {
    "budget": "invalid_request_error",
    "request": "invalid_request_error",
    "key": "authentication_error",
    "path": "not_found_error",
    "size": "request_too_large",
    "upstream": "api_error",
    "busy": "overloaded_error",
}
_OPENAI: dict[Why, str] = {
    "budget": "insufficient_quota",
    "request": "invalid_request",
    "key": "invalid_api_key",
    "path": "not_found",
    "size": "request_too_large",
    "upstream": "server_error",
    "busy": "server_is_overloaded",
}
_GEMINI: dict[Why, str] = {
    "budget": "FAILED_PRECONDITION",
    "request": "INVALID_ARGUMENT",
    "key": "UNAUTHENTICATED",
    "path": "NOT_FOUND",
    "size": "INVALID_ARGUMENT",
    "upstream": "INTERNAL",
    "busy": "UNAVAILABLE",
}
_PASSING: frozenset[Why] = frozenset({"upstream", "busy"})


def refusal(dialect: Dialect, why: Why, message: str) -> tuple[int, Mapping[str, str], bytes]:
    """The status, the headers and the body that say no."""
    body: dict[str, object]
    if dialect == "anthropic":
        body = {"type": "error", "error": {"type": _ANTHROPIC[why], "message": message}}
    elif dialect == "openai":
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": _OPENAI[why]}
        body = {"error": error}
    else:
        body = {"error": {"code": _STATUS[why], "message": message, "status": _GEMINI[why]}}
    again = "true" if why in _PASSING else "false"
    headers = {"content-type": "application/json", "x-should-retry": again}
    return _STATUS[why], headers, json.dumps(body).encode()


def cut_off(dialect: Dialect, message: str) -> bytes:
    """The last event of a stream that is cut off."""
    body = refusal(dialect, "budget", message)[2].decode()
    return f"event: error\ndata: {body}\n\n".encode() if dialect == "anthropic" else f"data: {body}\n\n".encode()
