"""A model that says what it was told to say: for tests, demonstrations and dry runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from codepilot.core.events import Usage
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models.estimate import estimated
from codepilot.models.protocol import Hear, Message, Reply, Stopped, Tool, cancelled, never, unheard

Script = Iterable[str | Reply] | Callable[[Sequence[Message]], str | Reply]


class ScriptedModel:
    """Replies from a list in order, or from a function of the conversation so far."""

    def __init__(self, script: Script, name: str = "scripted", context_tokens: int | None = None) -> None:
        self.name = name
        self.context_tokens = context_tokens
        self.requests: list[tuple[Message, ...]] = []
        self._answer = script if callable(script) else _one_after_another(tuple(script))

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
        self.requests.append(tuple(messages))
        said = self._answer(messages)
        if stopped():
            raise cancelled(self.name)
        reply = said if isinstance(said, Reply) else Reply(text=said)
        hear(reply.text)
        return reply

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: Sequence[Tool] = ()) -> Usage:
        return estimated(messages, max_tokens, tools)


def _one_after_another(replies: tuple[str | Reply, ...]) -> Callable[[Sequence[Message]], str | Reply]:
    remaining = iter(replies)

    def answer(messages: Sequence[Message]) -> str | Reply:
        try:
            return next(remaining)
        except StopIteration:
            raise CodePilotError(
                FailureKind.MODEL_BAD_REPLY,
                f"The script has {len(replies)} replies and a further one was asked for.",
                next_action="Add the missing replies to the script.",
                last_message=messages[-1].content[-500:] if messages else "",
            ) from None

    return answer
