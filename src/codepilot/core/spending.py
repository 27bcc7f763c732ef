"""Whether a run can still pay for what it is about to ask. Pure."""

from __future__ import annotations

from codepilot.core.events import Usage
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run


def unaffordable(run: Run, estimate: Usage) -> Failure | None:
    """The budget that a model's call would exceed, if any: told before it is made."""
    budget, spent = run.task.budget, run.spent
    for name, used, more, limit in (
        ("tokens", spent.tokens, estimate.tokens, budget.tokens * run.grants),
        ("cost_usd", spent.cost_usd, estimate.cost_usd, budget.cost_usd * run.grants),
    ):
        if more > 0 and used + more >= limit:
            return Failure(
                kind=FailureKind.BUDGET_EXCEEDED,
                message=f"The next call of the model may use {more:g}, with which the run's budget "
                f"{name}={limit:g} would be spent ({used:g} used): it was not made.",
                details={"budget": name, "used": used, "limit": limit, "estimate": more},
            )
    return None
