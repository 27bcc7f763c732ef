"""Conversations for models whose API has no tools: calls become fenced blocks, their answers become messages."""

from __future__ import annotations

import json
from collections.abc import Sequence

from codepilot.models.protocol import Message, Tool, ToolCall


def in_words(messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Message, ...]:
    """The same conversation without a tool in it."""
    told = [_told(message) for message in messages]
    if tools and told and told[0].role == "system":
        told[0] = Message(role="system", content=f"{told[0].content}\n\n{_how(tools)}")
    return tuple(told)


def _told(message: Message) -> Message:
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


def _how(tools: Sequence[Tool]) -> str:
    names = ", ".join(f"```{tool.name}" for tool in tools)
    return f"There are no tool calls here: write your code into one fenced block that begins with {names}."
