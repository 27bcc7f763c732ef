"""A run's log: one JSON line an event, with the fields that every line must have to be found again."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from json.encoder import encode_basestring as _quoted
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import Event, EventType, RunFinished, State, StepFailed, StepQueued
from codepilot.core.failures import CodePilotError, FailureKind, Origin
from codepilot.telemetry.clock import rfc3339
from codepilot.telemetry.redact import redact

TEXT_LIMIT = 2_000
ITEMS_LIMIT = 50
DEPTH_LIMIT = 8
DATA_LIMIT = 16_000
_REDACT_MARGIN = 4_096
_TAIL_BLOCK = 64 * 1024
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_FACT_NAMES = ("tool", "skill", "exit_code", "duration_ms", "duration_sec")
_FACT_PLACES = ("action", "observation", "result")
_FACTS = frozenset({*_FACT_NAMES, *_FACT_PLACES})
_WARNINGS = frozenset({EventType.GUARDRAIL_BLOCKED, EventType.BUDGET_WARNED, EventType.RUN_BLOCKED})
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


class RunLog:
    """The log file of one run. Each event is written once, in order, whatever happened to the process before.

    `missing` returns the run's events between two places; with it, events that another process recorded
    (a request to pause, say) are written in their place too.
    """

    def __init__(
        self,
        path: Path,
        redact: Callable[[str], str] = redact,
        missing: Callable[[int, int], Sequence[Event]] | None = None,
    ) -> None:
        self._path = path
        self._redact = redact
        self._missing = missing
        self._roles: dict[str, State] = {}
        self._guard = threading.Lock()
        try:
            self._file = _opened(path)
        except OSError as error:
            raise self._fault(error) from error
        self._size = 0
        with self._locked():
            self._last_seq = self._repair()

    @property
    def last_seq(self) -> int:
        """The place of the last event that the log has."""
        return self._last_seq

    def write(self, events: Sequence[Event]) -> None:
        """Add the events that the log does not have yet."""
        with self._guard, self._locked():
            self._learn(events)
            while True:
                self._look()
                fresh = list(self._whole(event for event in events if event.seq > self._last_seq))
                self._learn(fresh)
                lines = self._lines(fresh)
                if self._look():
                    break
            if fresh:
                self._append(lines)
                self._last_seq = fresh[-1].seq

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """While nobody else writes the file, as far as that can be had."""
        locked = _lock(self._file)
        try:
            yield
        finally:
            if locked:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _look(self) -> bool:
        """Whether the file is as we left it; if not, what others have written is known now."""
        if os.fstat(self._file).st_size == self._size:
            return True
        self._last_seq = self._repair()
        return False

    def _whole(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events, with those between them that are missing."""
        before = self._last_seq
        for event in events:
            if event.seq > before + 1 and self._missing is not None:
                yield from self._missing(before, event.seq)
            yield event
            before = event.seq

    def catch_up(self, events: Sequence[Event]) -> None:
        """After a crash: `events` are the run's, from the first; those the log lacks are added."""
        with self._guard:
            self._learn(events)
        self.write(events)

    def close(self) -> None:
        with self._guard:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _lines(self, events: Sequence[Event]) -> bytes:
        """A `LogLine` each, written without making one: this is done for every event of every run."""
        plain = [event.data.model_dump_json(by_alias=True) for event in events]
        harmless = self._harmless("\n".join(plain))
        lines = []
        for event, text in zip(events, plain, strict=True):
            data = text if len(text) <= TEXT_LIMIT and (harmless or self._harmless(text)) else self._data(event)
            lines.append(f'{self._head(event)},"data":{data}}}\n')
        return "".join(lines).encode()

    def _harmless(self, text: str) -> bool:
        """What needs escapes could hide a secret in them."""
        return "\\" not in text and self._redact(text) == text

    def _head(self, event: Event) -> str:
        """The line up to its data."""
        step, role = event.step_id, self._roles.get(event.step_id or "")
        facts = _facts(event)
        return (
            f'{{"ts":"{rfc3339(event.at)}","level":"{_level(event)}","runId":{_quoted(event.run_id)},'
            f'"stepId":{_quoted(step) if step else "null"},"role":{_quoted(role.value) if role else "null"},'
            f'"attempt":{event.attempt},"event":"{event.type.value}","seq":{event.seq}'
            f"{',' + _JSON.encode(facts)[1:-1] if facts else ''}"
        )

    def _data(self, event: Event) -> str:
        """What is long or may not be told, cut short and cleaned."""
        data = event.data.model_dump(mode="json", by_alias=True)
        bounded = {self._clip(name): self._bounded(value, 1) for name, value in data.items()}
        text = _JSON.encode(bounded)
        if len(text) <= DATA_LIMIT:
            return text
        return _JSON.encode({"truncated": len(text), "fields": ", ".join(sorted(bounded))[:TEXT_LIMIT]})

    def _bounded(self, value: JsonValue, depth: int) -> JsonValue:
        if isinstance(value, str):
            return self._clip(value)
        if not isinstance(value, (list, dict)):
            return value
        if depth > DEPTH_LIMIT:
            return "…"
        if isinstance(value, list):
            kept = [self._bounded(item, depth + 1) for item in value[:ITEMS_LIMIT]]
            return [*kept, f"… {len(value) - ITEMS_LIMIT} more"] if len(value) > ITEMS_LIMIT else kept
        kept_items = list(value.items())[:ITEMS_LIMIT]
        return {self._clip(name): self._bounded(item, depth + 1) for name, item in kept_items}

    def _clip(self, text: str) -> str:
        """Redacted first, so that no half of a secret is left at the cut."""
        clean = self._redact(text[: TEXT_LIMIT + _REDACT_MARGIN])
        if len(text) <= TEXT_LIMIT and len(clean) <= TEXT_LIMIT:
            return clean
        return f"{clean[:TEXT_LIMIT]}… ({len(text)} characters)"

    def _learn(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event.data, StepQueued) and event.step_id:
                self._roles[event.step_id] = event.data.state

    def _append(self, lines: bytes) -> None:
        before = os.fstat(self._file).st_size
        try:
            rest = memoryview(lines)
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._truncate(before)
            raise self._fault(error) from error
        self._size = before + len(lines)

    def _repair(self) -> int:
        """Cut off what a crash left behind the last whole line; return that line's place."""
        self._size = end = os.fstat(self._file).st_size
        if end == 0:
            return 0
        tail, start = b"", end
        while start > 0:
            start = max(0, start - _TAIL_BLOCK)
            tail = os.pread(self._file, end - start, start)
            for stop in _line_ends(tail):
                begin = tail.rfind(b"\n", 0, stop) + 1
                line = _parse(tail[begin:stop]) if begin or start == 0 else None
                if line is not None:
                    self._truncate(start + stop + 1)
                    self._recall(line)
                    return line.seq
        self._truncate(0)
        return 0

    def _truncate(self, size: int) -> None:
        os.ftruncate(self._file, size)
        self._size = size

    def _recall(self, line: LogLine) -> None:
        if line.step_id and line.role:
            self._roles[line.step_id] = line.role

    def _fault(self, error: OSError) -> CodePilotError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            message, kind = f"The disk is full: the log {self._path} cannot be written.", FailureKind.DISK_FULL
        else:
            message = f"The log {self._path} cannot be written: {error.strerror or error}."
            kind = FailureKind.STORE_UNAVAILABLE
        return CodePilotError(kind, message, path=self._path)


