"""An event as a line of its run's log: one JSON object with the fields that every line must have to be found again."""

import json
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from json.encoder import encode_basestring as _quoted
from typing import Literal

from pydantic import JsonValue

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import Event, EventType, RunFinished, SkillCall, State, StepFailed, StepQueued
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
_FACT_PLACES = ("action", "observation", "result")
_FACTS = frozenset(_FACT_NAMES)
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
    """Events of one run as lines, without what may not be told. `roles` are the states of its steps that are known."""

    def __init__(self, redact: Clean = redact) -> None:
        self._redact = redact
        self.roles: dict[str, str] = {}

    def learn(self, events: Iterable[Event]) -> None:
        """Which steps these events speak of."""
        for event in events:
            if isinstance(event.data, StepQueued) and event.step_id:
                self.roles[event.step_id] = event.data.state

    def of(self, events: Sequence[Event]) -> bytes:
        """A `LogLine` each, written without making one: this is done for every event of every run."""
        plain = [event.data.model_dump_json(by_alias=True) for event in events]
        harmless = self._harmless("\n".join(plain))
        lines = []
        for event, text in zip(events, plain, strict=True):
            as_it_is = len(text) <= TEXT_LIMIT and (harmless or self._harmless(text))
            data = text if as_it_is else self._data(event)
            lines.append(f'{self._head(event, str if as_it_is else self._clip)},"data":{data}}}\n')
        return "".join(lines).encode()

    def _harmless(self, text: str) -> bool:
        """What needs escapes could hide a secret in them."""
        return "\\" not in text and self._redact(text) == text

    def _head(self, event: Event, clean: Clean) -> str:
        """The line up to its data. The name of a tool is what code in the sandbox said, as the data is."""
        return (
            f'{{"ts":"{rfc3339(event.at)}","level":"{_level(event)}",'
            f"{_whose(event.run_id, event.step_id, self.roles.get(event.step_id or ''), event.attempt)},"
            f'"event":"{event.type._value_}","seq":{event.seq}'
            f"{_facts(event, clean)}"
        )

    def _data(self, event: Event) -> str:
        """What is long or may not be told, cut short and cleaned."""
        data = event.data.model_dump(mode="json", by_alias=True)
        bounded = {self._clip(name): self._bounded(value, 1, name) for name, value in data.items()}
        text = _JSON.encode(bounded)
        if len(text) <= DATA_LIMIT:
            return text
        return _JSON.encode({"truncated": len(text), "fields": ", ".join(sorted(bounded))[:TEXT_LIMIT]})

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


@lru_cache(maxsize=64)
def _whose(run: str, step: str | None, role: str | None, attempt: int) -> str:
    """What the lines of one attempt at a step have in common."""
    step_id, state = _quoted(step) if step else "null", _quoted(role) if role else "null"
    return f'"runId":{_quoted(run)},"stepId":{step_id},"role":{state},"attempt":{attempt}'


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


@cache
def _where(data: type[Contract]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Which facts events of this kind have at their top, which of their fields may hold others, and if calls do."""
    fields = data.model_fields
    names, places = (tuple(filter(fields.__contains__, known)) for known in (_FACT_NAMES, _FACT_PLACES))
    return names, places, "calls" in fields


def _facts(event: Event, clean: Clean) -> str:
    """Tool, exit code and duration, where the event has them: of its last call, at its top, or in what it carries."""
    names, places, has_calls = _where(type(event.data))
    if not names and not places:
        return ""
    top = vars(event.data)
    if has_calls and (calls := top["calls"]):
        return _of_call(calls[-1], clean)
    seen = {name: top[name] for name in names if top[name] is not None}
    for inner in places:
        place = vars(top[inner]) if isinstance(top[inner], Contract) else top[inner]
        if isinstance(place, dict) and not _FACTS.isdisjoint(place):
            for name in _FACT_NAMES:
                if place.get(name) is not None:
                    seen.setdefault(name, place[name])
    if not seen:
        return ""
    tool = seen.get("tool", seen.get("skill"))
    exit_code = seen.get("exit_code")
    duration_ms, duration_sec = seen.get("duration_ms"), seen.get("duration_sec")
    if isinstance(duration_sec, (int, float)) and duration_ms is None:
        duration_ms = round(duration_sec * 1000, 3)
    facts = f',"tool":{_quoted(clean(tool))}' if isinstance(tool, str) else ""
    if isinstance(exit_code, int):
        facts += f',"exitCode":{_JSON.encode(exit_code)}'
    if isinstance(duration_ms, (int, float)):
        facts += f',"durationMs":{_JSON.encode(float(duration_ms))}'
    return facts


def _of_call(call: SkillCall, clean: Clean) -> str:
    """The same of one call."""
    return f'{_ended(clean(call.skill), call.status, call.exit)},"durationMs":{call.duration_ms!r}'


@lru_cache(maxsize=256)
def _ended(skill: str, status: str, exit_: str) -> str:
    """Which skill, and its exit code: what went well ended with 0, and an exception has none."""
    code = exit_ or ("0" if status == "success" else "")
    exit_code = f',"exitCode":{int(code)}' if code.isascii() and code.removeprefix("-").isdigit() else ""
    return f',"tool":{_quoted(skill)}{exit_code}'
