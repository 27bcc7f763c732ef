"""Runs candidates: many share a child, some children run at once, and none is affected by another.

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
    from .children import Send
    from .worker_state import WorkerState

MAX_STOPS = 8
COUNTED = 40
CHECK_SEC = 0.3
CHUNKS = (24, 192)
MAX_FAILED = 24
"""How many others may fall before the candidate is given up."""


class Group(Turn):
    """Candidates for one child, and what became of them."""

    def __init__(self, trying: Trying, jobs: list[dict[str, Any]]) -> None:
        super().__init__(functools.partial(trying.try_all, jobs), self._receive)
        self.jobs = jobs
        self.leaks = trying.state.leaks
        self.results: list[dict[str, Any]] = []
        self.leaked = False

    def _receive(self, message: dict[str, Any]) -> None:
        if "leaked" in message:
            self.leaked = True
        else:
            self.results.append(message)

    @property
    def left(self) -> list[dict[str, Any]]:
        return self.jobs[len(self.results) :]


class Trying:
    def __init__(self, state: WorkerState) -> None:
        self.state = state
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
        self.suites, self.units, self.state.patience = message["suites"], message["units"], message["patience"]
        self.waiting = deque(message["jobs"])
        self.places = 1 if message["single"] else self.state.places
        for unit in self.units.values():
            prepare(unit)
        self._count(message["jobs"])
        self._arrange()
        doubtful: list[dict[str, Any]] = []
        for group in self.state.children.each(functools.partial(self._following, message["single"]), self.places):
            self._finish(group, doubtful)
        self.waiting, self.places = deque(doubtful), 1
        for group in self.state.children.each(functools.partial(self._following, True), 1):
            self._finish(group, doubtful)

    def _arrange(self) -> None:
        """The tests that killed most are asked first, unless they need their own order, or leave traces."""
        quick = [] if self.state.cold else [suite for suite in self.suites.values() if not suite["slow"]]
        for suite in quick:
            new = [name for name in suite["others"] if name not in self.turned and name in self.state.suite.items]
            self.turned.update(new)
            ends = self._ends(list(reversed(new)))
            if len(ends) < len(new) or "failed" in ends.values():
                # A test depends on what another left behind. A failure after the targets says nothing about the change.
                self.state.leaks = max(1, self.state.leaks)
                ends = self._ends([*suite["targets"], *new])
                self.unfit.update(name for name in new if ends.get(name) == "failed")
        for suite in self.suites.values():
            suite["others"] = [name for name in suite["others"] if name not in self.unfit]
        if not self.state.leaks:
            for suite in quick:
                suite["others"].sort(key=lambda name: -self.kills.get(name, 0))

    def _ends(self, names: list[str]) -> dict[str, str]:
        """How the tests end on the base in this order, as far as the child came that ran them."""
        found: dict[str, str] = {}
        if names:
            self.state.children.run(
                functools.partial(self._run_all, names),
                lambda message: found.update({message["test"]: message["ended"]}),
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
            self.state.children.run(functools.partial(self._count_all, new), self._receive_count)

    def _receive_count(self, message: dict[str, Any]) -> None:
        self.state.steps.before[message["unit"], message["test"]] = message["rounds"]

    def _following(self, single: bool) -> Group | None:
        """The next candidates: as many as a child may have, and a fair share of what is left."""
        if not self.waiting:
            return None
        fair = max(CHUNKS[0], -(-len(self.waiting) // (2 * self.places)))
        count = 1 if single or self.state.cold or self.state.leaks > 1 else min(self.chunk, fair)
        return Group(self, [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))])

    def _finish(self, group: Group, doubtful: list[dict[str, Any]]) -> None:
        if group.leaked and len(group.jobs) > 1:
            self.state.leaks = min(2, max(group.leaks, self.state.leaks) + 1)
            self.waiting.extendleft(reversed(group.jobs))
            return
        left = group.left
        if not left:
            self.chunk = min(2 * self.chunk, CHUNKS[1])
        elif not group.renewed:
            culprit = left.pop(0)
            if group.shared and not group.killed:
                # Perhaps another one that ran at the same time ended it.
                doubtful.append(culprit)
            else:
                ending = "timeout" if group.killed else "died"
                group.results.append({"n": culprit["n"], "outcome": ending, "test": None})
        self.waiting.extendleft(reversed(left))
        for result in group.results:
            if result["test"] is not None:
                self.kills[result["test"]] = self.kills.get(result["test"], 0) + 1
        self.state.channel.send(results=group.results)

    # --- in a child -------------------------------------------------------------------------------------------

    def try_all(self, jobs: list[dict[str, Any]], send: Send, folder: str) -> None:
        self.state.guard.arm(strict=True)
        if self.state.cold:
            self._try_reload(jobs[0], send, folder)
            return
        self.state.suite.private(folder)
        if len(jobs) > 1 and self.state.importing:
            self.state.learn_imports()
            self.state.import_targets(send)
        stops = 0
        for job in jobs:
            old = swap(self.state, job, self.units, self.suites[job["suite"]]["slow"])
            if isinstance(old, str):
                send(n=job["n"], outcome=old, test=None)
                continue
            outcome, test, spent, how = self._judge(job, send)
            put_back(old)
            send(n=job["n"], outcome=outcome, test=test, **how)
            stops += outcome == "timeout"
            spent = spent or (len(jobs) > 1 and not self.state.memory.restored())
            if spent or stops > MAX_STOPS or (self.state.leaks and how.get("passed") != 0):
                send(renew=True)
                return
        if len(jobs) > 1:
            self._check_base(jobs[-1], send)

    def _count_all(self, units: dict[str, str], send: Send, folder: str) -> None:
        state = self.state
        state.guard.arm(strict=True)
        state.suite.private(folder)
        for key, suite in units.items():
            old = swap(state, unchanged(self.units[key], key), self.units)
            if isinstance(old, str):
                continue
            for name in [*self.suites[suite]["targets"], *self.suites[suite]["others"]][:COUNTED]:
                state.ready(name, send)
                if name in state.suite.items and state.run(name, thorough=False)[0] != "timeout":
                    send(unit=_name(self.units[key]), test=name, rounds=state.steps.made)
            put_back(old)

    def _run_all(self, names: list[str], send: Send, folder: str) -> None:
        self.state.guard.arm(strict=True)
        self.state.suite.private(folder)
        for name in names:
            self.state.ready(name, send)
            send(test=name, ended=self.state.run(name, thorough=False)[0])

    def _check_base(self, job: dict[str, Any], send: Send) -> None:
        """After many candidates in one process the base must still behave as it did, or state has leaked."""
        state, suite = self.state, self.suites[job["suite"]]
        others = [] if state.leaks else suite["others"][:1]
        for name, expected in [(suite["targets"][0], state.header["green"]), *((name, True) for name in others)]:
            state.await_turn(name, send)
            send(begin=state.limit(name)[1] + CHECK_SEC)
            if (state.run(name, thorough=False, limit=CHECK_SEC)[0] == "passed") is not expected:
                send(leaked=True)

    def _judge(self, job: dict[str, Any], send: Send) -> tuple[str, str | None, bool, dict[str, Any]]:
        """The targets first, then the tests that killed most, then the rest; the first red one decides.

        Where all are asked thoroughly, the others that fell are named: they may fall without any change as well.
        The third value is true if the process cannot try another candidate; the last says how far it came.
        """
        state, suite = self.state, self.suites[job["suite"]]
        tests, targets, slow = [*suite["targets"], *suite["others"]], len(suite["targets"]), suite["slow"]
        if not tests or any(name not in state.suite.items for name in suite["targets"]):
            return "died", None, False, {}
        tests = [name for name in tests if name in state.suite.items]
        # Fixtures are shared between tests only where this child ends with the candidate.
        unit = _name(self.units[job["unit"]]) if "unit" in job else ""
        alone = targets + 1 if slow or not state.quick else len(tests)
        failed: list[str] = []
        how: dict[str, Any] = {}
        for index, name in enumerate(tests):
            state.ready(name, send)
            following = tests[index + 1] if alone <= index < len(tests) - 1 else None
            outcome, error = state.run(name, following, thorough=slow, unit=unit)
            if outcome == "timeout":
                return "timeout", name, name not in state.quick or slow, {"passed": index}
            if outcome != "passed":
                how = how or {"passed": index, **reach(error)}
                failed.append(name)
                if not slow or index < targets or len(failed) > MAX_FAILED:
                    return "failed", failed[0], index >= alone, how
        if failed:
            return "failed", failed[0], True, {**how, "failed": failed}
        return "passed", None, len(tests) > alone, {}

    def _try_reload(self, job: dict[str, Any], send: Send, folder: str) -> None:
        """The project loaded anew with one file replaced; only what its tests need is collected."""
        state = self.state
        send(begin=state.header["load_sec"])
        state.overlay.put(job["path"], base64.b64decode(job["content"]))

        def ready() -> None:
            state.suite.private(folder)
            outcome, test, _, how = self._judge(job, send)
            send(n=job["n"], outcome=outcome, test=test, **how)
            os._exit(0)

        suite = self.suites[job["suite"]]
        state.suite.open([*suite["targets"], *suite["others"]], ready)
        send(n=job["n"], outcome="died", test=None)


def _name(unit: dict[str, Any]) -> str:
    return f"{unit['path']}:{unit['line']}"
