"""The interface of chat models: messages in, one reply out. Wire formats stay inside each model."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator

from codepilot.core.contract import Contract, JsonObject, canonical_json
from codepilot.core.events import DependencyDegraded, Usage
from codepilot.core.failures import CodePilotError, FailureKind

OnText = Callable[[str], None]
Stopped = Callable[[], bool]


def sound(text: str) -> str:
    """Replace half surrogate pairs, which cannot be stored or sent, by question marks."""
    return text.encode("utf-8", "replace").decode()


def _sound_object(value: JsonObject) -> JsonObject:
    stored: JsonObject = json.loads(sound(json.dumps(value, ensure_ascii=False)))
    return stored


class ToolCall(Contract):
    """A call the model asks for; `id` ties its answer to it."""

    id: str
    name: str
    arguments: Annotated[JsonObject, AfterValidator(_sound_object)] = {}


class Message(Contract):
    """One message of a conversation. A `tool` message answers the call it names."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class Tool(Contract):
    """A tool offered to models whose API has tools; the prompt describes it to the others."""

    name: str
    description: str
    parameters: JsonObject
    fenced: bool = False
    """True for a model that cannot call tools: it writes each call as a fenced block."""


StopReason = Literal["end", "tool_use", "length", "refusal"]


class Reply(Contract):
    """The model's text and calls, its cost, and why it stopped."""

    text: Annotated[str, AfterValidator(sound)] = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage(turns=1)
    stop_reason: StopReason = "end"
    fenced: bool = False
    """True if the server took no tools, so that the model was asked for fenced blocks."""
    degraded: DependencyDegraded | None = None
    """Why another model replied, if one did."""


def ignore_text(piece: str) -> None:
    """Discard streamed text."""


def never() -> bool:
    """Never stop the call."""
    return False


class Model(Protocol):
    """A chat model. Raises a typed `model_*` failure if there is no usable reply."""

    @property
    def name(self) -> str: ...

    @property
    def context_tokens(self) -> int | None:
        """The size of its context with the reply, if known."""
        ...

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
        """One whole reply.

        `on_text` receives the text in pieces as it streams; after a failed attempt the next one starts again from its
        beginning. `stopped` is polled several times a second; when it returns true, the call ends as `cancelled`.
        """
        ...

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: Sequence[Tool] = ()) -> Usage:
        """The most that this request can use, computed without a call."""
        ...


def cancelled(model: str) -> CodePilotError:
    """The failure of a call that was stopped before its reply was whole."""
    return CodePilotError(FailureKind.CANCELLED, f"The call of {model} was stopped before its reply was whole.")


_VARYING = re.compile(
    r"\b\d+(?:\.\d+)? ?(?:ms|s|seconds?)\b|\b0x[0-9a-fA-F]+\b|hash://\w+/[0-9a-f]{64}"
    r"|(?<=<action) \d+(?=>)|/tmp/(?:tmp\w{6,10}|pytest-of-[\w.-]+/pytest-\d+)"
)


def steady(text: str) -> str:
    """The text without what differs between two equal runs: durations, memory addresses, names of temporary files."""
    return _VARYING.sub("~", text)


def fingerprint(messages: Sequence[Message]) -> tuple[str, ...]:
    """One short digest for each message, to compare a request with the recorded one.

    Durations, memory addresses and names of outputs that hold them differ between two equal runs and are left out.
    """
    return tuple(f"{message.role}:{_digest(message)}" for message in messages)


def _digest(message: Message) -> str:
    if message.tool_calls:
        return _digest_of(message)
    return _plain_digest(message.role, message.content, message.tool_call_id)


@lru_cache(maxsize=512)
def _plain_digest(role: Literal["system", "user", "assistant", "tool"], content: str, answers: str | None) -> str:
    """Each request repeats the conversation, so most messages are in the cache."""
    return _digest_of(Message(role=role, content=content, tool_call_id=answers))


def _digest_of(message: Message) -> str:
    lasting = message.model_copy(update={"content": steady(message.content)})
    return hashlib.sha256(canonical_json(lasting).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def without_tools(messages: Sequence[Message], tools: Sequence[Tool]) -> tuple[Message, ...]:
    """The same conversation in text, for a server without tools."""
    texts = [_as_text(message) for message in messages]
    if tools and texts and texts[0].role == "system":
        texts[0] = Message(role="system", content=f"{texts[0].content}\n\n{_instructions(tools)}")
    return tuple(texts)


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        return Message(role="user", content=message.content)
    if message.tool_calls:
        parts = [message.content.rstrip(), *(_block(call) for call in message.tool_calls)]
        return Message(role=message.role, content="\n\n".join(part for part in parts if part))
    return message


def _block(call: ToolCall) -> str:
    code = call.arguments.get("code")
    if set(call.arguments) == {"code"} and isinstance(code, str):
        return f"```{call.name}\n{code.rstrip()}\n```"
    return f"```{call.name}\n{json.dumps(call.arguments)}\n```"


def _instructions(tools: Sequence[Tool]) -> str:
    names = ", ".join(f"```{tool.name}" for tool in tools)
    return f"There are no tool calls here: write your code into one fenced block that begins with {names}."
