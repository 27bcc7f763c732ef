"""The host's end of a worker inside the sandbox. Everything it says is read as hostile input."""

from __future__ import annotations

import base64
import contextlib
import json
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from codepilot.executor import Executor, StartProcess
from codepilot.project import Project, environment
from codepilot.repair.localise import TestTrace
from codepilot.repair.python.bootstrap import BOOT, WORKER, bundle
from codepilot.repair.python.source import Edit, Source, Unit
from codepilot.repair.wire import (
    Garbled,
    Outflow,
    count,
    message,
    number,
    numbered_lines,
    numbered_ways,
    places,
    share,
    strings,
    text,
    wholes,
)
from codepilot.sandbox import Limits, Process

_MAX_ANSWER = 256 << 20
"""Bytes that may answer one request."""
_MAX_REACH = 8
_MAX_FALLEN = 100
_MAX_NAME, _MAX_BEHAVIOUR = 200, 64
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
    cheap: tuple[str, ...] = ()
    """The others again, cheapest first, where their cost is known."""

    def few(self, count: int) -> list[str]:
        """The cheapest of the others, in their order."""
        chosen = set((self.cheap or self.others)[:count])
        return [test for test in self.others if test in chosen]


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

    @property
    def unchanged(self) -> Job:
        """The same tests without any change."""
        at = self.unit.end if self.unit else 0
        return replace(self, edit=Edit(at, at, "", ""))

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
    fallen: tuple[str, ...] = ()
    """All tests besides the targets that failed, where that is known."""


@dataclass(frozen=True)
class Evidence:
    """What speaks for a candidate beside its tests."""

    promised: int = 0
    """Examples that the documentation gives."""
    held: int = 0
    behaviour: str = ""
    """The same for candidates that do the same on further inputs; empty if that is not known."""
    kept: float = 1.0
    """The share of inputs like those of passing tests, if answered before, that it answers alike."""
    broken: float = 0.0
    """The share of those on which it fails by a slip where there was a result before."""
    slips: float = 0.0
    """The share of inputs like those of the failing tests on which it fails by a slip."""
    retyped: float = 0.0
    """The share of results that are of another type than the annotation and all results before."""


