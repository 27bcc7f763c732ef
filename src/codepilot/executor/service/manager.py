"""The synchronous part of the service: one durable executor, uploaded objects, and processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import codepilot
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import check_copied_path
from codepilot.executor.local import LocalExecutor
from codepilot.executor.protocol import (
    Conflict,
    CreateWorkspace,
    EndpointInfo,
    MountSpec,
    RunCode,
    RunCommand,
    RunTreeInfo,
    SnapshotInfo,
    StartProcess,
    WorkspaceInfo,
)
from codepilot.executor.service.admission import Busy
from codepilot.executor.service.processes import Processes, Served
from codepilot.executor.service.settings import ServiceSettings
from codepilot.executor.service.waiting_actions import WaitingActions
from codepilot.executor.tunnel import TunnelMouth
from codepilot.executor.wire import BaseState, CreateRemote, Named, OpenEndpoint, Restore, StartRemote
from codepilot.sandbox import CodeResult, CommandResult
from codepilot.workspace import ObjectStore, Workspace

_CHUNK = 1 << 20


class WorkspaceManager:
    """Owns its home while it is open. Requests to create the same workspace must take turns."""

    def __init__(self, settings: ServiceSettings, open_executor: Callable[[Path], LocalExecutor]) -> None:
        """`open_executor` is given the directory of the workspaces; what it opens should be durable."""
        self.settings = settings
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _own(settings.home)
        self._sweep()
        self.objects = ObjectStore.open(settings.objects_home)
        self._held = sum(file.stat().st_size for file in settings.objects_home.rglob("*") if file.is_file())
        self._counting = threading.Lock()
        self._making: set[str] = set()
        self.executor = open_executor(settings.workspaces_home)
        self.processes = Processes(settings.processes)
        self.actions = WaitingActions(self.executor)

    def close(self) -> None:
        """End everything that runs; the workspaces stay."""
        self.executor.close()
        self.objects.close()
        os.close(self._lock)

    def workspaces(self) -> int:
        return sum(1 for _ in self.settings.workspaces_home.iterdir())

    def create(self, request: CreateRemote) -> WorkspaceInfo:
        check_mounts(request.mounts, self.settings.allow_mounts)
        check_python(request)
        check_carried(request)
        check_hosts(request.hosts, self.settings.allow_hosts)
        there = (self.settings.workspaces_home / request.workspace / "tree").is_dir()
        with self._room(request.workspace) if not there else contextlib.nullcontext():
            missing = [] if there else self._missing(request)
            if missing:
                raise Conflict(
                    f"the workspace {request.workspace} needs its {' and '.join(missing)} first",
                    "Send it with PUT /base/{tree}, then ask again.",
                    missing=missing,
                )
            try:
                with self._carried(request, there) as carried:
                    objects = str(self.settings.objects_home)
                    return self.executor.create(CreateWorkspace(**request.shared(), objects=objects, carried=carried))
            except BaseException:
                if not there:
                    self.executor.delete(request.workspace)
                raise

    def run_code(self, request: RunCode) -> CodeResult:
        return self.actions.run(request) if request.host_calls else self.executor.run_code(request)

    def run_command(self, request: RunCommand) -> CommandResult:
        check_hosts(request.hosts, self.settings.allow_hosts)
        return self.executor.run_command(request)

    def start_process(self, request: StartRemote) -> Served:
        if request.in_place is not None:
            raise CodePilotError(
                FailureKind.TOOL_PERMISSION_DENIED,
                "the executor lets no caller work on a directory of its machine",
                "Leave --in-place out, or work without [executor] url.",
            )
        check_mounts(request.mounts, self.settings.allow_mounts)
        check_hosts(request.hosts, self.settings.allow_hosts)
        plain = StartProcess(**{name: getattr(request, name) for name in StartProcess.model_fields})
        return self.processes.start(request, lambda: self.executor.start_process(plain))

    def open_endpoint(self, request: OpenEndpoint) -> EndpointInfo:
        """A way to a service of the caller's, through the streams of a process that the caller named."""
        served = self.processes.start(request, TunnelMouth)
        assert isinstance(served.process, TunnelMouth)
        try:
            return self.executor.endpoint(request.workspace, request.name, str(served.process.socket))
        except BaseException:
            served.kill()
            raise

    def restore(self, request: Restore) -> None:
        frozen = self.executor.session(request.workspace).frozen
        with contextlib.nullcontext() if frozen else self.processes.ending(request.workspace):
            self.executor.restore(request.workspace, request.snapshot, request.paths)

    def open_shadow(self, request: Named) -> RunTreeInfo:
        with self.processes.ending(request.workspace):
            return self.executor.open_shadow(request.workspace)

    def close_shadow(self, request: Named) -> None:
        with self.processes.ending(request.workspace):
            self.executor.close_shadow(request.workspace)

    def release(self, request: Named) -> None:
        with self.processes.ending(request.workspace, endpoints=True):
            self.executor.release(request.workspace)

    def delete(self, request: Named) -> None:
        with self.processes.ending(request.workspace, endpoints=True):
            self.executor.delete(request.workspace)

    def base(self, tree: str) -> BaseState:
        return BaseState(tree=tree, present=self._has(tree))

    def receive(self, file: Path, tree: str) -> BaseState:
        """Take in a base or the carried files, from the stream that was sent."""
        if self._has(tree):
            return BaseState(tree=tree, present=True)
        with self._space(file), _mismatch_is_conflict():
            root = self.objects.receive(_chunks(file), self.settings.upload_bytes)
        if root != tree:
            raise Conflict(f"the stream holds {root}, not {tree}", root=root)
        return BaseState(tree=tree, present=True)

    def receive_snapshot(self, file: Path, workspace: str) -> SnapshotInfo:
        with _mismatch_is_conflict():
            return self.executor.import_snapshot(workspace, _chunks(file))

    @contextlib.contextmanager
    def spool(self) -> Iterator[Path]:
        """A path for a body; the file is removed afterwards."""
        file = self.settings.staging / secrets.token_hex(16)
        try:
            yield file
        finally:
            file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _room(self, workspace: str) -> Iterator[None]:
        """Count a workspace against the limit while it is being made."""
        with self._counting:
            known = {path.name for path in self.settings.workspaces_home.iterdir()} | self._making
            if len(known | {workspace}) > self.settings.workspaces:
                raise Busy(
                    f"the executor holds {self.settings.workspaces} workspaces already",
                    next_action="Delete one, or start the executor with a larger --max-workspaces.",
                )
            self._making.add(workspace)
        try:
            yield
        finally:
            with self._counting:
                self._making.discard(workspace)

    @contextlib.contextmanager
    def _space(self, file: Path) -> Iterator[None]:
        """Reserve the size of the stream for its objects; a refused stream reserves nothing."""
        size = file.stat().st_size
        with self._counting:
            if self._held + size > self.settings.objects_bytes:
                raise CodePilotError(
                    FailureKind.DISK_FULL,
                    f"the executor has no room for more than {self.settings.objects_bytes} bytes of bases",
                    "Delete its workspaces and start it again.",
                )
            self._held += size
        try:
            yield
        except BaseException:
            with self._counting:
                self._held -= size
            raise

    def _missing(self, request: CreateRemote) -> list[str]:
        missing = [] if self._has(request.tree) else ["base"]
        snapshot = request.carried_snapshot
        if request.carried and (snapshot is None or not self._has(snapshot)):
            missing.append("carried")
        return missing

    def _has(self, name: str) -> bool:
        return self.objects.has(name) or (self.objects.refresh() and self.objects.has(name))

    @contextlib.contextmanager
    def _carried(self, request: CreateRemote, there: bool) -> Iterator[tuple[MountSpec, ...]]:
        """The carried files, materialised outside the workspace while they are copied."""
        directory = self.settings.staging / f"carried-{request.workspace}"
        sources = [directory / "tree" / str(number) for number in range(len(request.carried))]
        copies = Workspace(directory, self.objects)
        try:
            if request.carried and request.carried_snapshot is not None and not there:
                copies.create(self.objects.write_tree({}))
                copies.restore(request.carried_snapshot)
            yield tuple(
                MountSpec(source=str(source), target=target)
                for source, target in zip(sources, request.carried, strict=True)
            )
        finally:
            copies.delete()

    def _sweep(self) -> None:
        """Remove what an earlier process left when it was killed; without workspaces no object is needed."""
        shutil.rmtree(self.settings.staging, ignore_errors=True)
        self.settings.staging.mkdir(mode=0o700)
        self.settings.workspaces_home.mkdir(mode=0o700, exist_ok=True)
        names = sorted(path.name for path in self.settings.workspaces_home.iterdir())
        for name in names:
            for left in (self.settings.workspaces_home / name).glob(".codepilot-tmp-*"):
                Workspace(left, ObjectStore(left, ())).delete()
        if not names:
            shutil.rmtree(self.settings.objects_home, ignore_errors=True)


