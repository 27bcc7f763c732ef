"""What a role is shown of other runs: found once a step, on record, and gone without where it cannot be had."""

from __future__ import annotations

from dataclasses import replace

from codepilot.agents.protocol import Desk
from codepilot.agents.roles import Role
from codepilot.agents.seat import Seat
from codepilot.context import recall
from codepilot.core.events import DependencyDegraded, EventType, TurnStarted
from codepilot.core.failures import CodePilotError
from codepilot.core.memory import MemoryKind, MemoryRecalled, Recalled
from codepilot.models import Model, ReplayModel


def recollect(role: Role, seat: Seat, model: Model) -> None:
    """Lay on the desk what the role is shown of other runs.

    A conversation that goes on reads as it did, whatever others have recorded since: with what was found when it began,
    or without anything. So does one that is replayed.
    """
    if role.recalls is None:
        return
    recorded = [event.data for event in seat.desk.history if isinstance(event.data, MemoryRecalled)]
    if recorded:
        found = recorded[-1].found
    elif any(isinstance(event.data, TurnStarted) for event in seat.desk.history):
        found = ()
    else:
        found = _replayed(model) if isinstance(model, ReplayModel) else _recalled(role, role.recalls, seat)
        if found:
            seat.record(EventType.MEMORY_RECALLED, MemoryRecalled(kind=role.recalls, found=found))
    seat.desk = replace(seat.desk, recalled=found)


def _replayed(model: ReplayModel) -> tuple[Recalled, ...]:
    return model.recalled.found if model.recalled else ()


def _recalled(role: Role, kind: MemoryKind, seat: Seat) -> tuple[Recalled, ...]:
    desk = seat.desk
    if desk.remember is None:
        return ()
    try:
        rows = desk.remember(kind)
    except CodePilotError as error:
        consequence = f"the {role.name} is shown nothing of earlier runs"
        degraded = DependencyDegraded(dependency="memory", consequence=consequence, failure=error.failure)
        seat.record(EventType.DEPENDENCY_DEGRADED, degraded)
        return ()
    error_type, text = _failure(desk) if kind == "failure" else ("", _task(desk))
    return recall(kind, text, rows, error_type, own=(desk.run.run_id,)) if text or error_type else ()


def _task(desk: Desk) -> str:
    return "\n".join((desk.run.task.goal.natural, *(desk.run.baseline.targets if desk.run.baseline else ())))


def _failure(desk: Desk) -> tuple[str, str]:
    """How the last change failed, else what it was to mend: the type of the error, and what it says."""
    if desk.run.test_result and (errors := desk.run.test_result.errors):
        return errors[0].error_type, errors[0].message
    targets = desk.run.baseline.targets if desk.run.baseline else ()
    case = next((desk.baseline.cases[test] for test in targets if test in desk.baseline.cases), None)
    return (case.error_type, case.message) if case else ("", "")
