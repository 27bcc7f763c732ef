"""Garbage collection: workspaces of runs that have rested long enough, crashed ones included."""

from __future__ import annotations

import contextlib

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.close import worth_keeping
from codepilot.engine.house import House
from codepilot.store import StepStatus
from codepilot.telemetry import now_us
from codepilot.workspace import remove_workspace


def collect(house: House, days: float) -> list[str]:
    """Remove workspaces that nobody has worked in for `days`; returns their names."""
    horizon = now_us() - int(days * 86_400 * 1e6)
    removed = []
    for path in sorted(house.home.workspaces.iterdir()):
        if path.stat().st_mtime_ns // 1000 <= horizon and _unneeded(house, _run_of(path.name), horizon):
            remove_workspace(path)
            removed.append(path.name)
    return removed


def sweep(house: House) -> None:
    """Remove the workspaces here of runs that ended elsewhere."""
    for path in house.home.workspaces.iterdir():
        with contextlib.suppress(CodePilotError):
            run = house.store.load(_run_of(path.name))
            if run.terminal and not worth_keeping(run):
                remove_workspace(path)


def _run_of(workspace: str) -> str:
    return workspace.removesuffix("-base").removesuffix("-proof")


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
