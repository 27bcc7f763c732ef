"""Runs inside the sandbox, on the project's own Python (3.8 or newer) and the standard library alone.

It imports the project and its tests once, then tries candidates in forked children: a function's code is swapped
in place (`warm`), or the whole project is loaded anew with one file replaced (`cold`). It speaks JSON lines over
copies of its first standard streams, so nothing that tests print can reach the channel. What it says is evidence
to be proved again elsewhere, never a verdict.
"""

from __future__ import annotations

import base64
import functools
import gc
import os
import signal
import sys
import time
import traceback
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from codepilot.repair.inside.codepilot_repair_children import Children, Say
    from codepilot.repair.inside.codepilot_repair_compose import compose
    from codepilot.repair.inside.codepilot_repair_evidence import Calls, agreeing, changes, digest, outcomes, varied
    from codepilot.repair.inside.codepilot_repair_running import Channel, call, compile_function, failure, reach
    from codepilot.repair.inside.codepilot_repair_suites import Overlay, PytestSuite, UnittestSuite
    from codepilot.repair.inside.codepilot_repair_watch import Guard, Lines, relative
else:
    from codepilot_repair_children import Children
    from codepilot_repair_compose import compose
    from codepilot_repair_evidence import Calls, agreeing, changes, digest, outcomes, varied
    from codepilot_repair_running import Channel, call, compile_function, failure, reach
    from codepilot_repair_suites import Overlay, PytestSuite, UnittestSuite
    from codepilot_repair_watch import Guard, Lines, relative

FLOOR_SEC = 0.012
FACTOR = 10.0
HASTE = 3.0
GRACE_SEC = 1.0
TRACE_SEC = 10.0
UNKNOWN_SEC = 1.0
ENDLESS_SEC = 0.25
MANY = 2
MAX_STOPS = 8
TRACE_COST = 15.0
MAX_MODULES = 400
MAX_CHUNK = 192


class Stop(BaseException):
    """A test has used up its steps."""


