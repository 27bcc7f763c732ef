"""What a run cost, together with the runs that work on parts of its plan. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pydantic import Field

from codepilot.core.contract import Contract
from codepilot.core.events import Usage
from codepilot.core.run import Run
from codepilot.core.spending import budget_of


class RunCost(Contract):
    """What one run of the tree used by itself."""

    run_id: str
    node: str = Field(description="The part of the plan; empty for the run itself.")
    agent: str
    model: str | None
    status: str
    iterations: int
    turns: int
    tokens: int
    unpriced_tokens: int = Field(description="Tokens of unknown price, which `costUsd` leaves out.")
    cost_usd: float


class Costs(Contract):
    """The run first, then its parts in the order in which they began. The sums include parts at work."""

    run_id: str
    runs: tuple[RunCost, ...]
    turns: int
    tokens: int
    unpriced_tokens: int
    cost_usd: float
    limit_tokens: int
    limit_cost_usd: float

    @property
    def known_cost_usd(self) -> float | None:
        """The cost of all; None if the price of some tokens is unknown."""
        return None if self.unpriced_tokens else self.cost_usd


_NOTHING = Usage()


def costs(run: Run, parts: Sequence[Run]) -> Costs:
    """The costs of a run and of its parts. A part that was joined is in the run's own sum too: it is taken out."""
    charged = [child.joined.usage for child in run.children if child.joined is not None]
    joined = reduce(_sum, charged, _NOTHING)
    nodes = {child.run_id: child.node for child in run.children}
    rows = [_cost(run, "", joined), *(_cost(one, nodes.get(one.run_id, one.task.node_id or "")) for one in parts)]
    budget = budget_of(run)
    return Costs(
        run_id=run.run_id,
        runs=tuple(rows),
        turns=sum(one.turns for one in rows),
        tokens=sum(one.tokens for one in rows),
        unpriced_tokens=sum(one.unpriced_tokens for one in rows),
        cost_usd=round(sum(one.cost_usd for one in rows), 9),
        limit_tokens=budget.tokens,
        limit_cost_usd=budget.cost_usd,
    )


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        turns=one.turns + other.turns,
        tokens=one.tokens + other.tokens,
        unpriced_tokens=one.unpriced_tokens + other.unpriced_tokens,
        cost_usd=one.cost_usd + other.cost_usd,
    )


def _cost(run: Run, node: str, less: Usage = _NOTHING) -> RunCost:
    spent = run.spent
    return RunCost(
        run_id=run.run_id,
        node=node,
        agent=run.task.agent,
        model=run.task.model,
        status=str(run.state),
        iterations=spent.iterations,
        turns=max(0, spent.turns - less.turns),
        tokens=max(0, spent.tokens - less.tokens),
        unpriced_tokens=max(0, spent.unpriced_tokens - less.unpriced_tokens),
        cost_usd=max(0.0, round(spent.cost_usd - less.cost_usd, 9)),
    )
