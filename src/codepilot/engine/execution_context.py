"""Where a run is worked on: its executor, its workspace and its pinned base. Found again after a crash.

A workspace is leased: a worker that was frozen for longer than its step's lease may have left processes that still
write into it, so the next worker on this machine takes another one, and nothing removes one that is in use. A lock
file names each workspace; the kernel frees the lock when its process dies, and the sandbox dies with that process.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from codepilot.context import Files, Survey
from codepilot.core.events import BasePinned, NetworkRefused
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import NO_COMMIT
from codepilot.core.policy import Policy
from codepilot.core.project_settings import ProjectSettings
from codepilot.core.run import Run
from codepilot.core.task import Capability, TaskSpec
from codepilot.engine.base import fetch_base, open_objects
from codepilot.engine.settings import Settings
from codepilot.executor import CreateWorkspace, Executor, LocalExecutor, MountSpec, NetworkSeen
from codepilot.project import Project, check_level, detect, locate, version_files
from codepilot.project.interpreter import has_environment
from codepilot.project.recipe import environment_for, modules_for
from codepilot.sandbox import Least, Level, Wanted, choose, weaker
from codepilot.skills import answer_calls, count_calls
from codepilot.store import Home
from codepilot.workspace import DatedLine, ObjectStore, find_repository, line_ages

if TYPE_CHECKING:
    from codepilot.engine.runtime import Runtime

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MOST_REFUSED = 100
"""Refused hosts that are recorded for one worker's part of a run: code inside could invent them without end."""
MOST_WORKSPACES = 9
_LEASE_SUFFIX = ".workspace-lease"

_log = logging.getLogger(__name__)


# Executors -------------------------------------------------------------------------------------------


def open_task_executor(task: TaskSpec, settings: Settings, seen: NetworkSeen | None = None) -> Executor:
    """The executor for a task, no weaker than the task and its policy demand."""
    capability, network = task.risk_profile.capability, bool(task.hosts)
    return open_executor(settings, task.sandbox_level, task.policy, capability, network, seen)


def level_of(task: TaskSpec, settings: Settings) -> Level:
    """The sandbox level at which the task's code will run. Raises if the task demands more than there is."""
    with closing(open_task_executor(task, settings)) as executor:
        return executor.level


def open_executor(
    settings: Settings,
    wanted: Wanted,
    policy: Policy,
    capability: Capability = Capability.WRITE_AND_RUN_TESTS,
    network: bool = False,
    seen: NetworkSeen | None = None,
) -> Executor:
    """`capability` and `network` limit the skills that run on the host for code inside."""
    if settings.executor.url is not None:
        if settings.network.credentials:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                "[[network.credentials]] are added where the code runs, and the executor is elsewhere.",
                next_action="Configure them where the executor runs, and take them out here.",
            )
        return _remote(settings, settings.executor.url, wanted, policy)
    return LocalExecutor(
        settings.home.workspaces,
        choose(wanted, policy.least_level),
        answer=answer_calls(capability, network),
        count=count_calls,
        credentials=settings.credentials(),
        seen=seen,
    )


def _remote(settings: Settings, url: str, wanted: Wanted, policy: Policy) -> Executor:
    from codepilot.executor import RemoteExecutor

    _check_secrecy(url, allowed=settings.executor.plain_http)
    executor = RemoteExecutor(url, settings.executor_token, count_calls)
    least = least_elsewhere(wanted, policy)
    if least is not None and weaker(executor.level, least):
        executor.close()
        raise CodePilotError(
            FailureKind.SANDBOX_UNAVAILABLE,
            f"The executor at {url} confines code by {executor.level}; at least {least} is demanded.",
            next_action=f"Name an executor whose level is {least}, or lower the demand.",
        )
    return executor


def least_elsewhere(wanted: Wanted, policy: Policy) -> Least | None:
    """The weakest level that a remote executor may have; for "best", any level that confines."""
    if wanted == "none":
        return policy.least_level
    demanded: Least = "landlock" if wanted == "best" else wanted
    return policy.least_level if policy.least_level and weaker(demanded, policy.least_level) else demanded


