"""Where a program inside the sandbox finds its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dialect = Literal["anthropic", "openai", "gemini"]
"""A provider's API: Anthropic Messages; OpenAI Responses and Chat Completions; Gemini."""


@dataclass(frozen=True)
class ModelEndpoint:
    """What an agent's program is configured with, in the form that the dialect's own clients expect."""

    dialect: Dialect
    base_url: str
    """On loopback inside the sandbox; for `openai` it ends in `/v1`."""
    api_key: str
    """Opens this endpoint and nothing else; the provider's key stays outside."""
    model: str
    """The model to ask for when the user chose none for this agent, by its plain name."""
