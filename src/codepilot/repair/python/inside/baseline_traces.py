"""Each test on the base: how it ends, what it costs, which lines it runs, where it fails.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import sys
import time
import types
from typing import TYPE_CHECKING, Any

from .calling import failure
from .children import Turn
from .coverage import Lines, relative
from .worker_state import imported

if TYPE_CHECKING:
    from .children import Send
    from .worker_state import WorkerState

TRACE_SEC = 10.0
UNKNOWN_SEC = 0.4
ENDLESS_SEC = 0.1
MANY = 2
TRACE_COST = 15.0
WATCH_SEC = 1.5
"""What watching a test may cost in addition to running it."""
SLOW_SEC = 0.5
ENDED = ("passed", "failed")
BLOCK = 60


class Block(Turn):
    """Tests for one child: how many it has reported, and which are left."""

    def __init__(self, tracing: Tracing, tests: list[str]) -> None:
        super().__init__(functools.partial(tracing.trace_all, tests), self._receive)
        self.tracing, self.tests = tracing, tests
        self.received = 0

    def _receive(self, message: dict[str, Any]) -> None:
        self.received += 1
        self.tracing.take(message)

    def left(self) -> list[str]:
        return self.tests[self.received :]


class Tracing:
    """Those to be run `alone` get a child of their own: what others left in caches would hide lines.

    The rest is run as long as there is time.
    """

    def __init__(self, state: WorkerState, alone: set[str], until: float) -> None:
        self.state, self.alone, self.until = state, alone, until
        self.waiting: list[list[str]] = []
        self.endless = 0
        self.imported: set[str] = set()
        """Modules that some target imports."""

    def run(self, tests: list[str]) -> None:
        known = [name for name in tests if name in self.state.suite.items]
        first, rest = ([name for name in known if (name in self.alone) is alone] for alone in (True, False))
        self.waiting = [[name] for name in first]
        self._work(1)
        self.waiting = [rest[at : at + BLOCK] for at in range(0, len(rest), BLOCK)]
        self._work(self.state.places if len(self.waiting) > 1 else 1)

    def _work(self, places: int) -> None:
        self.waiting.reverse()
        for block in self.state.children.each(self._following, places):
            left = block.left()
            if left and not block.renewed:
                self.state.channel.send(test=left.pop(0), outcome="died", cpu=0, wall=0, lines={}, frames=[])
            if left:
                self.waiting.append(left)

    def _following(self) -> Block | None:
        if not self.waiting or (self.waiting[-1][0] not in self.alone and time.monotonic() > self.until):
            return None
        return Block(self, self.waiting.pop())

    def take(self, message: dict[str, Any]) -> None:
        state = self.state
        new = set(message.pop("imported"))
        shared = message.pop("shared")
        state.sharing.update([message["test"]] if shared else [])
        # What an import uses, any test may use that comes to it first.
        state.guard.learn(message.pop("written"), shared and bool(new), message.pop("forked"))
        state.leaks = 2 if message.pop("stateful") else state.leaks
        state.odd.update([message["test"]] if message.pop("odd") else [])
        if message["test"] in self.alone and message["outcome"] in ENDED and not new <= self.imported:
            self.imported |= new
            state.importing.append(message["test"])
        # The time until such an error does not bound the time of a passing run.
        if message["exception"] in ("MemoryError", "RecursionError", "Stop"):
            message.update(cpu=0.0, wall=0.0)
        state.costs[message["test"]] = (message["cpu"], message["wall"])
        for path, lines in message["lines"].items() if message["test"] in self.alone else ():
            state.ran.setdefault(path, set()).update(lines)
        self.endless += message["exception"] == "Stop"
        state.channel.send(**message)

    def trace_all(self, tests: list[str], send: Send, folder: str) -> None:
        state = self.state
        state.suite.private(folder)
        state.guard.arm(strict=False)
        state.learn_imports()
        for name in tests:
            if name not in self.alone and time.monotonic() > self.until:
                send(renew=True)
                return
            if self._trace(name, send) == "timeout":
                send(renew=True)
                return

    def _trace(self, name: str, send: Send) -> str:
        send(begin=3 * TRACE_SEC)
        self.state.guard.shared = False
        begun = time.process_time()
        loaded = set(sys.modules)
        with Lines(branches=True) as lines:
            first, error = self.state.run(name, limit=self._limit(name))
        traced = time.process_time() - begun
        new = imported(loaded)
        second, cpu, wall, stateful, odd = first, 0.0, 0.0, False, False
        if first != "timeout":
            send(begin=3 * TRACE_SEC)
            cpu, wall = time.process_time(), time.monotonic()
            second, _ = self.state.run(name, limit=TRACE_SEC, thorough=False)
            cpu, wall = time.process_time() - cpu, time.monotonic() - wall
            if second not in (first, "timeout"):
                send(begin=3 * TRACE_SEC)
                second, odd = self.state.run(name, limit=TRACE_SEC)[0], True
            if name in self.alone and cpu < SLOW_SEC:
                stateful = self._goes_another_way(name, lines.found, failure(error), new, send)
            cpu, wall = max(cpu, traced / TRACE_COST), max(wall, traced / TRACE_COST)
        send(
            test=name,
            outcome=first if first == second else "unstable",
            cpu=cpu,
            wall=wall,
            lines={path: sorted(numbers) for path, numbers in lines.found.items()},
            branches=self._branches(name, lines.branches or {}),
            written=sorted(self.state.guard.written),
            shared=self.state.guard.shared,
            forked=self.state.guard.forked,
            stateful=stateful,
            imported=sorted(new),
            odd=odd and first == second,
            **failure(error),
        )
        return "timeout" if "timeout" in (first, second) else first

    def _branches(self, name: str, branches: dict[str, set[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
        """The branches that a test takes from lines that the targets run."""
        ran = self.state.ran
        return {
            path: sorted(way for way in found if name in self.alone or way[0] in ran[path])
            for path, found in branches.items()
            if name in self.alone or path in ran
        }

    def _limit(self, name: str) -> float:
        """Enough for what the test took in the suite; little where it never came to an end, as others did not."""
        if name in self.state.costs:
            return min(TRACE_SEC, WATCH_SEC + 4 * self.state.costs[name][0])
        return ENDLESS_SEC if self.endless >= MANY else UNKNOWN_SEC

    def _goes_another_way(
        self, name: str, before: dict[str, set[Any]], fell: dict[str, Any], new: dict[str, Any], send: Send
    ) -> bool:
        """True if the test runs other lines when it is run again: then something remembers that cannot be put back.

        The `new` modules that it imported run what stands outside of functions once, which is no sign by itself.
        """
        send(begin=3 * TRACE_SEC)
        self.state.memory.restored()
        with Lines() as lines:
            error = self.state.run(name, limit=TRACE_SEC)[1]
        try:
            inner = {relative(module.__file__): _in_functions(module) for module in new.values()}
        except Exception:  # noqa: BLE001 - modules may be made in any way; this one might remember anything
            return True
        for path in {*before, *lines.found}:
            first, second = before.get(path, set()), lines.found.get(path, set())
            if second - first or (first - second) & inner.get(path, first):
                return True
        if any(sys.modules.get(module) is not known or self._generated(known) for module, known in new.items()):
            return True
        now = failure(error)
        return bool(new) and any(now[part] != fell[part] for part in ("exception", "frames"))

    def _generated(self, module: Any) -> bool:
        """True if the test may have written the module itself."""
        return os.path.realpath(module.__file__) in self.state.guard.written


def _in_functions(module: Any) -> set[int]:
    """Lines of the module's functions, their heads left out."""
    found: set[int] = set()
    waiting = [module.__spec__.loader.get_code(module.__spec__.name)]
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if isinstance(one, types.CodeType)]
        if code.co_flags & inspect.CO_OPTIMIZED:
            found.update(line for _, line in dis.findlinestarts(code) if line and line != code.co_firstlineno)
    return found
