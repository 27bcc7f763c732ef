"""Garbage collection: workspaces of runs that have rested long enough, and what crashes left behind."""

from __future__ import annotations

from codepilot.core.events import WAITING
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.house import House
from codepilot.telemetry import now_us
from codepilot.workspace import remove_workspace


def collect(house: House, days: float) -> list[str]:
    """Remove workspaces whose run ended or went to rest more than `days` ago; returns their names."""
    horizon = now_us() - int(days * 86_400 * 1e6)
    removed = []
    for path in sorted(house.home.workspaces.iterdir()):
        run_id = path.name.removesuffix("-base").removesuffix("-proof")
        if _unneeded(house, run_id, horizon):
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
    return (run.terminal or run.state in WAITING) and run.updated_at <= horizon
