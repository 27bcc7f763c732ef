"""Budgets: every comparison of a run's spending with its budget. Pure."""

from __future__ import annotations

from typing import NamedTuple

from codepilot.core.events import Usage
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run


class Meter(NamedTuple):
    """A budget: seconds, tokens or dollars."""

    name: str
    used: float
    limit: float

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.used)


def tighter_clock(run: Run, now: int | None = None) -> Meter:
    """The wall clock of the run or the step, whichever leaves less. `now` adds the time of the open step."""
    return min(_run_clock(run, now), _step_clock(run, now), key=lambda clock: clock.limit - clock.used)


def must_stop(run: Run, now: int | None = None) -> Failure | None:
    """The spent budget that stops the open step: one of the run's, or the step's time."""
    if (spent := exhausted(run, now)) is not None:
        return spent
    clock = _step_clock(run, now)
    return over_budget(*clock) if clock.used >= clock.limit else None


def exhausted(run: Run, now: int | None = None) -> Failure | None:
    """The first spent budget of the run, if any. `now` adds the time of the open step."""
    for name, used, limit in (_run_clock(run, now), *_metered(run)):
        if used > limit or used == limit > 0:
            return over_budget(name, used, limit)
    return None


def no_turn_left(run: Run) -> Failure | None:
    """The spent budget that forbids the step another turn, if any. The current turn may finish."""
    used, limit = run.spent.step_turns, run.task.budget.turns_per_step
    return over_budget("turns_per_step", used, limit) if used >= limit else _no_turn_left(run)


def no_iteration_left(run: Run) -> Failure | None:
    """The spent budget that forbids another IMPLEMENT, if any: it takes an iteration and a turn."""
    used, limit = run.spent.iterations, run.task.budget.iterations * run.grants
    return over_budget("iterations", used, limit) if used >= limit else _no_turn_left(run)


def forbidden_too_often(run: Run, last: str = "") -> Failure | None:
    """The failure of a run with too many violations; `last` describes the latest one."""
    if run.violations < run.task.policy.violations:
        return None
    message = f"{run.violations} forbidden actions, the last: {last}"
    return Failure(kind=FailureKind.POLICY_VIOLATION, message=message)


def unaffordable(run: Run, estimate: Usage) -> Failure | None:
    """The budget that the next model call would exceed, if any."""
    for (name, used, limit), more in zip(_metered(run), (estimate.tokens, estimate.cost_usd), strict=True):
        if more > 0 and used + more >= limit:
            return Failure(
                kind=FailureKind.BUDGET_EXCEEDED,
                message=f"The next call of the model may use {more:g}, with which the run's budget "
                f"{name}={limit:g} would be spent ({used:g} used): it was not made.",
                details={"budget": name, "used": used, "limit": limit, "estimate": more},
            )
    return None


def share_spent(run: Run, left: float, done: str, next_action: str) -> Failure:
    """The failure of work that used its share of the tighter clock; `left` seconds are reserved for the proof."""
    name, _, limit = tighter_clock(run)
    used = max(0.0, limit - left)
    return Failure(
        kind=FailureKind.BUDGET_EXCEEDED,
        message=f"{done}; {used:.0f} s of the budget {name}={limit:g} are used, the rest is kept for the proof.",
        next_action=next_action,
        details={"budget": name, "used": used, "limit": limit},
    )


def over_budget(name: str, used: float, limit: float) -> Failure:
    """The failure for this spent budget."""
    return Failure(
        kind=FailureKind.BUDGET_EXCEEDED,
        message=f"The run's budget {name}={limit:g} is spent ({used:g} used).",
        details={"budget": name, "used": used, "limit": limit},
    )


def _metered(run: Run) -> tuple[Meter, Meter]:
    """The budgets that model calls spend."""
    budget, spent = run.task.budget, run.spent
    return (
        Meter("tokens", spent.tokens, budget.tokens * run.grants),
        Meter("cost_usd", spent.cost_usd, budget.cost_usd * run.grants),
    )


def _no_turn_left(run: Run) -> Failure | None:
    limit = None if run.task.budget.turns is None else run.task.budget.turns * run.grants
    return over_budget("turns", run.spent.turns, limit) if limit is not None and run.spent.turns >= limit else None


def _run_clock(run: Run, now: int | None) -> Meter:
    used = (run.spent.wall_us + _open_us(run, now)) / 1e6
    return Meter("wall_sec", used, run.task.budget.wall_sec * run.grants)


def _step_clock(run: Run, now: int | None) -> Meter:
    used = (run.spent.step_wall_us + _open_us(run, now)) / 1e6
    return Meter("step_wall_sec", used, run.task.budget.step_wall_sec)


def _open_us(run: Run, now: int | None) -> int:
    return 0 if now is None or run.step_open_since is None else max(0, now - run.step_open_since)
