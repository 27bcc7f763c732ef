"""What the newest runs achieved, took and cost, counted from their views. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from codepilot.core.contract import Contract
from codepilot.core.events import State
from codepilot.core.failures import FailureKind
from codepilot.core.run import Run

TIMEOUTS = frozenset({FailureKind.SUITE_TIMEOUT, FailureKind.TOOL_TIMEOUT, FailureKind.MODEL_TIMEOUT})


class Spread(Contract):
    """The mean and the standard deviation of some values; both are null without values."""

    mean: float | None
    deviation: float | None
    count: int


class Group(Contract):
    """Runs that share an agent, a language, a kind or a model."""

    name: str
    runs: int
    ended: int
    green: int
    """Ended with a verdict."""
    pass_rate: float | None
    seconds_to_green: Spread
    iterations_to_green: Spread
    turns: int
    tokens: int
    cost_usd: float
    unpriced_tokens: int


class Analytics(Contract):
    """The newest runs in numbers."""

    total: Group
    by_agent: tuple[Group, ...]
    by_language: tuple[Group, ...]
    by_kind: tuple[Group, ...]
    by_model: tuple[Group, ...]
    by_verdict: dict[str, int]
    failures: dict[str, int]
    """Runs that ended without a change, by the kind of failure."""
    pass_rate_by_iteration: tuple[float, ...]
    """The share of ended runs that were green after so many iterations."""
    retries_by_role: dict[str, int]
    """Steps that were tried again after a failure of the infrastructure."""
    tool_calls: dict[str, dict[str, int]]
    """How often each tool was called, by the calls' status."""
    timeouts: int
    approvals: int
    approvals_denied: int
    memory_asked: int
    memory_hits: int


def analyse(
    runs: Sequence[Run],
    retries: Mapping[str, int] | None = None,
    memory: tuple[int, int] = (0, 0),
    calls: Mapping[str, Mapping[str, int]] | None = None,
) -> Analytics:
    """Count runs. `retries` are repeated steps by state, `memory` how often it was asked and found something, `calls`
    the calls of tools by status.
    """
    ended = [run for run in runs if run.terminal]
    answers = [one for run in runs for one in run.approvals]
    return Analytics(
        total=_group("all", runs),
        by_agent=_groups(runs, lambda run: run.task.agent),
        by_language=_groups(runs, lambda run: run.baseline.language if run.baseline else ""),
        by_kind=_groups(runs, lambda run: run.task.kind.value),
        by_model=_groups(runs, lambda run: run.task.model or ""),
        by_verdict=dict(Counter(run.verdict or "none" for run in ended)),
        failures=dict(Counter(run.failure.kind.value for run in ended if run.failure).most_common()),
        pass_rate_by_iteration=_by_iteration(ended),
        retries_by_role=dict(retries or {}),
        tool_calls={tool: dict(statuses) for tool, statuses in (calls or {}).items()},
        timeouts=sum(one.kind in TIMEOUTS for run in runs for one in run.failures),
        approvals=len(answers),
        approvals_denied=sum(one.decided is not None and one.decided.decision == "denied" for one in answers),
        memory_asked=memory[0],
        memory_hits=memory[1],
    )


def _green(run: Run) -> bool:
    return run.state is State.DONE and run.verdict is not None


def _groups(runs: Iterable[Run], key: Callable[[Run], Hashable]) -> tuple[Group, ...]:
    """The groups with the most runs first; runs without the key are left out."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if name := str(key(run)):
            found.setdefault(name, []).append(run)
    return tuple(_group(name, members) for name, members in sorted(found.items(), key=lambda one: -len(one[1])))


def _group(name: str, runs: Sequence[Run]) -> Group:
    ended = [run for run in runs if run.terminal]
    green = [run for run in ended if _green(run)]
    return Group(
        name=name,
        runs=len(runs),
        ended=len(ended),
        green=len(green),
        pass_rate=len(green) / len(ended) if ended else None,
        seconds_to_green=_spread([run.spent.wall_us / 1e6 for run in green]),
        iterations_to_green=_spread([run.spent.iterations for run in green]),
        turns=sum(run.spent.turns for run in runs),
        tokens=sum(run.spent.tokens for run in runs),
        cost_usd=round(sum(run.spent.cost_usd for run in runs), 6),
        unpriced_tokens=sum(run.spent.unpriced_tokens for run in runs),
    )


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(mean=None, deviation=None, count=0)
    return Spread(mean=statistics.fmean(values), deviation=statistics.pstdev(values), count=len(values))


def _by_iteration(ended: Sequence[Run]) -> tuple[float, ...]:
    if not ended:
        return ()
    took = [run.spent.iterations for run in ended if _green(run)]
    most = max((run.spent.iterations for run in ended), default=0)
    return tuple(sum(one <= number for one in took) / len(ended) for number in range(1, min(most, 15) + 1))