@contextlib.contextmanager
def _mismatch_is_conflict() -> Iterator[None]:
    """Report a refused stream as a conflict with the path."""
    try:
        yield
    except CodePilotError as error:
        if error.kind is not FailureKind.TOOL_INVALID_ARGS:
            raise
        raise Conflict(error.failure.message, error.failure.next_action) from error


def _own(home: Path) -> int:
    """Hold the home for this process alone."""
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise CodePilotError(
            FailureKind.STORE_UNAVAILABLE,
            f"another executor uses {home}",
            "End it first, or give this one a --home of its own.",
        ) from None
    return lock


def _chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def check_mounts(mounts: Sequence[MountSpec], allowed: Sequence[Path]) -> None:
    """Refuse sources that lead outside the allowed directories, also through links."""
    roots = [root.resolve() for root in (*allowed, *_own_prefixes())]
    for mount in mounts:
        source = Path(mount.source)
        if not source.is_absolute() or not any(source.resolve().is_relative_to(root) for root in roots):
            raise CodePilotError(
                FailureKind.TOOL_PERMISSION_DENIED,
                f"the executor does not show {mount.source!r} to callers",
                "Start it with --allow-mount and a directory that holds this path.",
                source=mount.source,
            )
        if not source.exists():
            raise CodePilotError(
                FailureKind.PATH_NOT_FOUND,
                f"there is no {mount.source} on the executor's machine",
                "Install the project's environment there, at the same path.",
                source=mount.source,
            )


