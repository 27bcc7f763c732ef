"""The conversation of a step, rebuilt from its events alone: nothing else needs saving, nothing can diverge."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from codepilot.core.approval import ApprovalDecided, ApprovalRequested
from codepilot.core.artifacts import ArtifactRef
from codepilot.core.contract import JsonObject
from codepilot.core.events import ContextCondensed, Event, ModelSwitched, StepStarted, TurnFinished, TurnStarted
from codepilot.core.text import head_and_tail
from codepilot.executor import CodeResult
from codepilot.models import Message, ToolCall, steady

FORMAT_ERROR = "format_error"
ACCEPTED = "accepted"
MAX_STREAM = 8_000
MAX_TRACEBACK = 4_000
MAX_CONDENSED = 400
LAST_TURNS = 3

_INTERRUPTED = (
    "This action was interrupted before its result was recorded. Its changes to files were undone: the workspace is"
    " as the action before left it. Kernel variables were lost; the functions are there again."
)
_SWITCHED = "[Another model goes on from here, because {why}. Take another way than before.]"
_AGAIN = "[The same action gave the same result in turn {number}. Do something else.]"
_LEFT_OUT = (
    "[{turns} of your turns are left out here, because the conversation was too long. Files are as they left them.]"
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
    node: str = ""
    asked: Literal["", "open", "answered", "resumed"] = ""
    """True if a person was asked before the action ran: it runs once when the answer is there."""
    restarted_after: bool = False
    switched_after: str = ""
    """The reason why another model goes on from here, if one does."""

    @property
    def waits(self) -> bool:
        """True if the action has not run, because a person was asked before."""
        return self.observation is None and self.code is not None and self.asked in ("open", "resumed")

    @property
    def malformed(self) -> bool:
        return self.observation is not None and self.observation.get("status") == FORMAT_ERROR

    @property
    def observed(self) -> str:
        """The observation as the model reads it."""
        return self._with_notes(_INTERRUPTED if self.observation is None else _shown(self.observation))

    @property
    def condensed(self) -> str:
        """The observation in short, for a conversation that is too long."""
        if self.observation is None or len(self.observed) <= MAX_CONDENSED:
            return self.observed
        brief = ("status", "message", "limit", "error")
        seen: JsonObject = {name: value for name, value in self.observation.items() if name in brief}
        kept = bounded(_shown(seen), MAX_CONDENSED)
        return self._with_notes(f"{kept}\n[condensed; read_output({self.number}) gives it again]")

    def _with_notes(self, text: str) -> str:
        if self.restarted_after:
            text = f"{text}\n{_RESTARTED}"
        return f"{text}\n{_SWITCHED.format(why=self.switched_after)}" if self.switched_after else text


def turns_of(history: Sequence[Event], node: str = "") -> tuple[Turn, ...]:
    """The turns that were taken for a node of the plan, or for a step that has none; a crashed worker's included."""
    turns: list[Turn] = []
    for event in history:
        match event.data:
            case TurnStarted(turn=number, action=action):
                turns.append(_turn(number, action))
            case TurnFinished(observation=observation) if turns:
                turns[-1] = replace(turns[-1], observation=observation)
            case ApprovalRequested() if turns:
                turns[-1] = replace(turns[-1], asked="open")
            case ApprovalDecided() if turns and turns[-1].asked:
                turns[-1] = replace(turns[-1], asked="answered")
            case StepStarted() if turns:
                turns[-1] = replace(turns[-1], restarted_after=True, asked=_after_start(turns[-1]))
            case ModelSwitched(reason=reason) if turns:
                turns[-1] = replace(turns[-1], switched_after=reason)
            case _:
                pass
    return tuple(turn for turn in turns if turn.node == node)


def _after_start(turn: Turn) -> Literal["", "open", "answered", "resumed"]:
    """An action that waited for an answer runs when the step goes on; one that was at work then was interrupted."""
    if turn.observation is not None:
        return ""
    return {"open": "open", "answered": "resumed"}.get(turn.asked, "")  # type: ignore[return-value]


@dataclass(frozen=True)
class Shortened:
    """The turns whose observations are shown in short, and those that are left out."""

    turns: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()

    def with_(self, turns: Collection[int] = (), left_out: Collection[int] = ()) -> Shortened:
        return Shortened(self.turns | set(turns), self.left_out | set(left_out))


def shortened_in(history: Sequence[Event]) -> Shortened:
    """What was shortened in this step so far."""
    found = Shortened()
    for event in history:
        if isinstance(event.data, ContextCondensed):
            found = found.with_(event.data.turns, event.data.left_out)
    return found


