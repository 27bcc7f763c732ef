"""What an agent says and does, as lines of a stream that a person watches. Pure; the text is not made safe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from codepilot.core.events import Event, EventType, TurnFinished, TurnStarted
from codepilot.telemetry.describe import describe


@dataclass(frozen=True)
class AgentLine:
    """`text` of the agent, a `tool` that it used, a tool's `result`, or an `event` of the run."""

    kind: Literal["text", "tool", "result", "event"]
    text: str
    at: int


def agent_lines(event: Event) -> Iterator[AgentLine]:
    """An event of the agent's work; a text may have several lines."""
    data = event.data
    if isinstance(data, TurnStarted):
        action = data.action
        own_text = str(action.get("text") or action.get("reply") or "").strip()
        tool = f"{action.get('tool')} {action.get('subject') or ''}".strip() if action.get("tool") else ""
        if own_text:
            yield AgentLine("text", own_text, event.at)
        if tool:
            yield AgentLine("tool", tool, event.at)
        if not own_text and not tool and (text := describe(event)):
            yield AgentLine("text", text, event.at)
    elif isinstance(data, TurnFinished):
        tools = data.observation.get("tools")
        for one in tools if isinstance(tools, list) else ():
            if isinstance(one, dict) and one.get("text"):
                yield AgentLine("result", str(one["text"]), event.at)
    elif text := describe(event):
        yield AgentLine("event", f"{event.type.replace('_', ' ')}: {text}", event.at)


def session_begins(events: list[Event]) -> int:
    """The number of the event before the agent's newest session; 0 if none was recorded."""
    return next((event.seq - 1 for event in reversed(events) if event.type is EventType.SESSION_STARTED), 0)