def _check_secrecy(url: str, *, allowed: bool) -> None:
    """Code and the token leave the machine in clear text only if the settings allow it."""
    split = urlsplit(url)
    nearby = split.hostname in ("localhost", "127.0.0.1", "::1")
    if split.scheme == "http" and not nearby and not allowed:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The executor at {split.hostname} would get your code and its token unencrypted.",
            next_action="Put TLS in front of it and name it by https, or set [executor] plain_http = true.",
        )


def check_place(run: Run, settings: Settings) -> None:
    """Raise unless the configured executor has the run's workspace."""
    if run.base_snapshot is None:
        return
    here = settings.executor.url
    if run.executor == here:
        return
    if run.executor is None:
        message, advice = "this machine", "take [executor] out of the configuration"
    else:
        message, advice = f"the executor at {run.executor}", f"set CODEPILOT_EXECUTOR_URL={run.executor}"
    raise CodePilotError(
        FailureKind.EXECUTOR_LOST,
        f"Run {run.run_id} has its workspace on {message}; the configuration names {here or 'none'} now.",
        next_action=f"To go on, {advice}, then `codepilot resume {run.run_id}`.",
    )


def seen_at(executor: Executor, objects: ObjectStore, workspace: str) -> str:
    """The path of a workspace as code inside sees it, for executors that cannot choose that path."""
    request = CreateWorkspace(workspace=workspace, objects=str(objects.path), tree=objects.write_tree({}))
    executor.delete(workspace)
    inside = executor.create(request).inside
    executor.delete(workspace)
    return inside


def remover(task: TaskSpec, settings: Settings) -> Callable[[str], None]:
    """A function that removes workspaces of a remote executor. An executor that does not answer is a warning."""

    def remove(workspace: str) -> None:
        try:
            with closing(open_task_executor(task, settings)) as executor:
                executor.delete(workspace)
        except CodePilotError as error:
            _log.warning("the workspace %s is left at the executor: %s", workspace, error)

    return remove


# Workspace leases ------------------------------------------------------------------------------------


class WorkspaceLease:
    """A workspace's name, taken until `close`."""

    def __init__(self, name: str, path: Path, lock: int) -> None:
        self.name = name
        self._path = path
        self._lock = lock

    @classmethod
    def take(cls, home: Home, run_id: str) -> WorkspaceLease:
        """The first workspace of the run that is free."""
        for number in range(1, MOST_WORKSPACES + 1):
            name = run_id if number == 1 else f"{run_id}.{number}"
            if (taken := cls._try(home, name)) is not None:
                return taken
        raise CodePilotError(
            FailureKind.EXECUTOR_LOST,
            f"{MOST_WORKSPACES} processes that lost {run_id} still have its workspaces.",
            next_action="Look for stopped codepilot processes (`ps`), continue or end them.",
        )

    @classmethod
    def _try(cls, home: Home, name: str) -> WorkspaceLease | None:
        path = home.locks / f"{name}{_LEASE_SUFFIX}"
        while True:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_ino == path.stat().st_ino:
                    return cls(name, path, lock)
            except BlockingIOError:
                os.close(lock)
                return None
            except FileNotFoundError:
                pass
            os.close(lock)  # removed between open and lock: create it again

    def close(self) -> None:
        """Release the lock; the files stay."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove(self) -> None:
        """Release the lock and remove its file: the workspace is gone."""
        self._path.unlink(missing_ok=True)
        self.close()


def leased_workspaces(home: Home, run_id: str) -> list[str]:
    """The run's workspaces in this home, in use or not."""
    names = {path.name.removesuffix(_LEASE_SUFFIX) for path in home.locks.iterdir() if path.name.startswith(run_id)}
    if any((home.workspaces / workspace).exists() for workspace in _parts(run_id)):
        names.add(run_id)
    return sorted(name for name in names if run_of(name) == run_id)


