"""Reads the frames that a test run sent. They come from inside the sandbox and are not trusted.

Standard library only: the judge reads them here, and the agent's `run_tests` reads them inside.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

MAX_BYTES = 64 << 20
MAX_LINE = 1 << 18
MAX_TESTS = 200_000
MAX_ID = 2_100
MAX_TEXT = 16_000
MAX_NOTES = 20
MAX_WARNINGS = 500

_RANK = {"passed": 0, "skipped": 1, "error": 2, "failed": 2}


@dataclass(frozen=True)
class Case:
    """How one test ended: passed, failed, error or skipped."""

    test: str
    status: str
    error_type: str = ""
    message: str = ""
    traceback: str = ""
    duration_sec: float = 0.0


@dataclass(frozen=True)
class Trouble:
    """An error outside any test: a conftest, a module that cannot be imported, the runner itself."""

    where: str
    error_type: str
    message: str
    traceback: str
    missing_module: str | None


@dataclass
class Report:
    """The contents of the readable frames."""

    started: bool = False
    collected: dict[str, None] = field(default_factory=dict)
    cases: dict[str, Case] = field(default_factory=dict)
    collect_errors: list[Trouble] = field(default_factory=list)
    startup: Trouble | None = None
    missing: dict[str, None] = field(default_factory=dict)
    resolved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    running: str | None = None
    end_code: int | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.end_code is not None

    @property
    def red(self) -> list[Case]:
        return [case for case in self.cases.values() if case.status in ("failed", "error")]

    @property
    def unreported(self) -> tuple[str, ...]:
        return tuple(name for name in self.collected if name not in self.cases)

    @property
    def missing_module(self) -> str | None:
        troubles = [*([self.startup] if self.startup else []), *self.collect_errors]
        return next((trouble.missing_module for trouble in troubles if trouble.missing_module), None)

    def note(self, text: str) -> None:
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)


def parse(output: bytes, nonce: str) -> Report:
    """Never raises. Lines without this run's nonce are someone's output and are passed over."""
    report = Report()
    prefix = f"@codepilot:{nonce} ".encode()
    if len(output) > MAX_BYTES:
        report.note("the report was longer than it may be and was cut")
        output = output[:MAX_BYTES]
    for line in output.split(b"\n"):
        if not line.startswith(prefix):
            continue
        if report.ended:
            report.note("frames after the end were ignored")
            break
        frame = _decode(line[len(prefix) :], report)
        if frame is not None:
            _take(report, frame)
    return report


def _decode(data: bytes, report: Report) -> dict[str, Any] | None:
    if len(data) > MAX_LINE:
        report.note("a frame was longer than it may be and was skipped")
        return None
    try:
        frame = json.loads(data)
    except (ValueError, RecursionError):
        report.note("a malformed frame was skipped")
        return None
    if not isinstance(frame, dict):
        report.note("a malformed frame was skipped")
        return None
    return frame


def _take(report: Report, frame: dict[str, Any]) -> None:
    event = frame.get("event")
    if event == "start":
        report.started = True
    elif event == "collected":
        report.collected.update(dict.fromkeys(_ids(frame)[: MAX_TESTS - len(report.collected)]))
    elif event == "missing":
        report.missing.update(dict.fromkeys(_ids(frame)[: MAX_TESTS - len(report.missing)]))
    elif event == "resolved":
        asked = _text(frame, "asked", MAX_ID)
        if asked and len(report.resolved) < MAX_TESTS:
            report.resolved[asked] = tuple(_ids(frame))
    elif event == "run":
        report.running = _text(frame, "id", MAX_ID) or None
    elif event == "test":
        _take_test(report, frame)
    elif event == "collect_error":
        _take_collect_error(report, frame)
    elif event == "warning":
        text = _text(frame, "text", MAX_TEXT)
        if text and len(report.warnings) < MAX_WARNINGS:
            report.warnings.append(text)
    elif event in ("startup", "internal"):
        report.startup = report.startup or _trouble(frame)
    elif event == "end":
        code = frame.get("exit_code")
        report.end_code = code if isinstance(code, int) and not isinstance(code, bool) and 0 <= code < 256 else 255
    else:
        report.note("a frame of unknown kind was skipped")


def _take_test(report: Report, frame: dict[str, Any]) -> None:
    name = _text(frame, "id", MAX_ID)
    status = _status(frame)
    if not name or status is None:
        report.note("a test frame without id or outcome was skipped")
        return
    if len(report.cases) >= MAX_TESTS and name not in report.cases:
        report.note("more tests were reported than are kept")
        return
    case = Case(
        test=name,
        status=status,
        error_type=_text(frame, "error_type", 200),
        message=_text(frame, "message", MAX_TEXT),
        traceback=_text(frame, "traceback", MAX_TEXT),
        duration_sec=_seconds(frame.get("duration")),
    )
    _keep(report, case)
    if report.running == name:
        report.running = None


def _keep(report: Report, case: Case) -> None:
    """Of several reports of one test the worst counts, and of equally bad ones the first."""
    before = report.cases.get(case.test)
    if before is None or _RANK[case.status] > _RANK[before.status]:
        report.cases[case.test] = case


def _status(frame: dict[str, Any]) -> str | None:
    outcome = frame.get("outcome")
    if outcome == "failed" and frame.get("phase") != "call":
        return "error"
    return str(outcome) if outcome in ("passed", "skipped", "failed") else None


def _take_collect_error(report: Report, frame: dict[str, Any]) -> None:
    trouble = _trouble(frame)
    if len(report.collect_errors) >= MAX_TESTS:
        return
    report.collect_errors.append(trouble)
    _keep(
        report,
        Case(trouble.where, "error", trouble.error_type, trouble.message, trouble.traceback),
    )


def _trouble(frame: dict[str, Any]) -> Trouble:
    return Trouble(
        where=_text(frame, "id", MAX_ID) or ".",
        error_type=_text(frame, "error_type", 200),
        message=_text(frame, "message", MAX_TEXT),
        traceback=_text(frame, "traceback", MAX_TEXT),
        missing_module=_text(frame, "missing_module", 200) or None,
    )


def _ids(frame: dict[str, Any]) -> list[str]:
    ids = frame.get("ids")
    return [_clean(name, MAX_ID) for name in ids if isinstance(name, str) and name] if isinstance(ids, list) else []


def _text(frame: dict[str, Any], key: str, limit: int) -> str:
    value = frame.get(key)
    return _clean(value, limit) if isinstance(value, str) else ""


def _clean(text: str, limit: int) -> str:
    """Text that can be written as UTF-8 and holds no NUL, which databases refuse."""
    return text[:limit].encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    try:
        seconds = float(value)
    except OverflowError:
        return 0.0
    return seconds if math.isfinite(seconds) and 0.0 <= seconds < 1e7 else 0.0
