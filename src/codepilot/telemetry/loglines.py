"""An event as a line of its run's log: one JSON object with the fields that every line must have to be found again."""

import json
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import JsonValue

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import Event, EventType, RunFinished, State, StepFailed, StepQueued
from codepilot.core.failures import Origin
from codepilot.telemetry.clock import rfc3339
from codepilot.telemetry.redact import Clean, redact, redact_named

TEXT_LIMIT = 2_000
ITEMS_LIMIT = 50
DEPTH_LIMIT = 8
DATA_LIMIT = 16_000
_REDACT_MARGIN = 4_096
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_FACT_NAMES = ("tool", "skill", "exit_code", "duration_ms", "duration_sec")
_FACT_FIELDS = frozenset({*_FACT_NAMES, "action", "observation", "result", "calls"})
_WARNINGS = frozenset(
    {
        EventType.GUARDRAIL_BLOCKED,
        EventType.BUDGET_WARNED,
        EventType.RUN_BLOCKED,
        EventType.DEPENDENCY_DEGRADED,
        EventType.NOTIFICATION_FAILED,
    }
)
_NOT_MERE_INFORMATION = _WARNINGS | {EventType.STEP_FAILED, EventType.RUN_FINISHED}


class LogLine(Contract):
    """One line. `role` is the state whose step the event belongs to."""

    ts: str
    level: Literal["INFO", "WARN", "ERROR"]
    run_id: str
    step_id: str | None
    role: State | None
    attempt: int
    event: EventType
    seq: int
    tool: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    data: JsonObject = {}


class LogLines:
    """Formats the events of one run as lines, redacted. `roles` are the known states of its steps."""

    def __init__(self, redact: Clean = redact) -> None:
        self._redact = redact
        self.roles: dict[str, str] = {}

    def learn(self, events: Iterable[Event]) -> None:
        """The steps that these events belong to."""
        for event in events:
            if isinstance(event.data, StepQueued) and event.step_id:
                self.roles[event.step_id] = event.data.state

    def of(self, events: Sequence[Event]) -> bytes:
        """A `LogLine` for each event."""
        return "".join(f"{_JSON.encode(self._line(event))}\n" for event in events).encode()

    def _line(self, event: Event) -> JsonObject:
        data = event.data.model_dump(mode="json", by_alias=True)
        text = _JSON.encode(data)
        # What needs escapes could hide a secret in them.
        as_it_is = len(text) <= TEXT_LIMIT and "\\" not in text and self._redact(text) == text
        if not as_it_is:
            data = {self._clip(name): self._bounded(value, 1, name) for name, value in data.items()}
            if (length := len(_JSON.encode(data))) > DATA_LIMIT:
                data = {"truncated": length, "fields": ", ".join(sorted(data))[:TEXT_LIMIT]}
        return {
            "ts": rfc3339(event.at),
            "level": _level(event),
            "runId": event.run_id,
            "stepId": event.step_id or None,
            "role": self.roles.get(event.step_id or ""),
            "attempt": event.attempt,
            "event": event.type,
            "seq": event.seq,
            **_facts(event, str if as_it_is else self._clip),
            "data": data,
        }

    def _bounded(self, value: JsonValue, depth: int, name: str = "") -> JsonValue:
        if isinstance(value, str):
            return self._clip(value, name)
        if not isinstance(value, (list, dict)):
            return value
        if depth > DEPTH_LIMIT:
            return "…"
        if isinstance(value, list):
            kept = [self._bounded(item, depth + 1) for item in value[:ITEMS_LIMIT]]
            return [*kept, f"… {len(value) - ITEMS_LIMIT} more"] if len(value) > ITEMS_LIMIT else kept
        kept_items = list(value.items())[:ITEMS_LIMIT]
        return {self._clip(name): self._bounded(item, depth + 1, name) for name, item in kept_items}

    def _clip(self, text: str, name: str = "") -> str:
        """Redacted first, so that no half of a secret is left at the cut."""
        clean = redact_named(name, text[: TEXT_LIMIT + _REDACT_MARGIN], self._redact)
        if len(text) <= TEXT_LIMIT and len(clean) <= TEXT_LIMIT:
            return clean
        return f"{clean[:TEXT_LIMIT]}… ({len(text)} characters)"


def _level(event: Event) -> Literal["INFO", "WARN", "ERROR"]:
    if event.type not in _NOT_MERE_INFORMATION:
        return "INFO"
    match event.data:
        case StepFailed(failure=failure):
            return "ERROR" if failure.handling.origin is Origin.PLATFORM else "WARN"
        case RunFinished(state=State.FAILED):
            return "ERROR"
        case RunFinished(state=State.ABORTED):
            return "WARN"
    return "WARN" if event.type in _WARNINGS else "INFO"


def _facts(event: Event, clean: Clean) -> JsonObject:
    """Tool, exit code and duration of the event's last call, of the event, or of what it carries. The name of a tool
    comes from the sandbox, as the data does."""
    if type(event.data).model_fields.keys().isdisjoint(_FACT_FIELDS):
        return {}
    data = event.data.model_dump(mode="json")
    if calls := data.get("calls"):
        call = calls[-1]
        exit_code = call["exit"] or ("0" if call["status"] == "success" else "")  # an exception has none
        known = exit_code.isascii() and exit_code.removeprefix("-").isdigit()
        code = {"exitCode": int(exit_code)} if known else {}
        return {"tool": clean(call["skill"]), **code, "durationMs": call["duration_ms"]}
    seen: JsonObject = {}
    for place in (data, data.get("action"), data.get("observation"), data.get("result")):
        if isinstance(place, dict):
            for name in _FACT_NAMES:
                if seen.get(name) is None:
                    seen[name] = place.get(name)
    tool, exit_code, seconds = seen["tool"] or seen["skill"], seen["exit_code"], seen["duration_sec"]
    milliseconds = seen["duration_ms"]
    if milliseconds is None and isinstance(seconds, int | float):
        milliseconds = round(seconds * 1000, 3)
    facts: JsonObject = {}
    if isinstance(tool, str):
        facts["tool"] = clean(tool)
    if isinstance(exit_code, int):
        facts["exitCode"] = exit_code
    if isinstance(milliseconds, int | float):
        facts["durationMs"] = float(milliseconds)
    return facts
