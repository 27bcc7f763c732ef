"""Runs candidates: keeps warm and cold workers, restarts lost ones, and restores the workspace."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import Executor
from codepilot.project import Project
from codepilot.repair.backend import LanguageBackend
from codepilot.repair.edit import Unit
from codepilot.repair.localise import TestTrace
from codepilot.repair.messages import UNKNOWN, Evidence, Job, Mode, TrialResult
from codepilot.repair.worker import Worker, WorkerLost

_MAX_LOSSES = 60
_EXAMINE_SEC = 24.0
_SYNTHESIS_GRACE_SEC = 8.0
_AFTER_SEC = 1.0
"""How long after the deadline a request from before it may take."""
RELOAD_JOBS = 32
"""How many candidates one request holds that load the project anew: each carries its whole file."""
_TRACE_SHARE = 0.25
"""The share of the time left that tracing passing tests may take."""


class WorkersLost(CodePilotError):
    """So many workers were lost that another one is not started."""


@dataclass
class PendingTrial:
    """Jobs that are being tried."""

    jobs: Sequence[Job]
    patience: float
    worker: Worker | None = None

    @cached_property
    def warm(self) -> list[Job]:
        return [job for job in self.jobs if job.unit is not None]

    @property
    def finished(self) -> bool:
        """True if everything that can be swapped has been tried."""
        return self.worker is None or self.worker.finished


@dataclass
class Trial:
    """Everything that one search runs in the sandbox. A context manager: it leaves the workspace unchanged."""

    backend: LanguageBackend
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
    synthesised: int = 0
    """Programs that were tried while sketches were filled."""

    def __enter__(self) -> Trial:
        self._snapshot = self.executor.snapshot(self.workspace).snapshot
        self._workers: dict[Mode, Worker] = {}
        self._costs = {test: (seconds, seconds) for test, seconds in self.durations.items()}
        self._modules: tuple[str, ...] = ()
        self._load_sec = 60.0
        self._learned: Mapping[str, Any] = {}
        self._failed: dict[tuple[tuple[str, ...], bool], frozenset[str]] = {}
        self.collected: tuple[str, ...] = ()
        self.import_time: Mapping[str, frozenset[int]] = {}
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
            worker = Worker(self.backend, self.executor, self.workspace, self.project, mode, self.tests)
            worker.overlay, worker.costs, worker.modules = self.overlay, self._costs, self._modules
            worker.files = tuple(self.import_time)
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
            if time.monotonic() >= self.deadline:
                raise _no_time_to_load(time.monotonic() - begun) from lost
            raise CodePilotError(
                FailureKind.SUITE_CANNOT_START, f"The tests could not be loaded for the search: {lost}"
            ) from lost
        self.collected, self._modules = worker.collected, worker.loaded
        self.import_time = worker.import_time
        self._load_sec = 3.0 + 2 * (time.monotonic() - begun)

    def trace(self, tests: Sequence[str], alone: Sequence[str] = ()) -> list[TestTrace]:
        """Trace each test on the base. A test that ends the worker is left out, as are those there is no time for."""
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
                # What the worker learned from the targets is lost with it, and tracing the others depends on it.
                waiting = [*(test for test in alone if test in traces), *rest] if rest else []
        self._costs = {trace.test: (trace.cpu_sec, trace.wall_sec) for trace in traces.values()}
        return list(traces.values())

    def judge(self, jobs: Sequence[Job], patience: float = 1.0) -> dict[int, TrialResult]:
        """Results of all jobs that time allows; what cannot be swapped is loaded anew."""
        return self.finish(self.begin(jobs, patience))

    def begin(self, jobs: Sequence[Job], patience: float = 1.0) -> PendingTrial:
        """Start trying the jobs and return at once. `finish` must be the next call."""
        pending = PendingTrial(jobs, patience)
        if pending.warm and time.monotonic() < self.deadline:
            try:
                pending.worker = self._worker("warm")
                pending.worker.post(pending.warm, self.deadline, patience=patience)
            except WorkerLost as lost:
                pending.worker = None
                self._lose(lost)
        return pending

    def finish(self, pending: PendingTrial, reload: bool = True) -> dict[int, TrialResult]:
        """The results. Without `reload`, the outcome of what cannot be swapped is `reload`."""
        results = self._attempt(pending.warm, "warm", pending.patience, pending.worker)
        anew = [job for job in pending.jobs if job.unit is None or (reload and _outcome(results, job) == "reload")]
        results.update(self._load_each([_targets_alone(job) for job in anew], pending.patience))
        halves = [job for job in anew if job.selection.targets and job.selection.others]
        passed = [job for job in halves if _outcome(results, job) == "passed"]
        results = {number: result for number, result in results.items() if number not in {job.number for job in passed}}
        results.update(self._load_each(passed, pending.patience))
        return results

    def confirm(self, job: Job, patience: float) -> TrialResult | None:
        """Try one candidate alone. Tests besides the targets that fail without the change too do not count.

        Some fail behind the targets, or need what a test left behind that was not run.
        """
        result = self.judge([job], patience).get(job.number)
        if result is None or not result.failed:
            return result
        others = replace(job, selection=replace(job.selection, targets=()))
        again = self.judge([others], patience).get(job.number)
        if again is None or again.outcome not in ("passed", "failed"):
            return again
        if again.outcome == "failed":
            base = self._failed_on_base(others, patience)
            if base is None:
                return None
            if not again.failed or not base.issuperset(again.failed):
                return result
        return TrialResult(job.number, "passed", None)

    def _failed_on_base(self, job: Job, patience: float) -> frozenset[str] | None:
        """The job's tests that fail without its change; None if there was no time."""
        key = job.selection.others, job.unit is None
        if key not in self._failed:
            result = self.judge([job.unchanged], patience).get(job.number)
            if result is None:
                return None
            self._failed[key] = frozenset(result.failed)
        return self._failed[key]

    def _load_each(self, jobs: Sequence[Job], patience: float) -> dict[int, TrialResult]:
        results: dict[int, TrialResult] = {}
        for at in range(0, len(jobs), RELOAD_JOBS):
            results.update(self._attempt(jobs[at : at + RELOAD_JOBS], "cold", patience))
        return results

    def examine(self, job: Job, examples: Sequence[tuple[str, str]]) -> Evidence:
        """Evidence for a candidate in addition to its tests; none where it cannot be swapped or takes too long."""
        if job.unit is None:
            return Evidence()
        try:
            return self._worker("warm").examine(job, examples, self._until(_EXAMINE_SEC))
        except WorkerLost as lost:
            self._lose(lost)
            return UNKNOWN

    def _until(self, seconds: float) -> float:
        """When to stop waiting: little later than the search ends."""
        return min(time.monotonic() + seconds, self.deadline + _AFTER_SEC)

    def synthesise(self, unit: Unit, request: Mapping[str, Any], seconds: float) -> list[tuple[int, str]]:
        """Expressions that fill the sketches of a function; those found before a worker was lost count."""
        found: list[tuple[int, str]] = []
        try:
            worker = self._worker("warm")
            self.synthesised -= worker.synthesised
            try:
                for answer in worker.synthesise(unit, request, self._until(seconds + _SYNTHESIS_GRACE_SEC)):
                    found.append(answer)
            finally:
                self.synthesised += worker.synthesised
        except WorkerLost as lost:
            self._lose(lost)
        return found

    def _attempt(
        self, jobs: Sequence[Job], mode: Mode, patience: float, posted: Worker | None = None
    ) -> dict[int, TrialResult]:
        results: dict[int, TrialResult] = {}
        waiting, single = list(jobs), False
        while waiting and time.monotonic() < self.deadline:
            before = len(results)
            try:
                worker = posted or self._worker(mode)
                if posted is None:
                    worker.post(waiting, self.deadline, single, patience)
                for result in worker.results(waiting, self.deadline):
                    results[result.number] = result
                break
            except WorkerLost as lost:
                posted = None
                self._lose(lost)
            waiting = [job for job in waiting if job.number not in results]
            if waiting and single and len(results) == before:
                # Alone in its child and first in line: this one ended the worker.
                culprit = waiting.pop(0)
                results[culprit.number] = TrialResult(culprit.number, "died", None)
            single = True
        return results

    def _lose(self, lost: WorkerLost) -> None:
        self.losses += 1
        self._restore()
        if self.losses > _MAX_LOSSES:
            raise WorkersLost(FailureKind.TOOL_FAILED, f"The repair worker was lost {self.losses} times: {lost}")


def _targets_alone(job: Job) -> Job:
    """The same candidate with its targets only: their file is loaded sooner, and most candidates fail there."""
    return replace(job, selection=replace(job.selection, others=())) if job.selection.targets else job


def _outcome(results: Mapping[int, TrialResult], job: Job) -> str:
    result = results.get(job.number)
    return result.outcome if result else ""


def _no_time_to_load(seconds: float) -> CodePilotError:
    return CodePilotError(
        FailureKind.STUCK,
        f"Nothing was tried: the tests were not loaded in the {seconds:.0f} s that the search had.",
        "Name the failing test with --test, or give more time with --budget wall_sec=SECONDS.",
    )


def _cannot_start(worker: Worker) -> CodePilotError:
    text = worker.errors[0] if worker.errors else worker.last_words()
    last = next((line for line in reversed(text.strip().splitlines()) if line.strip()), "no test was collected")
    last = worker.backend.unparsed(text, worker.project) or last
    return CodePilotError(
        FailureKind.SUITE_CANNOT_START,
        f"The tests could not be loaded for the search: {last.strip()}",
        log=text[-2000:],
    )
