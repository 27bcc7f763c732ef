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
from codepilot.sandbox import Limits, Process

_INSIDE = Path(__file__).with_name("inside")
_PARTS = ("watch", "suites", "children", "worker")
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
    """One candidate as the worker takes it: a function to swap, or a file to load anew."""

    number: int
    path: str
    selection: Selection
    content: bytes
    segment: str | None = None
    qualname: str = ""
    line: int = 0
    shift: int = 0
    future: tuple[str, ...] = ()

    def message(self, mode: Mode, suite: str) -> dict[str, Any]:
        shared = {"n": self.number, "path": self.path, "suite": suite}
        if mode == "cold" or self.segment is None:
            return {**shared, "content": base64.b64encode(self.content).decode()}
        swap = {"segment": self.segment, "qualname": self.qualname, "line": self.line, "shift": self.shift}
        return {**shared, **swap, "future": list(self.future)}


@dataclass(frozen=True)
class Ruling:
    """How a candidate ended. `reach` grows with how far it came: tests passed, then lines of the test that failed."""

    number: int
    outcome: Outcome
    test: str | None
    kind: str = ""
    reach: tuple[int, ...] = ()


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
    tick: Callable[[], None] = lambda: None
    """Called while waiting; may raise."""
    collected: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    entered: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """First lines of the functions that ran while the project was loaded."""

    def start(self, deadline: float) -> bool:
        """Whether the tests could be collected."""
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        left = max(1.0, deadline - time.monotonic())
        self._process: Process = self.executor.start_process(
            StartProcess(
                workspace=self.workspace,
                argv=(self.project.interpreter.executable, "-c", _BOOT),
                env=environment(self.project),
                limits=Limits(wall_sec=left + 60.0),
            )
        )
        threading.Thread(target=self._pump, args=(self._process.stdout, self._lines), daemon=True).start()
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
        }
        self._write(b"%08d" % len(code) + code + json.dumps(header).encode() + b"\n")
        message = self._read(deadline)
        self.collected = _strings(message.get("tests"))
        self.errors = _strings(message.get("errors"))
        self.loaded = _strings(message.get("modules"))
        self.entered = _lines(message.get("entered"))
        return message.get("ready") is True

    @staticmethod
    def _pump(stdout: BinaryIO, lines: queue.SimpleQueue[bytes | None]) -> None:
        """Move lines off the pipe until it ends or is closed."""
        try:
            while line := stdout.readline(_MAX_LINE):
                lines.put(line)
        except (OSError, ValueError):
            return
        finally:
            lines.put(None)

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

    def trace(self, tests: Sequence[str], alone: Sequence[str], deadline: float) -> Iterator[TestTrace]:
        """Run each test on the base; those named in `alone` in a process of their own."""
        self._write(json.dumps({"op": "trace", "tests": list(tests), "alone": list(alone)}).encode() + b"\n")
        while "done" not in (message := self._read(deadline)):
            yield _trace(message)

    def attempt(self, jobs: Sequence[Job], deadline: float, chunk: int = 24) -> Iterator[Ruling]:
        """One ruling for each job, in order, as they come. `chunk` jobs share a child where their state allows it."""
        selections = {job.selection: str(index) for index, job in enumerate(jobs)}
        suites = {key: {"targets": s.targets, "others": s.others, "slow": s.thorough} for s, key in selections.items()}
        messages = [job.message(self.mode, selections[job.selection]) for job in jobs]
        self._write(json.dumps({"op": "try", "jobs": messages, "suites": suites, "chunk": chunk}).encode() + b"\n")
        known = {job.number for job in jobs}
        while "done" not in (message := self._read(deadline)):
            number, outcome = message.get("n"), message.get("verdict")
            if isinstance(number, int) and number in known and outcome in _OUTCOMES:
                yield _ruling(number, outcome, message)
        if message.get("damaged") is True:
            raise WorkerLost("a candidate changed the project's files")

    def close(self) -> None:
        if hasattr(self, "_process"):
            self._process.kill()


def _ruling(number: int, outcome: Outcome, message: Mapping[str, Any]) -> Ruling:
    test, kind, lines = message.get("test"), message.get("kind"), message.get("lines")
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
