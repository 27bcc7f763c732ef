"""Token prices and context sizes: as configured, else from the data of genai-prices, without a network."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from codepilot.core.events import Usage
from codepilot.core.model_settings import KnownModel
from codepilot.models.protocol import Message, Tool

PER = 1_000_000
_UNKNOWN = KnownModel()


@dataclass(frozen=True)
class Prices:
    """The prices of one model. `url` identifies the provider of a compatible one."""

    model: str
    provider: str | None = None
    url: str | None = None
    known: KnownModel = _UNKNOWN

    def priced(self, usage: Usage, written: int = 0) -> Usage:
        """`usage` with its cost, or as unpriced tokens. `written` tokens went into the provider's cache."""
        cost = self._configured(usage) if self.known.input_usd is not None else self._listed(usage, written)
        if cost is None:
            return usage.model_copy(update={"unpriced_tokens": usage.tokens})
        return usage.model_copy(update={"cost_usd": cost})

    @property
    def context_tokens(self) -> int | None:
        if self.known.context_tokens is not None:
            return self.known.context_tokens
        try:
            from genai_prices.data_snapshot import get_snapshot

            _, found = get_snapshot().find_provider_model(self.model, None, self.provider, self.url)
        except (ImportError, LookupError):
            return None
        window: int | None = found.context_window
        return window

    def _configured(self, usage: Usage) -> float:
        input_usd = self.known.input_usd or 0.0
        cached = input_usd if self.known.cached_usd is None else self.known.cached_usd
        fresh = usage.input_tokens - usage.cached_tokens
        output = self.known.output_usd or 0.0
        return (fresh * input_usd + usage.cached_tokens * cached + usage.output_tokens * output) / PER

    def _listed(self, usage: Usage, written: int) -> float | None:
        where: dict[str, Any] = {"provider_id": self.provider} if self.provider else {"provider_api_url": self.url}
        try:
            import genai_prices

            used = genai_prices.Usage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cached_tokens,
                cache_write_tokens=written,
            )
            return float(genai_prices.calc_price(used, self.model, **where).total_price)
        except (ImportError, LookupError, ValueError):
            return None


BYTES_PER_TOKEN = 3.5
"""Code has fewer bytes per token than prose: the estimate is rather too high than too low."""
TOKENS_PER_MESSAGE = 4


def prompt_tokens(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> int:
    """The approximate number of input tokens."""
    size = sum(_size(message.content) for message in messages)
    size += sum(
        len(call.name) + _size(json.dumps(call.arguments)) for message in messages for call in message.tool_calls
    )
    size += sum(_size(tool.model_dump_json()) for tool in tools)
    return math.ceil(size / BYTES_PER_TOKEN) + TOKENS_PER_MESSAGE * (len(messages) + len(tools))


def estimated(
    messages: Sequence[Message],
    max_tokens: int,
    tools: Sequence[Tool] = (),
    priced: Callable[[Usage], Usage] = lambda usage: usage,
) -> Usage:
    """The usage of one turn with nothing cached and a reply of the maximum length."""
    asked = prompt_tokens(messages, tools)
    return priced(Usage(turns=1, tokens=asked + max_tokens, input_tokens=asked, output_tokens=max_tokens))


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
