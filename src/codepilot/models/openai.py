"""OpenAI's models and compatible servers, by the chat completions API."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codepilot.core.events import Usage
from codepilot.models.connection import Connection
from codepilot.models.errors import ModelFailure
from codepilot.models.prices import Prices, prompt_tokens
from codepilot.models.protocol import (
    Message,
    OnText,
    Reply,
    StopReason,
    Tool,
    ToolCall,
    never,
    sound,
    without_tools,
)
from codepilot.models.sdk import Asked, SdkModel, call

ASK_SEC = 5.0
"""How long a server may take to list its models."""
_SIZES = ("n_ctx", "max_model_len", "loaded_context_length", "context_length", "max_context_length", "context_window")
"""The fields in which servers name a model's size of context, the most certain first."""
_log = logging.getLogger(__name__)
_STOPS: dict[str, StopReason] = {"length": "length", "content_filter": "refusal"}
_NO_TOOLS = re.compile(
    r"(?i)(?=.*(?:support|requires?|enable|unknown|unrecogni|not permitted|not allowed))"
    r".*(?:\btools?\b|tool.?choice|function.?call)",
    re.DOTALL,
)
_UNKNOWN_FIELDS = ("stream_options", "max_completion_tokens", "max_tokens", "temperature")


class OpenAIModel(SdkModel):
    """With `compatible`, the server is not OpenAI's: it gets no OpenAI headers, and fewer features are expected."""

    package = "openai"

    def __init__(self, name: str, prices: Prices, connection: Connection, *, compatible: bool = False) -> None:
        super().__init__(name, prices, connection)
        self._compatible = compatible
        self._served: tuple[int | None] | None = None
        self.lacks.add("max_completion_tokens" if compatible else "max_tokens")
        if not prices.known.tools:
            self.lacks.add("tools")

    def _make_client(self, sdk: Any) -> Any:
        return sdk.AsyncOpenAI(api_key=self.connection.key or "none", **self.client_options(sdk))

    def _headers(self) -> dict[str, Any]:
        """Omit the headers that the SDK takes from the environment for OpenAI only."""
        unsent = ["OpenAI-Organization", "OpenAI-Project"] if self._compatible else []
        unsent += [] if self.connection.key else ["Authorization"]
        return {name: self.sdk.Omit() for name in unsent}

    def served_context(self) -> int | None:
        """This model's entry of `/v1/models`: llama.cpp, vLLM, LM Studio and others name their context size."""
        if not self._compatible:
            return None
        if self._served is None:
            try:
                self._served = (call(self.name, lambda put: self._ask_served(), stopped=never),)
            except Exception as error:  # noqa: BLE001  (a server may answer anything; the model works without it)
                _log.info("%s does not say its size of context: %s", self.name, type(error).__name__)
                if isinstance(error, self.sdk.APIConnectionError):
                    return None
                self._served = (None,)
        return self._served[0]

    async def _ask_served(self) -> int | None:
        page = await self.client.models.list(extra_headers=self._headers(), timeout=ASK_SEC)
        listed = [one.to_dict() for one in page.data]
        named = [one for one in listed if one.get("id") == self.prices.model]
        return next((size for one in named or listed[:1] if (size := _context_of(one)) is not None), None)

    def embed(self, texts: Sequence[str], timeout_sec: float) -> list[list[float]]:
        """The texts as vectors, within this time; raise if they are not there by then."""
        until = time.monotonic() + timeout_sec

        async def ask() -> list[list[float]]:
            options = {"extra_headers": self._headers(), "timeout": timeout_sec, "encoding_format": "float"}
            try:
                made = await self.client.embeddings.create(model=self.prices.model, input=list(texts), **options)
            except Exception as error:
                failure = self._failure(error, begun=False)
                if failure is None:
                    raise
                raise failure from None  # the SDK's error holds the request and its key
            vectors = [[float(x) for x in one.embedding] for one in sorted(made.data, key=lambda one: one.index)]
            if len(vectors) != len(texts):
                raise self.bad_reply(f"{len(vectors)} vectors for {len(texts)} texts")
            return vectors

        return call(self.name, lambda put: ask(), stopped=lambda: time.monotonic() > until)

    def _lacking(self, failure: ModelFailure, asked: Asked) -> str | None:
        details = failure.failure.details
        text, status = str(details.get("text")), details.get("status")
        if asked.tools and status in (400, 404, 422, 500, 501) and _NO_TOOLS.match(text):
            return "tools"
        if status not in (400, 422):
            return None
        named = [name for name in _UNKNOWN_FIELDS if name == details.get("param")]
        named += [name for name in _UNKNOWN_FIELDS if re.search(rf"\b{name}\b", text)]
        lacking = next((name for name in named if name not in self.lacks), None)
        if lacking in ("max_tokens", "max_completion_tokens"):
            self.lacks -= {"max_tokens", "max_completion_tokens"}
        return lacking

    async def _stream(self, asked: Asked) -> Any:
        return await self.client.chat.completions.create(
            **self._request(asked), stream=True, extra_headers=self._headers()
        )

    def _request(self, asked: Asked) -> dict[str, Any]:
        tools = asked.tools if "tools" not in self.lacks else ()
        messages = asked.messages if "tools" not in self.lacks else without_tools(asked.messages, asked.tools)
        limit = "max_tokens" if "max_completion_tokens" in self.lacks else "max_completion_tokens"
        request: dict[str, Any] = {
            "model": self.prices.model,
            "messages": [_message(message) for message in messages],
            limit: asked.max_tokens,
        }
        if tools:
            request["tools"] = [_tool(tool) for tool in tools]
        if "temperature" not in self.lacks:
            request["temperature"] = asked.temperature
        if "stream_options" not in self.lacks:
            request["stream_options"] = {"include_usage": True}
        return request

    async def _read(self, stream: Any, asked: Asked, on_text: OnText) -> Reply:
        incoming = _Incoming()
        async for chunk in stream:
            incoming.take(chunk.to_dict(), on_text)
        if not incoming.stop:
            raise self.bad_reply("its reply was cut off")
        return self._reply(incoming, asked)

    def _reply(self, incoming: _Incoming, asked: Asked) -> Reply:
        refused_tools = bool(asked.tools) and "tools" in self.lacks and self.prices.known.tools
        stop: StopReason = (
            "refusal" if incoming.refusal else _STOPS.get(incoming.stop, "tool_use" if incoming.calls else "end")
        )
        calls = incoming.calls if stop == "tool_use" else {}
        return Reply(
            text="".join(incoming.refusal or incoming.text),
            tool_calls=tuple(
                ToolCall(
                    id=call["id"] or f"call_{place}",
                    name=call["name"],
                    arguments=self.arguments(call["name"], call["arguments"]),
                )
                for place, call in sorted(calls.items())
            ),
            usage=self.prices.priced(_usage(incoming, asked)),
            stop_reason=stop,
            fenced=refused_tools,
        )