def conversation(
    opening: Sequence[Message], turns: Sequence[Turn], turn_limit: int, shortened: Shortened | None = None
) -> tuple[Message, ...]:
    """The messages of the next request: the opening, then each turn's reply and observation."""
    shortened = shortened or Shortened()
    messages = list(opening)
    gone = len(shortened.left_out & {turn.number for turn in turns})
    if gone and messages:
        note = _LEFT_OUT.format(turns=gone)
        messages[-1] = messages[-1].model_copy(update={"content": f"{messages[-1].content}\n\n{note}"})
    seen_before: dict[tuple[str, str], int] = {}
    for turn in turns:
        if turn.number in shortened.left_out:
            continue
        messages.append(Message(role="assistant", content=turn.reply, tool_calls=turn.tool_calls))
        left = turn_limit - turn.number
        note = f"\n[{left} turn{'' if left == 1 else 's'} left; end with a <result>.]" if left <= LAST_TURNS else ""
        seen = turn.condensed if turn.number in shortened.turns else turn.observed
        first = seen_before.setdefault((turn.code or turn.reply, steady(turn.observed)), turn.number)
        note = f"\n{_AGAIN.format(number=first)}{note}" if first != turn.number and turn.code else note
        text = f"Observation:\n{seen}{note}"
        if not turn.tool_calls:
            messages.append(Message(role="user", content=text))
        for place, call in enumerate(turn.tool_calls):
            answer = text if place == 0 else "Not run."
            messages.append(Message(role="tool", content=answer, tool_call_id=call.id))
    return tuple(messages)


def observation_of(result: CodeResult) -> JsonObject:
    """The observation of a result: bounded, and equal for equal runs."""
    seen: JsonObject = {"status": result.status}
    for name, (text, limit) in _texts(result).items():
        seen[name] = bounded(_without_noise(text), limit)
    if result.limit:
        seen["limit"] = result.limit
    if result.exit_code is not None:
        seen["exit_code"] = result.exit_code
    if result.kernel_restarted:
        seen["kernel_restarted"] = True
    return seen


_NOISE = re.compile(r"(?<=<action) \d+(?=>)|(?<= at )0x[0-9a-f]{6,16}\b|(?<= in )\d+\.\d\d+s\b")


def _without_noise(text: str) -> str:
    """The text without the numbers that differ each time: of the action, of an object's address, of a test's time."""
    return _NOISE.sub(lambda match: "" if match[0].startswith(" ") else "…", text)


def too_long(result: CodeResult) -> str:
    """The whole result as one text if an observation shows only a part of it; else empty."""
    texts = _texts(result)
    if all(len(text) <= limit for text, limit in texts.values()):
        return ""
    return "\n".join(f"{name}:\n{text}" for name, (text, _) in texts.items() if name != "error")


def _texts(result: CodeResult) -> dict[str, tuple[str, int]]:
    """The texts of a result, each with how much of it is shown."""
    error = result.error
    texts = {
        "stdout": (result.stdout, MAX_STREAM),
        "stderr": (result.stderr, MAX_STREAM),
        "value": (result.value or "", MAX_STREAM),
        "error": (f"{error.type}: {error.message}" if error else "", MAX_TRACEBACK),
        "traceback": (error.traceback if error else "", MAX_TRACEBACK),
    }
    return {name: (text, limit) for name, (text, limit) in texts.items() if text}


def whole_of(turn: Turn, fetch: Callable[[ArtifactRef], bytes]) -> str:
    """A turn's output without anything left out, as far as it was kept."""
    kept = turn.observation.get("whole") if turn.observation else None
    if not isinstance(kept, dict):
        return turn.observed
    return fetch(ArtifactRef.model_validate(kept["artifact"])).decode("utf-8", "replace")


def bounded(text: str, limit: int) -> str:
    """The text, or its head and tail with the number of characters between them; always valid Unicode."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return head_and_tail(text, limit, 2 / 3)


def _turn(number: int, action: JsonObject) -> Turn:
    code, result, calls = action.get("code"), action.get("result"), action.get("tool_calls")
    return Turn(
        number=number,
        reply=str(action.get("reply", "")),
        tool_calls=tuple(ToolCall.model_validate(call) for call in calls) if isinstance(calls, list) else (),
        code=code if isinstance(code, str) else None,
        result=result if isinstance(result, dict) else None,
        node=str(action.get("node", "")),
    )


def _shown(observation: JsonObject) -> str:
    parts = [str(observation["message"]) if "message" in observation else f"[{observation.get('status')}]"]
    if isinstance(changed := observation.get("changed"), list):
        parts[0] += f" no output; files changed: {', '.join(str(path) for path in changed) or 'none'}"
    if "limit" in observation:
        parts.append(f"[stopped by the limit: {observation['limit']}]")
    for name in ("stdout", "stderr", "value"):
        if name in observation:
            parts.append(f"{name}:\n{str(observation[name]).rstrip()}")
    if "error" in observation:
        parts.append(str(observation.get("traceback") or observation["error"]).rstrip())
    if isinstance(kept := observation.get("whole"), dict):
        ref = ArtifactRef.model_validate(kept["artifact"])
        parts.append(
            f"[The whole output ({kept['characters']} characters) is kept as {ref.uri}; "
            f"read_output({kept['turn']}, offset) gives the part from there.]"
        )
    for name in ("advice", "violations"):
        items = observation.get(name)
        parts.extend(f"[{name}: {one}]" for one in (items if isinstance(items, list) else ()))
    if observation.get("exit_code") is not None:
        parts.append(f"[exit code {observation['exit_code']}]")
    if observation.get("kernel_restarted"):
        parts.append("[The Python process was restarted: its variables are lost; the functions are there again.]")
    return "\n".join(parts)
