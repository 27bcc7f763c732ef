"""Distinguishing inputs: on them a repaired function does something else than before. Found by calling both.

One process answers one request. `find` notes the arguments that the tests give to the project's functions, varies them
a little, and calls each function as it is and as it is repaired. `check` evaluates calls as a test would write them.
Other repairs that pass the same tests are asked as well: where they disagree, the result is a guess.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import builtins
import copy
import functools
import gc
import inspect
import os
import signal
import sys
import time
import types
import unittest
from typing import Any

from .ambient import Here, World, move
from .behaviour import varied
from .calling import Channel, compile_text
from .coverage import Guard, relative
from .recorded_calls import Names, Outcome, Subject, as_source, bindings, differs, equal, mixed, raised_by, rebuilt
from .suites import PytestSuite, UnittestSuite
from .typed_inputs import random_inputs

MAX_SUBJECTS = 6
MAX_ROWS = 40
MAX_STOPS = 10
CALL_SEC = 0.1
CALL_WALL_SEC = 1.0
TEST_SEC = 2.0
MAX_DEPTH = 80
RECORD_SEC = 6.0
SPECIAL = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Stop(BaseException):
    """Something has used up its time."""


class Finder:
    def __init__(self, channel: Any, spec: dict[str, Any]) -> None:
        self.channel = channel
        self.spec = spec
        self.suite: Any = UnittestSuite() if spec["runner"] == "unittest" else PytestSuite()
        self.functions: dict[tuple[str, int, str], list[Any]] = {}
        self.by_code: dict[Any, Any] = {}
        self.edited: set[Any] = set()
        self.repaired: list[Any] = []
        self.methods = False
        self.subjects: dict[Any, Subject | None] = {}
        self.test_files: set[str | None] = set()
        self.names: Any = None
        self.tests: list[str] = []
        self.running = ""
        self.stops = 0

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._stop)
        signal.signal(signal.SIGALRM, self._stop)
        if self.spec["op"] == "check":
            self.check()
        self.suite.open(self.spec["tests"], self._ready)
        self.channel.send(reason="the failing test could not be loaded")

    def _stop(self, *_: object) -> None:
        raise Stop

    def _ready(self) -> None:
        self.tests = [name for name in self.spec["tests"] if name in self.suite.items]
        self.test_files = {relative(getattr(self._module(name), "__file__", None) or "") for name in self.tests}
        self._index()
        Guard().arm(strict=True)
        self.channel.send(**self.find())
        os._exit(0)

    def _module(self, name: str) -> Any:
        item = self.suite.items[name]
        if isinstance(item, unittest.TestCase):
            return sys.modules.get(type(item).__module__)
        return getattr(item, "module", None)

    def _place(self, name: str) -> dict[str, Any] | None:
        """The file and line of a test."""
        item, module = self.suite.items[name], self._module(name)
        case = isinstance(item, unittest.TestCase)
        owner = type(item) if case else getattr(item, "cls", None)
        function = item._testMethodName if case else getattr(getattr(item, "function", None), "__name__", None)
        file = relative(getattr(module, "__file__", None) or "")
        if file is None or function is None:
            return None
        return {
            "test": name,
            "file": file,
            "scope": getattr(owner, "__qualname__", ""),
            "name": function,
            "unittest": isinstance(owner, type) and issubclass(owner, unittest.TestCase),
        }

    def _neighbour(self, subject: Subject) -> str:
        """The test to write the new one next to: it calls the function, its file names it; a failing one first."""
        having = [
            name for name in self.tests if bindings(self._module(name), subject.function.__name__, subject.public)
        ]
        calling = [name for name in having if name in subject.callers]
        targets = set(self.spec["tests"][: self.spec["targets"]])
        first = [name for name in (*calling, *having) if name in targets]
        return (first or calling or self.tests)[0]

    def _index(self) -> None:
        for thing in gc.get_objects():
            if type(thing) is types.FunctionType:
                path = relative(thing.__code__.co_filename)
                if path is not None:
                    code = thing.__code__
                    self.functions.setdefault((path, code.co_firstlineno, code.co_name), []).append(thing)
                    self.by_code.setdefault(code, thing)
        for unit in self.spec["versions"][0]:
            functions = self.functions.get((unit["path"], unit["line"], unit["qualname"].rpartition(".")[2]), [])
            self.repaired += functions
            self.methods = self.methods or "." in unit["qualname"]

    # --- recording --------------------------------------------------------------------------------------------

    def find(self) -> dict[str, Any]:
        self._record_all()
        known = [subject for subject in self.subjects.values() if subject is not None and subject.seeds]
        subjects = [subject for subject in known if subject.reaches or subject.function in self.repaired]
        subjects.sort(key=lambda subject: subject.function not in self.repaired)
        for subject in subjects[:MAX_SUBJECTS]:
            neighbour = self._neighbour(subject)
            self.names = Names(self._module(neighbour), list(self.by_code.values()))
            place, rows = self._place(neighbour), self._rows(subject)
            if rows and place is not None:
                return {"place": place, "subject": self.names.described(subject), "path": sys.path, **rows}
        return {"reason": self._reason(subjects)}

    def _reason(self, subjects: list[Subject]) -> str:
        if self.stops >= MAX_STOPS:
            return "too many calls of the repaired function do not end in time"
        if any(function.__code__.co_flags & SPECIAL for function in self.repaired):
            return "the repair is in a generator or a coroutine, and no call with plain values shows the difference"
        if self.methods:
            return "the repair is in a method, and no call with plain values shows the difference"
        if subjects:
            return "no further input is known on which a call with plain values shows the difference"
        return "the repaired function is not called with values that can be written down"

    def _record_all(self) -> None:
        """Every call that the tests make once they pass: with the repair in place they come to their ends."""
        old, ends = self._swap(self.spec["versions"][0]), time.monotonic() + RECORD_SEC
        self.edited = {function.__code__ for function in self.repaired}
        self.by_code.update((function.__code__, function) for function in self.repaired)
        for number, name in enumerate(self.tests):
            if number < self.spec["targets"] or time.monotonic() < ends:
                self._record(name)
        for function, code in old:
            function.__code__ = code

    def _record(self, name: str) -> None:
        self.running = name
        sys.setprofile(self._event)
        try:
            self._timed(lambda: self.suite.run(name), TEST_SEC, 5 * TEST_SEC)
        finally:
            sys.setprofile(None)

    def _event(self, frame: Any, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        near = frame.f_back is not None and relative(frame.f_back.f_code.co_filename) in self.test_files
        if code not in self.subjects:
            if not near and code not in self.edited:
                return
            self.subjects[code] = self._subject(code)
        if code in self.edited:
            self._climb(frame)
        subject = self.subjects[code]
        if subject is not None:
            subject.note(frame)
            if near:
                subject.callers.add(self.running)

    def _climb(self, frame: Any) -> None:
        """Mark the callers of the repaired function: their results show what it does."""
        for _ in range(MAX_DEPTH):
            frame = frame.f_back
            if frame is None:
                return
            waiting = self.subjects.get(frame.f_code)
            if waiting is not None:
                waiting.reaches = True

    def _subject(self, code: Any) -> Subject | None:
        """The function of this code, if it is one of a module of the project and can be called by its name."""
        function = self.by_code.get(code)
        path = relative(code.co_filename)
        if function is None or path is None or path in self.test_files or code.co_flags & SPECIAL:
            return None
        public = vars(sys.modules.get(function.__module__, builtins)).get(function.__name__)
        if function.__qualname__ != function.__name__ or not callable(public):
            return None
        unwrapped = public
        while unwrapped is not function and hasattr(unwrapped, "__wrapped__"):
            unwrapped = unwrapped.__wrapped__
        return Subject(function, public) if unwrapped is function else None

    # --- calling ----------------------------------------------------------------------------------------------

    def _rows(self, subject: Subject) -> dict[str, Any]:
        """Inputs on which the repair differs, as source; inputs by type where none like the recorded ones does."""
        seeds = subject.seeds
        return self._distinguishing(subject, [*varied(seeds), *mixed(seeds), *rebuilt(seeds)]) or self._distinguishing(
            subject, random_inputs(subject.function, seeds)
        )

    def _distinguishing(self, subject: Subject, inputs: list[tuple[Any, ...]]) -> dict[str, Any]:
        """Those of the inputs, and of others near them, on which the repair differs; without those of the tests."""
        found = self._compared(subject, inputs)
        found += self._compared(subject, varied([values for _, values in found][:6]))
        rows: dict[str, dict[str, Any]] = {}
        names: dict[str, Any] = {}
        here = Here()
        for row, values in sorted(found, key=lambda pair: pair[0]["size"]):
            if repr(values) in subject.known or row["args"] in rows or here.named(row["args"], row.get("result", "")):
                continue
            if self.names.resolve(row, names):
                rows[row["args"]] = row
        return {"rows": list(rows.values())[:MAX_ROWS], "names": names} if rows else {}

    def _compared(self, subject: Subject, inputs: list[tuple[Any, ...]]) -> list[tuple[dict[str, Any], Any]]:
        before = [self._outcome(subject, values) for values in inputs]
        after, *others = [self._outcomes(subject, version, inputs) for version in self.spec["versions"]]
        found = []
        for at, values in enumerate(inputs if after else ()):
            row = self._row(subject, values, before[at], after[at], [one[at] for one in others if one])
            if row is not None:
                found.append((row, values))
        return found

    def _row(
        self, subject: Subject, values: tuple[Any, ...], before: Outcome, after: Outcome, others: list[Outcome]
    ) -> dict[str, Any] | None:
        try:
            if before.ended == "stopped" or not differs(before, after):
                return None
            return self._described(subject, values, after, others)
        except Exception:  # noqa: BLE001 - values that cannot be compared or shown tell nothing
            return None

    def _described(
        self, subject: Subject, values: tuple[Any, ...], after: Outcome, others: list[Outcome]
    ) -> dict[str, Any]:
        arguments = subject.arguments(values, as_source)
        row: dict[str, Any] = {
            "args": arguments,
            "against": sum(not after.same(other) for other in others),
            "others": len(others),
        }
        if after.ended == "returned":
            row["result"] = as_source(after.value)
        else:
            row["raises"] = type(after.value).__name__
        row["size"] = len(arguments) + len(row.get("result", ""))
        return row

    def _outcomes(self, subject: Subject, version: list[Any], inputs: list[tuple[Any, ...]]) -> list[Outcome]:
        old = self._swap(version)
        try:
            return [self._outcome(subject, values) for values in inputs] if old else []
        finally:
            for function, code in old:
                function.__code__ = code

    def _swap(self, version: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
        """Put other code into the function objects. Returns the old code; nothing where it cannot be done."""
        swaps = []
        for unit in version:
            functions = self.functions.get((unit["path"], unit["line"], unit["qualname"].rpartition(".")[2]), [])
            try:
                code = compile_text(unit["segment"], unit, functions[0].__code__.co_filename)
            except (SyntaxError, ValueError, RecursionError, MemoryError, IndexError, StopIteration):
                return []
            if any(code.co_freevars != function.__code__.co_freevars for function in functions):
                return []
            swaps += [(function, code) for function in functions]
        old = [(function, function.__code__) for function, _ in swaps]
        for function, code in swaps:
            function.__code__ = code
        return old

    def _outcome(self, subject: Subject, values: tuple[Any, ...]) -> Outcome:
        if self.stops >= MAX_STOPS:
            return Outcome("stopped", None)
        try:
            given = copy.deepcopy(values)
        except Exception:  # noqa: BLE001 - objects of the project's may refuse to be copied
            return Outcome("stopped", None)
        return self._timed(functools.partial(subject.call, given), CALL_SEC, CALL_WALL_SEC, subject)

    def _timed(self, action: Any, cpu: float, wall: float, subject: Subject | None = None) -> Outcome:
        signal.setitimer(signal.ITIMER_PROF, cpu)
        signal.setitimer(signal.ITIMER_REAL, wall)
        try:
            value = action()
            return Outcome("returned" if not hasattr(value, "__next__") else "stopped", value)
        except MemoryError:
            return Outcome("stopped", None)
        except Exception as error:  # noqa: BLE001 - how it ends is what is asked
            return Outcome("raised", error, raised_by(error, {function.__code__ for function in self.repaired}))
        except BaseException:  # noqa: BLE001 - out of time, or an end of the whole process
            self.stops += subject is not None
            return Outcome("stopped", None)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)

    # --- checking ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Which of the cases, each evaluated as a test would, hold after the repair, in two orders, and not before.

        Without the runner, so that it is quick enough to be done under several hash seeds.
        """
        move()
        sys.path[:] = self.spec["path"]
        names = {}
        for name, module in self.spec["names"].items():
            try:
                if module not in sys.modules:
                    __import__(module)
                names[name] = getattr(sys.modules[module], name)
            except Exception:  # noqa: BLE001 - code of the project runs when it is imported
                self.channel.send(reason=module + " cannot be imported by itself, without the tests")
                os._exit(0)
        self._index()
        Guard().arm(strict=True)
        world, cases = World(), self.spec["cases"]
        before = [self._holds(case, names, world) for case in cases]
        old = self._swap(self.spec["versions"][0])
        after = [self._holds(case, names, world) for case in cases]
        again = [self._holds(case, names, world) for case in reversed(cases)][::-1]
        held = [was is False and now is True and then is True for was, now, then in zip(before, after, again)]  # noqa: B905
        self.channel.send(held=[bool(old) and one for one in held])
        os._exit(0)

    def _holds(self, case: dict[str, Any], names: dict[str, Any], world: World) -> bool | None:
        """None if it does not come to an end, or asks for more than its arguments."""
        with world:
            outcome = self._timed(lambda: eval(case["call"], dict(names)), 10 * CALL_SEC, 5 * CALL_WALL_SEC)
        if world.asked:
            return None
        if outcome.ended == "stopped":
            return None
        if "raises" in case:
            expected = eval(case["raises"], dict(names))
            return outcome.ended == "raised" and type(outcome.value) is expected
        if outcome.ended == "raised":
            return False
        try:
            expected = eval(case["result"], dict(names))
            return type(outcome.value) is type(expected) and equal(outcome.value, expected)
        except Exception:  # noqa: BLE001 - what cannot be compared does not hold
            return None


def main() -> None:
    channel = Channel()
    spec = channel.read()
    if spec is not None:
        Finder(channel, spec).start()
