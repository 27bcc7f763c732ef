"""What a task may cost: from past runs of the same kind and model, else from the model's prices."""

from __future__ import annotations

from dataclasses import dataclass

from codepilot.core.events import State, Usage
from codepilot.core.task import TaskKind, TaskSpec
from codepilot.engine.runtime import Runtime
from codepilot.engine.settings import Settings
from codepilot.models import price_of

LOOKED_AT = 200
"""How many of the newest runs are looked at."""
ENOUGH = 3
"""From so many past runs on, they say more than prices."""
_FEW = Usage(turns=10, tokens=60_000, input_tokens=45_000, output_tokens=15_000)
_MANY = Usage(turns=40, tokens=300_000, input_tokens=240_000, output_tokens=60_000)
"""What a small build and a large one take, as measured on three to eight iterations."""


@dataclass(frozen=True)
class Estimate:
    """A range of dollars and where it comes from; without a range the price is unknown."""

    low: float | None = None
    high: float | None = None
    basis: str = ""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"unknown ({self.basis})"
        return f"${self.low:.2f} - ${self.high:.2f} ({self.basis})"


def estimate(runtime: Runtime, settings: Settings, task: TaskSpec) -> Estimate:
    """The estimate for a task that has not begun."""
    if task.model is None:
        return Estimate(0.0, 0.0, "no model is asked")
    past = past_costs(runtime, task.kind, task.model)
    if len(past) >= ENOUGH:
        return Estimate(past[len(past) // 10], past[-1 - len(past) // 10], f"{len(past)} past runs with this model")
    few, many = (price_of(task.model, one, settings.models) for one in (_FEW, _MANY))
    if few is None or many is None:
        return Estimate(basis="the price of this model is not known")
    return Estimate(few, many, "from the model's prices")


def past_costs(runtime: Runtime, kind: TaskKind, model: str) -> list[float]:
    """The known costs of finished runs of this kind with this model, lowest first."""
    rows = runtime.store.history(LOOKED_AT)
    ended = (runtime.store.load(row.run_id) for row in rows if row.state == State.DONE)
    same = (run for run in ended if run.task.kind is kind and run.task.model == model)
    return sorted(cost for run in same if (cost := run.spent.known_cost_usd) is not None)
