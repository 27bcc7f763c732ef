"""The conversation of a step, rebuilt from its events alone: nothing else needs saving, nothing can diverge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codepilot.core.contract import JsonObject
from codepilot.core.events import Event, StepStarted, TurnFinished, TurnStarted
from codepilot.executor import CodeResult
from codepilot.models import Message, ToolCall

FORMAT_ERROR = "format_error"
ACCEPTED = "accepted"
MAX_STREAM = 8_000
MAX_TRACEBACK = 4_000
LAST_TURNS = 3

_INTERRUPTED = (
    "This action was interrupted before its result was recorded. Its changes to files were undone: the workspace is"
    " as the action before left it. Kernel variables were lost; the functions are there again."
)
_RESTARTED = "[The Python process was restarted since: its variables are lost, files are as you left them.]"


@dataclass(frozen=True)
class Turn:
    """One reply and what came of it. `observation` is None when nothing was recorded."""

    number: int
    reply: str
    tool_calls: tuple[ToolCall, ...] = ()
    code: str | None = None
    result: JsonObject | None = None
    observation: JsonObject | None = None
    restarted_after: bool = False

    @property
    def malformed(self) -> bool:
        return self.observation is not None and self.observation.get("status") == FORMAT_ERROR

    @property
    def observed(self) -> str:
        """The observation as the model reads it."""
        if self.observation is None:
            return _INTERRUPTED
        text = _shown(self.observation)
        return f"{text}\n{_RESTARTED}" if self.restarted_after else text


def turns_of(history: Sequence[Event]) -> tuple[Turn, ...]:
    """The turns a step has taken, a crashed worker's included."""
    turns: list[Turn] = []
    for event in history:
        match event.data:
            case TurnStarted(turn=number, action=action):
                turns.append(_turn(number, action))
            case TurnFinished(observation=observation) if turns:
                turns[-1] = replace(turns[-1], observation=observation)
            case StepStarted() if turns:
                turns[-1] = replace(turns[-1], restarted_after=True)
            case _:
                pass
    return tuple(turns)


def conversation(opening: Sequence[Message], turns: Sequence[Turn], turn_limit: int) -> tuple[Message, ...]:
    """The messages of the next request: the opening, then each turn's reply and observation."""
    messages = list(opening)
    for turn in turns:
        messages.append(Message(role="assistant", content=turn.reply, tool_calls=turn.tool_calls))
        left = turn_limit - turn.number
        note = f"\n[{left} turn{'' if left == 1 else 's'} left; end with a <result>.]" if left <= LAST_TURNS else ""
        text = f"Observation:\n{turn.observed}{note}"
        if not turn.tool_calls:
            messages.append(Message(role="user", content=text))
        for place, call in enumerate(turn.tool_calls):
            answer = text if place == 0 else "Not run."
            messages.append(Message(role="tool", content=answer, tool_call_id=call.id))
    return tuple(messages)


def observation_of(result: CodeResult) -> JsonObject:
    """What of a result is kept and shown: bounded, and free of anything that differs between two equal runs."""
    seen: JsonObject = {"status": result.status}
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr), ("value", result.value or "")):
        if text:
            seen[name] = bounded(text, MAX_STREAM)
    if result.error is not None:
        seen["error"] = bounded(f"{result.error.type}: {result.error.message}", MAX_TRACEBACK)
        if result.error.traceback:
            seen["traceback"] = bounded(result.error.traceback, MAX_TRACEBACK)
    if result.limit:
        seen["limit"] = result.limit
    if result.exit_code is not None:
        seen["exit_code"] = result.exit_code
    if result.kernel_restarted:
        seen["kernel_restarted"] = True
    return seen


def bounded(text: str, limit: int) -> str:
    """The text, or its head and tail with the number of characters between them; always valid Unicode."""
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n{text[len(text) - tail :]}"


def _turn(number: int, action: JsonObject) -> Turn:
    code, result, calls = action.get("code"), action.get("result"), action.get("tool_calls")
    return Turn(
        number=number,
        reply=str(action.get("reply", "")),
        tool_calls=tuple(ToolCall.model_validate(call) for call in calls) if isinstance(calls, list) else (),
        code=code if isinstance(code, str) else None,
        result=result if isinstance(result, dict) else None,
    )


def _shown(observation: JsonObject) -> str:
    parts = [str(observation["message"]) if "message" in observation else f"[{observation.get('status')}]"]
    if "limit" in observation:
        parts.append(f"[stopped by the limit: {observation['limit']}]")
    for name in ("stdout", "stderr", "value"):
        if name in observation:
            parts.append(f"{name}:\n{str(observation[name]).rstrip()}")
    if "error" in observation:
        parts.append(str(observation.get("traceback") or observation["error"]).rstrip())
    for name in ("advice", "violations"):
        told = observation.get(name)
        parts.extend(f"[{name}: {one}]" for one in (told if isinstance(told, list) else ()))
    if observation.get("exit_code") is not None:
        parts.append(f"[exit code {observation['exit_code']}]")
    if observation.get("kernel_restarted"):
        parts.append("[The Python process was restarted: its variables are lost; the functions are there again.]")
    return "\n".join(parts)
