"""Measures how soon a cancel and a pause from another process reach a working run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.arena import CODEPILOT, CODEPILOT_SQLITE, Arena, Contender
from benchmarks.children import Late
from benchmarks.contestants import Failed
from benchmarks.figures import Goal, Table, Times, shown
from benchmarks.sizes import EngineSize

BELOW_SEC = 1.0
CANCEL, PAUSE, GONE = "cancel", "pause", "gone"
_TEXT = (
    "A step runs in a worker's process and waits for a command that sleeps for an hour in the strongest sandbox,"
    " as the baseline, the tests and the proof wait for a suite. Another process asks for a cancel or a pause,"
    " each time at another moment between two looks of the worker: seconds until that process reads in the store"
    " that the run is ABORTED, as cancelled, or PAUSED; median and maximum. *Workspace gone*: from asking for a"
    " cancel until nothing of its workspace is left. A pause of an agent's turn waits for the running action and"
    " is not measured here."
)
_HEADS = ["store", "cancel", "pause", "workspace gone"]


@dataclass
class Asked:
    """What CodePilot gave on one store."""

    who: Contender
    times: dict[str, list[float]] = field(default_factory=dict)
    reason: str = ""

    def longest(self, what: str) -> float | None:
        return max(self.times.get(what, ()), default=None)

    def row(self) -> list[str]:
        if self.reason:
            return [self.who.store, f"*{self.reason}*"]
        return [self.who.store, *(_middle_and_longest(self.times[what]) for what in (CANCEL, PAUSE, GONE))]


@dataclass(frozen=True)
class Requests:
    found: Sequence[Asked]

    def goals(self) -> list[Goal]:
        return [
            Goal(f"a {what} from another process on {one.who.store}, the longest, s", BELOW_SEC, one.longest(what))
            for one in self.found
            for what in (CANCEL, PAUSE)
        ]

    def table(self) -> Table:
        return Table("A cancel, a pause", _TEXT, _HEADS, [one.row() for one in self.found])


def measure(size: EngineSize, arena: Arena) -> Requests:
    return Requests([_measured(who, size.requests, arena) for who in (CODEPILOT, CODEPILOT_SQLITE)])


def _measured(who: Contender, count: int, arena: Arena) -> Asked:
    try:
        return Asked(who, arena.requests(who, count))
    except (Failed, Late) as error:
        return Asked(who, reason=f"failed: {error}")


def _middle_and_longest(times: Sequence[float]) -> str:
    return f"{shown(Times(tuple(times)).median)} / {shown(max(times))}"
