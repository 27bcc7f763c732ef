"""What tokens cost and how many a model takes in: as configured, else from genai-prices' own data, never from afar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from codepilot.core.events import Usage
from codepilot.core.model_settings import KnownModel

PER = 1_000_000
_UNKNOWN = KnownModel()


@dataclass(frozen=True)
class Prices:
    """The facts of one model. `url` helps to recognise the provider of a compatible one."""

    model: str
    provider: str | None = None
    url: str | None = None
    known: KnownModel = _UNKNOWN

    def priced(self, usage: Usage, written: int = 0) -> Usage:
        """`usage` with its cost; `written` tokens went into the provider's cache. An unknown price is told as such."""
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
        taken_in = self.known.input_usd or 0.0
        cached = taken_in if self.known.cached_usd is None else self.known.cached_usd
        fresh = usage.input_tokens - usage.cached_tokens
        output = self.known.output_usd or 0.0
        return (fresh * taken_in + usage.cached_tokens * cached + usage.output_tokens * output) / PER

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
