"""What a scripted provider may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Tokens:
    """`input` is what was read anew; what the cache held or took in is next to it."""

    input: int = 100
    output: int = 10
    cached: int = 0
    written: int = 0


@dataclass(frozen=True)
class TextReply:
    """Text, and why it ends: `end`, `length` or `refusal`. `pause_sec` passes before each piece.

    Without `tokens`, nothing is counted, as some compatible servers do it.
    """

    text: str
    stop: str = "end"
    tokens: Tokens | None = Tokens()
    pause_sec: float = 0.0


@dataclass(frozen=True)
class Call:
    """A tool call; arguments given as text are sent as they are, JSON or not. `custom` tools take text alone."""

    name: str
    arguments: Mapping[str, Any] | str
    text: str = ""
    stop: str = "tool_use"
    tokens: Tokens = Tokens()
    pause_sec: float = 0.0
    custom: bool = False


@dataclass(frozen=True)
class HttpError:
    """A refusal. Without a body it says what the provider says with that status."""

    status: int
    body: Mapping[str, Any] | str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cut:
    """Some text, and then the connection is gone; `politely` ends the stream as if that had been all."""

    text: str
    politely: bool = False


@dataclass(frozen=True)
class Garbage:
    """A stream that is not what the API promises."""

    data: str = "{not json"


@dataclass(frozen=True)
class StreamError:
    """An error that comes after the reply has begun."""

    type: str = "overloaded_error"
    message: str = "Overloaded"


@dataclass(frozen=True)
class Hang:
    """Nothing, for so long."""

    seconds: float = 600.0


Answer = str | TextReply | Call | HttpError | Cut | Garbage | StreamError | Hang


def refusals(kind: str) -> dict[str, HttpError]:
    """How each API refuses a key, a rate, a credit, a plan's limit, and a request in its rush hour."""
    return {api: made[kind] for api, made in _REFUSALS.items() if kind in made}


def _anthropic(status: int, kind: str, message: str, **headers: str) -> HttpError:
    return HttpError(status, {"type": "error", "error": {"type": kind, "message": message}}, headers)


def _openai(status: int, code: str, message: str, **more: Any) -> HttpError:
    return HttpError(status, {"error": {"message": message, "type": code, "param": None, "code": code, **more}})


def _gemini(status: int, code: str, message: str) -> HttpError:
    return HttpError(status, {"error": {"code": status, "message": message, "status": code}})


_PLAN_LIMIT = {
    "anthropic-ratelimit-unified-status": "rejected",
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
    "anthropic-ratelimit-unified-reset": "4102444800",
    "anthropic-ratelimit-unified-5h-status": "rejected",
    "anthropic-ratelimit-unified-5h-reset": "4102444800",
    "anthropic-ratelimit-unified-overage-status": "rejected",
    "retry-after": "3600",
}
_RATE = "This request would exceed your organization's rate limit of 50,000 input tokens per minute."
_CREDIT = "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing."
_QUOTA = "You exceeded your current quota, please check your plan and billing details."
_REFUSALS: dict[str, dict[str, HttpError]] = {
    "anthropic": {
        "key": _anthropic(401, "authentication_error", "invalid x-api-key"),
        "rate": _anthropic(429, "rate_limit_error", _RATE, **{"retry-after": "1"}),
        "credit": _anthropic(400, "invalid_request_error", _CREDIT),
        "plan": _anthropic(429, "rate_limit_error", _RATE, **_PLAN_LIMIT),
        "overload": _anthropic(529, "overloaded_error", "Overloaded"),
    },
    "responses": {
        "key": _openai(401, "invalid_api_key", "Incorrect API key provided."),
        "rate": _openai(429, "rate_limit_exceeded", "Rate limit reached. Please try again in 1s."),
        "credit": _openai(429, "insufficient_quota", _QUOTA),
        "plan": _openai(
            429, "usage_limit_reached", "The usage limit has been reached", plan_type="plus", resets_in_seconds=3600
        ),
        "overload": _openai(503, "server_is_overloaded", "The server is currently overloaded."),
    },
    "gemini": {
        "key": _gemini(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
        "rate": _gemini(429, "RESOURCE_EXHAUSTED", _QUOTA),
        "credit": _gemini(429, "RESOURCE_EXHAUSTED", _QUOTA),
        "plan": _gemini(429, "RESOURCE_EXHAUSTED", _QUOTA),
        "overload": _gemini(503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    },
}
_REFUSALS["openai"] = _REFUSALS["responses"]