def remove_leased_workspaces(
    home: Home, run_id: str, remove: Callable[[str], None], *, elsewhere: bool = False
) -> None:
    """Remove the run's workspaces, except those in use: the process that uses one removes it, or the next sweep does.

    With `elsewhere`, a remote executor may have a workspace that this home has no lock file of.
    """
    for name in sorted({*leased_workspaces(home, run_id), *([run_id] if elsewhere else [])}):
        lease = WorkspaceLease._try(home, name)
        if lease is not None:
            for workspace in _parts(name):
                remove(workspace)
            lease.remove()


def _parts(name: str) -> tuple[str, ...]:
    """The directories of one workspace."""
    return name, f"{name}-base", f"{name}-proof", f"{name}-copy"


def run_of(workspace: str) -> str:
    """The id of the run that owns the workspace."""
    return re.sub(r"(\.\d+)?(-base|-proof|-copy)?$", "", workspace, count=1)


def lock_files(home: Home) -> list[str]:
    """The names of all workspaces that were leased here and not removed since."""
    return [path.name.removesuffix(_LEASE_SUFFIX) for path in home.locks.glob(f"*{_LEASE_SUFFIX}")]


# The context of a run --------------------------------------------------------------------------------


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

    def inside(self, workspace: str) -> str:
        """The path at which code inside sees the workspace, which is there."""
        return self.executor.create(self.request(workspace, self.base.tree)).inside

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
            env={**proxied(self.hosts), **self.project.env},
            kernel_python=self.project.interpreter.executable,
            hosts=self.hosts,
        )

    def _carried(self) -> tuple[MountSpec, ...]:
        if self.base.checkout is None:
            return ()
        root = Path(self.base.checkout)
        wanted = dict.fromkeys((*self.carry, *self._version_files))
        git_dir = find_repository(root).git_dir if wanted else None
        return tuple(MountSpec(source=str(_within(root, path, git_dir)), target=path) for path in wanted)

    @cached_property
    def _version_files(self) -> tuple[str, ...]:
        """Version files that the project's build wrote into the checkout and that the base lacks."""
        root = Path(self.base.checkout or "/nowhere")
        found = version_files(root, self.project.folder) if self.project.is_python else ()
        tracked = self.objects.read_tree(self.base.tree) if found else {}
        return tuple(path for path in found if path not in tracked and (root / path).resolve() == root.resolve() / path)

    @cached_property
    def survey(self) -> Survey:
        """The map of the base tree, shared by the run's steps. Parsed files are cached per repository."""
        known = self.objects.path.with_suffix(".symbols.db")
        return Survey.of(Files.of_tree(self.objects, self.base.tree), known)

    def ages(self, paths: tuple[str, ...]) -> dict[str, tuple[DatedLine, ...]]:
        """When each line of these files last changed before the base; empty if the checkout is not on this machine."""
        if self.base.commit == NO_COMMIT or self.base.checkout is None or not Path(self.base.checkout).is_dir():
            return {}
        return line_ages(Path(self.base.checkout), self.base.commit, paths)

    def close(self) -> None:
        """Close the object store. The executor is closed by the code that opened it."""
        self.objects.close()


def proxied(hosts: tuple[str, ...]) -> dict[str, str]:
    """Exclude loopback names from the proxy, except those that the task opened."""
    opened = {host.partition(":")[0] for host in hosts}
    if not opened.intersection(LOOPBACK):
        return {}
    left = ",".join(name for name in LOOPBACK if name not in opened)
    return {"NO_PROXY": left, "no_proxy": left}


def _within(root: Path, path: str, git_dir: Path | None = None) -> Path:
    """The file that `[project] carry` names: inside the repository, not reached through a link, not in `.git`."""
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
    """Detect the project in a checkout of the base, with the paths that the executor will show."""
    try:
        return _detected(task, base, root, executor, inside, settings, test_hosts)
    except CodePilotError as error:
        if error.kind is not FailureKind.NO_TEST_RUNNER or not task.judged_by_commands:
            raise
        plain = plain_project(base, root, executor, inside, settings)
        return replace(plain, hosts=test_hosts, env={**proxied(test_hosts), **plain.env})


