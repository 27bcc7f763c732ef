"""The state of a worker: the project's tests, its running functions, and the limits of each test.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import functools
import gc
import importlib.machinery
import os
import signal
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .calling import call
from .children import Children
from .coverage import Guard, relative
from .module_state import Memory
from .step_budget import Steps, Stop
from .suites import Overlay, PytestSuite, UnittestSuite

if TYPE_CHECKING:
    from .calling import Channel

FLOOR_SEC = 0.012
FACTOR = 10.0
HASTE = 3.0
GRACE_SEC = 1.0
DEAF, DEAF_SEC = 3.0, 0.05
TURN_SEC = 120.0
"""How long a test may wait for its turn: those before it have their own limits."""
CACHE = type(functools.lru_cache(maxsize=None)(len))


class WorkerState:
    def __init__(self, channel: Channel, header: dict[str, Any]) -> None:
        self.channel = channel
        self.header = header
        self.cold = header["mode"] == "cold"
        self.suite: Any = UnittestSuite() if header["runner"] == "unittest" else PytestSuite()
        self.overlay = Overlay()
        self.guard = Guard()
        places = max(1, min(header["places"], len(os.sched_getaffinity(0))))
        self.children = Children((channel.inward.fileno(), channel.outward.fileno()), places)
        self.costs: dict[str, tuple[float, float]] = {name: tuple(cost) for name, cost in header["costs"].items()}
        self.functions: dict[tuple[str, int, str], list[Any]] = {}
        self.import_time: dict[str, set[Any]] = {}
        """Functions that ran while the project was imported."""
        self.ran: dict[str, set[int]] = {}
        """Lines that the targets run."""
        self.quick: dict[str, Callable[[], object]] = {}
        self.odd: set[str] = set()
        """Tests that end otherwise unless their runner does all that it does."""
        self.sharing: set[str] = set()
        """Tests that use what others use alike: no two of them run at once."""
        self.leaks = 0
        """What candidates share: a process (0); one, until a test passes (1); none, as tests leave traces (2)."""
        self.importing: list[str] = []
        """Targets that import files of the project while they run: candidates that share a process come after them."""
        self.patience = 1.0
        self.steps = Steps()
        self.memory = Memory()
        signal.signal(signal.SIGPROF, _out_of_steps)
        self._recall(header["learned"])

    def learned(self) -> dict[str, Any]:
        """The results of tracing the tests, for later workers."""
        guard = self.guard
        return {
            "written": sorted(guard.written),
            "shared": guard.shared,
            "sharing": sorted(self.sharing),
            "forked": guard.forked,
            "leaks": self.leaks,
            "importing": self.importing,
            "odd": sorted(self.odd),
            "ran": {path: sorted(lines) for path, lines in self.ran.items()},
        }

    def _recall(self, learned: dict[str, Any]) -> None:
        if learned:
            self.guard.learn(learned["written"], learned["shared"], learned["forked"])
            self.leaks, self.importing, self.odd = learned["leaks"], learned["importing"], set(learned["odd"])
            self.sharing = set(learned["sharing"])
            self.ran = {path: set(lines) for path, lines in learned["ran"].items()}

    @property
    def places(self) -> int:
        """How many children may run at once: one, if tests may share more than this process."""
        return 1 if self.guard.shared else self.children.places

    def learn_imports(self) -> None:
        """Also reset the state of project files that are imported from now on."""
        loader: Any = importlib.machinery.SourceFileLoader
        plain = loader.exec_module

        def exec_module(this: Any, module: types.ModuleType) -> None:
            plain(this, module)
            if _of_the_project(module):
                self.memory.learn([module], [], [thing for thing in vars(module).values() if type(thing) is CACHE])

        loader.exec_module = exec_module

    def import_targets(self, send: Callable[..., None]) -> None:
        """Run the targets that import modules while they run, so that these are loaded as the targets load them."""
        for name in self.importing:
            self.ready(name, send)
            self.run(name, thorough=False)
            self.memory.restored()

    def index(self) -> None:
        """Index the project's function objects by file, first line and name, and the tests that are plain calls."""
        caches = []
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType:
                code = thing.__code__
                path = relative(code.co_filename)
                if path is not None:
                    self.functions.setdefault((path, code.co_firstlineno, code.co_name), []).append(thing)
            elif type(thing) is CACHE and relative(getattr(_unwrapped(thing), "co_filename", "")) is not None:
                caches.append(thing)
        modules = [module for module in list(sys.modules.values()) if _of_the_project(module)]
        self.memory.learn(modules, [function for some in self.functions.values() for function in some], caches)
        calls = {name: self.suite.quick(name) for name in self.suite.items}
        self.quick = {name: call for name, call in calls.items() if call is not None}

    def functions_of(self, unit: dict[str, Any]) -> list[Any]:
        """The function objects made from this text."""
        return self.functions.get((unit["path"], unit["line"], unit["qualname"].rpartition(".")[2]), [])

    def limit(self, name: str) -> tuple[float, float]:
        """Processor seconds that a test may use, and wall seconds after which it counts as asleep."""
        cpu, wall = self.costs.get(name, (0.0, 0.0))
        floor, factor = FLOOR_SEC * self.patience, FACTOR if self.patience > 1.0 else HASTE
        return floor + factor * cpu, GRACE_SEC + 5 * (floor + factor * max(cpu, wall))

    def ready(self, name: str, send: Callable[..., None]) -> None:
        """Wait for the test's turn, and send how long the worker waits if the test's own timer does not stop it."""
        self.await_turn(name, send)
        cpu, wall = self.limit(name)
        send(begin=wall, cpu=DEAF * cpu + DEAF_SEC)

    def await_turn(self, name: str, send: Callable[..., None]) -> None:
        if name in self.sharing:
            send(begin=TURN_SEC)
            self.guard.turns.take()

    def run(
        self, name: str, following: str | None = None, limit: float = 0.0, thorough: bool = True, unit: str = ""
    ) -> tuple[str, BaseException | None]:
        """One test within its steps, with a candidate in place of a function if any: how it ended, by which error."""
        self.steps.allow(unit, name, self.patience)
        thorough = thorough or name in self.odd
        quick = None if thorough else self.quick.get(name)
        signal.setitimer(signal.ITIMER_PROF, limit or self.limit(name)[0], 0.05)
        error: BaseException | None
        try:
            outcome, error = call(quick) if quick else self.suite.run(name, following, thorough)
        except Stop as stop:
            outcome, error = "timeout", stop
        except BaseException as ended:  # noqa: BLE001 - pytest's own ways to end a test are no `Exception`s
            outcome, error = "skipped" if type(ended).__name__ == "Skipped" else "failed", ended
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if following is None:
                self.guard.turns.leave()
        return ("timeout" if isinstance(error, Stop) or self.steps.left < 0 else outcome), error


def _unwrapped(cache: Any) -> Any:
    return getattr(getattr(cache, "__wrapped__", None), "__code__", None)


def imported(before: set[str]) -> dict[str, Any]:
    """The project's modules that were loaded since then."""
    new = {name: module for name, module in list(sys.modules.items()) if name not in before}
    return {name: module for name, module in new.items() if _of_the_project(module)}


def _of_the_project(module: Any) -> bool:
    file = vars(module).get("__file__") if type(module) is types.ModuleType else None
    return isinstance(file, str) and relative(file) is not None


def _out_of_steps(*_: object) -> None:
    raise Stop
