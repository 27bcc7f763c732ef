"""What the log of a run tells: the run itself, and every row that is kept of it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, select

from codepilot.core.contract import canonical_json
from codepilot.core.events import Event
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run, evolve
from codepilot.core.task import TaskSpec
from codepilot.store.beside import NO_WORKSPACE, artifact_rows, fold_approvals, memory_rows, workspace_changes
from codepilot.store.log import task_columns
from codepilot.store.notifications import fold_notifications
from codepilot.store.projection import FoldedStep, birth_columns, fold_step, run_columns
from codepilot.store.records import begun_by, read_event
from codepilot.store.rows import StepStatus, Unreadable
from codepilot.store.schema import approvals, artifacts, events, memories, notifications, runs, steps, workspaces
from codepilot.store.statements import SELECT_SOME_EVENTS

_PAGE = 500

StepKey = tuple[str | None, int]


@dataclass
class Tale:
    """Everything that the log tells of a run, event by event, without keeping the events."""

    run: Run | None = None
    view: Mapping[str, Any] | None = None
    """The run as the event told it at which the stored view stands."""
    steps: dict[StepKey, FoldedStep] = field(default_factory=dict)
    workspace: dict[str, str | None] = field(default_factory=lambda: dict(NO_WORKSPACE))
    approvals: dict[str, dict[str, Any]] = field(default_factory=dict)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    memories: list[dict[str, Any]] = field(default_factory=list)
    notifications: dict[int, dict[str, Any]] = field(default_factory=dict)

    def add(self, event: Event, view_seq: int) -> None:
        last = 0 if self.run is None else self.run.last_seq
        if event.seq != last + 1:
            raise broken(event.run_id, f"the log has a gap: event {last + 1} is missing (found {event.seq})")
        self.run = begun_by(event) if self.run is None else evolve(self.run, event)
        fold_step(self.steps, event)
        self.workspace.update(workspace_changes([event]))
        fold_approvals(self.approvals, event)
        self.artifacts += artifact_rows([event])
        self.memories += memory_rows([event])
        if self.run.task.notify:
            fold_notifications(self.notifications, event)
        if event.seq == view_seq:
            self.view = told(self.run)

    def rows(self, run: Run) -> dict[Table, list[dict[str, Any]]]:
        """Every row of the run but its view, with all that the log decides alone: who has a step it does not."""
        named = {"run_id": run.run_id, "priority": run.task.priority}
        return {
            runs: [{**birth_columns(run), **run_columns(run)}],
            steps: [
                {**named, "step_id": step_id, "attempt": attempt, **folded.columns()}
                for (step_id, attempt), folded in self.steps.items()
            ],
            workspaces: [{"run_id": run.run_id, **self.workspace}],
            approvals: list(self.approvals.values()),
            artifacts: self.artifacts,
            memories: self.memories,
            notifications: list(self.notifications.values()),
        }


def tell(connection: Connection, run_id: str, view_seq: int = 0) -> tuple[Tale, Run]:
    """The tale of a run's whole log, read in pages, and the run at its end."""
    tale = Tale()
    for event in read_log(connection, run_id):
        tale.add(event, view_seq)
    if tale.run is None:
        raise broken(run_id, "its log is empty")
    return tale, tale.run


def read_log(connection: Connection, run_id: str) -> Iterator[Event]:
    after = 0
    while page := SELECT_SOME_EVENTS.rows(connection, {"in_run": run_id, "in_after": after, "in_limit": _PAGE}):
        yield from map(read_event, page)
        after = int(page[-1][1])


def told(run: Run) -> dict[str, Any]:
    """The run as its view has it."""
    found: dict[str, Any] = json.loads(canonical_json(run))
    return found


def stands(row: Mapping[Any, Any], folded: FoldedStep) -> bool:
    """Whether a step may stand as its row says. Every claim is in the log, and that it was taken back is not.

    So whoever is at work has started last, and a step that waits is past every start: no claim of those holds.
    """
    status, fence, worker = row["status"], row["fence"], row["worker"]
    if not isinstance(fence, int):  # a database file keeps anything anywhere
        return False
    if folded.status is not StepStatus.PENDING:
        nobody = folded.status is StepStatus.CANCELLED and worker is None
        return bool(status == folded.status and fence >= folded.fence and (nobody or worker == folded.worker))
    if status == StepStatus.RUNNING:
        return worker is not None and (fence, worker) == (folded.fence, folded.worker)
    never = fence == folded.fence == 0
    return bool(status == StepStatus.PENDING and worker is None and (never or fence > folded.fence))


def task_rows(connection: Connection, run: Run) -> Iterator[dict[str, Any] | None]:
    """The row of the run's task as each of its runs tells it: this one, then the others from the oldest on; None for
    one that cannot be read, of which its own check tells.

    The row was written with the first of them, and which that was no log tells: they may have begun at the same
    time, or by different clocks.
    """
    yield task_columns(run.task, run.created_at)
    first = select(events).join(runs, runs.c.run_id == events.c.run_id).where(events.c.seq == 1)
    others = first.where(runs.c.task_id == run.task.task_id, runs.c.run_id != run.run_id)
    for row in connection.execute(others.order_by(events.c.at, events.c.run_id)):
        try:
            other = begun_by(read_event(row))
        except Unreadable:
            yield None
        else:
            yield task_columns(other.task, other.created_at)


def is_told(row: Mapping[str, Any], by: dict[str, Any] | None) -> bool:
    """Whether the task's row may have come from the run that tells it so. One that cannot be read may have told
    anything that is a task.
    """
    if by is not None:
        return row == by
    with contextlib.suppress(ValueError):
        return row == task_columns(TaskSpec.model_validate_json(row["spec"]), row["created_at"])
    return False


def read_task(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A task's row with the spec as this version writes it; one that is none stays as it is."""
    with contextlib.suppress(ValueError):
        return {**row, "spec": canonical_json(TaskSpec.model_validate_json(row["spec"]))}
    return dict(row)


def broken(run_id: str, why: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INTERNAL,
        f"Run {run_id} is inconsistent: {why}.",
        next_action="Keep a copy of the database; `codepilot fsck --repair` writes the views anew from the log.",
        run_id=run_id,
    )
