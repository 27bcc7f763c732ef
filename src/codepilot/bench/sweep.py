"""Runs a set in parallel, each bug in a process of its own, and continues an earlier sweep."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codepilot.bench.bugs import Bug
from codepilot.bench.outside import Outside, survivors, usual
from codepilot.bench.realfix import check_repositories
from codepilot.bench.results import Result, Results, engine_version, make_result, tried_again, with_outside
from codepilot.bench.sets import load_set
from codepilot.core.failures import CodePilotError, FailureKind

LOCK = "lock"
GRACE_SEC = 600.0
"""The time that a bug's process may take beyond its search."""


@dataclass(frozen=True)
class BenchSpec:
    """The bugs to run, and the directory for results."""

    set: str
    data: Path
    out: Path
    jobs: int = 1
    seconds: float = 60.0
    limit: int | None = None
    only: tuple[str, ...] = ()
    python: str | None = None
    fresh: bool = False
    search_only: bool = False


@dataclass(frozen=True)
class BenchResult:
    """All results that the sweep asked for, in the set's order, and whether it came to its end."""

    results: tuple[Result, ...]
    wanted: int
    complete: bool


Show = Callable[[Sequence[Result], int, int], None]
"""Called after each bug with the results so far, how many there will be, and how many were there before."""


def run_sweep(
    spec: BenchSpec, show: Show = lambda results, wanted, before: None, outside: Outside | None = None
) -> BenchResult:
    """Run what is missing. An interrupt ends it at once and keeps what is done."""
    bugs = chosen(spec)
    spec.out.mkdir(parents=True, exist_ok=True)
    with _alone_in(spec.out):
        return _run(spec, bugs, show, outside or _outside(spec, bugs))


def _outside(spec: BenchSpec, bugs: Sequence[Bug]) -> Outside:
    repositories = {bug.origin.repository.parent for bug in bugs if bug.origin is not None}
    return usual((spec.data, *sorted(repositories)), spec.python, spec.out)


@contextlib.contextmanager
def _alone_in(out: Path) -> Iterator[None]:
    """Two sweeps in one directory would remove each other's work; the lock goes with the process that holds it."""
    with (out / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"Another sweep is writing to {out}.",
                next_action="Wait until it has ended, or name another directory with --out.",
            ) from error
        yield


def _run(spec: BenchSpec, bugs: Sequence[Bug], show: Show, outside: Outside) -> BenchResult:
    results = Results(spec.out)
    if spec.fresh:
        results.clear()
    engine = engine_version("search" if spec.search_only else "fix")
    rows = results.read()
    known = {result.key: result for result in rows if result.status != "ERROR"}
    errors = {result.key: result for result in rows if result.status == "ERROR"}
    python = spec.python or ""
    keys = {bug.name: (spec.set, bug.name, engine, spec.seconds, python) for bug in bugs}
    done = {name: known[key] for name, key in keys.items() if key in known}
    before = len(done)
    waiting = [bug for bug in bugs if bug.name not in done]
    show(list(done.values()), len(bugs), before)
    with _Workers(spec, engine, outside) as workers:
        try:
            for row in workers.work(waiting):
                result = tried_again(row, errors.get(row.key))
                results.append(result)
                done[result.bug] = result
                show(list(done.values()), len(bugs), before)
        except KeyboardInterrupt:
            workers.stop()
    ordered = tuple(done[bug.name] for bug in bugs if bug.name in done)
    return BenchResult(ordered, len(bugs), len(ordered) == len(bugs))


def chosen(spec: BenchSpec) -> list[Bug]:
    """The bugs that were asked for."""
    bugs = load_set(spec.set, spec.data)
    if spec.only:
        names = {bug.name for bug in bugs}
        strangers = [name for name in spec.only if name not in names]
        if strangers:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The set {spec.set} has no bug called {strangers[0]!r}.",
                next_action=f"Its first ones are: {', '.join(bug.name for bug in bugs[:5])}.",
            )
        bugs = [bug for bug in bugs if bug.name in spec.only]
    bugs = bugs[: spec.limit] if spec.limit is not None else bugs
    check_repositories(bugs)
    return bugs


class _Workers:
    """The processes at work. They end with this one, however it ends."""

    def __init__(self, spec: BenchSpec, engine: str, outside: Outside) -> None:
        self._spec = spec
        self._outside = outside
        self._engine = engine
        self._pool = ThreadPoolExecutor(max_workers=spec.jobs)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False
        self._longest = spec.seconds + GRACE_SEC

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)
        shutil.rmtree(self._spec.out / "work", ignore_errors=True)

    def work(self, bugs: Sequence[Bug]) -> Iterator[Result]:
        if bugs:
            self._outside.begin()
        futures: set[Future[Result | None]] = {self._pool.submit(self._safely, bug) for bug in bugs}
        while futures:
            ended, futures = wait(futures, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in ended:
                result = future.result()
                if result is not None:
                    yield result

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            process.kill()

    def _safely(self, bug: Bug) -> Result | None:
        """One bug's row; an error is a row too."""
        try:
            row = self._one(bug)
        except Exception as error:  # noqa: BLE001 - a row of the table, not the table's end
            row = self._failed(bug, f"{type(error).__name__}: {error}")
        return None if row is None or self._stopped else self._look_outside(bug, row)

    def _look_outside(self, bug: Bug, row: Result) -> Result:
        """The row with what happened outside the sandbox since another bug's process ended."""
        try:
            alive = survivors(self._place(bug))
            seen = self._outside.seen()
        except OSError as error:
            return with_outside(row, (f"could not be looked at: {error}",), 0)
        return with_outside(row, (*alive, *seen.changes), seen.watched)

    def _place(self, bug: Bug) -> Path:
        return self._spec.out.absolute() / "work" / re.sub(r"[^A-Za-z0-9_.-]", "-", bug.name)

    def _failed(self, bug: Bug, reason: str) -> Result:
        return make_result({**self._identity(bug), "status": "ERROR", "reason": reason})

    def _identity(self, bug: Bug) -> dict[str, Any]:
        spec = self._spec
        return {
            "set": spec.set,
            "bug": bug.name,
            "kind": bug.kind,
            "engine": self._engine,
            "seconds": spec.seconds,
            "python": spec.python or "",
        }

    def _one(self, bug: Bug) -> Result | None:
        spec = self._spec
        job = {
            "set": spec.set,
            "data": str(spec.data.absolute()),
            "bug": bug.name,
            "seconds": spec.seconds,
            "python": spec.python,
            "work": str(self._place(bug)),
            "search_only": spec.search_only,
            "parent": os.getpid(),
        }
        process = self._start()
        if process is None:
            return None
        begun = time.monotonic()
        answer, errors = self._talk(process, json.dumps(job).encode() + b"\n")
        late = time.monotonic() - begun >= self._longest
        if self._stopped:
            return None
        try:
            return make_result({**json.loads(answer), **self._identity(bug)})
        except (ValueError, TypeError):
            last = (errors.decode("utf-8", "replace").strip().splitlines() or ["it wrote no error"])[-1]
            ended = f"The bug's process ended without a row (exit code {process.returncode}): {last[-300:]}"
            return self._failed(bug, f"It took more than {self._longest:.0f} s in all." if late else ended)

    def _start(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._stopped:
                return None
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "codepilot.bench.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self._running.add(process)
            return process

    def _talk(self, process: subprocess.Popen[bytes], job: bytes) -> tuple[bytes, bytes]:
        """Give the job; the answer and what was written to standard error."""
        try:
            return process.communicate(job, self._longest)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()
        finally:
            with self._lock:
                self._running.discard(process)
