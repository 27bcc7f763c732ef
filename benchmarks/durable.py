"""Measures durable engines: steps a second, enqueue to start, and takeover of a dead worker's step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from benchmarks.arena import (
    CODEPILOT,
    CODEPILOT_SQLITE,
    CONTENDERS,
    POSTGRES,
    SQLITE,
    Arena,
    Contender,
)
from benchmarks.children import Late
from benchmarks.contestants import Failed
from benchmarks.figures import Goal, Least, Table, Times, shown
from benchmarks.machine import Quiet
from benchmarks.peers import PeerMissing
from benchmarks.sizes import EngineSize

_RATE = (
    "Runs of eight empty steps wait in the queue before the first worker starts. The table shows steps per second"
    " until the last one ends: medians, and the 5th to the 95th percentile in brackets where there are several"
    " rounds. CodePilot runs its worker with events, budgets, log files and the records of ended runs. DBOS runs"
    " eight `@DBOS.step()` of a workflow that starts in the process that runs it, its fastest mode. procrastinate"
    " runs eight jobs, each of which defers the next. *Bare inserts*: as many clients as processes, each on an"
    " open connection, insert and commit one row of 100 bytes, just before the others run. PostgreSQL keeps its"
    " durability defaults (`fsync`, `synchronous_commit`); SQLite is in WAL mode with `synchronous=FULL`."
)
_STARTS = (
    "Milliseconds from asking for a run, on an idle engine, until its first step begins: median and 95th"
    " percentile. *In process*: the asking thread is in the worker's process. *Promised*: how long the asking call"
    " itself takes, across processes. CodePilot wakes by LISTEN and NOTIFY on PostgreSQL and by a socket on"
    " SQLite. procrastinate uses LISTEN and NOTIFY. DBOS polls its queue every second (as shipped) and needs no"
    " queue in process."
)
_TAKEOVER = (
    "A worker is killed with -9 while it holds a step and another worker is idle: seconds until the step begins"
    " again in the other. All engines run as shipped. CodePilot's lease is 90 s, but its lock shows the death at"
    " once. DBOS resumes a dead process's workflows when a process with the same executor id starts, or by its"
    " commercial Conductor. procrastinate leaves them to a periodic task that its user writes."
)

_STORES = (POSTGRES, SQLITE)

Answer = TypeVar("Answer")


@dataclass
class Measured:
    """What one contender gave."""

    who: Contender
    reason: str = ""
    rates: dict[tuple[int, int], list[float]] = field(default_factory=dict)
    inside: list[float] = field(default_factory=list)
    across: list[float] = field(default_factory=list)
    promised: list[float] = field(default_factory=list)
    takeovers: list[float | None] = field(default_factory=list)

    def tried(self, ask: Callable[[], Answer]) -> Answer | None:
        """What `ask` gives, unless this contender cannot go on: then it is left out of the rest and says why."""
        if self.reason:
            return None
        try:
            return ask()
        except PeerMissing as error:
            self.reason = str(error)
        except (Failed, Late) as error:
            self.reason = f"failed: {error}"
        return None

    def best(self, processes: int) -> float | None:
        """Steps a second with so many processes, by whichever number of runs at a time suits it best."""
        rates = [Times(tuple(times)).median for shape, times in self.rates.items() if shape[0] == processes and times]
        return max(rates, default=None)


@dataclass
class Durable:
    """The whole of it, as tables and goals."""

    size: EngineSize
    found: tuple[Measured, ...] = field(default_factory=lambda: tuple(Measured(who) for who in CONTENDERS))
    floors: dict[str, dict[tuple[int, int], list[float]]] = field(default_factory=lambda: {one: {} for one in _STORES})
    """Bare inserts by as many clients, measured just before each round of a shape: a disk's mood changes."""

    @property
    def processes(self) -> dict[int, str]:
        counts = dict.fromkeys(processes for processes, _ in self.size.shapes)
        return {count: f"{count} process{'es' * (count > 1)}" for count in counts}

    def of(self, who: Contender) -> Measured:
        return next(one for one in self.found if one.who is who)

    def goals(self) -> list[Goal | Least]:
        ours, file = self.of(CODEPILOT), self.of(CODEPILOT_SQLITE)
        goals: list[Goal | Least] = []
        for processes, word in self.processes.items():
            peers = [one.best(processes) for one in self.found if one.who.package and one.who.store == POSTGRES]
            better = max((rate for rate in peers if rate is not None), default=None)
            what = f"steps/s on {POSTGRES}, {word}, as a multiple of the better peer's"
            goals.append(Least(what, 1.0, _over(ours, processes, better)))
        for one in (ours, file):
            store = one.who.store
            goals.append(Goal(f"enqueue to start on {store}, in process, p50 ms", 20.0, _median(one.inside)))
            goals.append(Goal(f"enqueue to start on {store}, across processes, p50 ms", 20.0, _median(one.across)))
            known = [took for took in one.takeovers if took is not None]
            longest = max(known) if known and len(known) == len(one.takeovers) else None
            goals.append(Goal(f"a dead worker's step on {store}, the longest, s", 2.0, longest))
        return goals

    def tables(self) -> list[Table]:
        shapes = [f"{self.processes[processes]}, {runs} at a time" for processes, runs in self.size.shapes]
        heads = ["", "store", "in process", "across processes", "promised"]
        return [
            Table("Steps per second", _RATE, ["", "store", *shapes], self._rates()),
            Table("Enqueue to start", _STARTS, heads, self._starts()),
            Table("A dead worker's step", _TAKEOVER, ["", "store", "seconds"], self._takeovers()),
        ]

    def _rates(self) -> list[list[str]]:
        rows = [_row(one, [str(Times(tuple(rates))) for rates in one.rates.values()]) for one in self.found]
        for store, floors in self.floors.items():
            rows.append(["Bare inserts", store, *(str(Times(tuple(rates))) for rates in floors.values())])
        return rows

    def _starts(self) -> list[list[str]]:
        return [
            _row(one, [_middle_and_late(times) for times in (one.inside, one.across, one.promised) if times])
            for one in self.found
        ]

    def _takeovers(self) -> list[list[str]]:
        return [_row(one, [", ".join(map(self._took, one.takeovers))] if one.takeovers else []) for one in self.found]

    def _took(self, seconds: float | None) -> str:
        return f"not within {self.size.patience_seconds:g} s" if seconds is None else shown(seconds)


