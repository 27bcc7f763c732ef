"""Measures code actions: round trip, start, and memory after two hundred of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.contestants import CONTESTANTS, EXECUTOR, KERNEL, Contestant, Driver, Failed
from benchmarks.drivers.loop import ACTIONS
from benchmarks.figures import Goal, Table, Times, ratio, shown
from benchmarks.machine import Quiet
from benchmarks.peers import PINNED, PeerMissing
from benchmarks.sizes import Size

_FAILURES = 3
_HEADS = {"assign": "`x = 1`", "loop": "100,000 iterations", "print": "print 100 lines, 10 kB", "raise": "raise"}
_ISOLATED = (
    "*Isolated* says what keeps the code inside its workspace. smolagents and SWE-ReX isolate code by running it"
    " elsewhere, in containers or on remote machines. Those modes need Docker or an account and are not run here:"
    " the table compares their local modes, which isolate nothing, with ours, which do."
)
_ROUND_TRIP = (
    "Milliseconds from sending an action to receiving its result, warm: median, and in brackets the 5th to the"
    f" 95th percentile. {_ISOLATED} *Variables* says whether they persist to the next action. SWE-ReX is a bash"
    " session behind a pseudo-terminal. pexpect delays every line sent to it by 50 ms, and another bash first"
    " checks every bash command. In its bash row bash runs the loop and the prints."
)
_RATIOS = "The medians above as multiples of the CodePilot kernel's. Values below 1 are faster than the kernel."
_START = (
    "Milliseconds from a loaded library to the first answer (`x = 1`). *Import* (loading the library) and *first*"
    " (the first start) were measured once in each process. The executor also makes a workspace from a tree and"
    " defines its skills in the kernel, which reads each at its first call. Over HTTP the service was running, and"
    " *first* includes starting it. A contestant without state starts with its first action."
)
_MEMORY = (
    "Resident KiB of the asking process and of the processes it started, after 20 actions, and what {count} more"
    " added (`x = 1`, 10 kB of prints, an exception, in turns)."
)


@dataclass
class Measured:
    """What one contestant gave."""

    contestant: Contestant
    reason: str = ""
    failures: int = 0
    version: str = ""
    imported_ms: float = 0.0
    first_ms: float = 0.0
    starts: list[float] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ACTIONS})
    memory: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Actions:
    """The whole of it, as tables and goals."""

    found: tuple[Measured, ...]
    count: int

    @property
    def peers(self) -> dict[str, str]:
        seen = {one.contestant.package: one.version for one in self.found if one.contestant.package and one.version}
        return seen or dict.fromkeys(PINNED, "not run")

    def goals(self) -> list[Goal]:
        by_name = {one.contestant.name: one for one in self.found}
        goals = []
        for contestant in (KERNEL, EXECUTOR):
            one = by_name.get(contestant.name)
            times = Times(tuple(one.times["assign"])).median if one and one.times["assign"] else None
            starts = Times(tuple(one.starts)).median if one and one.starts else None
            goals.append(Goal(f"action round trip, warm ({contestant.name})", 1.0, times))
            goals.append(Goal(f"start to first answer ({contestant.name})", 100.0, starts))
        return goals

    def tables(self) -> list[Table]:
        kernel = next((one for one in self.found if one.contestant is KERNEL and not one.reason), None)
        tables = [
            Table(
                "Action round trip",
                _ROUND_TRIP,
                ["", "isolated", "variables", *_HEADS.values()],
                [self._row(one, [str(Times(tuple(one.times[name]))) for name in _known(one)]) for one in self.found],
            )
        ]
        if kernel is not None:
            ours = {name: Times(tuple(times)).median for name, times in kernel.times.items()}
            rows = [
                self._row(one, [ratio(Times(tuple(one.times[name])).median, ours[name]) for name in _known(one)])
                for one in self.found
            ]
            tables.append(
                Table("Compared with the kernel", _RATIOS, ["", "isolated", "variables", *_HEADS.values()], rows)
            )
        head = ["", "isolated", "variables", "import", "first", "start", "p95"]
        tables.append(Table("Start to first answer", _START, head, [self._row(one, _start(one)) for one in self.found]))
        head = ["", "isolated", "variables", "asking process", "added", "its processes", "added"]
        rows = [self._row(one, _growth(one)) for one in self.found]
        tables.append(
            Table(f"Memory of {self.count} actions", _MEMORY.format(count=self.count), head, rows),
        )
        return tables

    def _row(self, one: Measured, cells: list[str]) -> list[str]:
        name = one.contestant.name + (f" (failed {one.failures}×)" if one.failures and not one.reason else "")  # noqa: RUF001
        return [name, one.contestant.isolated, one.contestant.state, *(cells or [f"*{one.reason}*"])]


class Running:
    """A contestant at work. One that fails is started again, a few times, and its failures are counted."""

    def __init__(self, one: Measured, peers: Path | None) -> None:
        self._one, self._peers = one, peers
        self._driver: Driver | None = None
        self._begin()

    def work(self, work: Callable[[Driver], None]) -> None:
        if self._driver is None:
            return
        try:
            work(self._driver)
        except Failed as error:
            self._failed(error)

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None

    def _begin(self) -> None:
        try:
            self._driver = Driver(self._one.contestant, self._peers)
            first_ms = self._driver.start()
        except PeerMissing as error:
            self._one.reason = str(error)
        except Failed as error:
            self._failed(error)
        else:
            self._one.version, self._one.imported_ms = self._driver.version, self._driver.imported_ms
            self._one.first_ms = self._one.first_ms or first_ms

    def _failed(self, error: Failed) -> None:
        self.close()
        self._one.failures += 1
        if self._one.failures < _FAILURES:
            self._begin()
        else:
            self._one.reason = f"failed {_FAILURES} times: {error}"


def measure(size: Size, peers: Path | None, quiet: Quiet) -> Actions:
    """Measure all contestants in turns, round after round. One that cannot run gives its reason and is left out."""
    found = tuple(Measured(contestant) for contestant in CONTESTANTS)
    with contextlib.ExitStack() as opened:
        running = []
        for one in found:
            running.append(opened.enter_context(contextlib.closing(Running(one, peers))))
            running[-1].work(partial(_remember, one, size))
        for _ in range(size.rounds):
            quiet.look()
            for one, at_work in zip(found, running, strict=True):
                at_work.work(partial(_round, one, size))
    for one in found:
        if not one.reason and not (one.memory and one.starts and all(one.times.values())):
            one.reason = f"failed {one.failures} times, and gave too little"
    return Actions(found, size.memory_actions)


def _remember(one: Measured, size: Size, driver: Driver) -> None:
    one.memory = driver.memory(size.memory_actions)


def _round(one: Measured, size: Size, driver: Driver) -> None:
    one.starts += [driver.start() for _ in range(size.starts)]
    for name, times in one.times.items():
        times += driver.times(name, size.actions, size.action_seconds)


def _known(one: Measured) -> list[str]:
    return [] if one.reason else list(one.times)


def _start(one: Measured) -> list[str]:
    if one.reason:
        return []
    starts = Times(tuple(one.starts))
    imported = shown(one.imported_ms) if one.imported_ms else "–"  # noqa: RUF001  (none)
    return [imported, shown(one.first_ms), str(starts), shown(starts.p95)]


def _growth(one: Measured) -> list[str]:
    if one.reason or not one.memory:
        return []
    cells = []
    for whose in ("own", "workers"):
        before, after = one.memory[f"{whose}_before"], one.memory[f"{whose}_after"]
        cells += [f"{before:,}", f"{after - before:+,}"] if before else ["none", ""]
    return cells
