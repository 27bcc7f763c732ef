"""A model with another one behind it."""

from __future__ import annotations

from collections.abc import Sequence

from codepilot.core.events import DependencyDegraded, Usage
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models.failing import ModelFailure
from codepilot.models.protocol import Hear, Message, Model, Reply, Stopped, Tool, never, unheard

AWAY = frozenset({FailureKind.MODEL_OVERLOADED, FailureKind.MODEL_TIMEOUT, FailureKind.MODEL_QUOTA})
"""Failures that another model may not have at the same moment."""


def _away(error: CodePilotError) -> bool:
    """Whether the model cannot be had, or was asked again and again in vain."""
    return error.kind in AWAY or (isinstance(error, ModelFailure) and error.again)


class FallbackModel:
    """Asks a second model whenever the first cannot be had; such a reply tells of it."""

    def __init__(self, first: Model, second: Model) -> None:
        self._first = first
        self._second = second
        self.name = first.name

    @property
    def context_tokens(self) -> int | None:
        known = [each for each in (self._first.context_tokens, self._second.context_tokens) if each is not None]
        return min(known, default=None)

    def reply(
        self,
        messages: Sequence[Message],
        *,
        temperature: float,
        max_tokens: int,
        tools: Sequence[Tool] = (),
        hear: Hear = unheard,
        stopped: Stopped = never,
    ) -> Reply:
        try:
            return self._first.reply(
                messages, temperature=temperature, max_tokens=max_tokens, tools=tools, hear=hear, stopped=stopped
            )
        except CodePilotError as error:
            if not _away(error):
                raise
            consequence = f"{self._second.name} replies in place of {self._first.name}"
            degraded = DependencyDegraded(dependency="model", consequence=consequence, failure=error.failure)
        try:
            reply = self._second.reply(
                messages, temperature=temperature, max_tokens=max_tokens, tools=tools, hear=hear, stopped=stopped
            )
        except CodePilotError as error:
            before = {"in_place_of": f"{degraded.failure.kind}: {degraded.failure.message}"}
            error.failure = error.failure.model_copy(update={"details": {**error.failure.details, **before}})
            raise
        return reply.model_copy(update={"degraded": degraded})

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: Sequence[Tool] = ()) -> Usage:
        """The dearer of the two: either may come to reply."""
        both = (model.estimate(messages, max_tokens, tools) for model in (self._first, self._second))
        return max(both, key=lambda usage: (usage.cost_usd, usage.tokens))