def plain_project(
    base: BasePinned, root: Path, executor: Executor, inside: Callable[[], str], settings: Settings
) -> Project:
    """A project without tests: any Python reads its files."""
    seen_at = base.checkout if base.checkout and executor.remaps else inside()
    environ = {name: value for name, value in settings.environ.items() if name != "VIRTUAL_ENV"}
    plain = ProjectSettings(runner="unittest")
    empty = root / ".codepilot-no-environment"
    return detect(root, python=None, environ=environ, inside=seen_at, settings=plain, environment=empty)


def _detected(
    task: TaskSpec,
    base: BasePinned,
    root: Path,
    executor: Executor,
    inside: Callable[[], str],
    settings: Settings,
    test_hosts: tuple[str, ...],
) -> Project:
    chosen = settings.for_repository(root).project
    seen_at = base.checkout if base.checkout and executor.remaps else inside()
    named_by_user = chosen.python == settings.for_repository(None).project.python
    folder = chosen.root if chosen.root and not task.path else locate(root, _pointed_at(task, root))
    made = None if task.python or chosen.python else _prepared(root, folder, settings)
    project = detect(
        root,
        folder=folder,
        python=task.python or made,
        environ=settings.environ,
        inside=seen_at,
        settings=chosen,
        named_by_user=named_by_user,
        prepared=modules_for(settings.home.envs, root, folder),
    )
    if made is not None:
        project = replace(project, interpreter=replace(project.interpreter, origin="made by `codepilot prepare`"))
    check_level(project, executor.remaps, seen_at)
    return replace(project, hosts=test_hosts, env={**proxied(test_hosts), **project.env})


def _prepared(root: Path, folder: str, settings: Settings) -> str | None:
    """The Python of an environment that was prepared for the project, unless it has one of its own."""
    if has_environment(root, settings.environ, folder):
        return None
    found = environment_for(settings.home.envs, root, folder)
    return None if found is None else str(found)


def _pointed_at(task: TaskSpec, root: Path) -> Path:
    """The file or directory by which the project is found: the one that is named, else that of the first test."""
    files = [test.partition("::")[0] for test in task.tests if "::" in test or "/" in test]
    named = [Path(os.path.normpath(root / path)) for path in ([task.path] if task.path else files)]
    return next((place for place in named if place.exists() and root in place.parents), root)


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
        """The name of the run's workspace here, leased until `close`."""
        if self._lease is None:
            self._lease = WorkspaceLease.take(self._home, run_id)
        return self._lease.name

    def settle(self, run: Run) -> None:
        """Open the executor that has the run's workspace. Raises if this machine cannot."""
        if self._executor is None:
            if not self._runtime.shared:
                check_place(run, self._runtime.settings)
            self.executor(run.task)

    def executor(self, task: TaskSpec) -> Executor:
        if self._executor is None:
            self._executor = open_task_executor(task, self._runtime.settings, self._note_connection)
        return self._executor

    def take_refused(self) -> list[NetworkRefused]:
        """Hosts that the sandbox refused since the last call; each host once a run."""
        with self._guard:
            new = {host: why for host, why in self._refused.items() if host not in self._reported}
            self._reported.update(new)
            self._refused.clear()
        return [NetworkRefused(host=host, why=why) for host, why in new.items()]

    def _note_connection(self, workspace: str, host: str, port: int, method: str, allowed: bool, why: str) -> None:
        with self._guard:
            if not allowed and len(self._reported) + len(self._refused) < MOST_REFUSED:
                self._refused.setdefault(f"{host}:{port}", why)

    def get(
        self, task: TaskSpec, base: BasePinned, project: Project, hosts: tuple[str, ...] | None = None
    ) -> ExecutionContext:
        """The context with the task's hosts, or with these."""
        kept, hosts = self._context, task.hosts if hosts is None else hosts
        if kept is None or (kept.base, kept.project, kept.hosts) != (base, project, hosts):
            self._close_context()
            objects = open_objects(self._home, base.repo_id)
            fetch_base(self._runtime, base, objects)
            checkout = Path(base.checkout) if base.checkout else None
            carry = self._runtime.settings.for_repository(checkout).project.carry
            kept = self._context = ExecutionContext(self.executor(task), objects, base, project, hosts, carry)
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
