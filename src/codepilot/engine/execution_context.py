"""A run's context: its pinned base, its project, its workspace in the sandbox. Found again after a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter

from codepilot.context import Files, Survey
from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.contract import canonical_json
from codepilot.core.events import BasePinned, NetworkRefused
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import TaskSpec
from codepilot.engine.base import fetch_base, open_objects
from codepilot.engine.executor_factory import check_place, open_task_executor
from codepilot.engine.runtime import Runtime
from codepilot.engine.settings import Settings
from codepilot.engine.workspace_lease import WorkspaceLease
from codepilot.executor import CreateWorkspace, Executor, MountSpec
from codepilot.project import Project, check_level, detect, suite_from_json, suite_to_json
from codepilot.store import Artifacts
from codepilot.verify import Baseline
from codepilot.workspace import DatedLine, ObjectStore, find_repository, line_ages

_PROJECT = TypeAdapter(Project)
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class ExecutionContext:
    """Everything a step needs of the execution plane."""

    executor: Executor
    objects: ObjectStore
    base: BasePinned
    project: Project
    hosts: tuple[str, ...] = ()
    carry: tuple[str, ...] = ()
    """The generated, ignored files that `[project] carry` asks for."""

    def create(self, workspace: str, tree: str) -> str:
        """Make (or find) a workspace holding `tree`, with the project's environment around it."""
        info = self.executor.create(self.request(workspace, tree))
        return info.path

    @contextmanager
    def copied(self, workspace: str) -> Iterator[str]:
        """A copy of a workspace as it is now, deleted when the block is left."""
        name = f"{workspace}-copy"
        try:
            self.executor.delete(name)
            self.create(name, self.base.tree)
            taken = self.executor.snapshot(workspace).snapshot
            there = self.executor.import_snapshot(name, self.executor.export_snapshot(workspace, taken))
            self.executor.restore(name, there.snapshot)
            yield name
        finally:
            self.executor.delete(name)

    def request(self, workspace: str, tree: str) -> CreateWorkspace:
        return CreateWorkspace(
            workspace=workspace,
            objects=str(self.objects.path),
            tree=tree,
            at=self.base.checkout if self.executor.remaps else None,
            mounts=tuple(MountSpec(source=source, target=target) for source, target in self.project.mounts),
            carried=self._carried(),
            env={**_proxied(self.hosts), **self.project.env},
            kernel_python=self.project.interpreter.executable,
            hosts=self.hosts,
        )

    def _carried(self) -> tuple[MountSpec, ...]:
        if self.base.checkout is None:
            return ()
        root = Path(self.base.checkout)
        git_dir = find_repository(root).git_dir if self.carry else None
        return tuple(MountSpec(source=str(_within(root, path, git_dir)), target=path) for path in self.carry)

    @cached_property
    def survey(self) -> Survey:
        """The base, mapped: for all steps of the run, and what was parsed of the repository is not parsed again."""
        known = self.objects.path.with_suffix(".symbols.db")
        return Survey.of(Files.of_tree(self.objects, self.base.tree), known)

    def ages(self, paths: tuple[str, ...]) -> dict[str, tuple[DatedLine, ...]]:
        """How long ago lines of these files were changed before the base; nothing where the checkout is not here."""
        if self.base.checkout is None or not Path(self.base.checkout).is_dir():
            return {}
        return line_ages(Path(self.base.checkout), self.base.commit, paths)

    def close(self) -> None:
        """Close the object store; whichever code opened the executor closes it."""
        self.objects.close()


def _proxied(hosts: tuple[str, ...]) -> dict[str, str]:
    """Clients go to loopback names by themselves, unless one of them is a host that was opened."""
    opened = {host.partition(":")[0] for host in hosts}
    if not opened.intersection(LOOPBACK):
        return {}
    left = ",".join(name for name in LOOPBACK if name not in opened)
    return {"NO_PROXY": left, "no_proxy": left}


def _within(root: Path, path: str, git_dir: Path | None = None) -> Path:
    """The file that `[project] carry` names: in the repository, not by way of a link, and not git's own."""
    place = root / path
    if place.parent.resolve() != root.resolve() / Path(path).parent or {"..", "/"} & {*Path(path).parts}:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"[project] carry names {path!r}, which is not in the repository.",
            next_action="Name files inside the checkout, relative to its top.",
        )
    if git_dir is not None and place.resolve().is_relative_to(git_dir.resolve()):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"[project] carry names {path!r}, which is in a git directory and is never copied into a workspace.",
            next_action="Take it out of `carry` in codepilot.toml.",
        )
    return place


