"""Trying candidates: warm and cold workers kept alive, restarted when lost, and the tree put back as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import Executor
from codepilot.project import Project
from codepilot.repair.client import UNKNOWN, Evidence, Job, Mode, Ruling, Worker, WorkerLost
from codepilot.repair.localise import TestTrace
from codepilot.repair.python.source import Unit

_MAX_LOSSES = 60
_WEIGH_SEC = 8.0
_AFTER_SEC = 1.0
"""What was asked for before the deadline may take this long after it."""
COLD_JOBS = 32
_TRACE_SHARE = 0.25
"""How much of the time that is left may go into watching tests that pass."""


class WorkersLost(CodePilotError):
    """So many workers were lost that it is of no use to start another."""


@dataclass
class Flight:
    """Jobs that are being judged."""

    jobs: Sequence[Job]
    patience: float
    worker: Worker | None = None

    @cached_property
    def warm(self) -> list[Job]:
        return [job for job in self.jobs if job.unit is not None]

    @property
    def ended(self) -> bool:
        """Whether what can be swapped has been judged."""
        return self.worker is None or self.worker.ended


@dataclass
class Trial:
    """Everything that runs inside for one search. Use as a context: whatever happens, the workspace is unchanged."""

    executor: Executor
    workspace: str
    project: Project
    tests: tuple[str, ...]
    deadline: float
    tick: Callable[[], None]
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    green: bool = False
    whole: bool = False
    durations: Mapping[str, float] = field(default_factory=dict)
    """Seconds that tests took in the suite, where they came to an end there."""
    places: int = 1
    """How many candidates may run at once."""
    losses: int = 0
    composed: int = 0
    """Programs that were tried while sketches were filled."""

    def __enter__(self) -> Trial:
        self._snapshot = self.executor.snapshot(self.workspace).snapshot
        self._workers: dict[Mode, Worker] = {}
        self._costs = {test: (seconds, seconds) for test, seconds in self.durations.items()}
        self._modules: tuple[str, ...] = ()
        self._load_sec = 60.0
        self._learned: Mapping[str, Any] = {}
        self._fallen: dict[tuple[tuple[str, ...], bool], frozenset[str]] = {}
        self.collected: tuple[str, ...] = ()
        self.entered: Mapping[str, frozenset[int]] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self.executor.restore(self.workspace, self._snapshot)

    def _worker(self, mode: Mode) -> Worker:
        worker = self._workers.get(mode)
        if worker is None:
            worker = Worker(self.executor, self.workspace, self.project, mode, self.tests)
            worker.overlay, worker.costs, worker.modules = self.overlay, self._costs, self._modules
            worker.files = tuple(self.entered)
            worker.green, worker.whole, worker.tick = self.green, self.whole, self.tick
            worker.load_sec, worker.places, worker.learned = self._load_sec, self.places, self._learned
            self._workers[mode] = worker
            if not worker.start(self.deadline):
                raise _cannot_start(worker)
        return worker

    def start(self) -> None:
        """Import the project and collect its tests."""
        begun = time.monotonic()
        try:
            worker = self._worker("warm")
        except WorkerLost as lost:
            raise CodePilotError(
                FailureKind.SUITE_CANNOT_START, f"The tests could not be loaded for the search: {lost}"
            ) from lost
        self.collected, self._modules = worker.collected, worker.loaded
        self.entered = worker.entered
        self._load_sec = 3.0 + 2 * (time.monotonic() - begun)

    def trace(self, tests: Sequence[str], alone: Sequence[str] = ()) -> list[TestTrace]:
        """What each test does on the base. A test that takes the worker with it is left out, as is one too many."""
        traces: dict[str, TestTrace] = {}
        until = time.monotonic() + _TRACE_SHARE * max(0.0, self.deadline - time.monotonic())
        waiting = list(tests)
        while waiting and time.monotonic() < self.deadline:
            try:
                for trace in self._worker("warm").trace(waiting, alone, self.deadline, until - time.monotonic()):
                    traces[trace.test] = trace
                self._learned = self._worker("warm").learned
                break
            except WorkerLost as lost:
                rest = [test for test in waiting if test not in traces][1:]
                self._lose(lost)
                # What watching the targets told is gone with the worker, and the others are watched by it.
                waiting = [*(test for test in alone if test in traces), *rest] if rest else []
        self._costs = {trace.test: (trace.cpu_sec, trace.wall_sec) for trace in traces.values()}
        return list(traces.values())

    def judge(self, jobs: Sequence[Job], patience: float = 1.0) -> dict[int, Ruling]:
        """A ruling for every job that time allowed; what cannot be swapped is loaded anew."""
        return self.finish(self.begin(jobs, patience))

    def begin(self, jobs: Sequence[Job], patience: float = 1.0) -> Flight:
        """Have the jobs judged while the caller does something else; `finish` must come before anything else here."""
        flight = Flight(jobs, patience)
        if flight.warm and time.monotonic() < self.deadline:
            try:
                flight.worker = self._worker("warm")
                flight.worker.post(flight.warm, patience=patience)
            except WorkerLost as lost:
                flight.worker = None
                self._lose(lost)
        return flight

    def finish(self, flight: Flight, anew: bool = True) -> dict[int, Ruling]:
        """The rulings. Without `anew`, what turns out to be impossible to swap is ruled `cold`."""
        rulings = self._attempt(flight.warm, "warm", flight.patience, flight.worker)
        cold = [job for job in flight.jobs if job.unit is None or (anew and _outcome(rulings, job) == "cold")]
        rulings.update(self._load_each([_targets_alone(job) for job in cold], flight.patience))
        halves = [job for job in cold if job.selection.targets and job.selection.others]
        passed = [job for job in halves if _outcome(rulings, job) == "passed"]
        rulings = {number: ruling for number, ruling in rulings.items() if number not in {job.number for job in passed}}
        rulings.update(self._load_each(passed, flight.patience))
        return rulings

    def confirm(self, job: Job, patience: float) -> Ruling | None:
        """The ruling of one candidate alone, in which others that fall without any change as well do not count.

        Some fall behind the targets, or need what a test left that was not asked.
        """
        ruling = self.judge([job], patience).get(job.number)
        if ruling is None or not ruling.fallen:
            return ruling
        others = replace(job, selection=replace(job.selection, targets=()))
        again = self.judge([others], patience).get(job.number)
        if again is None or again.outcome not in ("passed", "failed"):
            return again
        if again.outcome == "failed":
            base = self._fallen_on_base(others, patience)
            if base is None:
                return None
            if not again.fallen or not base.issuperset(again.fallen):
                return ruling
        return Ruling(job.number, "passed", None)

    def _fallen_on_base(self, job: Job, patience: float) -> frozenset[str] | None:
        """Which of the job's tests fall without its change; None if there was no time."""
        key = job.selection.others, job.unit is None
        if key not in self._fallen:
            ruling = self.judge([job.unchanged], patience).get(job.number)
            if ruling is None:
                return None
            self._fallen[key] = frozenset(ruling.fallen)
        return self._fallen[key]

    def _load_each(self, jobs: Sequence[Job], patience: float) -> dict[int, Ruling]:
        """A few at a time: each carries its whole file."""
        rulings: dict[int, Ruling] = {}
        for at in range(0, len(jobs), COLD_JOBS):
            rulings.update(self._attempt(jobs[at : at + COLD_JOBS], "cold", patience))
        return rulings

    def weigh(self, job: Job, promises: Sequence[tuple[str, str]]) -> Evidence:
        """What speaks for a candidate beside its tests; nothing, where it cannot be swapped or takes too long."""
        if job.unit is None:
            return Evidence()
        try:
            return self._worker("warm").weigh(job, promises, self._until(_WEIGH_SEC))
        except WorkerLost as lost:
            self._lose(lost)
            return UNKNOWN

    def _until(self, seconds: float) -> float:
        """When to stop waiting: little later than the search's own end."""
        return min(time.monotonic() + seconds, self.deadline + _AFTER_SEC)

    def compose(self, unit: Unit, request: Mapping[str, Any], seconds: float) -> list[tuple[int, str]]:
        """What fills the sketches of a function; what was found before a worker was lost still counts."""
        found: list[tuple[int, str]] = []
        try:
            worker = self._worker("warm")
            self.composed -= worker.composed
            try:
                for answer in worker.compose(unit, request, self._until(seconds + _WEIGH_SEC)):
                    found.append(answer)
            finally:
                self.composed += worker.composed
        except WorkerLost as lost:
            self._lose(lost)
        return found

    def _attempt(
        self, jobs: Sequence[Job], mode: Mode, patience: float, posted: Worker | None = None
    ) -> dict[int, Ruling]:
        rulings: dict[int, Ruling] = {}
        waiting, single = list(jobs), False
        while waiting and time.monotonic() < self.deadline:
            before = len(rulings)
            try:
                worker = posted or self._worker(mode)
                if posted is None:
                    worker.post(waiting, single, patience)
                for ruling in worker.answers(waiting, self.deadline):
                    rulings[ruling.number] = ruling
                break
            except WorkerLost as lost:
                posted = None
                self._lose(lost)
            waiting = [job for job in waiting if job.number not in rulings]
            if waiting and single and len(rulings) == before:
                # Alone in its child and first in line: this one took the worker with it.
                culprit = waiting.pop(0)
                rulings[culprit.number] = Ruling(culprit.number, "died", None)
            single = True
        return rulings

    def _lose(self, lost: WorkerLost) -> None:
        self.losses += 1
        self._restore()
        if self.losses > _MAX_LOSSES:
            raise WorkersLost(FailureKind.TOOL_FAILED, f"The repair worker was lost {self.losses} times: {lost}")


def _targets_alone(job: Job) -> Job:
    """The same candidate judged by its targets: their file alone is loaded soon, and most candidates end there."""
    return replace(job, selection=replace(job.selection, others=())) if job.selection.targets else job


def _outcome(rulings: Mapping[int, Ruling], job: Job) -> str:
    ruling = rulings.get(job.number)
    return ruling.outcome if ruling else ""


def _cannot_start(worker: Worker) -> CodePilotError:
    said = worker.errors[0] if worker.errors else worker.last_words()
    last = next((line for line in reversed(said.strip().splitlines()) if line.strip()), "no test was collected")
    return CodePilotError(
        FailureKind.SUITE_CANNOT_START,
        f"The tests could not be loaded for the search: {last.strip()}",
        log=said[-2000:],
    )