def check_carried(request: CreateRemote) -> None:
    """Refuse targets outside the tree or in a git directory."""
    for target in request.carried:
        try:
            check_copied_path(target)
        except ValueError as error:
            raise CodePilotError(FailureKind.TOOL_PERMISSION_DENIED, str(error), target=target) from None


def check_python(request: CreateRemote) -> None:
    """The kernel's interpreter must be there, as itself or below a mount."""
    if request.kernel_python is None:
        return
    python = Path(request.kernel_python)
    places = [python]
    for mount in request.mounts:
        if python.is_relative_to(mount.target):
            places.append(Path(mount.source) / python.relative_to(mount.target))
    if not python.is_absolute() or not any(place.exists() for place in places):
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"there is no interpreter {request.kernel_python!r} on the executor's machine",
            "Install it there at the same path, or name another with --python.",
            python=request.kernel_python,
        )


def check_hosts(hosts: Sequence[str], allowed: Sequence[str]) -> None:
    """The network belongs to the executor's operator: a caller reaches what was named, and nothing else."""
    refused = [host for host in hosts if host not in allowed]
    if refused:
        raise CodePilotError(
            FailureKind.TOOL_PERMISSION_DENIED,
            f"the executor does not let callers reach {', '.join(refused[:5])}",
            "Start it with --allow-host and each host that may be reached.",
            hosts=refused[:20],
        )


def _own_prefixes() -> list[Path]:
    """The interpreter's places, and CodePilot's own source, which an editable install has elsewhere."""
    base = Path(getattr(sys, "_base_executable", "") or sys.executable)
    return [Path(sys.prefix), Path(sys.base_prefix), base.resolve().parent.parent, Path(codepilot.__file__).parents[1]]
