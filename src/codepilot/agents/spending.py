"""Money for the next call of a model: warned of at four fifths of the budget, asked for at its end."""

from __future__ import annotations

from codepilot.agents.step_conversation import StepConversation
from codepilot.core.events import BudgetWarned, EventType, Usage
from codepilot.core.failures import CodePilotError
from codepilot.core.spending import unaffordable
from codepilot.core.task import InteractionMode

WARN_AT = 0.8
COST = "cost_usd"


def require_money(step: StepConversation, estimate: Usage) -> None:
    """Raise unless the call can be paid for, or a person grants the budget once more."""
    run = step.run
    limit = run.task.budget.cost_usd * run.grants
    used = run.spent.cost_usd + estimate.cost_usd
    if estimate.cost_usd > 0 and limit * WARN_AT <= used < limit and not _warned(step, limit):
        step.record(EventType.BUDGET_WARNED, BudgetWarned(budget=COST, used=round(used, 6), limit=limit))
    spent = unaffordable(run, estimate)
    if spent is None:
        return
    free = run.task.risk_profile.interaction.mode is InteractionMode.FULL_AUTONOMY
    if free or spent.details.get("budget") != COST or not limit:
        raise CodePilotError.of(spent)
    subject = f"more than ${limit:g}"
    if not step.context.ask("spend", subject, risk="medium", reasons=(spent.message,), occasion=f"{run.grants}"):
        raise CodePilotError.of(spent)


def _warned(step: StepConversation, limit: float) -> bool:
    events = (*step.context.earlier, *step.context.history)
    warned = (event.data for event in events if isinstance(event.data, BudgetWarned))
    return any((one.budget, one.limit) == (COST, limit) for one in warned) or limit in step.warned
