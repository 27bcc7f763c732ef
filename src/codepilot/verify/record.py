"""What is kept of a run that ended without a change, and what others are told of any end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from codepilot.core.contract import Contract
from codepilot.core.events import Event, State, Verdict
from codepilot.core.run import Run
from codepilot.telemetry import Clean, Report, redact, report, report_json, rfc3339, timeline, transcript
from codepilot.telemetry.report import SCHEMA_VERSION, ReportedFailure
from codepilot.verify.bundle import REPORT, TIMELINE, TRANSCRIPT, pretty, write_directory


def write_record(
    directory: Path, run: Run, events: Sequence[Event], document: Report | None = None, clean: Clean = redact
) -> None:
    """Write report, transcript and timeline without secrets, whole or not at all. Writing twice gives the same."""
    files = {
        REPORT: pretty(report_json(document or report(run), clean)),
        TRANSCRIPT: transcript(events, clean),
        TIMELINE: pretty(timeline(run, events, clean)),
    }
    write_directory(directory, files)


class Notice(Contract):
    """Names and meaning are settled: programs read this. Times are RFC 3339."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str
    task_id: str
    status: State
    verdict: Verdict | None
    confidence: float
    failure: ReportedFailure | None
    goal: str
    repo: str
    iterations: int
    duration_sec: float
    at: str


def notice(run: Run, redact: Callable[[str], str]) -> Notice:
    """Of the run as its end left it: the same, however late and by whom it is asked for."""
    told = report(run)
    failure = told.failure and told.failure.model_copy(
        update={"message": redact(told.failure.message), "next_action": redact(told.failure.next_action)}
    )
    return Notice(
        run_id=run.run_id,
        task_id=run.task.task_id,
        status=told.status,
        verdict=told.verdict,
        confidence=told.confidence,
        failure=failure,
        goal=redact(run.task.goal.natural),
        repo=redact(run.task.repo),
        iterations=told.iterations,
        duration_sec=told.duration_sec,
        at=rfc3339(run.updated_at),
    )
