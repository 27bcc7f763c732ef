"""What is said to others of a run that has ended: the body of its notification."""

from collections.abc import Callable
from typing import Literal

from codepilot.core.contract import Contract
from codepilot.core.events import State, Verdict
from codepilot.core.run import Run
from codepilot.telemetry import rfc3339
from codepilot.telemetry.report import SCHEMA_VERSION, ReportedFailure, report


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
