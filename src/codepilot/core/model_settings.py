"""What a reader may configure about models: `[models]`. Keys are not among it; they come from the environment."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PositiveInt

from codepilot.core.contract import Contract

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class KnownModel(Contract):
    """Facts about a model that others do not know, or not better. Prices are in dollars for a million tokens."""

    input_usd: Dollars | None = None
    output_usd: Dollars | None = None
    cached_usd: Dollars | None = None
    context_tokens: PositiveInt | None = None
    tools: bool = True
    """Whether its API can call tools; otherwise code comes in fenced blocks."""


class RoleSettings(Contract):
    """How a role asks, where it should differ from its own declaration."""

    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    max_tokens: PositiveInt | None = None


class ModelSettings(Contract):
    default: str | None = None
    fallback: str | None = None
    anthropic_url: str | None = None
    openai_url: str | None = None
    plain_http: bool = False
    """Whether code and key may travel unencrypted to another machine."""
    timeout_sec: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 300.0
    """How long a model may say nothing at all."""
    known: Mapping[str, KnownModel] = {}
    roles: Mapping[str, RoleSettings] = {}
