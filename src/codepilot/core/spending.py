"""What a run and its open step may still spend: every comparison with a budget is made here. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from codepilot.core.events import Usage
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run


class Clock(NamedTuple):
    """A budget of wall time, in seconds."""

    name: str
    used: float
    limit: float

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.used)


def tighter_clock(run: Run, now: int | None = None) -> Clock:
    """The run's wall clock or the step's, whichever leaves less. `now` also counts the time the step is open."""
    return min(_run_clock(run, now), _step_clock(run, now), key=lambda clock: clock.limit - clock.used)


def must_stop(run: Run, now: int | None = None) -> Failure | None:
    """Why the step that is open may not go on: a budget of the run is spent, or the step's own time."""
    if (spent := exhausted(run, now)) is not None:
        return spent
    clock = _step_clock(run, now)
    return over_budget(*clock) if clock.used >= clock.limit else None


def exhausted(run: Run, now: int | None = None) -> Failure | None:
    """The first budget of the run that is spent, if any. `now` also counts the step that is open."""
    budget, spent = run.task.budget, run.spent
    limits: Iterable[tuple[str, float, float]] = (
        _run_clock(run, now),
        ("tokens", spent.tokens, budget.tokens * run.grants),
        ("cost_usd", spent.cost_usd, budget.cost_usd * run.grants),
    )
    for name, used, limit in limits:
        if used > limit or used == limit > 0:
            return over_budget(name, used, limit)
    return None


def no_turn_left(run: Run) -> Failure | None:
    """Why the step may not take another turn, if it may not; the one that it is taking is not meant."""
    used, limit = run.spent.step_turns, run.task.budget.turns_per_step
    return over_budget("turns_per_step", used, limit) if used >= limit else _no_turn_left(run)


def no_iteration_left(run: Run) -> Failure | None:
    """Why the run may not enter IMPLEMENT again, if it may not: each time takes a turn."""
    used, limit = run.spent.iterations, run.task.budget.iterations * run.grants
    return over_budget("iterations", used, limit) if used >= limit else _no_turn_left(run)


def forbidden_too_often(run: Run, last: str = "") -> Failure | None:
    """What is said of a run that did more than its policy forgives; `last` is how the latest was answered."""
    if run.violations < run.task.policy.violations:
        return None
    message = f"{run.violations} forbidden actions, the last: {last}"
    return Failure(kind=FailureKind.POLICY_VIOLATION, message=message)


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


def share_spent(run: Run, left: float, done: str, next_action: str) -> Failure:
    """Of the clock that is tighter, work had what it may have; `left` seconds of it are for what follows."""
    name, _, limit = tighter_clock(run)
    used = max(0.0, limit - left)
    return Failure(
        kind=FailureKind.BUDGET_EXCEEDED,
        message=f"{done}; {used:.0f} s of the budget {name}={limit:g} are used, the rest is kept for the proof.",
        next_action=next_action,
        details={"budget": name, "used": used, "limit": limit},
    )


def over_budget(name: str, used: float, limit: float) -> Failure:
    """The failure that says which budget is spent."""
    return Failure(
        kind=FailureKind.BUDGET_EXCEEDED,
        message=f"The run's budget {name}={limit:g} is spent ({used:g} used).",
        details={"budget": name, "used": used, "limit": limit},
    )


def _no_turn_left(run: Run) -> Failure | None:
    limit = None if run.task.budget.turns is None else run.task.budget.turns * run.grants
    return over_budget("turns", run.spent.turns, limit) if limit is not None and run.spent.turns >= limit else None


def _run_clock(run: Run, now: int | None) -> Clock:
    used = (run.spent.wall_us + _open_us(run, now)) / 1e6
    return Clock("wall_sec", used, run.task.budget.wall_sec * run.grants)


def _step_clock(run: Run, now: int | None) -> Clock:
    used = (run.spent.step_wall_us + _open_us(run, now)) / 1e6
    return Clock("step_wall_sec", used, run.task.budget.step_wall_sec)


def _open_us(run: Run, now: int | None) -> int:
    return 0 if now is None or run.step_open_since is None else max(0, now - run.step_open_since)
