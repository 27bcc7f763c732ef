"""The settings of `[models]`. API keys are no settings: they come from the environment."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, PositiveInt

from codepilot.core.contract import Contract

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class KnownModel(Contract):
    """Facts about a model that override the built-in ones. Prices are in dollars for a million tokens."""

    input_usd: Dollars | None = None
    """The price of input tokens."""
    output_usd: Dollars | None = None
    """The price of output tokens."""
    cached_usd: Dollars | None = None
    """The price of input tokens read from the provider's cache."""
    context_tokens: PositiveInt | None = None
    """The size of its context."""
    tools: bool = True
    """True if its API can call tools; otherwise code comes in fenced blocks."""


class RoleSettings(Contract):
    """Overrides of a role's own request parameters."""

    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    """From 0 to 2."""
    max_tokens: PositiveInt | None = None
    """The longest reply."""


class ModelSettings(Contract):
    """The chat models. Their keys are no settings: they come from the environment."""

    default: str | None = None
    """The model of agents that need one: `anthropic:NAME`, `openai:NAME` or `openai-compatible:URL#NAME`."""
    fallback: str | None = None
    """The model that is asked when the first is not available."""
    anthropic_url: str | None = None
    """Another address of the Anthropic API."""
    openai_url: str | None = None
    """Another address of the OpenAI API."""
    gemini_url: str | None = None
    """Another address of the Gemini API, which agents of their own ask."""
    plain_http: bool = False
    """Allow unencrypted requests, with code and key, to another machine."""
    timeout_sec: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 300.0
    """How long a model may send nothing."""
    known: Mapping[str, KnownModel] = {}
    """Facts about models, by name."""
    roles: Mapping[str, RoleSettings] = {}
    """Request parameters, by role."""
