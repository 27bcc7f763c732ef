"""Trying candidates: many share a child, some children run at once, and none is judged by what another left behind.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import base64
import functools
import os
from collections import deque
from typing import TYPE_CHECKING, Any

from .calling import reach
from .children import Turn
from .code_swap import prepare, put_back, swap, unchanged

if TYPE_CHECKING:
    from .children import Say
    from .worker_state import Ground

MAX_STOPS = 8
COUNTED = 40
CHECK_SEC = 0.3
CHUNKS = (24, 192)
MAX_FALLEN = 24
"""How many others may fall before the candidate is given up."""


class Group(Turn):
    """Candidates for one child, and what became of them."""

    def __init__(self, trying: Trying, jobs: list[dict[str, Any]]) -> None:
        super().__init__(functools.partial(trying.try_all, jobs), self._hear)
        self.jobs = jobs
        self.leaks = trying.ground.leaks
        self.verdicts: list[dict[str, Any]] = []
        self.leaked = False

    def _hear(self, message: dict[str, Any]) -> None:
        if "leaked" in message:
            self.leaked = True
        else:
            self.verdicts.append(message)

    @property
    def left(self) -> list[dict[str, Any]]:
        return self.jobs[len(self.verdicts) :]


class Trying:
    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.kills: dict[str, int] = {}
        self.suites: dict[str, Any] = {}
        self.units: dict[str, Any] = {}
        self.waiting: deque[dict[str, Any]] = deque()
        self.counted: set[str] = set()
        self.turned: set[str] = set()
        """Tests that were run the other way round."""
        self.unfit: set[str] = set()
        """Tests that tell nothing where they would be run."""
        self.chunk = CHUNKS[0]
        self.places = 1

    # --- in the worker ----------------------------------------------------------------------------------------

    def attempt(self, message: dict[str, Any]) -> None:
        """Each job is one candidate. `single` asks for one at a time, to see which of them does harm."""
        self.suites, self.units, self.ground.patience = message["suites"], message["units"], message["patience"]
        self.waiting = deque(message["jobs"])
        self.places = 1 if message["single"] else self.ground.places
        for unit in self.units.values():
            prepare(unit)
        self._count(message["jobs"])
        self._arrange()
        doubtful: list[dict[str, Any]] = []
        for group in self.ground.children.each(functools.partial(self._following, message["single"]), self.places):
            self._finish(group, doubtful)
        self.waiting, self.places = deque(doubtful), 1
        for group in self.ground.children.each(functools.partial(self._following, True), 1):
            self._finish(group, doubtful)

    def _arrange(self) -> None:
        """The tests that killed most are asked first, unless they need their own order, or leave traces."""
        quick = [] if self.ground.cold else [suite for suite in self.suites.values() if not suite["slow"]]
        for suite in quick:
            new = [name for name in suite["others"] if name not in self.turned and name in self.ground.suite.items]
            self.turned.update(new)
            ends = self._ends(list(reversed(new)))
            if len(ends) < len(new) or "failed" in ends.values():
                # One needs what another left, or left alone. What falls behind the targets tells nothing there.
                self.ground.leaks = max(1, self.ground.leaks)
                ends = self._ends([*suite["targets"], *new])
                self.unfit.update(name for name in new if ends.get(name) == "failed")
        for suite in self.suites.values():
            suite["others"] = [name for name in suite["others"] if name not in self.unfit]
        if not self.ground.leaks:
            for suite in quick:
                suite["others"].sort(key=lambda name: -self.kills.get(name, 0))

    def _ends(self, names: list[str]) -> dict[str, str]:
        """How the tests end on the base in this order, as far as the child came that ran them."""
        found: dict[str, str] = {}
        if names:
            self.ground.children.run(
                functools.partial(self._run_all, names), lambda said: found.update({said["test"]: said["ended"]})
            )
        return found

    def _count(self, jobs: list[dict[str, Any]]) -> None:
        """How many rounds the loops of functions not seen before make on the base."""
        suites = {job["unit"]: job["suite"] for job in jobs if "unit" in job}
        new = {
            key: suites[key] for key, unit in self.units.items() if unit["loops"] and _name(unit) not in self.counted
        }
        self.counted.update(_name(self.units[key]) for key in new)
        if new:
            self.ground.children.run(functools.partial(self._count_all, new), self._hear_count)

    def _hear_count(self, message: dict[str, Any]) -> None:
        self.ground.steps.before[message["unit"], message["test"]] = message["rounds"]

    def _following(self, single: bool) -> Group | None:
        """The next candidates: as many as a child may have, and a fair share of what is left."""
        if not self.waiting:
            return None
        fair = max(CHUNKS[0], -(-len(self.waiting) // (2 * self.places)))
        count = 1 if single or self.ground.cold or self.ground.leaks > 1 else min(self.chunk, fair)
        return Group(self, [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))])

    def _finish(self, group: Group, doubtful: list[dict[str, Any]]) -> None:
        if group.leaked and len(group.jobs) > 1:
            self.ground.leaks = min(2, max(group.leaks, self.ground.leaks) + 1)
            self.waiting.extendleft(reversed(group.jobs))
            return
        left = group.left
        if not left:
            self.chunk = min(2 * self.chunk, CHUNKS[1])
        elif not group.renewed:
            culprit = left.pop(0)
            if group.beside and not group.killed:
                # Perhaps what ran beside it ended it.
                doubtful.append(culprit)
            else:
                ending = "timeout" if group.killed else "died"
                group.verdicts.append({"n": culprit["n"], "verdict": ending, "test": None})
        self.waiting.extendleft(reversed(left))
        for verdict in group.verdicts:
            if verdict["test"] is not None:
                self.kills[verdict["test"]] = self.kills.get(verdict["test"], 0) + 1
        self.ground.channel.send(verdicts=group.verdicts)

    # --- in a child -------------------------------------------------------------------------------------------

    def try_all(self, jobs: list[dict[str, Any]], say: Say, folder: str) -> None:
        self.ground.guard.arm(strict=True)
        if self.ground.cold:
            self._try_cold(jobs[0], say, folder)
            return
        self.ground.suite.private(folder)
        if len(jobs) > 1 and self.ground.importing:
            self.ground.learn_imports()
            self.ground.rehearse(say)
        stops = 0
        for job in jobs:
            old = swap(self.ground, job, self.units, self.suites[job["suite"]]["slow"])
            if isinstance(old, str):
                say(n=job["n"], verdict=old, test=None)
                continue
            verdict, test, spent, how = self._judge(job, say)
            put_back(old)
            say(n=job["n"], verdict=verdict, test=test, **how)
            stops += verdict == "timeout"
            spent = spent or (len(jobs) > 1 and not self.ground.memory.restored())
            if spent or stops > MAX_STOPS or (self.ground.leaks and how.get("passed") != 0):
                say(renew=True)
                return
        if len(jobs) > 1:
            self._check_base(jobs[-1], say)

    def _count_all(self, units: dict[str, str], say: Say, folder: str) -> None:
        ground = self.ground
        ground.guard.arm(strict=True)
        ground.suite.private(folder)
        for key, suite in units.items():
            old = swap(ground, unchanged(self.units[key], key), self.units)
            if isinstance(old, str):
                continue
            for name in [*self.suites[suite]["targets"], *self.suites[suite]["others"]][:COUNTED]:
                ground.ready(name, say)
                if name in ground.suite.items and ground.run(name, thorough=False)[0] != "timeout":
                    say(unit=_name(self.units[key]), test=name, rounds=ground.steps.made)
            put_back(old)

    def _run_all(self, names: list[str], say: Say, folder: str) -> None:
        self.ground.guard.arm(strict=True)
        self.ground.suite.private(folder)
        for name in names:
            self.ground.ready(name, say)
            say(test=name, ended=self.ground.run(name, thorough=False)[0])

    def _check_base(self, job: dict[str, Any], say: Say) -> None:
        """After many candidates in one process the base must still behave as it did, or state has leaked."""
        ground, suite = self.ground, self.suites[job["suite"]]
        others = [] if ground.leaks else suite["others"][:1]
        for name, wanted in [(suite["targets"][0], ground.header["green"]), *((name, True) for name in others)]:
            ground.await_turn(name, say)
            say(begin=ground.limit(name)[1] + CHECK_SEC)
            if (ground.run(name, thorough=False, limit=CHECK_SEC)[0] == "passed") is not wanted:
                say(leaked=True)

    def _judge(self, job: dict[str, Any], say: Say) -> tuple[str, str | None, bool, dict[str, Any]]:
        """The targets first, then the tests that killed most, then the rest; the first red one decides.

        Where all are asked thoroughly, the others that fell are named: they may fall without any change as well.
        The third value tells that the process is not fit for another candidate, the last how far it came.
        """
        ground, suite = self.ground, self.suites[job["suite"]]
        tests, targets, slow = [*suite["targets"], *suite["others"]], len(suite["targets"]), suite["slow"]
        if not tests or any(name not in ground.suite.items for name in suite["targets"]):
            return "died", None, False, {}
        tests = [name for name in tests if name in ground.suite.items]
        # Fixtures are shared between tests only where this child ends with the candidate.
        unit = _name(self.units[job["unit"]]) if "unit" in job else ""
        alone = targets + 1 if slow or not ground.quick else len(tests)
        fallen: list[str] = []
        how: dict[str, Any] = {}
        for index, name in enumerate(tests):
            ground.ready(name, say)
            following = tests[index + 1] if alone <= index < len(tests) - 1 else None
            outcome, error = ground.run(name, following, thorough=slow, unit=unit)
            if outcome == "timeout":
                return "timeout", name, name not in ground.quick or slow, {"passed": index}
            if outcome != "passed":
                how = how or {"passed": index, **reach(error)}
                fallen.append(name)
                if not slow or index < targets or len(fallen) > MAX_FALLEN:
                    return "failed", fallen[0], index >= alone, how
        if fallen:
            return "failed", fallen[0], True, {**how, "fallen": fallen}
        return "passed", None, len(tests) > alone, {}

    def _try_cold(self, job: dict[str, Any], say: Say, folder: str) -> None:
        """The project loaded anew with one file replaced; only what its tests need is collected."""
        ground = self.ground
        say(begin=ground.header["load_sec"])
        ground.overlay.put(job["path"], base64.b64decode(job["content"]))

        def ready() -> None:
            ground.suite.private(folder)
            verdict, test, _, how = self._judge(job, say)
            say(n=job["n"], verdict=verdict, test=test, **how)
            os._exit(0)

        suite = self.suites[job["suite"]]
        ground.suite.open([*suite["targets"], *suite["others"]], ready)
        say(n=job["n"], verdict="died", test=None)


def _name(unit: dict[str, Any]) -> str:
    return f"{unit['path']}:{unit['line']}"