def _opened(path: Path) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def _lock(file: int) -> bool:
    """Whether the file could be locked. One who was frozen while he had it is not waited for longer than a moment."""
    for wait in (0.001, 0.01, 0.1, 0.5, 0.0):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(wait)
        except OSError:  # a file system without locks
            return False
        else:
            return True
    return False


def _line_ends(tail: bytes) -> Iterable[int]:
    """Where the lines of `tail` end, last first."""
    stop = tail.rfind(b"\n")
    while stop >= 0:
        yield stop
        stop = tail.rfind(b"\n", 0, stop)


def _parse(text: bytes) -> LogLine | None:
    try:
        return LogLine.model_validate_json(text)
    except ValueError:
        return None


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


def _facts(event: Event) -> dict[str, str | int | float]:
    """Tool, exit code and duration, where the event has them: at its top, or in the action or result it carries."""
    if _FACTS.isdisjoint(type(event.data).model_fields):
        return {}
    data = event.data.model_dump(mode="json")
    inner = (data.get(name) for name in _FACT_PLACES)
    seen: JsonObject = {}
    for place in (data, *(place for place in inner if isinstance(place, dict))):
        for name in _FACT_NAMES:
            if place.get(name) is not None:
                seen.setdefault(name, place[name])
    tool = seen.get("tool", seen.get("skill"))
    exit_code = seen.get("exit_code")
    duration_ms, duration_sec = seen.get("duration_ms"), seen.get("duration_sec")
    if isinstance(duration_sec, (int, float)) and duration_ms is None:
        duration_ms = round(duration_sec * 1000, 3)
    facts: dict[str, str | int | float] = {}
    if isinstance(tool, str):
        facts["tool"] = tool
    if isinstance(exit_code, int):
        facts["exitCode"] = exit_code
    if isinstance(duration_ms, (int, float)):
        facts["durationMs"] = float(duration_ms)
    return facts
