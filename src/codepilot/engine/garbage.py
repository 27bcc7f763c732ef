"""Garbage collection: workspaces of runs that have rested long enough, crashed ones included."""

from __future__ import annotations

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.house import House
from codepilot.store import StepStatus
from codepilot.telemetry import now_us
from codepilot.workspace import remove_workspace


def collect(house: House, days: float) -> list[str]:
    """Remove workspaces that nobody has worked in for `days`; returns their names."""
    horizon = now_us() - int(days * 86_400 * 1e6)
    removed = []
    for path in sorted(house.home.workspaces.iterdir()):
        run_id = path.name.removesuffix("-base").removesuffix("-proof")
        if path.stat().st_mtime_ns // 1000 <= horizon and _unneeded(house, run_id, horizon):
            remove_workspace(path)
            removed.append(path.name)
    return removed


def _unneeded(house: House, run_id: str, horizon: int) -> bool:
    try:
        run = house.store.load(run_id)
    except CodePilotError as error:
        if error.kind is FailureKind.INVALID_SPEC:
            return True
        raise
    house.store.reclaim(run_id)
    working = any(step.status is StepStatus.RUNNING for step in house.store.steps(run_id))
    return run.updated_at <= horizon and not working