class Worker:
    def __init__(self, channel: Channel, header: dict[str, Any]) -> None:
        self.channel = channel
        self.header = header
        self.cold = header["mode"] == "cold"
        self.suite: Any = UnittestSuite() if header["runner"] == "unittest" else PytestSuite()
        self.overlay = Overlay()
        self.children = Children((channel.inward.fileno(), channel.outward.fileno()))
        self.guard = Guard()
        self.costs: dict[str, tuple[float, float]] = {name: tuple(cost) for name, cost in header["costs"].items()}
        self.kills: dict[str, int] = {}
        self.functions: dict[tuple[str, int, str], list[Any]] = {}
        self.entered: dict[str, set[Any]] = {}
        self.ran: dict[str, set[int]] = {}
        self.quick: dict[str, Callable[[], object]] = {}
        self.verdicts: list[dict[str, Any]] = []
        self.leaked = False
        self.suites: dict[str, Any] = {}
        self.units: dict[str, Any] = {}
        self.patience = 1.0
        self.endless = 0

    # --- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._out_of_steps)
        for path, data in self.header["overlay"].items():
            self.overlay.put(path, base64.b64decode(data))
        if self.cold:
            for name in self.header["modules"]:
                self._preload(name)
            self._serve_ready()
        calls, collected = Lines(calls=True), []

        def ready() -> None:
            calls.__exit__()
            collected.append(True)
            self.entered = calls.found
            self._index()
            entered = {path: sorted(line for line, _ in places) for path, places in calls.found.items()}
            self._serve_ready(modules=self._foreign_modules(), entered=entered)

        calls.__enter__()
        try:
            self.suite.open(self.header["tests"], ready, self.header["whole"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever keeps tests from loading is reported
            self.suite.broken.append("".join(traceback.format_exception_only(type(error), error)))
        if not collected:
            self.channel.send(ready=False, errors=self.suite.broken[:5])

    def _preload(self, name: str) -> None:
        try:
            __import__(name)
        except (Exception, SystemExit):  # noqa: BLE001 - only a head start; the real import will say what is wrong
            return

    def _foreign_modules(self) -> list[str]:
        """Loaded modules that are not the project's own."""
        found = []
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and relative(file) is None and "codepilot" not in name:
                found.append(name)
        return found[:MAX_MODULES]

    def _index(self) -> None:
        """Every living function of the project, by file, first line and name; and the tests that are plain calls."""
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType:
                code = thing.__code__
                path = relative(code.co_filename)
                if path is not None:
                    self.functions.setdefault((path, code.co_firstlineno, code.co_name), []).append(thing)
        calls = {name: self.suite.quick(name) for name in self.suite.items}
        self.quick = {name: call for name, call in calls.items() if call is not None}

    def _serve_ready(self, **facts: Any) -> None:
        gc.collect()
        gc.freeze()
        self.channel.send(ready=True, tests=list(self.suite.items), errors=self.suite.broken[:5], **facts)
        stamps = self._stamps()
        while True:
            message = self.channel.read()
            if message is None:
                os._exit(0)
            if message["op"] == "trace":
                self.trace(message["tests"], set(message["alone"]), time.monotonic() + message["seconds"])
            elif message["op"] == "weigh":
                self.weigh(message)
            elif message["op"] == "compose":
                compose(self, message)
            else:
                self.attempt(message)
            self.channel.send(done=True, damaged=self._stamps() != stamps)

    def _stamps(self) -> dict[str, Any]:
        """What the loaded files of the project look like on disk: none of this may change while candidates run."""
        stamps: dict[str, Any] = {}
        for module in list(sys.modules.values()):
            path = getattr(module, "__file__", None)
            if path and relative(path) is not None:
                try:
                    status = os.stat(path)  # noqa: PTH116 - as the importer names it
                except OSError:
                    stamps[path] = None
                else:
                    stamps[path] = (status.st_size, status.st_mtime_ns, status.st_ino)
        return stamps

    # --- running tests ----------------------------------------------------------------------------------------

    def _out_of_steps(self, *_: object) -> None:
        raise Stop

    def limit(self, name: str) -> tuple[float, float]:
        """Processor seconds a test may use, and seconds after which it is taken for asleep."""
        cpu, wall = self.costs.get(name, (0.0, 0.0))
        floor, factor = FLOOR_SEC * self.patience, FACTOR if self.patience > 1.0 else HASTE
        return floor + factor * cpu, GRACE_SEC + 5 * (floor + factor * max(cpu, wall))

    def run(
        self, name: str, following: str | None = None, limit: float = 0.0, quick: Callable[[], object] | None = None
    ) -> tuple[str, BaseException | None]:
        """One test under its step budget: how it ended, and by which error."""
        signal.setitimer(signal.ITIMER_PROF, limit or self.limit(name)[0], 0.05)
        error: BaseException | None
        try:
            outcome, error = call(quick) if quick else self.suite.run(name, following)
        except Stop as stop:
            outcome, error = "timeout", stop
        except SystemExit as ended:
            outcome, error = "failed", ended
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return ("timeout" if isinstance(error, Stop) else outcome), error

    def trace(self, tests: list[str], alone: set[str], until: float) -> None:
        """Each test on the base: how it ends, what it costs, which lines it runs, where it fails.

        Those to be run `alone` get a child of their own: what others left in caches would hide lines. The rest is
        run as long as there is time.
        """
        waiting = [name for name in tests if name in self.suite.items]
        while waiting and (waiting[0] in alone or time.monotonic() < until):
            reported: list[str] = []

            def take(message: dict[str, Any], reported: list[str] = reported) -> None:
                self.guard.written.update(message.pop("written"))
                self.guard.forked = self.guard.forked or message.pop("forked")
                self.leaked = self.leaked or message.pop("stateful")
                # What ran until something broke says nothing about what the mended test needs.
                if message["exception"] in ("MemoryError", "RecursionError", "Stop"):
                    message.update(cpu=0.0, wall=0.0)
                self.costs[message["test"]] = (message["cpu"], message["wall"])
                for path, lines in message["lines"].items() if message["test"] in alone else ():
                    self.ran.setdefault(path, set()).update(lines)
                reported.append(message["test"])
                self.endless += message["exception"] == "Stop"
                self.channel.send(**message)

            self.children.run(functools.partial(self._trace_all, waiting, alone, until), take)
            if len(reported) < len(waiting) and not self.children.renewed:
                self.channel.send(test=waiting[len(reported)], outcome="died", cpu=0, wall=0, lines={}, frames=[])
                reported.append("")
            waiting = waiting[len(reported) :]

    def _trace_all(self, tests: list[str], alone: set[str], until: float, say: Say, folder: str) -> None:
        self.suite.private(folder)
        self.guard.arm(strict=False)
        for name in tests:
            if name not in alone and time.monotonic() > until:
                say(renew=True)
                return
            say(begin=3 * TRACE_SEC)
            begun = time.process_time()
            with Lines() as lines:
                first, error = self.run(name, limit=self._trace_limit(name))
            traced = time.process_time() - begun
            second, cpu, wall, stateful = first, 0.0, 0.0, False
            if first != "timeout":
                say(begin=3 * TRACE_SEC)
                cpu, wall = time.process_time(), time.monotonic()
                second, _ = self.run(name, limit=TRACE_SEC)
                cpu, wall = time.process_time() - cpu, time.monotonic() - wall
                stateful = name in alone and self._goes_another_way(name, lines.found, say)
                cpu, wall = max(cpu, traced / TRACE_COST), max(wall, traced / TRACE_COST)
            say(
                test=name,
                outcome=first if first == second else "unstable",
                cpu=cpu,
                wall=wall,
                lines={path: sorted(numbers) for path, numbers in lines.found.items()},
                written=sorted(self.guard.written),
                forked=self.guard.forked,
                stateful=stateful,
                **failure(error),
            )
            if "timeout" in (first, second) or name in alone:
                say(renew=True)
                return

    def _trace_limit(self, name: str) -> float:
        """Enough for what the test took in the suite; little where it never came to an end, as others did not."""
        if name in self.costs:
            return min(TRACE_SEC, UNKNOWN_SEC + TRACE_COST * 4 * self.costs[name][0])
        return ENDLESS_SEC if self.endless >= MANY else UNKNOWN_SEC

    def _goes_another_way(self, name: str, before: dict[str, set[Any]], say: Say) -> bool:
        """Whether the test runs other lines when it is run again: then something remembers, a cache perhaps."""
        say(begin=3 * TRACE_SEC)
        with Lines() as lines:
            self.run(name, limit=TRACE_SEC)
        return lines.found != before

    # --- trying candidates ------------------------------------------------------------------------------------

    def attempt(self, message: dict[str, Any]) -> None:
        """Each job is one candidate. Many share a child, unless the base shows that they leave traces in it."""
        waiting, chunk = list(message["jobs"]), message["chunk"]
        self.suites, self.units, self.patience = message["suites"], message["units"], message["patience"]
        while waiting:
            group = waiting[: 1 if self.cold or self.leaked else chunk]
            self._order(message["suites"].values())
            self.verdicts = []
            self.children.run(functools.partial(self._try_all, group), self._take)
            if self.leaked and len(group) > 1:
                continue
            chunk = min(2 * chunk, MAX_CHUNK) if chunk > 1 and len(self.verdicts) == len(group) else chunk
            if len(self.verdicts) < len(group) and not self.children.renewed:
                ending = "timeout" if self.children.killed else "died"
                self._take({"n": group[len(self.verdicts)]["n"], "verdict": ending, "test": None})
            self.channel.send(verdicts=self.verdicts)
            waiting = waiting[len(self.verdicts) :]

    def _order(self, suites: Any) -> None:
        """The tests that killed most are asked first."""
        for suite in suites:
            suite["others"].sort(key=lambda name: -self.kills.get(name, 0))

    def _take(self, message: dict[str, Any]) -> None:
        if "leaked" in message:
            self.leaked = True
            return
        if message["test"] is not None:
            self.kills[message["test"]] = self.kills.get(message["test"], 0) + 1
        self.verdicts.append(message)

    def _try_all(self, jobs: list[dict[str, Any]], say: Say, folder: str) -> None:
        self.guard.arm(strict=True)
        if self.cold:
            self._try_cold(jobs[0], say, folder)
            return
        self.suite.private(folder)
        stops = 0
        for job in jobs:
            old = self._swap(job)
            if isinstance(old, str):
                say(n=job["n"], verdict=old, test=None)
                continue
            verdict, test, spent, how = self._judge(job, say)
            for function, code in old:
                function.__code__ = code
            say(n=job["n"], verdict=verdict, test=test, **how)
            stops += verdict == "timeout"
            if spent or stops > MAX_STOPS:
                say(renew=True)
                return
        if len(jobs) > 1:
            self._check_base(jobs[-1], say)

    def _check_base(self, job: dict[str, Any], say: Say) -> None:
        """After many candidates in one process the base must still behave as it did, or state has leaked."""
        targets, others = self.suites[job["suite"]]["targets"], self.suites[job["suite"]]["others"]
        for name, wanted in [(targets[0], self.header["green"]), *((name, True) for name in others[:1])]:
            say(begin=self.limit(name)[1])
            if (self.run(name, quick=self.quick.get(name))[0] == "passed") is not wanted:
                say(leaked=True)

    def _judge(self, job: dict[str, Any], say: Say) -> tuple[str, str | None, bool, dict[str, Any]]:
        """The targets first, then the tests that killed most, then the rest; the first red one decides.

        The third value tells that the process is not fit for another candidate, the last how far it came.
        """
        suite = self.suites[job["suite"]]
        tests, targets, slow = [*suite["targets"], *suite["others"]], len(suite["targets"]), suite["slow"]
        if not tests or any(name not in self.suite.items for name in suite["targets"]):
            return "died", None, False, {}
        tests = [name for name in tests if name in self.suite.items]
        # Fixtures are shared between tests only where this child ends with the candidate.
        alone = targets + 1 if slow or not self.quick else len(tests)
        for index, name in enumerate(tests):
            say(begin=self.limit(name)[1])
            following = tests[index + 1] if alone <= index < len(tests) - 1 else None
            outcome, error = self.run(name, following, quick=None if slow else self.quick.get(name))
            if outcome == "timeout":
                return "timeout", name, name not in self.quick or slow, {"passed": index}
            if outcome != "passed":
                return "failed", name, index >= alone, {"passed": index, **reach(error)}
        return "passed", None, len(tests) > alone, {}

    def _swap(self, job: dict[str, Any]) -> str | list[tuple[Any, Any]]:
        """Put the candidate's code into the living functions; what was there before, or why it cannot be."""
        if "content" in job:
            return "cold"
        unit = self.units[job["unit"]]
        name = unit["qualname"].rpartition(".")[2]
        if (unit["line"], name) in self.entered.get(unit["path"], ()) and not self._swappable(job, unit):
            return "cold"
        living = self.functions.get((unit["path"], unit["line"], name))
        if not living:
            return "cold"
        try:
            code = compile_function(job, unit, living[0].__code__.co_filename)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return "invalid"
        if any(code.co_freevars != function.__code__.co_freevars for function in living):
            return "cold"
        old = [(function, function.__code__) for function in living]
        for function in living:
            function.__code__ = code
        return old

    def _swappable(self, job: dict[str, Any], unit: dict[str, Any]) -> bool:
        """Whether swapping tells enough of a function that ran while the project was loaded.

        It does for a first try if the targets run it as well. What is kept has to be loaded with it.
        """
        lines = range(unit["line"], unit["line"] + unit["segment"].count("\n") + 1)
        slow = job["suite"] in self.suites and self.suites[job["suite"]]["slow"]
        return not slow and not self.ran.get(unit["path"], set()).isdisjoint(lines)

    def weigh(self, message: dict[str, Any]) -> None:
        """Which examples hold with the candidate in place, and what it does on the tests' inputs and others."""
        self.units = message["units"]
        self.children.run(functools.partial(self._weigh, message), lambda said: self.channel.send(**said))

    def _weigh(self, message: dict[str, Any], say: Say, folder: str) -> None:
        self.guard.arm(strict=True)
        self.suite.private(folder)
        say(begin=GRACE_SEC * 4)
        unit = self.units[message["job"]["unit"]]
        living = self.functions.get((unit["path"], unit["line"], unit["qualname"].rpartition(".")[2]), [])
        quiet, wrong = (varied(self._calls(message[tests], living)) for tests in ("others", "targets"))
        before = outcomes(living[0], quiet) if living else []
        if living and not isinstance(self._swap(message["job"]), str):
            held = agreeing(message["examples"], living[0].__globals__)
            after = outcomes(living[0], quiet)
            name = digest([*after, *outcomes(living[0], wrong)])
            say(held=held, behaviour=name, **changes(before, after))

    def _calls(self, tests: list[str], living: list[Any]) -> list[tuple[Any, ...]]:
        """What the tests call the function with, on the base."""
        with Calls({function.__code__ for function in living}) as calls:
            for name in tests:
                self.run(name, limit=UNKNOWN_SEC, quick=self.quick.get(name))
        return calls.found

    def _try_cold(self, job: dict[str, Any], say: Say, folder: str) -> None:
        """The project loaded anew with one file replaced; only what its tests need is collected."""
        say(begin=self.header["load_sec"])
        self.overlay.put(job["path"], base64.b64decode(job["content"]))

        def ready() -> None:
            self.suite.private(folder)
            verdict, test, _, how = self._judge(job, say)
            say(n=job["n"], verdict=verdict, test=test, **how)
            os._exit(0)

        suite = self.suites[job["suite"]]
        self.suite.open([*suite["targets"], *suite["others"]], ready)
        say(n=job["n"], verdict="died", test=None)


def main() -> None:
    channel = Channel()
    header = channel.read()
    if header is not None:
        Worker(channel, header).start()
