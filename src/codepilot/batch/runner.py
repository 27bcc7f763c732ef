"""Runs the tasks of a file: parallel attempts, each a run of its own, whose results go into the file."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from codepilot.agents import command_name, profile
from codepilot.batch.logs import AttemptLogs
from codepilot.batch.tasks_file import OPEN, RUNS, BatchTask, Status, TasksFile, result_of, task_of
from codepilot.core.attempt import RETRIED, Attempt, AttemptEnded, KeysSent, Outcome
from codepilot.core.events import WAITING, Event
from codepilot.core.failures import CodePilotError, Failure, FailureKind, Origin

if TYPE_CHECKING:
    from codepilot.core.run import Run
    from codepilot.core.task import TaskSpec
    from codepilot.engine import CodePilot

WAIT_SEC = 60.0
"""How long a task waits for a quota whose reset nobody knows; twice as long each time, an hour at most."""
LONGEST_WAIT_SEC = 3600.0
AGAIN_SEC = 1.0
"""How often a tasks file that cannot be read is read again: a person may be editing it."""

_T = TypeVar("_T")
Doing = Literal["waiting", "working", "judging", "parked", "ended"]
_REFUSED: dict[FailureKind, Outcome] = {
    FailureKind.MODEL_AUTH: "failed_auth",
    FailureKind.MODEL_QUOTA: "failed_quota",
}
"""The class of an attempt that could not begin; any other is a failed process."""
_MISSING = (FailureKind.AGENT_MISSING, FailureKind.ENVIRONMENT_MISSING)
"""What no task can begin without."""


@dataclass(frozen=True)
class Options:
    """How a batch is run."""

    jobs: int = 1
    only: frozenset[str] = frozenset()
    """The tasks to work on; empty for all."""
    agent: str | None = None
    """The profile for every task, whatever the file says."""
    in_place: bool = False
    wait_for_quota: bool = False


@dataclass(frozen=True)
class Progress:
    """A task as it stands, for display."""

    task_id: str
    doing: Doing
    status: Status
    agent: str
    attempt: int = 0
    since: float = 0.0
    """When the attempt began, by the monotonic clock."""
    last_line: str = ""
    keys: int = 0
    message: str = ""
    until: float | None = None
    """When a parked task goes on, in seconds since 1970."""
    run_id: str = ""


@dataclass
class _Parked:
    """The tasks of an agent whose quota is used up."""

    until: float
    times: int = 1


@dataclass
class _Running:
    """A running attempt."""

    progress: Progress
    run_id: str = ""


class Batch:
    """One pass over a tasks file. `run` blocks; `stop` and `abort` may be called from a signal handler."""

    def __init__(
        self,
        pilot: CodePilot,
        file: TasksFile,
        options: Options,
        on_progress: Callable[[Progress], None] = lambda progress: None,
        on_message: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._pilot = pilot
        self._file = file
        self._options = options
        self._on_progress = on_progress
        self._on_message = on_message
        self._message = ""
        self._uncounted: dict[str, int] = {}
        """Of each task, the attempts that `max_retries` does not count."""
        self.platform_failed: set[str] = set()
        """The tasks whose last attempt failed for a reason of this machine, not of their program."""
        self._changed = threading.Condition()
        self._running: dict[str, _Running] = {}
        self._parked: dict[str, _Parked] = {}
        self._stopping = threading.Event()
        self._aborting = threading.Event()
        self._broken: BaseException | None = None
        for task_id in options.only:
            file.task(task_id)

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    def run(self) -> tuple[BatchTask, ...]:
        """Work until nothing is left to do; the chosen tasks as the file has them then."""
        self._require_programs()
        threads = [threading.Thread(target=self._work, name=f"batch-{n}") for n in range(self._options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)  # a signal's handler runs in between
        if self._broken is not None:
            raise self._broken
        return self.chosen()

    def stop(self) -> None:
        """Begin no further attempt; running ones are finished."""
        self._stopping.set()

    def abort(self) -> None:
        """End the running attempts. Their tasks stay as they were."""
        self._stopping.set()
        self._aborting.set()

    def chosen(self) -> tuple[BatchTask, ...]:
        """The chosen tasks as the file has them now."""
        return tuple(task for task in self._file.tasks() if self._chosen(task))

    def chosen_task(self, task_id: str) -> BatchTask:
        """One of them; another one is refused with the names of those that there are."""
        return task_of(self.chosen(), task_id)

    def works_on(self, task_id: str) -> bool:
        """True while an attempt of the task runs."""
        return task_id in self._running

    def attempt(self, task_id: str) -> BatchTask:
        """Make one attempt of an open task now; the task as it is afterwards. A `ValueError` says why none is made."""
        with self._changed:
            task = self.chosen_task(task_id)
            why = ""
            if self.works_on(task_id):
                why = "an attempt of it is running"
            elif task.status not in OPEN:
                why = f"it is {task.status}; set its status to pending to try it again"
            elif (until := self._ready_at(task)) > time.time():
                why = f"it {reset_words(until)}"
            if why:
                raise ValueError(f"{task_id} is not run: {why}.")
            self._running[task_id] = _Running(self._begun(task))
        try:
            self._attempt(task)
        finally:
            self._ended(task_id)
        return self._file.task(task_id)

    # Which task is next

    def _work(self) -> None:
        """One slot."""
        try:
            while (task := self._next()) is not None:
                try:
                    self._attempt(task)
                finally:
                    self._ended(task.task_id)
        except BaseException as error:  # noqa: BLE001  (raised again by `run`)
            self._broken = self._broken or error
            self.stop()

    def _ended(self, task_id: str) -> None:
        with self._changed:
            self._running.pop(task_id, None)
            self._changed.notify_all()

    def _next(self) -> BatchTask | None:
        """The next task, waiting for one that is parked; None if there is nothing left to do."""
        with self._changed:
            while not self._stopping.is_set():
                open_tasks = [task for task in self._read() if self._chosen(task) and self._is_open(task)]
                now = time.time()
                for task in open_tasks:
                    if self._ready_at(task) <= now:
                        self._running[task.task_id] = _Running(self._begun(task))
                        return task
                    self._show(self._begun(task, doing="parked", until=self._ready_at(task)))
                if not open_tasks and not self._running:
                    self._changed.notify_all()
                    return None
                soonest = min((self._ready_at(task) - now for task in open_tasks), default=AGAIN_SEC)
                self._changed.wait(max(0.05, min(soonest, AGAIN_SEC)))
        return None

    def _read(self) -> tuple[BatchTask, ...]:
        """The tasks as the file has them; one that cannot be read now is read again."""
        while True:
            try:
                tasks = self._file.tasks()
            except CodePilotError as error:
                self._tell(error)
                if self._stopping.wait(AGAIN_SEC):
                    return ()
            else:
                self._tell(None)
                return tasks

    def _chosen(self, task: BatchTask) -> bool:
        return task.task_id in self._options.only if self._options.only else task.enabled

    def _is_open(self, task: BatchTask) -> bool:
        return task.status in OPEN and not self.works_on(task.task_id)

    def _ready_at(self, task: BatchTask) -> float:
        parked = self._parked.get(self._agent(task))
        return parked.until if parked is not None else 0.0

    def _agent(self, task: BatchTask) -> str:
        return self._options.agent or task.agent

    def _begun(self, task: BatchTask, doing: Doing = "working", until: float | None = None) -> Progress:
        return Progress(
            task.task_id, doing, task.status, self._agent(task), task.attempts + 1, time.monotonic(), until=until
        )

    # One attempt

    def _attempt(self, task: BatchTask) -> None:
        running = self._running[task.task_id]
        self._show(running.progress)
        number, started = task.attempts + 1, time.monotonic()
        if task.status == "pending":
            self._uncounted[task.task_id] = task.attempts
        self.platform_failed.discard(task.task_id)
        with AttemptLogs.open(self._file.path, task.task_id, number) as logs:
            if logs.unended is not None:
                self._drop(logs.unended, task.task_id)
            ended, run = self._made(task, running, logs)
            if ended is None:
                self._show_aborted(running)
                return
            more: dict[str, object] = {"run_id": run.run_id if run is not None else ""}
            more |= {"duration_sec": round(time.monotonic() - started, 1)}
            if run is not None and run.spent.cost_usd:
                more |= {"cost_usd": round(run.spent.cost_usd, 6)}
            if run is not None and run.proposal is not None:
                patch = self._pilot.diff(run.run_id)
                more |= {"patch": self._until_written(lambda: logs.patch(patch))}
                ended, judged = self._judged(task, ended, run, running)
                if ended is None:
                    self._show_aborted(running)
                    return
                more |= judged
            status = self._status(task, ended, number, began=run is not None)
            result = result_of(ended, task.answers, logs.shown, {key: one for key, one in more.items() if one})
            self._write(task.task_id, status, number, result)
            logs.end(result)
            if logs.problem:
                self._on_message(f"A part of the log of {task.task_id} is missing: {logs.problem}.")
        shown = "" if status == "completed" else ended.message
        self._show(replace(running.progress, doing="ended", status=status, message=shown))

    def _asked(self, task: BatchTask) -> TaskSpec:
        """The next attempt of a task as a task for a run. What is missing for it is refused."""
        found = profile(self._agent(task), self._pilot.settings.profiles)
        attempt = Attempt(
            task_id=task.task_id,
            number=task.attempts + 1,
            prompt=task.prompt,
            profile=found,
            answers=task.answers,
            timeout_sec=task.timeout_sec,
            in_place=self._options.in_place,
        )
        cwd = self._file.path.parent / Path(task.cwd).expanduser()
        if self._options.in_place:
            self._refuse_own_files(cwd.resolve())
        return self._pilot.attempt(attempt, found.adapter or command_name(found.command), cwd)

    def _require_programs(self) -> None:
        """Refuse a batch whose programs are unknown or not installed, before any task is marked as failed."""
        firsts = {self._agent(task): task for task in reversed(self.chosen()) if task.status in OPEN}
        for agent, task in firsts.items():
            profile(agent, self._pilot.settings.profiles)
            try:
                self._asked(task)
            except CodePilotError as error:
                if error.kind in _MISSING:
                    raise

    def _made(self, task: BatchTask, running: _Running, logs: AttemptLogs) -> tuple[AttemptEnded | None, Run | None]:
        """How the attempt ended, and its run; no end if it was aborted, no run if it could not begin."""
        from codepilot.store import new_id

        try:
            spec = self._asked(task)
            running.run_id = new_id("r-")
            logs.begin(running.run_id)
            begun = self._pilot.begin(spec, running.run_id)
        except CodePilotError as error:
            outcome = _REFUSED.get(error.kind, "failed_process")
            message = f"{error.failure.message} {error.failure.advice}".strip()
            self._note_origin(task.task_id, error.failure)
            return AttemptEnded(outcome=outcome, marker_seen=False, ended="exit", message=message), None
        running.progress = replace(running.progress, run_id=running.run_id)

        def on_event(event: Event) -> None:
            if isinstance(event.data, KeysSent):
                logs.sent(event.data, event.at)
                running.progress = replace(running.progress, keys=running.progress.keys + 1)
                self._show(running.progress)

        def on_output(data: bytes) -> None:
            if (line := logs.write(data)) and line != running.progress.last_line:
                running.progress = replace(running.progress, last_line=line)
                self._show(running.progress)

        with self._cancelled_when_aborted(running.run_id):
            run = self._pilot.work(begun, on_event=on_event, on_text=logs.read, on_output=on_output)
        return self._end_of(run), run

    def _refuse_own_files(self, cwd: Path) -> None:
        """Nothing works in place where it could change the tasks file or the logs."""
        own = self._file.path.resolve()
        if own.is_relative_to(cwd) or cwd.is_relative_to(own.parent / RUNS):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"In place at {cwd}, a program could change the tasks file or its logs.",
                next_action="Move the tasks file out of that directory, or leave --in-place out.",
            )

    @contextmanager
    def _cancelled_when_aborted(self, run_id: str) -> Iterator[None]:
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                if self._aborting.wait(0.2):
                    self._pilot.cancel(run_id)
                    return

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _was_aborted(self, run: Run) -> bool:
        return self._aborting.is_set() and run.failure is not None and run.failure.kind is FailureKind.CANCELLED

    def _show_aborted(self, running: _Running) -> None:
        self._show(replace(running.progress, doing="ended", message="ended by you; its task stays as it was"))

    def _note_origin(self, task_id: str, failure: Failure) -> None:
        if failure.handling.origin is Origin.PLATFORM:
            self.platform_failed.add(task_id)

    def _end_of(self, run: Run) -> AttemptEnded | None:
        """How a run says that the attempt ended. One that waits for a person is ended: nobody is there."""
        found = [event.data for event in self._pilot.events(run.run_id) if isinstance(event.data, AttemptEnded)]
        if run.state in WAITING:
            self._pilot.cancel(run.run_id)
        if self._was_aborted(run):
            return None
        if found and (found[-1].outcome != "completed" or run.failure is None):
            return found[-1]
        message = run.failure.message if run.failure is not None else f"the run ended as {run.state}"
        kind = run.failure.kind if run.failure is not None else FailureKind.INTERNAL
        outcome = _REFUSED.get(kind, "failed_process")
        if run.failure is not None and run.task.attempt is not None:
            self._note_origin(run.task.attempt.task_id, run.failure)
        if found:  # it completed, and its change breaks a rule
            outcome = "failed_permission_blocked"
            message = message.partition(f": {outcome}. ")[2] or message
        last = found[-1] if found else AttemptEnded(outcome=outcome, marker_seen=False, ended="exit")
        return last.model_copy(update={"outcome": outcome, "message": message})

    def _judged(
        self, task: BatchTask, ended: AttemptEnded, run: Run, running: _Running
    ) -> tuple[AttemptEnded | None, dict[str, object]]:
        """Prove a completed task's change where its task wants that. One that is not proved is not complete."""
        if not task.verify or ended.outcome != "completed":
            return ended, {}
        running.progress = replace(running.progress, doing="judging", last_line="")
        self._show(running.progress)
        try:
            begun = self._pilot.judge_attempt(run.run_id, task.criteria)
            with self._cancelled_when_aborted(begun.run.run_id):
                judged = self._pilot.work(begun)
            if self._was_aborted(judged):
                return None, {}
            why = judged.failure.message if judged.failure is not None else ""
            verdict = judged.verdict
            more: dict[str, object] = {"verdict": verdict or "none", "proof": judged.run_id}
        except CodePilotError as error:
            why, verdict, more = error.failure.message, None, {"verdict": "none"}
        if verdict is not None:
            return ended, more
        message = f"The change is not proved: {why}" if why else "The change is not proved."
        return ended.model_copy(update={"outcome": "failed_incomplete", "message": message}), more

    def _status(self, task: BatchTask, ended: AttemptEnded, number: int, *, began: bool) -> Status:
        """The status that follows: a task that is tried again is `retryable`."""
        agent = self._agent(task)
        if ended.outcome == "completed":
            self._parked.pop(agent, None)
        if ended.outcome == "failed_quota" and self._options.wait_for_quota:
            self._park(agent, ended.reset_at)
            self._uncounted[task.task_id] = self._uncounted.get(task.task_id, 0) + 1
            return "retryable"
        counted = number - self._uncounted.get(task.task_id, 0)
        if ended.outcome in RETRIED and began and counted <= task.max_retries:
            return "retryable"
        return ended.outcome

    def _park(self, agent: str, reset_at: int | None) -> None:
        times = self._parked[agent].times + 1 if agent in self._parked else 1
        wait = min(WAIT_SEC * 2 ** (times - 1), LONGEST_WAIT_SEC)
        until = max(reset_at / 1_000_000, time.time() + 1) if reset_at is not None else time.time() + wait
        self._parked[agent] = _Parked(until, times)

    def _write(self, task_id: str, status: Status, number: int, result: dict[str, object]) -> None:
        """Record the result of an attempt, unless a person removed the task meanwhile."""

        def write() -> None:
            try:
                self._file.update(task_id, lambda task: {"status": status, "attempts": number, "result": result})
            except CodePilotError:
                if not self._gone(task_id):
                    raise

        self._until_written(write)

    def _until_written(self, write: Callable[[], _T]) -> _T:
        """Try again until it is written: a person edits the file, or the disk is full."""
        while True:
            try:
                written = write()
            except CodePilotError as error:
                self._tell(error)
                if self._aborting.wait(AGAIN_SEC):
                    raise
            else:
                self._tell(None)
                return written

    def _tell(self, error: CodePilotError | None) -> None:
        """Say once why the batch waits, and once that it goes on."""
        message = f"{error.failure.message} {error.failure.advice} The batch waits for that." if error else ""
        before, self._message = self._message, message
        if message != before:
            self._on_message(message or "The batch goes on.")

    def _gone(self, task_id: str) -> bool:
        try:
            return all(task.task_id != task_id for task in self._file.tasks())
        except CodePilotError:
            return False

    def _drop(self, run_id: str, task_id: str) -> None:
        """End the run of an attempt whose batch was killed. The log names it, and may come with a repository."""
        with suppress(CodePilotError):  # it was never recorded, or is gone
            run = self._pilot.run(run_id)
            if run.run_id == run_id and run.task.attempt is not None and run.task.attempt.task_id == task_id:
                self._pilot.cancel(run_id)

    def _show(self, progress: Progress) -> None:
        self._on_progress(progress)


def reset_words(until: float | None) -> str:
    """When a parked task goes on."""
    return "" if until is None else f"waits for its quota until {datetime.fromtimestamp(until).astimezone():%H:%M:%S}"