@dataclass
class _Incoming:
    """A reply that is being streamed."""

    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Mapping[str, Any] | None = None
    stop: str = ""

    def take(self, chunk: Mapping[str, Any], on_text: OnText) -> None:
        self.usage = chunk.get("usage") or self.usage
        for choice in (chunk.get("choices") or [])[:1]:
            delta = choice.get("delta") or {}
            if delta.get("content"):
                self.text.append(delta["content"])
                on_text(delta["content"])
            if delta.get("refusal"):
                self.refusal.append(delta["refusal"])
            for part in delta.get("tool_calls") or ():
                self._add(part)
            self.stop = choice.get("finish_reason") or self.stop

    def _add(self, part: Mapping[str, Any]) -> None:
        place = part.get("index")
        call = self.calls.setdefault(
            len(self.calls) if place is None else place, {"id": "", "name": "", "arguments": ""}
        )
        function = part.get("function") or {}
        arguments = function.get("arguments") or ""
        call["id"] = part.get("id") or call["id"]
        call["name"] = function.get("name") or call["name"]
        call["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)


def _usage(incoming: _Incoming, asked: Asked) -> Usage:
    """The server's count, or the estimate if it does not count or miscounts."""
    counted = incoming.usage or {}
    input_tokens, output = counted.get("prompt_tokens"), counted.get("completion_tokens")
    if not isinstance(input_tokens, int) or not isinstance(output, int) or input_tokens <= 0 or output < 0:
        written = "".join((*incoming.text, *(call["arguments"] for call in incoming.calls.values())))
        input_tokens = prompt_tokens(asked.messages, asked.tools)
        output = prompt_tokens([Message(role="assistant", content=written)])
    cached = max(0, (counted.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    return Usage(
        turns=1, tokens=input_tokens + output, input_tokens=input_tokens, output_tokens=output, cached_tokens=cached
    )


def _context_of(listed: Mapping[str, Any]) -> int | None:
    """The size of context in a model's entry, or in its `meta`."""
    meta = listed.get("meta")
    places = (listed, meta if isinstance(meta, Mapping) else {})
    found = (place.get(name) for name in _SIZES for place in places)
    return next((size for size in found if isinstance(size, int) and size > 0), None)


def _message(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": sound(message.content)}
    if message.tool_call_id is not None:
        made["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in message.tool_calls
        ]
        made["content"] = made["content"] or None
    return made


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }
