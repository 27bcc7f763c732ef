"""How much a request will use, told before it is sent and without asking anybody."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from codepilot.core.events import Usage
from codepilot.models.protocol import Message, Tool

BYTES_PER_TOKEN = 3.5
"""Code has fewer to a token than prose has: rather too many tokens are told than too few."""
TOKENS_PER_MESSAGE = 4


def prompt_tokens(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
    """About how many tokens a model takes in for these."""
    size = sum(_size(message.content) for message in messages)
    size += sum(len(call.name) + _size(json.dumps(call.arguments)) for said in messages for call in said.tool_calls)
    size += sum(_size(tool.model_dump_json()) for tool in tools)
    return math.ceil(size / BYTES_PER_TOKEN) + TOKENS_PER_MESSAGE * (len(messages) + len(tools))


def estimated(
    messages: Sequence[Message],
    max_tokens: int,
    tools: Sequence[Tool] = (),
    priced: Callable[[Usage], Usage] = lambda usage: usage,
) -> Usage:
    """One turn with nothing cached and a reply as long as it may be."""
    asked = prompt_tokens(messages, tools)
    return priced(Usage(turns=1, tokens=asked + max_tokens, input_tokens=asked, output_tokens=max_tokens))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
