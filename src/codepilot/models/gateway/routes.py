"""The paths that the gateway serves: the model APIs and nothing else. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from codepilot.models.gateway.endpoint import Dialect

Api = Literal["messages", "responses", "chat", "gemini", "other"]
"""How a call's body and reply are read; `other` is neither metered nor examined."""

_POSTS: dict[str, tuple[Dialect, Api, str]] = {
    "/v1/messages": ("anthropic", "messages", "/v1/messages"),
    "/v1/messages/count_tokens": ("anthropic", "other", "/v1/messages/count_tokens"),
    "/v1/responses": ("openai", "responses", "/responses"),
    "/v1/chat/completions": ("openai", "chat", "/chat/completions"),
}
_GEMINI = re.compile(r"/v1(?:beta)?/models/([\w.-]{1,100}):(generateContent|streamGenerateContent|countTokens)")
_MODELS = re.compile(r"/(v1|v1beta)/models(?:/[\w.:-]{1,100})?")
_QUERY = {"anthropic": ("beta", "limit"), "openai": (), "gemini": ("alt", "pageSize")}
SERVED = (
    "POST /v1/messages, /v1/messages/count_tokens, /v1/responses, /v1/chat/completions and "
    "/v1beta/models/MODEL:generateContent, :streamGenerateContent, :countTokens; GET /v1/models"
)


@dataclass(frozen=True)
class Route:
    """One request's way: `path` is relative to the upstream's base URL."""

    dialect: Dialect
    api: Api
    path: str
    query: str = ""
    model: str = ""
    """The model that the path names, if it does."""

    @property
    def metered(self) -> bool:
        return self.api != "other"


def route(method: str, target: str, headers: Mapping[str, str]) -> Route | None:
    """The way of a request, or None if it is not of a model API. The names of `headers` are in lower case."""
    split = urlsplit(target)
    path = split.path.replace("/v1/v1/", "/v1/", 1)
    if method == "POST" and path in _POSTS:
        dialect, api, there = _POSTS[path]
        return Route(dialect, api, there, _query(dialect, split.query))
    if method == "POST" and (match := _GEMINI.fullmatch(path)):
        api = "other" if match[2] == "countTokens" else "gemini"
        return Route("gemini", api, path, _query("gemini", split.query), match[1])
    if method == "GET" and (match := _MODELS.fullmatch(path)):
        dialect = dialect_of(target, headers)
        there = path.removeprefix("/v1") if dialect == "openai" else path
        return Route(dialect, "other", there, _query(dialect, split.query))
    return None


def dialect_of(target: str, headers: Mapping[str, str]) -> Dialect:
    """The dialect in which to answer a request."""
    path = urlsplit(target).path
    if path.startswith("/v1beta") or "x-goog-api-key" in headers or _GEMINI.fullmatch(path):
        return "gemini"
    if path.startswith("/v1/messages") or "anthropic-version" in headers or "x-api-key" in headers:
        return "anthropic"
    return "openai"


def key_of(target: str, headers: Mapping[str, str]) -> str:
    """The key that a request carries, wherever its dialect puts it."""
    for name in ("x-api-key", "x-goog-api-key"):
        if name in headers:
            return headers[name].strip()
    kind, _, value = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    return dict(parse_qsl(urlsplit(target).query)).get("key", "")


def _query(dialect: Dialect, query: str) -> str:
    return urlencode([(name, value) for name, value in parse_qsl(query) if name in _QUERY[dialect]])
