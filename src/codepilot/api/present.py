"""From what the façade returns to what the API shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, cast

from codepilot.api.shapes import BudgetOut, FailureOut, RunOut, RunSummary, StepOut, Used
from codepilot.core.events import TERMINAL, WAITING
from codepilot.core.failures import Failure
from codepilot.core.run import Run
from codepilot.core.spending import budget_of
from codepilot.telemetry import Clean

if TYPE_CHECKING:
    from codepilot.store import Activity, ArtifactRow, RunRow, StepRow, WorkerRow

Status = Literal["QUEUED", "RUNNING", "INTERRUPTED", "PAUSED", "BLOCKED", "DONE", "FAILED", "ABORTED"]
_AT_WORK = {"queued": "QUEUED", "working": "RUNNING", "interrupted": "INTERRUPTED"}


def status_of(state: str, activity: Activity | None) -> str:
    """A run's status: its state if it has ended or waits, else what is done about it."""
    return state if state in TERMINAL | WAITING else _AT_WORK.get(str(activity), "QUEUED")


def summary(row: RunRow, activities: Mapping[str, Activity], clean: Clean) -> RunSummary:
    return RunSummary(
        run_id=row.run_id,
        status=status_of(str(row.state), activities.get(row.run_id)),
        current_state=str(row.state),
        verdict=row.verdict,
        goal=clean(row.goal),
        repo_url=row.repo,
        failure_kind=None if row.failure_kind is None else str(row.failure_kind),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def artifact_id(row: ArtifactRow) -> str:
    """An artifact's id in its run: its bytes and what they are to the run."""
    return f"a-{row.ref.type}-{row.ref.sha256[:24]}"


def run_out(
    run: Run,
    activity: Activity | None,
    steps: Sequence[StepRow],
    artifacts: Sequence[ArtifactRow],
    workers: Iterable[WorkerRow],
    clean: Clean,
) -> RunOut:
    shown = step_list(run, steps, artifacts, workers)
    holder = next((step.worker_id for step in reversed(shown) if step.status == "RUNNING"), None)
    snapshot = run.proposal.snapshot if run.proposal else run.base_snapshot
    return RunOut(
        run_id=run.run_id,
        task_id=run.task.task_id,
        type=run.task.kind,
        prompt=clean(run.task.goal.natural),
        repo_url=run.task.repo,
        repo_ref=run.task.ref,
        agent=run.task.agent,
        model=run.task.model,
        status=cast("Status", status_of(run.state, activity)),
        current_state=run.resume_state or run.state,
        verdict=run.verdict,
        confidence=run.confidence,
        failure=None if run.failure is None else failure_out(run.failure, clean),
        waiting_for=run.waiting_for,
        budget=BudgetOut(limit=budget_of(run), used=used(run)),
        workspace_ref=None if run.terminal else run.run_id,
        base_commit=run.base.commit if run.base else None,
        snapshot_ref=snapshot,
        lock_held_by=holder,
        iteration_count=run.spent.iterations,
        created_at=run.created_at,
        updated_at=run.updated_at,
        last_seq=run.last_seq,
        steps=tuple(shown),
    )


def used(run: Run) -> Used:
    spent = run.spent
    return Used(
        iterations=spent.iterations,
        wall_sec=round(spent.wall_us / 1e6, 3),
        turns=spent.turns,
        tokens=spent.tokens,
        cost_usd=spent.known_cost_usd,
    )


def failure_out(failure: Failure, clean: Clean) -> FailureOut:
    return FailureOut(kind=failure.kind, message=clean(failure.message), next_action=failure.advice)


def step_list(
    run: Run, steps: Sequence[StepRow], artifacts: Sequence[ArtifactRow], workers: Iterable[WorkerRow]
) -> list[StepOut]:
    """The steps with the artifacts that they made, and those that steps before them had made."""
    beats = {one.worker: one.beat_at for one in workers}
    made: dict[str, dict[str, None]] = {}
    for row in artifacts:
        made.setdefault(row.step_id or "", {})[artifact_id(row)] = None
    budget = {"toolCalls": float(run.task.budget.turns_per_step), "wallSec": run.task.budget.step_wall_sec}
    known = dict(made.get("", {}))
    found: list[StepOut] = []
    for step in steps:
        outputs = made.get(step.step_id, {})
        running = str(step.status) == "RUNNING"
        found.append(
            StepOut(
                step_id=step.step_id,
                role=str(step.state),
                attempt=step.attempt,
                status=str(step.status),
                worker_id=step.worker,
                queued_at=step.queued_at,
                claimed_at=step.claimed_at,
                heartbeat_at=beats.get(step.worker or "", step.claimed_at) if running else step.ended_at,
                ended_at=step.ended_at,
                input_artifact_ids=tuple(known),
                output_artifact_ids=tuple(outputs),
                budgets=budget,
            )
        )
        known |= outputs
    return found
