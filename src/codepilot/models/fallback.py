"""A model with a fallback."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from codepilot.core.contract import JsonObject
from codepilot.core.events import DependencyDegraded, Usage
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import UNCHARGED
from codepilot.models.errors import ModelFailure
from codepilot.models.protocol import Message, Model, OnText, Reply, Stopped, Tool, ignore_text, never

AWAY = frozenset(
    {
        FailureKind.MODEL_UNREACHABLE,
        FailureKind.MODEL_OVERLOADED,
        FailureKind.MODEL_TIMEOUT,
        FailureKind.MODEL_QUOTA,
    }
)
"""Failures that another model may not have at the same time."""
REST_SEC = 60.0


class FallbackModel:
    """Calls a second model whenever the first is unavailable, and marks its reply as degraded.

    After failed retries the first model is not called for a minute, so that not every turn waits for it.
    """

    def __init__(self, first: Model, second: Model, clock: Callable[[], float] = time.monotonic) -> None:
        self._first = first
        self._second = second
        self._clock = clock
        self._resting: tuple[float, Failure] | None = None
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
        on_text: OnText = ignore_text,
        stopped: Stopped = never,
    ) -> Reply:
        def ask(model: Model) -> Reply:
            return model.reply(
                messages, temperature=temperature, max_tokens=max_tokens, tools=tools, on_text=on_text, stopped=stopped
            )

        failure = self._resting_failure()
        if failure is None:
            try:
                return ask(self._first)
            except CodePilotError as error:
                if not _away(error):
                    raise
                failure = error.failure
                if isinstance(error, ModelFailure):
                    self._resting = (self._clock() + REST_SEC, failure)
        return self._in_place(ask, failure)

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: Sequence[Tool] = ()) -> Usage:
        """The more expensive of the two: either may reply."""
        both = (model.estimate(messages, max_tokens, tools) for model in (self._first, self._second))
        return max(both, key=lambda usage: (usage.cost_usd, usage.tokens))

    def _resting_failure(self) -> Failure | None:
        if self._resting is not None and self._clock() < self._resting[0]:
            return self._resting[1]
        return None

    def _in_place(self, ask: Callable[[Model], Reply], failure: Failure) -> Reply:
        consequence = f"{self._second.name} replies in place of {self._first.name}"
        try:
            reply = ask(self._second)
        except CodePilotError as error:
            error.failure = _of_both(failure, error)
            raise
        degraded = DependencyDegraded(dependency="model", consequence=consequence, failure=failure)
        return reply.model_copy(update={"degraded": degraded})


def _of_both(first: Failure, error: CodePilotError) -> Failure:
    """The failure of the second, with the first in its details. If both only wait for quota, the earlier reset wins."""
    resets = [(at, each) for each in (first, error.failure) if (at := _reset_at(each)) is not None]
    if not resets or not _away(error):
        return _with(error.failure, in_place_of=first)
    _, soonest = min(resets, key=lambda reset: reset[0])
    return _with(first, fallback=error.failure) if soonest is first else _with(error.failure, in_place_of=first)


def _with(failure: Failure, **other: Failure) -> Failure:
    notes: JsonObject = {name: f"{each.kind}: {each.message}" for name, each in other.items()}
    if not all(each.details.get(UNCHARGED) is True for each in (failure, *other.values())):
        notes[UNCHARGED] = False
    return failure.model_copy(update={"details": {**failure.details, **notes}})


def _reset_at(failure: Failure) -> int | None:
    reset = failure.details.get("reset_at") if failure.kind is FailureKind.MODEL_QUOTA else None
    return reset if isinstance(reset, int) else None


def _away(error: CodePilotError) -> bool:
    """True if the model is unavailable or its retries failed."""
    return error.kind in AWAY or (isinstance(error, ModelFailure) and error.again)
