"""The settings of `[models]`. API keys are no settings: they come from the environment."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PositiveInt

from codepilot.core.contract import Contract

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class KnownModel(Contract):
    """Facts about a model that override the built-in ones. Prices are in dollars for a million tokens."""

    input_usd: Dollars | None = None
    output_usd: Dollars | None = None
    cached_usd: Dollars | None = None
    context_tokens: PositiveInt | None = None
    tools: bool = True
    """True if its API can call tools; otherwise code comes in fenced blocks."""


class RoleSettings(Contract):
    """Overrides of a role's own request parameters."""

    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    max_tokens: PositiveInt | None = None


class ModelSettings(Contract):
    default: str | None = None
    fallback: str | None = None
    anthropic_url: str | None = None
    openai_url: str | None = None
    plain_http: bool = False
    """Allow unencrypted requests, with code and key, to another machine."""
    timeout_sec: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 300.0
    """How long a model may send nothing."""
    known: Mapping[str, KnownModel] = {}
    roles: Mapping[str, RoleSettings] = {}
