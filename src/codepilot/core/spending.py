"""Budgets: every comparison of a run's spending with its budget. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import ValidationError

from codepilot.core.events import Usage
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.limits import TOTALS
from codepilot.core.run import Run
from codepilot.core.task import Budget

_COUNTS = ("iterations", "tokens", "turns")


class Meter(NamedTuple):
    """A budget: seconds, tokens or dollars."""

    name: str
    used: float
    limit: float

    @property
    def left(self) -> float:
        return max(0.0, self.limit - self.used)


def total(run: Run, name: str) -> float:
    """A budget of the whole run: the limit that a resume set, else what was granted so far."""
    limit = run.limits.get(name)
    return float(getattr(run.task.budget, name) or 0) * run.grants if limit is None else limit


def budget_of(run: Run) -> Budget:
    """The task's budget with the limits that hold now: those that a resume set or granted."""
    known = {
        name: total(run, name) for name in TOTALS if name in run.limits or getattr(run.task.budget, name) is not None
    }
    counts = {name: int(value) if name in _COUNTS else value for name, value in known.items()}
    return run.task.budget.model_copy(update=counts)


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
    return over_budget("turns_per_step", used, limit) if used >= limit else no_turn_of_run_left(run)


def no_turn_of_run_left(run: Run) -> Failure | None:
    """The spent budget of the run that forbids another turn, if any."""
    limit = None if run.task.budget.turns is None and "turns" not in run.limits else total(run, "turns")
    return over_budget("turns", run.spent.turns, limit) if limit is not None and run.spent.turns >= limit else None


def no_iteration_left(run: Run) -> Failure | None:
    """The spent budget that forbids another IMPLEMENT, if any: it takes an iteration and a turn."""
    used, limit = run.spent.iterations, total(run, "iterations")
    return over_budget("iterations", used, limit) if used >= limit else no_turn_of_run_left(run)


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
    spent = run.spent
    return (
        Meter("tokens", spent.tokens, total(run, "tokens")),
        Meter("cost_usd", spent.cost_usd, total(run, "cost_usd")),
    )


def _run_clock(run: Run, now: int | None) -> Meter:
    used = (run.spent.wall_us + _open_us(run, now)) / 1e6
    return Meter("wall_sec", used, total(run, "wall_sec"))


def _step_clock(run: Run, now: int | None) -> Meter:
    used = (run.spent.step_wall_us + _open_us(run, now)) / 1e6
    return Meter("step_wall_sec", used, run.task.budget.step_wall_sec)


def _open_us(run: Run, now: int | None) -> int:
    return 0 if now is None or run.step_open_since is None else max(0, now - run.step_open_since)


def check_limits(run: Run, given: Mapping[str, float]) -> None:
    """Raise if a name is no budget, a value cannot be one, or so much is spent already."""
    budget, spent = run.task.budget, run.spent
    known = sorted(Budget.model_fields)
    for name in given:
        if name not in known:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"There is no budget called {name!r}.",
                next_action=f"Use one of: {', '.join(known)}.",
            )
    try:
        Budget.model_validate({**budget.model_dump(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The budget cannot be used: {'.'.join(map(str, first['loc']))}: {first['msg']}.",
            next_action="Give a positive number, for example --budget iterations=20.",
        ) from error
    used = {
        "iterations": spent.iterations,
        "wall_sec": spent.wall_us / 1e6,
        "tokens": spent.tokens,
        "cost_usd": spent.cost_usd,
        "turns": spent.turns,
    }
    for name, value in given.items():
        if name in used and value <= used[name]:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{name}={value:g} is spent already: the run has used {used[name]:g}.",
                next_action=f"Give more, for example --budget {name}={used[name] * 2 or 1:g}.",
            )
