"""OpenAI's models and compatible servers, by the chat completions API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codepilot.core.events import Usage
from codepilot.models.connection import Connection
from codepilot.models.errors import ModelFailure
from codepilot.models.prices import Prices, prompt_tokens
from codepilot.models.protocol import Message, OnText, Reply, StopReason, Tool, ToolCall, sound
from codepilot.models.sdk import Asked, SdkModel

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


def without_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Message, ...]:
    """The same conversation in text, for a server without tools."""
    texts = [_as_text(message) for message in messages]
    if tools and texts and texts[0].role == "system":
        texts[0] = Message(role="system", content=f"{texts[0].content}\n\n{_instructions(tools)}")
    return tuple(texts)


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        return Message(role="user", content=message.content)
    if message.tool_calls:
        parts = [message.content.rstrip(), *(_block(call) for call in message.tool_calls)]
        return Message(role=message.role, content="\n\n".join(part for part in parts if part))
    return message


def _block(call: ToolCall) -> str:
    code = call.arguments.get("code")
    if set(call.arguments) == {"code"} and isinstance(code, str):
        return f"```{call.name}\n{code.rstrip()}\n```"
    return f"```{call.name}\n{json.dumps(call.arguments)}\n```"


def _instructions(tools: Sequence[Tool]) -> str:
    names = ", ".join(f"```{tool.name}" for tool in tools)
    return f"There are no tool calls here: write your code into one fenced block that begins with {names}."
