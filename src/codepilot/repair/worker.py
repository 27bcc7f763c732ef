"""The host's side of a worker process inside the sandbox."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codepilot.executor import Executor, StartProcess
from codepilot.project import Project, environment
from codepilot.repair.backend import LanguageBackend
from codepilot.repair.edit import Unit
from codepilot.repair.localise import TestTrace
from codepilot.repair.messages import (
    UNKNOWN,
    Evidence,
    Job,
    Mode,
    TrialResult,
    by_path,
    count,
    evidence_of,
    results_of,
    strings,
    text,
    trace_of,
    wholes,
)
from codepilot.sandbox import JsonLinesClient, Limits, Process, ProcessEnded, ProtocolError

MAX_LINE = 32 << 20
MAX_UNREAD = 64 << 20
_MAX_ANSWER = 256 << 20


class WorkerLost(Exception):
    """The worker ended, fell silent or broke the protocol; what it had reported before still holds."""


@dataclass
class Worker:
    """One process inside, warm (everything imported once) or cold (everything imported anew for each job)."""

    backend: LanguageBackend
    executor: Executor
    workspace: str
    project: Project
    mode: Mode
    tests: Sequence[str]
    overlay: Mapping[str, bytes] = field(default_factory=dict)
    """Contents that stand in for files of the workspace."""
    costs: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Processor and wall seconds of tests."""
    modules: Sequence[str] = ()
    """Installed modules that the project imports, for workers that load it anew."""
    files: Sequence[str] = ()
    """Files of the project that are loaded."""
    load_sec: float = 60.0
    """How long loading the project anew may take."""
    green: bool = False
    """True if the targets pass on the base, as they do in mutation testing."""
    whole: bool = False
    """Whether to collect everything in the files of the tests."""
    places: int = 1
    """How many candidates may run at once."""
    tick: Callable[[], None] = lambda: None
    """Called while waiting; may raise."""
    synthesised: int = 0
    """Programs that were tried while sketches were filled."""
    collected: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    import_time: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """First lines of the functions that ran while the project was imported."""
    learned: Mapping[str, Any] = field(default_factory=dict)
    """A worker's knowledge from tracing the tests, passed on to other workers unread."""

    def start(self, deadline: float) -> bool:
        """True if the tests could be collected."""
        left = max(1.0, deadline - time.monotonic())
        self._damaged = False
        argv, program = self.backend.worker_command(self.project)
        self._process: Process = self.executor.start_process(
            StartProcess(
                workspace=self.workspace,
                argv=argv,
                env=environment(self.project),
                limits=Limits(wall_sec=left + 60.0, cpus=float(self.places)),
            )
        )
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
        with self._guarded():
            self._client = JsonLinesClient(self._process, MAX_LINE, MAX_UNREAD, _MAX_ANSWER, final=b'{"done"')
            self._client.send(program + json.dumps(header).encode() + b"\n", deadline)
            message = self._client.receive(deadline, self.tick)
            self.collected, self.errors = strings(message.get("tests")), strings(message.get("errors"))
            self.loaded = strings(message.get("modules"))
            self.import_time = {path: frozenset(wholes(one)) for path, one in by_path(message.get("import_time"))}
        return message.get("ready") is True

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """A message that cannot be parsed counts as no message."""
        try:
            yield
        except ProcessEnded as error:
            raise WorkerLost(self.last_words()) from error
        except (ProtocolError, TimeoutError) as error:
            self._process.kill()
            raise WorkerLost(str(error)) from error

    def _messages(self, deadline: float) -> Iterator[dict[str, Any]]:
        """The answers to a request, up to its end."""
        while "done" not in (message := self._client.receive(deadline, self.tick)):
            yield message
        self._damaged = message.get("damaged") is True
        learned = message.get("learned")
        self.learned = learned if isinstance(learned, dict) else self.learned

    def last_words(self) -> str:
        limit = self._process.limit
        tail = self._process.stderr_tail().decode("utf-8", "replace").strip()
        return f"it went over the {limit} limit" if limit else (tail[-2000:] or "it ended without a message")

    def trace(self, tests: Sequence[str], alone: Sequence[str], deadline: float, seconds: float) -> Iterator[TestTrace]:
        """Run each test on the base: those named in `alone` each by itself, the others while there is time."""
        asked = set(tests)
        with self._guarded():
            request = {"op": "trace", "tests": list(tests), "alone": list(alone), "seconds": seconds}
            self._client.ask(request, deadline)
            for message in self._messages(deadline):
                trace = trace_of(message)
                if trace.test in asked:
                    yield trace

    def post(self, jobs: Sequence[Job], deadline: float, single: bool = False, patience: float = 1.0) -> None:
        """Start trying the jobs; `results` reads how they end. With `single`, one after the other, each by itself.

        `patience` multiplies the budget after which a candidate counts as endless.
        """
        selections = {job.selection: str(index) for index, job in enumerate(jobs)}
        suites = {key: {"targets": s.targets, "others": s.others, "slow": s.thorough} for s, key in selections.items()}
        units = {id(job.unit): job.unit for job in jobs if job.unit is not None and self.mode == "warm"}
        request = {
            "op": "try",
            "jobs": [job.message(self.mode, selections[job.selection], str(id(job.unit))) for job in jobs],
            "suites": suites,
            "units": {str(key): unit.message() for key, unit in units.items()},
            "single": single,
            "patience": patience,
        }
        with self._guarded():
            self._client.ask(request, deadline)

    @property
    def finished(self) -> bool:
        """True if the worker has finished its job and waits for the next one."""
        return self._client.finished.is_set()

    def results(self, jobs: Sequence[Job], deadline: float) -> Iterator[TrialResult]:
        """One result for each of the posted jobs, as they come."""
        known = {job.number for job in jobs}
        with self._guarded():
            for message in self._messages(deadline):
                for result in results_of(message):
                    if result.number in known:
                        yield result
        if self._damaged:
            raise WorkerLost("a candidate changed the project's files")

    def examine(self, job: Job, examples: Sequence[tuple[str, str]], deadline: float) -> Evidence:
        """Check the documentation's examples, and the candidate's behaviour on inputs that no test has."""
        assert job.unit is not None
        request = {
            "op": "examine",
            "job": job.message("warm", "", "0"),
            "units": {"0": job.unit.message()},
            "targets": list(job.selection.targets[:3]),
            "others": job.selection.few(12),
            "examples": [list(example) for example in examples],
        }
        found = UNKNOWN
        with self._guarded():
            self._client.ask(request, deadline)
            for message in self._messages(deadline):
                found = evidence_of(message, len(examples))
        return found

    def synthesise(self, unit: Unit, request: Mapping[str, Any], deadline: float) -> Iterator[tuple[int, str]]:
        """Expressions that fill the request's sketches, each with the number of its sketch."""
        asked = {**request, "op": "synthesise", "unit": "0", "units": {"0": unit.message()}}
        with self._guarded():
            self._client.ask(asked, deadline)
            for message in self._messages(deadline):
                self.synthesised += count(message.get("ran"))
                if "sketch" in message:
                    yield count(message["sketch"]), text(message.get("text"))

    def close(self) -> None:
        if hasattr(self, "_process"):
            self._process.kill()