UNKNOWN = Evidence(kept=0.0)
"""Where a candidate ended what was to weigh it: nothing speaks for it then."""


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
    files: Sequence[str] = ()
    """What of the project is loaded, for workers that load it anew."""
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
    learned: Mapping[str, Any] = field(default_factory=dict)
    """What watching the tests told a worker: handed to others as it is, and never read here."""

    def start(self, deadline: float) -> bool:
        """Whether the tests could be collected."""
        left = max(1.0, deadline - time.monotonic())
        self._heard, self._damaged = 0, False
        self._process: Process = self.executor.start_process(
            StartProcess(
                workspace=self.workspace,
                argv=(self.project.interpreter.executable, "-c", BOOT),
                env=environment(self.project),
                limits=Limits(wall_sec=left + 60.0, cpus=float(self.places)),
            )
        )
        self._outflow = Outflow(self._process.stdout, self._process.kill)
        header = {
            "mode": self.mode,
            "runner": self.project.runner,
            "tests": list(self.tests),
            "overlay": {path: base64.b64encode(data).decode() for path, data in self.overlay.items()},
            "costs": {name: list(cost) for name, cost in self.costs.items()},
            "modules": list(self.modules),
            "files": list(self.files),
            "green": self.green,
            "load_sec": self.load_sec,
            "whole": self.whole,
            "places": self.places,
            "learned": dict(self.learned),
        }
        self._write(bundle(WORKER) + json.dumps(header).encode() + b"\n")
        return self._told(deadline)

    def _told(self, deadline: float) -> bool:
        """Take what it says of the project; whether it is ready."""
        with _understood():
            told = self._read(deadline)
            self.collected = strings(told.get("tests"))
            self.errors = strings(told.get("errors"))
            self.loaded = strings(told.get("modules"))
            self.entered = numbered_lines(told.get("entered"))
        return told.get("ready") is True

    def _ask(self, request: Mapping[str, Any]) -> None:
        self._heard = 0
        self._write(json.dumps(request).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise WorkerLost(self.last_words()) from error

    def _said(self, deadline: float) -> Iterator[dict[str, Any]]:
        """What answers the request, up to its end."""
        while "done" not in (said := self._read(deadline)):
            yield said
        self._damaged = said.get("damaged") is True
        learned = said.get("learned")
        self.learned = learned if isinstance(learned, dict) else self.learned

    def _read(self, deadline: float) -> dict[str, Any]:
        line = self._next_line(deadline)
        if line is None:
            raise WorkerLost("it flooded the host" if self._outflow.flooded else self.last_words())
        self._heard += len(line)
        if self._heard > _MAX_ANSWER:
            raise WorkerLost("it said more than can be an answer")
        return message(line)

    def _next_line(self, deadline: float) -> bytes | None:
        while (left := deadline - time.monotonic()) > 0:
            self.tick()
            try:
                return self._outflow.get(min(left, TICK))
            except queue.Empty:
                continue
        raise WorkerLost("it did not answer in time")

    def last_words(self) -> str:
        limit = self._process.limit
        tail = self._process.stderr_tail().decode("utf-8", "replace").strip()
        return f"it went over the {limit} limit" if limit else (tail[-2000:] or "it ended without a word")

    def trace(self, tests: Sequence[str], alone: Sequence[str], deadline: float, seconds: float) -> Iterator[TestTrace]:
        """Run each test on the base: those named in `alone` each by itself, the others while there is time."""
        request = {"op": "trace", "tests": list(tests), "alone": list(alone), "seconds": seconds}
        self._ask(request)
        asked = set(tests)
        with _understood():
            for said in self._said(deadline):
                trace = trace_of(said)
                if trace.test in asked:
                    yield trace

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
        self._outflow.idle.clear()
        self._ask(request)

    @property
    def ended(self) -> bool:
        """Whether it has done what it was asked for, and waits."""
        return self._outflow.idle.is_set()

    def answers(self, jobs: Sequence[Job], deadline: float) -> Iterator[Ruling]:
        """One ruling for each of the posted jobs, as they come."""
        known = {job.number for job in jobs}
        with _understood():
            for said in self._said(deadline):
                for ruling in rulings_of(said):
                    if ruling.number in known:
                        yield ruling
        if self._damaged:
            raise WorkerLost("a candidate changed the project's files")

    def weigh(self, job: Job, promises: Sequence[tuple[str, str]], deadline: float) -> Evidence:
        """The documentation's examples, and what the candidate does on inputs that no test has."""
        assert job.unit is not None
        request = {
            "op": "weigh",
            "job": job.message("warm", "", "0"),
            "units": {"0": _described(job.unit)},
            "targets": list(job.selection.targets[:3]),
            "others": job.selection.few(12),
            "examples": [list(promise) for promise in promises],
        }
        self._ask(request)
        found = UNKNOWN
        with _understood():
            for said in self._said(deadline):
                found = evidence_of(said, len(promises))
        return found

    def compose(self, unit: Unit, request: Mapping[str, Any], deadline: float) -> Iterator[tuple[int, str]]:
        """Expressions that fill the request's sketches, each with the number of its sketch."""
        asked = {**request, "op": "compose", "unit": "0", "units": {"0": _described(unit)}}
        self._ask(asked)
        with _understood():
            for said in self._said(deadline):
                self.composed += count(said.get("ran"))
                if "sketch" in said:
                    yield count(said["sketch"]), text(said.get("text"))

    def close(self) -> None:
        if hasattr(self, "_process"):
            self._process.kill()


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """Whatever cannot be understood is the same as silence."""
    try:
        yield
    except Garbled as error:
        raise WorkerLost(str(error)) from error


def rulings_of(said: Mapping[str, Any]) -> Iterator[Ruling]:
    verdicts = said.get("verdicts")
    for verdict in verdicts if isinstance(verdicts, list) else ():
        if not isinstance(verdict, dict) or verdict.get("verdict") not in _OUTCOMES:
            raise Garbled("it gave a verdict that is none")
        reach = [count(verdict.get("passed")), *wholes(verdict.get("lines"))] if "passed" in verdict else []
        yield Ruling(
            count(verdict.get("n")),
            verdict["verdict"],
            text(verdict.get("test")) or None,
            text(verdict.get("kind"), _MAX_NAME),
            tuple(reach[:_MAX_REACH]),
            strings(verdict.get("fallen"))[:_MAX_FALLEN] if verdict["verdict"] == "failed" else (),
        )


def evidence_of(said: Mapping[str, Any], asked: int) -> Evidence:
    promised = count(said.get("promised"), asked)
    return Evidence(
        promised,
        count(said.get("held"), promised),
        text(said.get("behaviour"), _MAX_BEHAVIOUR),
        share(said.get("kept")),
        share(said.get("broken")),
        share(said.get("slips")),
        share(said.get("retyped")),
    )


def trace_of(said: Mapping[str, Any]) -> TestTrace:
    return TestTrace(
        test=text(said.get("test")),
        outcome=text(said.get("outcome"), _MAX_NAME),
        cpu_sec=number(said.get("cpu")),
        wall_sec=number(said.get("wall")),
        lines=numbered_lines(said.get("lines")),
        ways=numbered_ways(said.get("ways")),
        exception=text(said.get("exception"), _MAX_NAME),
        message=text(said.get("message")),
        frames=places(said.get("frames")),
    )
