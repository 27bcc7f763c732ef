"""A call's body before it is sent: which model it asks, what it may use, and nothing that acts for it elsewhere. Pure.

A provider offers tools that it runs itself, and fetches what a URL names. Through them a program without a network
would have one, so they are left out or refused: what leaves the sandbox goes to the model alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from codepilot.core.events import Usage
from codepilot.models.gateway.meter import CallRefused
from codepilot.models.gateway.routes import Route
from codepilot.models.prices import BYTES_PER_TOKEN
from codepilot.sandbox import ProtocolError, parse_object

OUTPUT_RESERVE = 8_192
"""The output tokens that a call is charged before it replies, at most. A reply that grows beyond is metered on."""
BINARY_TOKENS = 3_000
"""The estimated size of an image or another binary part."""
MOST_MODEL_NAME = 200

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
_ELSEWHERE = ("mcp_servers", "container", "background", "previous_response_id", "conversation", "web_search_options")
"""Fields that let the provider act, or keep state, outside the one reply that is metered."""
_DROPPED = ("service_tier", "speed", "inference_geo", "labels", "metadata")
"""Fields that change the price, or that carry who asks."""
_FETCHED = ("fileUri", "file_uri", "image_url", "file_url", "server_url", "url")


@dataclass(frozen=True)
class Examined:
    """What is sent, and what it may use."""

    model: str
    estimate: Usage
    body: bytes


def examine(route: Route, raw: bytes) -> Examined:
    """The call as it is sent. Raises `CallRefused` for one that is none of this API, or that asks for more than it."""
    try:
        body = parse_object(raw)
    except ProtocolError as error:
        raise CallRefused(f"The body cannot be read: {error}.") from None
    model = route.model or body.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= MOST_MODEL_NAME:
        raise CallRefused("The body names no model.")
    for name in _ELSEWHERE:
        if body.get(name):
            raise CallRefused(
                f"CodePilot's model gateway does not serve {name!r}: a call is one request and one reply."
            )
    for name in _DROPPED:
        body.pop(name, None)
    _keep_own_tools(body)
    if (fetched := _fetched(body)) is not None:
        raise CallRefused(
            f"CodePilot's model gateway does not serve {fetched!r} with an address: send the content itself."
        )
    return Examined(model, _estimate(body), json.dumps(body).encode())


def _keep_own_tools(body: dict[str, Any]) -> None:
    """Leave only the tools that the asking program runs itself."""
    items = body.get("input")
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and isinstance(item.get("tools"), list):
            item["tools"] = [one for one in map(_own, item["tools"]) if one is not None]
    tools = body.get("tools")
    if not isinstance(tools, list):
        return
    kept = [_own(tool) for tool in tools]
    left = [tool for tool in kept if tool is not None]
    if left:
        body["tools"] = left
        return
    for name in ("tools", "tool_choice", "toolConfig", "tool_config", "parallel_tool_calls"):
        body.pop(name, None)


def _own(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return None
    for name in ("functionDeclarations", "function_declarations"):
        if name in tool:
            return {name: tool[name]}
    if "type" not in tool:
        return tool if "input_schema" in tool else None  # Anthropic's own form; Gemini's search has none either
    kind = str(tool["type"] or "custom")
    if kind == "namespace" and isinstance(tool.get("tools"), list):
        inner = [one for one in map(_own, tool["tools"]) if one is not None]
        return {**tool, "tools": inner}
    place = tool.get("environment")
    if place is not None and not (isinstance(place, dict) and place.get("type") == "local"):
        return None
    return tool if kind in _LOCAL_TOOLS or kind.startswith(_LOCAL_PREFIXES) else None


_LOCAL_TOOLS = frozenset({"custom", "function", "local_shell", "shell", "apply_patch"})
_LOCAL_PREFIXES = ("bash_", "text_editor_", "memory_", "computer_", "tool_search_tool_")
"""Anthropic's client tools: the provider knows their schema, and the program runs them."""


def _fetched(value: Any) -> str | None:
    """The first field by which the provider would fetch an address."""
    for name, text in _strings(value):
        if name in _FETCHED and text.lower().lstrip().startswith(("http:", "https:", "gs:", "ftp:", "file:", "//")):
            return name
    return None


def _strings(value: Any) -> Iterator[tuple[str, str]]:
    """All strings in messages, with the names of their fields. What a tool was called with is the program's own."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        name, found = waiting.pop()
        if isinstance(found, str):
            yield name, found
        elif isinstance(found, dict):
            own = found.get("type") in ("tool_use", "function_call", "custom_tool_call")
            skipped = ("input", "arguments", "args", "parameters", "input_schema", "response", "functionDeclarations")
            waiting += [
                (key, inner)
                for key, inner in found.items()
                if not (isinstance(inner, dict) and (key in skipped or (own and key == "input")))
            ]
        elif isinstance(found, list):
            waiting += [(name, inner) for inner in found]


def _estimate(body: Mapping[str, Any]) -> Usage:
    """The tokens of the request, with a reply as long as it allows, up to the reserve."""
    size = binary = 0
    waiting: list[Any] = [body]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            if found.startswith("data:") or (len(found) > 4096 and not any(mark in found[:4096] for mark in " \n{")):
                binary += BINARY_TOKENS
            else:
                size += len(found.encode("utf-8", "replace"))
        elif isinstance(found, dict):
            size += sum(len(key) + 4 for key in found)
            waiting += found.values()
        elif isinstance(found, list):
            size += len(found)
            waiting += found
        else:
            size += 4
    asked = math.ceil(size / BYTES_PER_TOKEN) + binary
    reply = min(_longest_reply(body), OUTPUT_RESERVE)
    return Usage(turns=1, tokens=asked + reply, input_tokens=asked, output_tokens=reply)


def _longest_reply(body: Mapping[str, Any]) -> int:
    config = body.get("generationConfig")
    places: list[Mapping[str, Any]] = [body, config] if isinstance(config, dict) else [body]
    named = [value for place in places for name in _LIMITS if isinstance(value := place.get(name), int) and value > 0]
    return min(named, default=OUTPUT_RESERVE)
