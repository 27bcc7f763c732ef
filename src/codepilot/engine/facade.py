"""The Python API. Every command calls this class and nothing else of the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from codepilot.core.artifacts import ArtifactRef
from codepilot.core.commit import CommitRecorded
from codepilot.core.events import Event, PatchApplied, ProofRecorded
from codepilot.core.run import Run
from codepilot.core.task import TaskSpec
from codepilot.engine.settings import Settings

if TYPE_CHECKING:
    from codepilot.engine.close import Collected
    from codepilot.engine.runtime import Runtime
    from codepilot.engine.task import Begun, Request
    from codepilot.engine.worker_pool import WorkerPool
    from codepilot.store import ArtifactRow, NotificationRow, Pruned, RunRow
    from codepilot.telemetry import IterationFigures, Report


@dataclass(frozen=True)
class Removed:
    """What `gc` removed, or would remove."""

    workspaces: Collected
    artifacts: Pruned | None
    """None if artifacts were not asked for."""


class CodePilot:
    """Submits tasks, follows and controls their runs, and applies what they found.

    A run is named by its id, the beginning of its id or "last". Nothing is opened before it is needed; use the object
    as a context manager, or call `close`.
    """

    def __init__(self, settings: Settings | None = None, *, stale_sec: float | None = None) -> None:
        """`settings` are those of this process's user and environment by default. After `stale_sec` of silence others
        take over what a worker of this object was doing.
        """
        self.settings = settings or Settings.load()
        self._stale_sec = stale_sec

    @cached_property
    def _runtime(self) -> Runtime:
        import gc

        from codepilot.engine.runtime import Runtime
        from codepilot.store.queue import LEASE, Lease

        lease = LEASE if self._stale_sec is None else Lease(self._stale_sec / 3, self._stale_sec)
        runtime = Runtime.open(self.settings, lease)
        gc.freeze()  # what is loaded by now stays: the collector need not look at it again
        return runtime

    def open(self, wait_sec: float = 0.0, waiting: Callable[[str], None] = lambda problem: None) -> Self:
        """Open home, store and artifacts now. A store that does not answer is asked again for `wait_sec`, and `waiting`
        gets each new reason.
        """
        from codepilot.store.faults import Interrupted

        deadline, reason = time.monotonic() + wait_sec, ""
        while True:
            try:
                _ = self._runtime
            except Interrupted as error:
                if time.monotonic() >= deadline:
                    raise
                if str(error) != reason:
                    waiting(reason := str(error))
                time.sleep(1.0)
            else:
                return self

    def close(self) -> None:
        if "_runtime" in self.__dict__:
            self._runtime.close()
            del self.__dict__["_runtime"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def warning(self) -> str:
        """What is wrong with the places that are configured, or nothing."""
        return self._runtime.apart

    @property
    def shared(self) -> bool:
        """Whether the store is a server, so that workers on other machines can take its runs."""
        return self._runtime.shared

    # Tasks and work

    def task(self, request: Request) -> TaskSpec:
        """The request as a task, completed by the settings. A request that cannot work is refused here."""
        from codepilot.engine.task import make_task

        return make_task(request, self.settings)

    def level(self, task: TaskSpec | None = None) -> str:
        """The sandbox level at which the task's code will run, or that of any task by the settings."""
        from codepilot.engine.execution_context import level_of, open_executor

        if task is not None:
            return level_of(task, self.settings)
        with closing(open_executor(self.settings, self.settings.sandbox.level, self.settings.policy)) as executor:
            return executor.level

    def model_named(self, name: str | None) -> str | None:
        """A model as a task names it: `replay:RUN` becomes the file with the run's transcript."""
        kind, _, run_id = (name or "").partition(":")
        if kind != "replay" or not run_id or Path(run_id).expanduser().exists():
            return name
        from codepilot.engine.close import recording

        return f"replay:{recording(self._runtime, run_id)}"

    def submit(self, task: Request | TaskSpec, run_id: str | None = None) -> Run:
        """Queue a run of the task. Submitting again under the same id changes nothing."""
        from codepilot.engine.task import submit

        return submit(self._runtime, task if isinstance(task, TaskSpec) else self.task(task), run_id)

    def begin(self, task: TaskSpec, run_id: str | None = None) -> Begun:
        """The same for a run that this process works on: no other worker takes its first step."""
        from codepilot.engine.task import begin

        return begin(self._runtime, task, run_id)

    def reopen(self, run_id: str = "last") -> Begun:
        """`resume` for a run that this process works on."""
        from codepilot.engine.control import go_on

        return go_on(self._runtime, self.find(run_id))

    def work(
        self,
        run: str | Begun = "last",
        *,
        on_event: Callable[[Event], None] = lambda event: None,
        on_text: Callable[[str], None] = lambda text: None,
    ) -> Run:
        """Work on a run until it finishes or waits; steps that another worker has are followed.

        `on_event` gets every event from here on, `on_text` a model's words while they arrive.
        """
        from codepilot.engine.worker import Worker

        begun = None if isinstance(run, str) else run
        run_id = self.find(run) if isinstance(run, str) else run.run.run_id
        worker = Worker(self._runtime, on_event, on_text=on_text, begun=begun)
        worker.drive(run_id, None if begun is None else begun.run.last_seq)
        return self._runtime.store.load(run_id)

    def worker(
        self,
        *,
        concurrency: int = 1,
        drain_sec: float = 25.0,
        until_idle: bool = False,
        on_event: Callable[[Event], None] | None = None,
    ) -> WorkerPool:
        """A worker for queued runs, `concurrency` at a time. Call its `run`; its `stop` ends it."""
        from codepilot.engine.webhook import open_webhook
        from codepilot.engine.worker import Worker
        from codepilot.engine.worker_pool import WorkerPool

        return WorkerPool(
            self._runtime,
            Worker(self._runtime, on_event or (lambda event: None)),
            concurrency=concurrency,
            drain_sec=drain_sec,
            until_idle=until_idle,
            webhook=open_webhook(self._runtime),
        )

    def most_running(self) -> int | None:
        """How many steps may run at a time in the whole store; None means any number."""
        return self._runtime.store.queue.limit.most_running()

    def set_most_running(self, most: int | None) -> None:
        """Set that limit for all workers of the store."""
        self._runtime.store.queue.limit.set(most)

    # Reading runs

    def find(self, run_id: str) -> str:
        """The whole id of a run, given the beginning of one or "last"."""
        return self._runtime.store.find(run_id)

    def run(self, run_id: str = "last") -> Run:
        return self._runtime.store.load(self.find(run_id))

    def runs(self, limit: int = 20) -> list[RunRow]:
        """The newest runs first."""
        return self._runtime.store.history(limit)

    def events(self, run_id: str = "last", after: int = 0) -> list[Event]:
        """The events of a run so far, those after the number `after`."""
        return self._runtime.store.events(self.find(run_id), after)

    def follow(self, run_id: str = "last", after: int = 0) -> Iterator[Event]:
        """The events of a run as they are recorded, by whatever process, until it finishes or waits."""
        from codepilot.engine.follower import EventFollower

        return EventFollower(self._runtime.store, self.find(run_id), after).follow()

    def log(self, run_id: str = "last", *, follow: bool = False) -> Iterator[str]:
        """The run's log as lines of JSON, without secrets."""
        from codepilot.engine.follower import EventFollower
        from codepilot.telemetry import LogLines

        follower, formatted = EventFollower(self._runtime.store, self.find(run_id)), LogLines(self._runtime.redact)
        for event in follower.follow() if follow else follower.new():
            formatted.learn([event])
            yield formatted.of([event]).decode().removesuffix("\n")

    def check(self, run_id: str = "last") -> None:
        """Compare what is stored of a run with its events; a difference is an error."""
        self._runtime.store.check(self.find(run_id))

    def report(self, run_id: str = "last") -> Report:
        """How a run stands, as one document: what `--json` prints. A bundle that another machine wrote is fetched."""
        from codepilot.engine.report import report_run

        run = self.run(run_id)
        events = self._runtime.store.events(run.run_id)
        if run.bundle is not None:
            from codepilot.engine.close import fetch_bundle

            fetch_bundle(run, events, self._runtime)
        document = report_run(run, events, self._runtime.home)
        if run.task.notify:
            from codepilot.engine.webhook import notifications_of

            document = document.model_copy(update={"notifications": notifications_of(self._runtime, run.run_id)})
        return document

    def iterations(self, run_id: str = "last") -> tuple[IterationFigures, ...]:
        """What each iteration of a run cost and achieved."""
        return tuple(self._runtime.store.iterations(self.find(run_id)).iterations)

    def notifications(self, run_id: str = "last") -> list[NotificationRow]:
        """The notifications that a run's ends gave rise to."""
        return list(self._runtime.store.outbox.of(self.find(run_id)))

    def bundle(self, run_id: str = "last") -> Path:
        """Where the bundle of a run is, or would be, in this home."""
        return self.settings.home.bundles / self.find(run_id)

    def fetch_bundle(self, run_id: str = "last") -> None:
        """Bring here the bundle of a run that finished on another machine."""
        from codepilot.engine.close import fetch_bundle

        run = self.run(run_id)
        fetch_bundle(run, self._runtime.store.events(run.run_id), self._runtime)

    def artifacts(self, run_id: str = "last", link_sec: int | None = None) -> list[tuple[ArtifactRow, str | None]]:
        """The artifacts that a run's events name, each with where it can be read if `link_sec` is given.

        That is a file here, or on S3 a link that is valid for so long; None if the bytes are gone.
        """
        rows = self._runtime.store.artifacts(self.find(run_id))
        if link_sec is None:
            return [(row, None) for row in rows]
        where = {ref: self._link(ref, link_sec) for ref in {row.ref for row in rows}}
        return [(row, where[row.ref]) for row in rows]

    def _link(self, ref: ArtifactRef, seconds: int) -> str | None:
        from codepilot.store import FileArtifacts

        artifacts = self._runtime.artifacts
        if not artifacts.has(ref):
            return None
        return str(artifacts.path(ref)) if isinstance(artifacts, FileArtifacts) else artifacts.link(ref, seconds)

    # Controlling runs

    def pause(self, run_id: str = "last") -> Run:
        """Let a run stop: at its next safe point if a worker has it, else now."""
        from codepilot.engine.control import pause

        return pause(self._runtime, self.find(run_id))

    def resume(self, run_id: str = "last") -> Run:
        """Reopen a run that waits, was paused or has spent its budget; a worker goes on with it."""
        from codepilot.engine.control import resume

        return resume(self._runtime, self.find(run_id))

    def cancel(self, run_id: str) -> Run:
        """End a run and remove its workspace; within a second if a worker has it."""
        from codepilot.engine.control import cancel

        return cancel(self._runtime, self.find(run_id))

    def fork(self, run_id: str = "last", at: int | None = None) -> Run:
        """Queue a new run that begins with another one's events up to number `at`."""
        from codepilot.engine.fork import fork_run

        return fork_run(self._runtime, self.find(run_id), at)

    def notify(self, run_id: str = "last") -> str:
        """Try once to send the notifications that a run has pending; returns what went wrong, or nothing."""
        from codepilot.engine.webhook import notify

        return notify(self._runtime, self.find(run_id))

    @property
    def notify_place(self) -> str | None:
        """What may be shown of where the ends of runs are notified."""
        from codepilot.engine.webhook import webhook_place

        return webhook_place(self.settings)

    # The change

    def diff(self, run_id: str = "last") -> bytes:
        """The change of a run as a patch for `git apply`; empty if it has none."""
        from codepilot.engine.apply import patch_of

        return patch_of(self._runtime, self.run(run_id))

    def apply(self, run_id: str = "last", *, accept_plausible: bool = False) -> PatchApplied:
        """Write a proved change into the checkout that it was made for: all of it, or nothing."""
        from codepilot.engine.apply import apply_run

        return apply_run(self._runtime, self.find(run_id), accept_plausible=accept_plausible)

    def commit(self, run_id: str, branch: str, *, accept_plausible: bool = False) -> CommitRecorded:
        """Commit a proved change to a new branch of the repository that it was made for."""
        from codepilot.engine.apply import commit_run

        return commit_run(self._runtime, self.find(run_id), branch, accept_plausible=accept_plausible)

    def verify(
        self,
        bundle: str | Path = "last",
        *,
        repo: Path | None = None,
        python: str | None = None,
        unsafe_no_sandbox: bool = False,
    ) -> ProofRecorded:
        """Prove a bundle again, given its directory or its run. An altered byte is an error."""
        from codepilot.engine.bundle_check import Checking, verify_bundle

        where = Path(bundle) if Path(bundle).exists() else self.bundle(str(bundle))
        return verify_bundle(self._runtime, where, Checking(repo, python, unsafe_no_sandbox))

    # Upkeep

    def gc(self, days: float = 7.0, artifact_days: float | None = None, *, dry_run: bool = False) -> Removed:
        """Remove workspaces that nothing has used for `days`, and with `artifact_days` the artifacts that no run of the
        last so many days names.
        """
        from codepilot.engine.close import collect, prune

        pruned = None
        if artifact_days is not None:
            pruned = prune(self._runtime, timedelta(days=artifact_days), rehearse=dry_run)
        return Removed(collect(self._runtime, days, rehearse=dry_run), pruned)

    def fsck(self, *, repair: bool = False) -> tuple[dict[str, str], dict[str, str]]:
        """What is wrong with the stored runs, by id, and what of it is left after `repair`."""
        problems = self._runtime.store.check_all()
        return problems, self._runtime.store.repair(problems) if repair else problems