def measure(size: EngineSize, arena: Arena, quiet: Quiet, tell: Callable[[str], None]) -> Durable:
    """Measure all contestants in turns, round after round; one that fails gives its reason and is left out."""
    durable = Durable(size)
    for turn in range(size.rounds):
        tell(f"steps per second, round {turn + 1} of {size.rounds}")
        quiet.look()
        for shape in size.shapes:
            for store, floors in durable.floors.items():
                floors.setdefault(shape, []).append(arena.floor(store, shape[0], size.floor_seconds))
            for one in durable.found:
                _count_steps(one, shape, size, arena)
    tell("enqueue to start")
    for one in durable.found:
        quiet.look()
        inside = one.tried(lambda: arena.starts(one.who, False, size.starts))  # noqa: B023
        across = one.tried(lambda: arena.starts(one.who, True, size.starts))  # noqa: B023
        if inside is not None and across is not None:
            one.inside, (one.across, one.promised) = inside[0], across
    tell("takeover")
    for one in durable.found:
        for _ in range(size.takeovers if not one.who.package else 1):
            took = one.tried(lambda: (arena.takeover(one.who, size.patience_seconds),))  # noqa: B023
            one.takeovers += [] if took is None else took
    return durable


def _count_steps(one: Measured, shape: tuple[int, int], size: EngineSize, arena: Arena) -> None:
    rate = one.tried(lambda: arena.rate(one.who, *shape, size.runs))
    if rate is not None:
        one.rates.setdefault(shape, []).append(rate)


def _row(one: Measured, cells: list[str]) -> list[str]:
    return [one.who.name, one.who.store, *cells, *([f"*{one.reason}*"] if one.reason else [])]


def _middle_and_late(times: list[float]) -> str:
    return f"{shown(Times(tuple(times)).median)} / {shown(Times(tuple(times)).p95)}"


def _median(values: list[float]) -> float | None:
    return Times(tuple(values)).median if values else None


def _over(one: Measured, processes: int, other: float | None) -> float | None:
    rate = one.best(processes)
    return rate / other if rate is not None and other else None
