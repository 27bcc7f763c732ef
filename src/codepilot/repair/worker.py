"""The host's end of a worker inside the sandbox. Everything it says is read as hostile input."""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from codepilot.executor import Executor, StartProcess
from codepilot.project import Project, environment
from codepilot.repair.localise import TestTrace
from codepilot.repair.source import Edit, Source, Unit
from codepilot.sandbox import Limits, Process

_INSIDE = Path(__file__).with_name("inside")
_PARTS = (
    *("watch", "running", "evidence", "suites", "children", "steps", "forms", "bank", "holes", "compose"),
    *("ground", "swapping", "tracing", "trying", "weighing", "worker"),
)
_BOOT = """import os, sys
if "" in sys.path:
    sys.path.remove("")
import json, types
def take(n):
    data = b""
    while len(data) < n:
        piece = os.read(0, n - len(data))
        if not piece:
            raise SystemExit(1)
        data += piece
    return data
for name, code in json.loads(take(int(take(8)))):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(code, "<" + name + ">", "exec"), module.__dict__)
sys.path.insert(0, os.getcwd())
module.main()
"""
"""Loads the worker's parts from standard input, before the project's own files can be taken for the library's."""
_MAX_LINE = 32 << 20
TICK = 0.2
Mode = Literal["warm", "cold"]
Outcome = Literal["passed", "failed", "timeout", "died", "invalid", "cold"]
_OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "timeout", "died", "invalid", "cold")


class WorkerLost(Exception):
    """The worker ended or fell silent; what it had reported before still holds."""


@dataclass(frozen=True)
class Selection:
    """The tests that judge a candidate: targets first, then those it must not break."""

    targets: tuple[str, ...]
    others: tuple[str, ...] = ()
    thorough: bool = False
    """Run them exactly as the project's runner would, even where a plain call gives the same sooner."""


@dataclass(frozen=True)
class Job:
    """One candidate as the worker takes it: an edit of a function to swap, or (without one) a file to load anew."""

    number: int
    source: Source
    edit: Edit
    selection: Selection
    unit: Unit | None = None

    @property
    def content(self) -> bytes | None:
        """The whole file with the edit made; None if its encoding has no way to write it."""
        return self.source.apply(self.edit)

    def message(self, mode: Mode, suite: str, unit: str) -> dict[str, Any]:
        shared = {"n": self.number, "suite": suite}
        if mode == "cold" or self.unit is None:
            content = self.content or b""
            return {**shared, "path": self.source.path, "content": base64.b64encode(content).decode()}
        start, end = self.unit.place(self.edit)
        return {**shared, "unit": unit, "start": start, "end": end, "text": self.edit.replacement}


def _described(unit: Unit) -> dict[str, Any]:
    """What the worker must know of a function to put another in its place."""
    return {
        "path": unit.source.path,
        "segment": unit.segment(),
        "body": unit.body_place,
        "qualname": unit.qualname,
        "line": unit.first_line,
        "shift": unit.line_shift,
        "future": list(unit.source.future),
    }


