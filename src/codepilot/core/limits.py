"""The budgets that a resume names: new limits of the whole run, or of a step or a command. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from codepilot.core.task import Budget

TOTALS = ("iterations", "wall_sec", "tokens", "cost_usd", "turns")
"""The budgets of the whole run; the others bound a step or a command."""


def after_resume(
    budget: Budget, known: Mapping[str, float], given: Mapping[str, float], *, granted: bool
) -> tuple[Budget, dict[str, float]]:
    """The budget and the limits of the whole run: a grant raises the known limits, and given ones replace them."""
    raised = {name: value + (float(getattr(budget, name) or 0) if granted else 0.0) for name, value in known.items()}
    totals = {name: value for name, value in given.items() if name in TOTALS}
    others = {name: value for name, value in given.items() if name not in TOTALS}
    changed = Budget.model_validate({**budget.model_dump(), **others}) if others else budget
    return changed, {**raised, **totals}
