"""Removes a run: every row of it. What is left is its id, so that nothing takes it for a run that never was."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, delete, exists, select

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.fsck import OF_A_RUN
from codepilot.store.rows import StepStatus
from codepilot.store.schema import artifacts, insert_into, removals, runs, steps


def remove_run(connection: Connection, run_id: str, now: Callable[[], int]) -> list[str]:
    """Delete the run's rows in this write transaction; the hashes of the artifacts that no other run names.

    Refused while a worker has a step of it. Of a run that is not there nothing is deleted.
    """
    connection.execute(select(runs.c.run_id).where(runs.c.run_id == run_id).with_for_update())
    held = select(steps.c.worker).where(steps.c.run_id == run_id, steps.c.status == StepStatus.RUNNING.value)
    if (worker := connection.scalar(held.with_for_update())) is not None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Run {run_id} is at work (worker {worker}).",
            next_action=f"Wait for its end, or cancel and remove it: codepilot rm --force {run_id}",
        )
    named = select(artifacts.c.sha256).where(artifacts.c.run_id == run_id).distinct()
    hashes = list(connection.scalars(named.order_by(artifacts.c.sha256)))
    gone = insert_into(connection, removals).values(run_id=run_id, at=now())
    connection.execute(gone.on_conflict_do_nothing())
    for table in reversed(OF_A_RUN):  # `runs` is the first: the others refer to it
        connection.execute(delete(table).where(table.c.run_id == run_id))
    return [sha256 for sha256 in hashes if not _is_named(connection, sha256)]


def was_removed(connection: Connection, run_id: str) -> bool:
    return bool(connection.scalar(select(exists().where(removals.c.run_id == run_id))))


def _is_named(connection: Connection, sha256: str) -> bool:
    return connection.scalar(select(artifacts.c.run_id).where(artifacts.c.sha256 == sha256).limit(1)) is not None
