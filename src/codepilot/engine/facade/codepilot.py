"""The Python API. Every command calls this class and nothing else of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from codepilot.core.artifacts import ArtifactRef
from codepilot.core.attempt import Attempt
from codepilot.core.commit import CommitRecorded
from codepilot.core.events import Event, PatchApplied, ProofRecorded
from codepilot.core.interactive import ModeSwitch
from codepilot.core.run import Run
from codepilot.core.scaffold import Scaffold
from codepilot.core.task import TaskSpec
from codepilot.engine.facade.access import Access
from codepilot.engine.facade.changes import Afterwards
from codepilot.engine.facade.memory import Remembers
from codepilot.engine.facade.people import People
from codepilot.engine.facade.reading import Reading
from codepilot.engine.facade.sessions import Sessions
from codepilot.engine.service.requests import ServiceWork

if TYPE_CHECKING:
    from codepilot.engine.agent_check import AgentHere
    from codepilot.engine.estimate import Estimate
    from codepilot.engine.task import Begun, Request
    from codepilot.engine.worker_pool import WorkerPool
    from codepilot.store import Activity, ArtifactRow, NotificationRow, RunRow
    from codepilot.telemetry import IterationFigures, Report


class CodePilot(Afterwards, People, Sessions, Remembers, Access, Reading, ServiceWork):
    """Submits tasks, follows and controls their runs, and applies what they found.

    A run is named by its id, the beginning of its id or "last". Nothing is opened before it is needed; use the object
    as a context manager, or call `close`.
    """

    # Tasks and work

    def task(self, request: Request) -> TaskSpec:
        """The request as a task, completed by the settings. A request that cannot work is refused here."""
        from codepilot.engine.task import make_task

        return make_task(request, self.settings)

    def attempt(self, attempt: Attempt, agent: str, cwd: Path, *, model: str | None = None) -> TaskSpec:
        """One attempt of a batch task as a task: the agent's program is given the prompt in this directory."""
        from codepilot.engine.kinds.attempt_request import attempt_task

        return attempt_task(attempt, agent, cwd, self.settings, model=model)

    def judge_attempt(self, run_id: str, criteria: Sequence[str] = ()) -> Begun:
        """Begin the run that judges what an attempt changed, by tests and commands."""
        from codepilot.engine.kinds.attempt_request import judge_attempt

        return judge_attempt(self._runtime, self.find(run_id), criteria)

    def read_task(self, document: str, repo: str = ".") -> TaskSpec:
        """A task document, JSON with comments, as a task."""
        from codepilot.engine.documents import read_task

        return read_task(document, self.settings, repo)

    def estimate(self, task: TaskSpec) -> Estimate:
        """What a task may cost, from past runs of its kind and model, else from prices."""
        from codepilot.engine.estimate import estimate

        return estimate(self._runtime, self.settings, task)

    def level(self, task: TaskSpec | None = None) -> str:
        """The sandbox level at which the task's code will run, or that of any task by the settings."""
        from codepilot.engine.execution_context import level_of, open_executor

        if task is not None:
            return level_of(task, self.settings)
        with closing(open_executor(self.settings, self.settings.sandbox.level, self.settings.policy)) as executor:
            return executor.level

    def agents(self) -> list[AgentHere]:
        """The programs of this machine that can be agents, and whether each could work now."""
        from codepilot.engine.agent_check import found_agents

        return found_agents(self.settings)

    def module(
        self,
        ecosystem: str,
        name: str,
        package: str = "",
        ci: str | None = None,
        into: str | None = None,
        out: str | None = None,
    ) -> Scaffold:
        """The module that a scaffold task makes, alone or in the repository `into`, there in the directory `out`."""
        from codepilot.engine.kinds.module_request import make_scaffold

        return make_scaffold(ecosystem, name, package, ci, into, out)

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

    def following(
        self, task: TaskSpec, done: Sequence[Run], run_id: str | None = None, *, accept_plausible: bool = False
    ) -> Begun | None:
        """Begin the next run of a series that repairs one failing test after the other; None if no test is left.

        `done` are the series' runs so far. Trusted changes are part of the next base: confirmed ones, and with
        `accept_plausible` plausible ones.
        """
        from codepilot.engine.series import next_base, next_task
        from codepilot.engine.task import begin

        following = next_task(task, done, accept_plausible=accept_plausible)
        if following is None:
            return None
        return begin(self._runtime, following, run_id, next_base(done, accept_plausible=accept_plausible))

    def reopen(
        self, run_id: str = "last", limits: Mapping[str, float] | None = None, mode: ModeSwitch | None = None
    ) -> Begun:
        """`resume` for a run that this process works on."""
        from codepilot.engine.control import go_on

        return go_on(self._runtime, self.find(run_id), limits, mode)

    def work(
        self,
        run: str | Begun = "last",
        *,
        on_event: Callable[[Event], None] = lambda event: None,
        on_text: Callable[[str], None] = lambda text: None,
        on_output: Callable[[bytes], None] = lambda data: None,
    ) -> Run:
        """Work on a run until it finishes or waits; steps that another worker has are followed.

        `on_event` gets every event from here on, `on_text` a model's words while they arrive, `on_output` what a
        program of a batch writes.
        """
        from codepilot.engine.worker import Worker

        begun = None if isinstance(run, str) else run
        run_id = self.find(run) if isinstance(run, str) else run.run.run_id
        worker = Worker(self._runtime, on_event, on_text=on_text, on_output=on_output, begun=begun)
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

    # Reading runs

    def run(self, run_id: str = "last") -> Run:
        return self._runtime.store.load(self.find(run_id))

    def runs(self, limit: int = 20) -> list[RunRow]:
        """The newest runs first."""
        return self._runtime.store.history(limit)

    def events(self, run_id: str = "last", after: int = 0, limit: int | None = None) -> list[Event]:
        """The events of a run so far, those after the number `after`."""
        return self._runtime.store.events(self.find(run_id), after, limit=limit)

    def follow(
        self, run_id: str = "last", after: int = 0, *, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """The events of a run as any process records them, until it finishes or waits, or until `stop` is true."""
        from codepilot.engine.follower import EventFollower

        return EventFollower(self._runtime.store, self.find(run_id), after).follow(stop)

    def activities(self, *run_ids: str) -> dict[str, Activity]:
        """Of runs that have neither ended nor wait: whether they are queued, at work, or interrupted."""
        return self._runtime.store.activities.of(run_ids)

    def log(self, run_id: str = "last", *, follow: bool = False) -> Iterator[str]:
        """The run's log as lines of JSON, without secrets."""
        from codepilot.engine.follower import EventFollower
        from codepilot.telemetry import LogLines

        follower, formatted = EventFollower(self._runtime.store, self.find(run_id)), LogLines(self._runtime.redact)
        for event in follower.follow() if follow else follower.new():
            formatted.learn([event])
            yield formatted.of([event]).decode().removesuffix("\n")

    def report(self, run_id: str = "last") -> Report:
        """How a run stands, as one document: what `--json` prints. A bundle that another machine wrote is fetched."""
        from codepilot.engine.report import report_run

        run = self.run(run_id)
        events = self._runtime.store.events(run.run_id)
        if run.bundle is not None:
            from codepilot.engine.close import fetch_bundle

            fetch_bundle(run, events, self._runtime)
        document = report_run(run, events, self._runtime.home)
        if (activity := self.activities(run.run_id).get(run.run_id)) is not None:
            document = document.model_copy(update={"activity": activity.value})
        if "answer" in run.documents:
            answer = self.document(run.run_id, "answer").decode("utf-8", "replace")
            document = document.model_copy(update={"answer": answer})
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

    def pause(self, run_id: str = "last", *, by: str = "user") -> Run:
        """Let a run stop: at its next safe point if a worker has it, else now."""
        from codepilot.engine.control import pause

        return pause(self._runtime, self.find(run_id), by)

    def resume(
        self,
        run_id: str = "last",
        *,
        by: str = "user",
        limits: Mapping[str, float] | None = None,
        mode: ModeSwitch | None = None,
    ) -> Run:
        """Reopen a run that waits, was paused or has spent its budget; a worker goes on with it.

        `limits` are new values of budgets; without them a spent budget is granted once more. `mode` is another
        execution mode or strategy.
        """
        from codepilot.engine.control import resume

        return resume(self._runtime, self.find(run_id), by, limits, mode)

    def cancel(self, run_id: str, *, by: str = "user") -> Run:
        """End a run and remove its workspace; within a second if a worker has it."""
        from codepilot.engine.control import cancel

        return cancel(self._runtime, self.find(run_id), by)

    def fork(self, run_id: str = "last", at: int | None = None, *, by: str = "user") -> Run:
        """Queue a new run that begins with another one's events up to number `at`."""
        from codepilot.engine.fork import fork_run

        return fork_run(self._runtime, self.find(run_id), at, by)

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
        from codepilot.engine.change.apply import patch_of

        return patch_of(self._runtime, self.run(run_id))

    def apply(self, run_id: str = "last", *, accept_plausible: bool = False, by: str = "user") -> PatchApplied:
        """Write a proved change into the checkout that it was made for: all of it, or nothing."""
        from codepilot.engine.change.apply import apply_run

        return apply_run(self._runtime, self.find(run_id), accept_plausible=accept_plausible, by=by)

    def commit(self, run_id: str, branch: str, *, accept_plausible: bool = False) -> CommitRecorded:
        """Commit a proved change to a new branch of the repository that it was made for."""
        from codepilot.engine.change.apply import commit_run

        return commit_run(self._runtime, self.find(run_id), branch, accept_plausible=accept_plausible)

    def verify(
        self,
        bundle: str | Path = "last",
        *,
        repo: Path | None = None,
        python: str | None = None,
        unsafe_no_sandbox: bool = False,
        on_progress: Callable[[str], None] = lambda stage: None,
    ) -> ProofRecorded:
        """Prove a bundle again, given its directory or its run. An altered byte is an error.

        The bundle of a run that ended on another machine is brought here first. `on_progress` gets what is done next,
        in words.
        """
        from codepilot.engine.change.bundle_check import Checking, verify_bundle

        where = Path(bundle) if Path(bundle).exists() else self.bundle(str(bundle))
        if not where.exists() and self.run(str(bundle)).bundle is not None:
            self.fetch_bundle(str(bundle))
        return verify_bundle(self._runtime, where, Checking(repo, python, unsafe_no_sandbox, on_progress))
