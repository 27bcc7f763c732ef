"""Models without a provider: scripted replies for tests and dry runs, and replays of recorded runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from codepilot.core.contract import Contract
from codepilot.core.events import (
    DependencyDegraded,
    Event,
    ModelAsked,
    StepFailed,
    StepStarted,
    TaskSpecRecorded,
    TurnStarted,
    Usage,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.memory import MemoryRecalled
from codepilot.models.prices import estimated
from codepilot.models.protocol import (
    Message,
    OnText,
    Reply,
    Stopped,
    Tool,
    ToolCall,
    cancelled,
    fingerprint,
    ignore_text,
    never,
)

Script = Iterable[str | Reply] | Callable[[Sequence[Message]], str | Reply]


class ScriptedModel:
    """Replies from a list in order, or from a function of the conversation so far.

    A `whole` script holds the replies of a run from its beginning: another process goes on in the middle of it.
    """

    def __init__(
        self, script: Script, name: str = "scripted", context_tokens: int | None = None, *, whole: bool = False
    ) -> None:
        self.name = name
        self.context_tokens = context_tokens
        self.requests: list[tuple[Message, ...]] = []
        self._whole = whole
        self._listed = None if callable(script) else _OneAfterAnother(tuple(script))
        self._function = script if callable(script) else None

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
        self.requests.append(tuple(messages))
        answer = self._listed(messages) if self._listed else self._function(messages) if self._function else Reply()
        if stopped():
            raise cancelled(self.name)
        reply = answer if isinstance(answer, Reply) else Reply(text=answer)
        on_text(reply.text)
        return reply

    def continue_after(self, taken: int) -> None:
        """Continue a run of which another process has `taken` replies of the whole script."""
        if self._whole and self._listed is not None and self._listed.given == 0:
            self._listed.given = taken

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: Sequence[Tool] = ()) -> Usage:
        return estimated(messages, max_tokens, tools)


class _OneAfterAnother:
    """Gives a list of replies in order."""

    def __init__(self, replies: tuple[str | Reply, ...]) -> None:
        self._replies = replies
        self.given = 0

    def __call__(self, messages: Sequence[Message]) -> str | Reply:
        if self.given >= len(self._replies):
            raise CodePilotError(
                FailureKind.MODEL_BAD_REPLY,
                f"The script has {len(self._replies)} replies and a further one was asked for.",
                next_action="Add the missing replies to the script.",
                last_message=messages[-1].content[-500:] if messages else "",
            )
        self.given += 1
        return self._replies[self.given - 1]


TRANSCRIPT = "transcript.jsonl"


def scripted(path: Path) -> ScriptedModel:
    """Replies from a JSON array: strings, or objects like `Reply`."""
    try:
        entries = json.loads(_text(path))
        if not isinstance(entries, list):
            raise ValueError("it is not an array")
        replies = [entry if isinstance(entry, str) else Reply.model_validate(entry) for entry in entries]
    except ValueError as error:
        raise _unusable(path, "a JSON array of replies", error) from error
    return ScriptedModel(replies, name=f"scripted:{path}", whole=True)


def replayed(path: Path) -> ReplayModel:
    """A replay of a run's events, one JSON object a line; of a bundle, its transcript."""
    path = path / TRANSCRIPT if path.is_dir() else path
    try:
        events = [Event.model_validate_json(line) for line in _text(path).splitlines() if line.strip()]
    except (ValueError, KeyError) as error:
        raise _unusable(path, "a recording with one event a line", error) from error
    found = exchanges(events)
    if not found:
        raise _unusable(path, "a recording of a model", ValueError("it has no call of a model"))
    spare = any(isinstance(event.data, TaskSpecRecorded) and event.data.task.fallback_model for event in events)
    return ReplayModel(found, name=f"replay:{path}", spare=spare)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise _unusable(path, "a file that can be read", error) from error


def _unusable(path: Path, what: str, error: Exception) -> CodePilotError:
    # pydantic's own text quotes the file, which is the server's where a service reads it
    wrong = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"{path} is not {what}: {wrong[:200]}.",
        next_action="Name another file.",
    )


NOT_THE_MODELS = frozenset({FailureKind.BUDGET_EXCEEDED, FailureKind.CANCELLED})
"""Failures of a step that the called model did not cause."""


class Exchange(Contract):
    """One recorded turn: the fingerprint of the request, the model with its estimate, and the reply.

    A failed call has no turn and so no fingerprint.
    """

    request: tuple[str, ...]
    reply: Reply
    asked: ModelAsked | None = None
    failure: Failure | None = None
    recalled: MemoryRecalled | None = None
    """The memories shown to the conversation, if this exchange is its first."""


class ReplayModel:
    """Gives each request its recorded reply, under the recorded model's name. A request that differs is refused.

    It plays every model of the recording, fallbacks included. `spare` is true if the run had a fallback model.
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

    def continue_after(self, taken: int) -> None:
        """Continue a run that already has `taken` of the exchanges."""
        self._turn = taken

    @property
    def recalled(self) -> MemoryRecalled | None:
        """The memories shown to the conversation that begins with the next exchange."""
        return self._exchanges[self._turn].recalled if self._turn < len(self._exchanges) else None

    @property
    def _asked(self) -> ModelAsked | None:
        """The call that is answered next."""
        return self._exchanges[self._turn].asked if self._turn < len(self._exchanges) else None

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
        on_text(recorded.reply.text)
        return recorded.reply

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: Sequence[Tool] = ()) -> Usage:
        """The recorded estimate, if the request is the recorded one."""
        if self._asked is not None:
            recorded = self._exchanges[self._turn]
            if recorded.failure is not None or not _difference(recorded.request, messages):
                return self._asked.estimate
        return estimated(messages, max_tokens, tools)


def exchanges(events: Iterable[Event]) -> tuple[Exchange, ...]:
    """The exchanges of a recorded run, in order, without turns of tools and calls that were cut short."""
    found = []
    asked: ModelAsked | None = None
    degraded: DependencyDegraded | None = None
    recalled: MemoryRecalled | None = None
    fenced = False
    for event in events:
        match event.data:
            case ModelAsked(call=""):
                asked, degraded, fenced = event.data, None, False
            case DependencyDegraded(dependency="model"):
                degraded = event.data
            case DependencyDegraded(dependency="tools"):
                fenced = True
            case MemoryRecalled():
                recalled = event.data
            case StepStarted():
                asked = None
            case StepFailed(failure=failure) if asked is not None and failure.kind not in NOT_THE_MODELS:
                found.append(Exchange(request=(), reply=Reply(), asked=asked, failure=failure, recalled=recalled))
                asked = recalled = None
            case TurnStarted(action=action) if "request" in action:
                made = _exchange(event.data, asked, degraded)
                reply = made.reply.model_copy(update={"fenced": fenced})
                found.append(made.model_copy(update={"recalled": recalled, "reply": reply}))
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
