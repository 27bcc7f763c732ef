"""A model that repeats a recorded conversation, and notices when the conversation is another one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codepilot.core.contract import Contract
from codepilot.core.events import (
    DependencyDegraded,
    Event,
    ModelAsked,
    StepFailed,
    StepStarted,
    TurnStarted,
    Usage,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.memory import MemoryRecalled
from codepilot.models.estimate import estimated
from codepilot.models.protocol import (
    Hear,
    Message,
    Reply,
    Stopped,
    Tool,
    ToolCall,
    cancelled,
    fingerprint,
    never,
    unheard,
)

NOT_THE_MODELS = frozenset({FailureKind.BUDGET_EXCEEDED, FailureKind.CANCELLED})
"""Failures of a step whose model had not replied yet, and was not the reason."""


class Exchange(Contract):
    """One recorded turn: the fingerprint of what was asked, who was to answer at which price, and the answer.

    A call that failed has no turn of its own, and with it no fingerprint.
    """

    request: tuple[str, ...]
    reply: Reply
    asked: ModelAsked | None = None
    failure: Failure | None = None
    recalled: MemoryRecalled | None = None
    """What the conversation was shown of other runs, if this exchange is the first of it."""


class ReplayModel:
    """Answers each request as it was answered then, under the name of who did; a request that differs is refused.

    It stands for every model of the recording, the ones that others fell back on included: `spare` tells that there
    was one for conversations that did not get anywhere.
    """

    def __init__(self, exchanges: Iterable[Exchange], name: str = "replay", *, spare: bool = False) -> None:
        self.spare = spare
        self._name = name
        self._exchanges = tuple(exchanges)
        self._turn = 0

    @property
    def name(self) -> str:
        return self._asked.model if self._asked else self._name

    @property
    def context_tokens(self) -> int | None:
        return self._asked.context_tokens if self._asked else None

    def go_on_after(self, taken: int) -> None:
        """A run that already has so many of the exchanges goes on with the next one."""
        self._turn = taken

    @property
    def recalled(self) -> MemoryRecalled | None:
        """What the conversation that begins with the next exchange was shown of other runs."""
        return self._exchanges[self._turn].recalled if self._turn < len(self._exchanges) else None

    @property
    def _asked(self) -> ModelAsked | None:
        """Who answers next."""
        return self._exchanges[self._turn].asked if self._turn < len(self._exchanges) else None

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
        if stopped():
            raise cancelled(self.name)
        turn = self._turn + 1
        if turn > len(self._exchanges):
            raise _differs(turn, f"the recording ends after {len(self._exchanges)} turns")
        recorded = self._exchanges[self._turn]
        if (failed := recorded.failure) is not None:
            self._turn = turn
            raise CodePilotError.of(failed)
        difference = _difference(recorded.request, messages)
        if difference:
            raise _differs(turn, difference)
        self._turn = turn
        hear(recorded.reply.text)
        return recorded.reply

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: Sequence[Tool] = ()) -> Usage:
        """As it was told then, if this is what was asked then."""
        if self._asked is not None:
            recorded = self._exchanges[self._turn]
            if recorded.failure is not None or not _difference(recorded.request, messages):
                return self._asked.estimate
        return estimated(messages, max_tokens, tools)


def exchanges(events: Iterable[Event]) -> tuple[Exchange, ...]:
    """The model's side of a recorded run, in order. Turns that no model took, and calls cut short, are left out."""
    found = []
    asked: ModelAsked | None = None
    degraded: DependencyDegraded | None = None
    recalled: MemoryRecalled | None = None
    for event in events:
        match event.data:
            case ModelAsked():
                asked, degraded = event.data, None
            case DependencyDegraded(dependency="model"):
                degraded = event.data
            case MemoryRecalled():
                recalled = event.data
            case StepStarted():
                asked = None
            case StepFailed(failure=failure) if asked is not None and failure.kind not in NOT_THE_MODELS:
                found.append(Exchange(request=(), reply=Reply(), asked=asked, failure=failure, recalled=recalled))
                asked = recalled = None
            case TurnStarted(action=action) if "request" in action:
                found.append(_exchange(event.data, asked, degraded).model_copy(update={"recalled": recalled}))
                asked = degraded = recalled = None
    return tuple(found)


def _exchange(turn: TurnStarted, asked: ModelAsked | None, degraded: DependencyDegraded | None) -> Exchange:
    action = turn.action
    calls = action.get("tool_calls")
    return Exchange.model_validate(
        {
            "request": action["request"],
            "reply": Reply(
                text=str(action.get("reply", "")),
                tool_calls=tuple(ToolCall.model_validate(call) for call in calls) if isinstance(calls, list) else (),
                usage=turn.usage,
                stop_reason=Reply.model_validate({"stop_reason": action.get("stop_reason", "end")}).stop_reason,
                degraded=degraded,
            ),
            "asked": asked,
        }
    )


def _difference(recorded: tuple[str, ...], messages: Sequence[Message]) -> str:
    asked = fingerprint(messages)
    for place in range(min(len(asked), len(recorded))):
        if asked[place] != recorded[place]:
            message = messages[place]
            was = recorded[place].partition(":")[0]
            return (
                f"message {place + 1} of {len(asked)} is not the recorded one "
                f"(a {was} message then, a {message.role} message now): it begins {message.content[:200]!r}"
            )
    if len(asked) != len(recorded):
        return f"{len(recorded)} messages were sent then, {len(asked)} now"
    return ""


def _differs(turn: int, how: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"The replay departs from the recording at turn {turn}: {how}.",
        next_action="Replay with the version, the repository, the tests, the prompt and the budget of the recording.",
        turn=turn,
    )
