"""Anthropic's models by the Messages API, with prompt caching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codepilot.core.events import Usage
from codepilot.models.protocol import Message, OnText, Reply, StopReason, Tool, ToolCall, sound
from codepilot.models.sdk import Asked, SdkModel

WITH_TEMPERATURE = "2023-06-01"
"""The last API version that accepts a temperature. The SDK has no argument for it, and newer models refuse it."""
CACHED = {"type": "ephemeral"}
CACHED_MESSAGES = 2
"""How many of the last user messages end a cached part: the last for the next turn, the one before for this."""
_STOPS: dict[str, StopReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}
_COUNTED = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class AnthropicModel(SdkModel):
    package = "anthropic"
    models_path = "/v1/models"
    writes_cache = True

    def _make_client(self, sdk: Any) -> Any:
        return sdk.AsyncAnthropic(api_key=self.connection.key, **self.client_options(sdk))

    async def _stream(self, asked: Asked) -> Any:
        return await self.client.messages.create(**self._request(asked), stream=True)

    def _request(self, asked: Asked) -> dict[str, Any]:
        system = [message.content for message in asked.messages if message.role == "system"]
        request: dict[str, Any] = {
            "model": self.prices.model,
            "max_tokens": asked.max_tokens,
            "messages": _messages(asked.messages),
        }
        if system:
            request["system"] = [{"type": "text", "text": sound("\n\n".join(system)), "cache_control": CACHED}]
        if asked.tools:
            request["tools"] = [_tool(tool) for tool in asked.tools]
            request["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
        if "temperature" not in self.lacks:
            request["extra_body"] = {"temperature": min(asked.temperature, 1.0)}
            request["extra_headers"] = {"anthropic-version": WITH_TEMPERATURE}
        return request

    async def _read(self, stream: Any, asked: Asked, on_text: OnText) -> Reply:
        incoming = _Incoming()
        async for event in stream:
            incoming.take(event.to_dict(), on_text)
        if not incoming.whole:
            raise self.bad_reply("its reply was cut off")
        return self._reply(incoming)

    def _reply(self, incoming: _Incoming) -> Reply:
        calls = [block for block in incoming.blocks.values() if block.get("type") == "tool_use"]
        stop: StopReason = _STOPS.get(incoming.stop, "tool_use" if calls else "end")
        if stop != "tool_use":
            calls = []  # the last one may be cut off
        input_tokens = sum(incoming.counted.get(name, 0) for name in _COUNTED if name != "output_tokens")
        output = incoming.counted.get("output_tokens", 0)
        usage = Usage(
            turns=1,
            tokens=input_tokens + output,
            input_tokens=input_tokens,
            output_tokens=output,
            cached_tokens=incoming.counted.get("cache_read_input_tokens", 0),
        )
        return Reply(
            text="".join(block["text"] for block in incoming.blocks.values() if block.get("type") == "text"),
            tool_calls=tuple(
                ToolCall(id=call["id"], name=call["name"], arguments=self.arguments(call["name"], call["json"]))
                for call in calls
            ),
            usage=self.prices.priced(usage, incoming.counted.get("cache_creation_input_tokens", 0)),
            stop_reason=stop,
        )


@dataclass
class _Incoming:
    """A reply that is being streamed."""

    blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    stop: str = ""
    whole: bool = False

    def take(self, event: Mapping[str, Any], on_text: OnText) -> None:
        match event["type"]:
            case "message_start":
                self._count(event["message"].get("usage"))
            case "content_block_start":
                begun = event["content_block"]
                self.blocks[event["index"]] = {"text": "", **begun, "json": ""}
                if begun["type"] == "text" and begun.get("text"):
                    on_text(begun["text"])
            case "content_block_delta":
                self._add(self.blocks[event["index"]], event["delta"], on_text)
            case "message_delta":
                self.stop = event["delta"].get("stop_reason") or self.stop
                self._count(event.get("usage"))
            case "message_stop":
                self.whole = True

    def _add(self, block: dict[str, Any], delta: Mapping[str, Any], on_text: OnText) -> None:
        if delta["type"] == "text_delta":
            block["text"] += delta["text"]
            on_text(delta["text"])
        elif delta["type"] == "input_json_delta":
            block["json"] += delta["partial_json"]

    def _count(self, usage: Mapping[str, Any] | None) -> None:
        """Counts are cumulative: the last one holds."""
        self.counted.update({name: value for name in _COUNTED if isinstance(value := (usage or {}).get(name), int)})


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The API wants one message for neighbours of one role; answers to calls are parts of the user's message."""
    made: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if made and made[-1]["role"] == role:
            made[-1]["content"] += _blocks(message)
        else:
            made.append({"role": role, "content": _blocks(message)})
    for message_made in [each for each in made if each["role"] == "user"][-CACHED_MESSAGES:]:
        message_made["content"][-1]["cache_control"] = CACHED
    return made


def _blocks(message: Message) -> list[dict[str, Any]]:
    text = sound(message.content)
    if message.role == "tool":
        return [{"type": "tool_result", "tool_use_id": message.tool_call_id, "content": text}]
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in message.tool_calls
    ]
    if text.strip():
        return [{"type": "text", "text": text.rstrip() if message.role == "assistant" else text}, *calls]
    return [*calls] if calls else [{"type": "text", "text": "(nothing)"}]


def _tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
