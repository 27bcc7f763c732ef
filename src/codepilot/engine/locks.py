"""Contract locks of a run: taken when its plan names them or a change touches their files, given back at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from codepilot.core.events import EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.locks import LOCK_HELD, LockReleased, LockTaken, locked, planned
from codepilot.engine.work import Work
from codepilot.executor import Violation
from codepilot.store import LockRow


def take_planned(work: Work) -> None:
    """Before the change: take the locks that the plan names. A run that must wait for one is parked."""
    _wait_for(work, _take(work, planned(work.run.task.locks, work.run.plan)))


def take_touched(work: Work, paths: Iterable[str]) -> None:
    """Before the change is proposed: take the locks of its files. A run that must wait for one is parked."""
    _wait_for(work, _take(work, locked(work.run.task.locks, paths)))


def held_by_others(work: Work, paths: Iterable[str]) -> list[Violation]:
    """Take the locks of these files; a violation for each that another run holds."""
    wanted = locked(work.run.task.locks, paths)
    return [
        Violation(rule=LOCK_HELD, path=wanted[row.name], detail=f"run {row.run_id} holds the lock {row.name}")
        for row in _take(work, wanted)
    ]


def _take(work: Work, wanted: Mapping[str, str]) -> list[LockRow]:
    """Take the locks or find out who has them."""
    if not wanted:
        return []
    lease_us = work.run.task.interactive.lock_lease_sec * 1_000_000
    taken, held = work.store.locks.take(work.lineage, wanted, _owner(work), lease_us)
    work.append([work.draft(EventType.LOCK_TAKEN, LockTaken(name=row.name, fence=row.fence)) for row in taken])
    return held


def _owner(work: Work) -> str:
    """The parts of a plan share the locks of their run."""
    return work.run.task.parent_run_id or work.run.run_id


def _wait_for(work: Work, held: list[LockRow]) -> None:
    """Park the run without any lock of its own, so that two runs never wait for each other."""
    if not held or work.run.task.interactive.lock_conflict == "tell":
        return
    if names := work.store.locks.release(_owner(work)):
        work.record(EventType.LOCK_RELEASED, LockReleased(names=names, reason=f"waits for {held[0].name}"))
    first = held[0]
    raise CodePilotError(
        FailureKind.LOCK_HELD,
        f"Run {first.run_id} holds the lock {', '.join(row.name for row in held)}.",
        holder=first.run_id,
        locks=[row.name for row in held],
    )
