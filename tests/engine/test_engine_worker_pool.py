"""The slots of a worker: which run is preempted, how many are at work, and what they meet on their machine."""

from __future__ import annotations

import errno
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from slots_kit import at_work, ended, submitted

from codepilot.core.decide import Outcome, Succeeded
from codepilot.core.events import BundleWritten, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine import Runtime, Worker, WorkerPool, cancel, close, monitor, steps, worker_pool
from codepilot.engine.monitor import StepMonitor
from codepilot.engine.work import Work
from codepilot.store import meta, session_locks
from codepilot.telemetry import METRICS


class Together:
    """How many were at it at a time."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self._guard = threading.Lock()
        self._now = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._guard:
            self._now += 1
            self.seen.add(self._now)
        yield
        with self._guard:
            self._now -= 1


def do_in_steps(monkeypatch: pytest.MonkeyPatch, do: Callable[[Work], None]) -> None:
    def step(work: Work) -> Outcome:
        do(work)
        if work.run.state is State.FINALIZE:
            work.record(EventType.BUNDLE_WRITTEN, BundleWritten(path="", sha256=""))
        return Succeeded()

    for state in steps.STEPS:
        monkeypatch.setitem(steps.STEPS, state, step)


def test_an_urgent_run_preempts_another_at_the_stores_limit(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "COUNT_SEC", 0.02)
    runtime.store.queue.limit.set(1)
    worker, reported, order = Worker(runtime), threading.Event(), []
    preempt = worker.preempt

    def tell(priority: int | None, *, over_limit: bool) -> None:
        preempt(priority, over_limit=over_limit)
        if priority is not None and METRICS.value("codepilot_step_queue_depth") == 1:
            reported.set()

    monkeypatch.setattr(worker, "preempt", tell)

    def step(work: Work) -> None:
        order.append((work.run.task.priority, work.run.state))
        if order == [(-10, State.INIT)]:
            urgent.append(submitted(runtime, priority=10))
            reported.wait(60)

    do_in_steps(monkeypatch, step)
    urgent: list[str] = []
    other = submitted(runtime, priority=-10)
    with at_work(runtime, worker):
        ended(runtime, other)
    assert reported.is_set(), "that somebody waits is counted, and reported to the worker"
    assert order.index((10, State.FINALIZE)) < order.index((-10, State.FINALIZE))


def test_a_lowered_limit_holds_for_the_runs_at_work(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, name in ((meta, "FRESH_SEC"), (worker_pool, "COUNT_SEC"), (worker_pool, "POLL_SEC")):
        monkeypatch.setattr(where, name, 0.02)
    worker, reported, both = Worker(runtime), threading.Event(), threading.Barrier(2)
    preempt, together = worker.preempt, Together()

    def tell(priority: int | None, *, over_limit: bool) -> None:
        preempt(priority, over_limit=over_limit)
        if over_limit:
            reported.set()

    monkeypatch.setattr(worker, "preempt", tell)

    def step(work: Work) -> None:
        if work.run.state is State.INIT:
            both.wait(60)
            runtime.store.queue.limit.set(1)
            assert reported.wait(60)
            return
        with together.counted():
            time.sleep(0.02)

    do_in_steps(monkeypatch, step)
    runs = submitted(runtime), submitted(runtime)
    with at_work(runtime, worker):
        for run_id in runs:
            assert ended(runtime, run_id).state is State.DONE
    assert together.seen == {1}


def test_a_full_disk_is_a_failure_of_its_own(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(work: Work) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    do_in_steps(monkeypatch, step)
    run_id = submitted(runtime)
    with at_work(runtime):
        failure = ended(runtime, run_id).failure
    assert failure is not None and failure.kind is FailureKind.DISK_FULL


def test_a_workspace_that_cannot_be_removed_ends_no_worker(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_id = submitted(runtime)
    do_in_steps(monkeypatch, lambda work: None)
    with at_work(runtime):
        ended(runtime, run_id)
    (runtime.home.workspaces / run_id).mkdir()

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(close, "remove_workspaces", refuse)
    with caplog.at_level(logging.WARNING):
        close.sweep(runtime)
    assert f"what is left of {run_id} cannot be removed" in caplog.text


def test_a_dead_workers_steps_are_free_within_two_seconds() -> None:
    """On a server, where one who was only cut off for a moment may come back."""
    assert session_locks.GRACE_SEC + monitor.REAP_SEC < 2


def test_a_worker_that_wakes_up_beats_before_it_judges(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a machine sleeps beats grow old by the clock of the store, and its own waits do not."""
    slept, woken = threading.Event(), threading.Event()
    done: list[str] = []
    monkeypatch.setattr(monitor, "_boot_time", lambda: time.monotonic() + (3600 if slept.is_set() else 0))

    def judge() -> list[str]:
        if slept.is_set():
            done.append("judged")
            woken.set()
        slept.set()
        return []

    monkeypatch.setattr(runtime.store, "beat", lambda worker: done.append("beat"))
    monkeypatch.setattr(runtime.store, "reclaim", judge)
    with StepMonitor(runtime.store, "w-sleeper"):
        assert woken.wait(60)
    assert done[:2] == ["beat", "judged"]


def test_a_stuck_slot_that_is_back_takes_no_further_run(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another slot has its place."""
    monkeypatch.setattr(monitor, "STUCK_POLLS", 2)
    at_it, go_on, together = threading.Event(), threading.Event(), Together()

    def step(work: Work) -> None:
        if work.run.run_id == stuck:
            at_it.set()
            go_on.wait(100)
            return
        go_on.set()
        with together.counted():
            time.sleep(0.02)

    do_in_steps(monkeypatch, step)
    stuck = submitted(runtime)
    with at_work(runtime, concurrency=1):
        assert at_it.wait(60)
        cancel(runtime, stuck)
        for run_id in [submitted(runtime) for _ in range(4)]:
            assert ended(runtime, run_id).state is State.DONE
    assert together.seen == {1}


@pytest.mark.variants
@pytest.mark.parametrize("gone", ["the file", "replaced", "the home"])
def test_a_worker_whose_database_was_replaced_says_so_and_ends(runtime: Runtime, gone: str) -> None:
    """It would wait for ever for runs that are submitted to the new one."""
    errors: list[CodePilotError] = []

    def work() -> None:
        try:
            WorkerPool(runtime, Worker(runtime), concurrency=1).run()
        except CodePilotError as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not list(runtime.home.locks.glob("*.wakeup")):
        assert time.monotonic() < deadline, "it never came to rest"
        time.sleep(0.01)
    if gone == "the home":
        shutil.rmtree(runtime.home.path)
    else:
        runtime.home.database.unlink()
    if gone == "replaced":
        runtime.home.database.touch()
    thread.join(60)
    assert not thread.is_alive()
    assert "removed or replaced" in str(errors)