@dataclass(frozen=True)
class Ruling:
    """How a candidate ended. `reach` grows with how far it came: tests passed, then lines of the test that failed."""

    number: int
    outcome: Outcome
    test: str | None
    kind: str = ""
    reach: tuple[int, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What speaks for a candidate beside its tests."""

    promised: int = 0
    """Examples that the documentation gives."""
    held: int = 0
    behaviour: str = ""
    """The same for candidates that do the same on further inputs; empty if that is not known."""
    kept: float = 1.0
    """The share of inputs like those of passing tests on which it does what was done before."""
    broken: float = 0.0
    """The share of those on which it fails by a slip where there was a result before."""


@dataclass
class Worker:
    """One process inside, warm (everything imported) or cold (everything imported anew for each job)."""

    executor: Executor
    workspace: str
    project: Project
    mode: Mode
    tests: Sequence[str]
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    costs: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    modules: Sequence[str] = ()
    load_sec: float = 60.0
    """How long loading the project anew may take."""
    green: bool = False
    """Whether the targets pass on the base, as they do when the strength of tests is measured."""
    whole: bool = False
    """Whether to collect everything in the files of the tests."""
    places: int = 1
    """How many candidates may run at once."""
    tick: Callable[[], None] = lambda: None
    """Called while waiting; may raise."""
    composed: int = 0
    """Programs that were tried while sketches were filled."""
    collected: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    entered: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """First lines of the functions that ran while the project was loaded."""

    def start(self, deadline: float) -> bool:
        """Whether the tests could be collected."""
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ended = threading.Event()
        left = max(1.0, deadline - time.monotonic())
        self._process: Process = self.executor.start_process(
            StartProcess(
                workspace=self.workspace,
                argv=(self.project.interpreter.executable, "-c", _BOOT),
                env=environment(self.project),
                limits=Limits(wall_sec=left + 60.0, cpus=float(self.places)),
            )
        )
        threading.Thread(target=self._pump, args=(self._process.stdout, self._lines, self._ended), daemon=True).start()
        names = [f"codepilot_repair_{part}" for part in _PARTS]
        code = json.dumps([(name, (_INSIDE / f"{name}.py").read_text("utf-8")) for name in names]).encode()
        header = {
            "mode": self.mode,
            "runner": self.project.runner,
            "tests": list(self.tests),
            "overlay": {path: base64.b64encode(data).decode() for path, data in self.overlay.items()},
            "costs": {name: list(cost) for name, cost in self.costs.items()},
            "modules": list(self.modules),
            "green": self.green,
            "load_sec": self.load_sec,
            "whole": self.whole,
            "places": self.places,
        }
        self._write(b"%08d" % len(code) + code + json.dumps(header).encode() + b"\n")
        message = self._read(deadline)
        self.collected = _strings(message.get("tests"))
        self.errors = _strings(message.get("errors"))
        self.loaded = _strings(message.get("modules"))
        self.entered = _lines(message.get("entered"))
        return message.get("ready") is True

    @staticmethod
    def _pump(stdout: BinaryIO, lines: queue.SimpleQueue[bytes | None], ended: threading.Event) -> None:
        """Move lines off the pipe until it ends or is closed."""
        try:
            while line := stdout.readline(_MAX_LINE):
                lines.put(line)
                if line.startswith(b'{"done"'):
                    ended.set()
        except (OSError, ValueError):
            return
        finally:
            lines.put(None)
            ended.set()

    def _write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise WorkerLost(self.last_words()) from error

    def _read(self, deadline: float) -> dict[str, Any]:
        line = self._next_line(deadline)
        if line is None:
            raise WorkerLost(self.last_words())
        try:
            message = json.loads(line)
        except ValueError:
            raise WorkerLost("it said something that is not JSON") from None
        if not isinstance(message, dict):
            raise WorkerLost("it said something that is not a message")
        return message

    def _next_line(self, deadline: float) -> bytes | None:
        while (left := deadline - time.monotonic()) > 0:
            try:
                return self._lines.get(timeout=min(left, TICK))
            except queue.Empty:
                self.tick()
        raise WorkerLost("it did not answer in time")

    def last_words(self) -> str:
        limit = self._process.limit
        tail = self._process.stderr_tail().decode("utf-8", "replace").strip()
        return f"it went over the {limit} limit" if limit else (tail[-2000:] or "it ended without a word")

    def trace(self, tests: Sequence[str], alone: Sequence[str], deadline: float, seconds: float) -> Iterator[TestTrace]:
        """Run each test on the base: those named in `alone` each by itself, the others while there is time."""
        request = {"op": "trace", "tests": list(tests), "alone": list(alone), "seconds": seconds}
        self._write(json.dumps(request).encode() + b"\n")
        while "done" not in (message := self._read(deadline)):
            yield _trace(message)

    def post(self, jobs: Sequence[Job], single: bool = False, patience: float = 1.0) -> None:
        """Have the jobs tried; `answers` tells how they ended. With `single`, one after the other, each by itself.

        `patience` multiplies the time after which a candidate is taken for endless.
        """
        selections = {job.selection: str(index) for index, job in enumerate(jobs)}
        suites = {key: {"targets": s.targets, "others": s.others, "slow": s.thorough} for s, key in selections.items()}
        units = {id(job.unit): job.unit for job in jobs if job.unit is not None and self.mode == "warm"}
        request = {
            "op": "try",
            "jobs": [job.message(self.mode, selections[job.selection], str(id(job.unit))) for job in jobs],
            "suites": suites,
            "units": {str(key): _described(unit) for key, unit in units.items()},
            "single": single,
            "patience": patience,
        }
        self._ended.clear()
        self._write(json.dumps(request).encode() + b"\n")

    @property
    def ended(self) -> bool:
        """Whether it has done what it was asked for, and waits."""
        return self._ended.is_set()

    def answers(self, jobs: Sequence[Job], deadline: float) -> Iterator[Ruling]:
        """One ruling for each of the posted jobs, as they come."""
        known = {job.number for job in jobs}
        while "done" not in (message := self._read(deadline)):
            verdicts = message.get("verdicts")
            for verdict in verdicts if isinstance(verdicts, list) else ():
                ruling = _ruling(verdict)
                if ruling is not None and ruling.number in known:
                    yield ruling
        if message.get("damaged") is True:
            raise WorkerLost("a candidate changed the project's files")

    def weigh(self, job: Job, promises: Sequence[tuple[str, str]], deadline: float) -> Evidence:
        """The documentation's examples, and what the candidate does on inputs that no test has."""
        assert job.unit is not None
        request = {
            "op": "weigh",
            "job": job.message("warm", "", "0"),
            "units": {"0": _described(job.unit)},
            "targets": list(job.selection.targets[:3]),
            "others": list(job.selection.others[:12]),
            "examples": [list(promise) for promise in promises],
        }
        self._write(json.dumps(request).encode() + b"\n")
        found = Evidence()
        while "done" not in (message := self._read(deadline)):
            found = Evidence(
                min(len(promises), int(_number(message.get("promised")))),
                int(_number(message.get("held"))),
                str(message.get("behaviour", "")),
                _share(message.get("kept")),
                _share(message.get("broken")),
            )
        return found

    def compose(self, unit: Unit, request: Mapping[str, Any], deadline: float) -> Iterator[tuple[int, str]]:
        """Expressions that fill the request's sketches, each with the number of its sketch."""
        asked = {**request, "op": "compose", "unit": "0", "units": {"0": _described(unit)}}
        self._write(json.dumps(asked).encode() + b"\n")
        while "done" not in (message := self._read(deadline)):
            self.composed += int(_number(message.get("ran")))
            sketch, text = message.get("sketch"), message.get("text")
            if isinstance(sketch, int) and isinstance(text, str):
                yield sketch, text

    def close(self) -> None:
        if hasattr(self, "_process"):
            self._process.kill()


def _ruling(message: object) -> Ruling | None:
    if not isinstance(message, dict):
        return None
    number, outcome, test = message.get("n"), message.get("verdict"), message.get("test")
    kind, lines = message.get("kind"), message.get("lines")
    if not isinstance(number, int) or outcome not in _OUTCOMES:
        return None
    reach = [message.get("passed"), *(lines if isinstance(lines, list) else ())]
    return Ruling(
        number,
        outcome,
        test if isinstance(test, str) else None,
        kind if isinstance(kind, str) else "",
        tuple(place for place in reach if isinstance(place, int)),
    )


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _share(value: object) -> float:
    return min(1.0, max(0.0, _number(value)))


def _lines(value: object) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for path, numbers in value.items() if isinstance(value, dict) else ():
        if isinstance(numbers, list):
            found[str(path)] = frozenset(number for number in numbers if isinstance(number, int))
    return found


def _trace(message: Mapping[str, Any]) -> TestTrace:
    frames = message.get("frames")
    places = [place for place in frames if isinstance(place, list) and len(place) == 2] if frames else []
    return TestTrace(
        test=str(message.get("test")),
        outcome=str(message.get("outcome")),
        cpu_sec=_number(message.get("cpu")),
        wall_sec=_number(message.get("wall")),
        lines=_lines(message.get("lines")),
        exception=str(message.get("exception", "")),
        message=str(message.get("message", "")),
        frames=tuple((str(path), int(line)) for path, line in places if isinstance(line, int)),
    )
