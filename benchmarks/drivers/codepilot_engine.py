"""CodePilot: its worker as `codepilot worker` runs it, with steps that do nothing.

A run has seven states when all goes well; PLAN is tried twice, so that it has eight steps.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from benchmarks.drivers.lines import Engine, Role, Talk, serve
from codepilot.core.decide import Failed, Outcome, Succeeded, start
from codepilot.core.events import BundleWritten, Event, EventType, RunFinished, SandboxChosen, State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine import Runtime, Settings, Worker, WorkerPool, cancel, pause
from codepilot.engine.steps import STEPS
from codepilot.engine.work import Work
from codepilot.executor import CreateWorkspace, RunCommand
from codepilot.sandbox import probe
from codepilot.store import new_id
from codepilot.workspace import ObjectStore

_LOOK_SEC = 0.005
"""How often it is looked whether what was asked for is on record."""
_ASK = {"cancel": (cancel, State.ABORTED), "pause": (pause, State.PAUSED)}
_AGAIN = Failed(Failure(kind=FailureKind.TOOL_FAILED, message="The first try does not count."))


class CodePilot:
    def __init__(self, role: Role, talk: Talk) -> None:
        self._role, self._talk = role, talk
        confined = role.dwells and any(report.available for report in probe())
        self._level: Literal["best", "none"] = "best" if confined else "none"
        self._runtime = Runtime.open(Settings.load(flags={"home": Path.cwd() / "home", "store": role.url}))
        gc.freeze()  # as `codepilot worker` does
        for state in STEPS:
            STEPS[state] = self._step
        worker = Worker(self._runtime, on_event=self._listen)
        self._pool = WorkerPool(self._runtime, worker, concurrency=role.concurrency)
        self._thread = threading.Thread(target=self._run)
        self._working = threading.Event()

    def enqueue(self) -> None:
        task = TaskSpec(task_id=new_id("t-"), goal=Goal(natural="Nothing"), repo="/nowhere", sandbox_level=self._level)
        run_id = self._last = new_id("r-")
        self._runtime.store.create_run(run_id, start(task, run_id))

    def work(self) -> None:
        self._thread.start()
        self._working.wait()

    def control(self, what: str) -> dict[str, float]:
        ask, state = _ASK[what]
        ask(self._runtime, self._last)
        answer = {"at": _when(lambda: self._runtime.store.load(self._last).state is state)}
        if state is State.ABORTED:
            answer["gone"] = _when(lambda: not list(self._runtime.home.workspaces.glob(f"{self._last}*")))
        return answer

    def stop(self) -> None:
        if self._working.is_set():
            self._pool.stop(hurry=True)
            self._thread.join()
        self._runtime.close()

    def _run(self) -> None:
        self._pool.run(self._working.set)

    def _step(self, work: Work) -> Outcome:
        if self._role.dwells:
            self._dwell(work)
        if work.run.state is State.INIT:
            self._role.started(self._talk)
        if work.run.state is State.FINALIZE:
            work.record(EventType.BUNDLE_WRITTEN, BundleWritten(path="", sha256=""))
        return _AGAIN if work.run.state is State.PLAN and work.claim.attempt == 1 else Succeeded()

    def _dwell(self, work: Work) -> None:
        """As a baseline does: wait for a command inside the sandbox, which is interrupted from the side."""
        work.record(EventType.SANDBOX_CHOSEN, SandboxChosen(level=work.executor.level))
        with ObjectStore.open(self._runtime.home.path / "objects", durable=False) as objects:
            request = CreateWorkspace(workspace=work.workspace, objects=str(objects.path), tree=objects.write_tree({}))
            work.executor.create(request)
        self._role.started(self._talk)
        work.executor.run_command(RunCommand(workspace=work.workspace, argv=("sleep", "3600"), timeout_sec=3600))
        work.step.raise_if_stopped()

    def _listen(self, event: Event) -> None:
        if isinstance(event.data, RunFinished) and not self._role.dwells:
            if event.data.state is not State.DONE:
                raise RuntimeError(f"the run ended as {event.data}")
            self._role.finished(self._talk)


def _when(there: Callable[[], bool]) -> float:
    while not there():
        time.sleep(_LOOK_SEC)
    return time.monotonic()


def _make(role: Role, talk: Talk) -> Engine:
    return CodePilot(role, talk)


if __name__ == "__main__":
    os.environ["CODEPILOT_HOME"] = str(Path.cwd() / "home")
    serve(_make, "")