def find_project(
    task: TaskSpec,
    base: BasePinned,
    root: Path,
    executor: Executor,
    inside: Callable[[], str],
    settings: Settings,
    test_hosts: tuple[str, ...],
) -> Project:
    """Detect the project on a checkout of the base, as the executor at hand will show it."""
    chosen = settings.for_repository(root).project
    seen_at = base.checkout if base.checkout and executor.remaps else inside()
    named_by_user = chosen.python == settings.for_repository(None).project.python
    project = detect(
        root,
        python=task.python,
        environ=settings.environ,
        inside=seen_at,
        settings=chosen,
        named_by_user=named_by_user,
    )
    check_level(project, executor.remaps, seen_at)
    return replace(project, hosts=test_hosts, env={**_proxied(test_hosts), **project.env})


def keep_baseline(artifacts: Artifacts, project: Project, baseline: Baseline) -> ArtifactRef:
    """Store the project and its baseline: later steps, and other processes, read them from here."""
    document = {"project": _PROJECT.dump_python(project, mode="json"), "suite": suite_to_json(baseline.suite)}
    return artifacts.put(canonical_json(document).encode(), ArtifactType.REPORT)


def recall_baseline(artifacts: Artifacts, run: Run) -> tuple[Project, Baseline]:
    """What `keep_baseline` stored for this run."""
    import json

    if run.baseline is None or run.baseline.report is None:
        raise CodePilotError(FailureKind.INTERNAL, f"Run {run.run_id} has no baseline to work against.")
    document = json.loads(artifacts.get(run.baseline.report))
    baseline = Baseline(
        targets=run.baseline.targets,
        signature=run.baseline.signature,
        suite=suite_from_json(document["suite"]),
        summary=run.baseline.before,
        suite_kind=run.baseline.suite,
    )
    return _PROJECT.validate_python(document["project"]), baseline


MOST_REFUSED = 100
"""Hosts that a worker's part of a run tells of; code inside could make them up without end."""


class RunResources:
    """A run's executor, workspace lease and execution context, kept open from step to step."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._home = runtime.home
        self._executor: Executor | None = None
        self._context: ExecutionContext | None = None
        self._refused: dict[str, str] = {}
        self._reported: set[str] = set()
        self._guard = threading.Lock()
        self._lease: WorkspaceLease | None = None

    def workspace(self, run_id: str) -> str:
        """The run's workspace here, which is ours until `close`."""
        if self._lease is None:
            self._lease = WorkspaceLease.take(self._home, run_id)
        return self._lease.name

    def settle(self, run: Run) -> None:
        """Open the executor that has the run's workspace; raises if that is not possible here."""
        if self._executor is None:
            if not self._runtime.shared:
                check_place(run, self._runtime.settings)
            self.executor(run.task)

    def executor(self, task: TaskSpec) -> Executor:
        if self._executor is None:
            self._executor = open_task_executor(task, self._runtime.settings, self._saw)
        return self._executor

    def take_refused(self) -> list[NetworkRefused]:
        """Hosts that code inside was refused since the last call; each host once in a run."""
        with self._guard:
            new = {host: why for host, why in self._refused.items() if host not in self._reported}
            self._reported.update(new)
            self._refused.clear()
        return [NetworkRefused(host=host, why=why) for host, why in new.items()]

    def _saw(self, workspace: str, host: str, port: int, method: str, allowed: bool, why: str) -> None:
        with self._guard:
            if not allowed and len(self._reported) + len(self._refused) < MOST_REFUSED:
                self._refused.setdefault(f"{host}:{port}", why)

    def get(self, task: TaskSpec, base: BasePinned, project: Project) -> ExecutionContext:
        kept = self._context
        if kept is None or (kept.base, kept.project) != (base, project):
            self._close_context()
            objects = open_objects(self._home, base.repo_id)
            fetch_base(self._runtime, base, objects)
            checkout = Path(base.checkout) if base.checkout else None
            carry = self._runtime.settings.for_repository(checkout).project.carry
            kept = self._context = ExecutionContext(self.executor(task), objects, base, project, task.hosts, carry)
        return kept

    def interrupt(self) -> None:
        if self._executor is not None:
            self._executor.interrupt_all()

    def close(self) -> None:
        self._close_context()
        if self._executor is not None:
            self._executor.close()
            self._executor = None
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def _close_context(self) -> None:
        if self._context is not None:
            self._context.close()
            self._context = None
