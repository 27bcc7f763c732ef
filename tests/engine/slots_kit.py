"""A pool at work in a thread of its own, on runs whose steps a test may put others in the place of."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from codepilot.core.decide import start
from codepilot.core.run import Run
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine import Runtime, Worker, WorkerPool
from codepilot.store import new_id


def submitted(runtime: Runtime, priority: int = 0) -> str:
    run_id, goal = new_id("r-"), Goal(natural="x")
    task = TaskSpec(task_id=new_id("t-"), goal=goal, repo="/somewhere", sandbox_level="none", priority=priority)
    runtime.store.create_run(run_id, start(task, run_id))
    return run_id


@contextmanager
def at_work(runtime: Runtime, worker: Worker | None = None, concurrency: int = 2) -> Iterator[None]:
    pool = WorkerPool(runtime, worker or Worker(runtime), concurrency=concurrency)
    thread = threading.Thread(target=pool.run)
    thread.start()
    try:
        yield
    finally:
        pool.stop(hurry=True)
        thread.join()


def ended(runtime: Runtime, run_id: str) -> Run:
    deadline = time.monotonic() + 200
    while not (run := runtime.store.load(run_id)).terminal:
        assert time.monotonic() < deadline, f"{run_id} is {run.state}"
        time.sleep(0.02)
    return run
