"""The executor in this process: workspaces in a directory, everything inside a sandbox."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from codepilot.executor.counting import Count, count_calls
from codepilot.executor.errors import UnknownWorkspace
from codepilot.executor.fields import check_name, check_object
from codepilot.executor.host_calls import with_host_calls
from codepilot.executor.network import Network, NetworkSeen, check_hosts
from codepilot.executor.own_python import with_own_python
from codepilot.executor.place import AnswerFor, Place
from codepilot.executor.protocol import (
    CodeError,
    CodeResult,
    CommandResult,
    CreateWorkspace,
    DiffResult,
    FileChange,
    RunCode,
    RunCommand,
    SnapshotInfo,
    StartProcess,
    Violation,
    WorkspaceInfo,
    making_git,
)
from codepilot.sandbox import ActionResult, Answer, Credential, Level, Limits, Process, Sandbox
from codepilot.workspace import ObjectStore, Workspace, shown
from codepilot.workspace import Violation as Found

_REQUEST = "request.json"


class LocalExecutor:
    """See the protocol. `home` holds the workspaces; after a restart `create` attaches to one that is there.

    A `durable` executor finds its workspaces again by itself, with the answers it gave. `answer` calls the skills that
    run on this side for code actions, told whose they are; `count` is told of the calls each action made.
    `credentials` are added on this side to what code inside asks of their hosts; `seen` is told of every request.
    """

    def __init__(
        self,
        home: Path,
        sandbox: Sandbox,
        limits: Limits | None = None,
        prelude: str = "",
        durable: bool = False,
        answer: AnswerFor | None = None,
        count: Count | None = None,
        credentials: Sequence[Credential] = (),
        seen: NetworkSeen | None = None,
    ) -> None:
        self._home = home
        self._sandbox = sandbox
        self._limits = limits or Limits()
        self._prelude = prelude
        self._durable = durable
        self._answer = answer
        self._count = count
        self._credentials = tuple(credentials)
        self._seen = seen
        self._places: dict[str, Place] = {}
        self._lock = threading.Lock()

    @property
    def level(self) -> Level:
        return self._sandbox.level

    @property
    def remaps(self) -> bool:
        return self._sandbox.remaps

    def create(self, request: CreateWorkspace) -> WorkspaceInfo:
        check_hosts(self.level, request.hosts)
        with self._lock:
            place = self._places.get(request.workspace)
            if place is None:
                place = self._places[request.workspace] = self._make(request)
        with place.lock:
            place.attach(request)
            carried = {spec.target: Path(spec.source) for spec in request.carried}
            try:
                created = place.workspace.create(request.tree, carried)
                place.laid_down(created)
            finally:
                self._forget_unmade(request.workspace, place)
            if self._durable:
                _write(self._home / request.workspace / _REQUEST, request.model_dump_json())
            with self._lock:
                self._places.setdefault(request.workspace, place)
            return place.info(created)

    def run_code(self, request: RunCode, answer: Answer | None = None) -> CodeResult:
        place = self._place(request.workspace)
        own = with_host_calls(request.host_calls, answer, place.answer)
        return place.answers.give(request, CodeResult, lambda: self._run_code(place, request, own))

    def _run_code(self, place: Place, request: RunCode, answer: Answer | None) -> CodeResult:
        kernel = place.kernel()
        with place.running():
            try:
                result = _code_result(kernel.run(request.code, request.timeout_sec, answer))
            finally:
                place.used(kernel)
        count_calls(self._count, result.calls)
        return result.model_copy(update={"kernel_restarted": True}) if place.was_reopened() else result

    def run_command(self, request: RunCommand) -> CommandResult:
        place = self._place(request.workspace)
        return place.answers.give(request, CommandResult, lambda: self._run_command(place, request))

    def _run_command(self, place: Place, request: RunCommand) -> CommandResult:
        limits = replace(request.limits or self._limits, wall_sec=request.timeout_sec)
        argv, view = list(request.argv), place.view(request.env, request.cwd)
        if request.packages:
            argv, view = with_own_python(self._sandbox, view, argv, request.packages)
        with place.running() as cancel, place.network.beside(place.request.hosts, request.hosts) as proxy:
            done = self._sandbox.run(argv, replace(view, proxy=proxy), limits, request.stdin, cancel)
        return CommandResult(
            status=done.status,
            exit_code=done.exit_code,
            stdout=done.stdout,
            stderr=done.stderr,
            limit=done.limit,
            duration_ms=done.duration_ms,
            truncated=done.truncated,
        )

    def start_process(self, request: StartProcess) -> Process:
        """A process without a wall clock unless its limits set one; it is ended by a restore, or with the workspace."""
        place = self._place(request.workspace)
        limits = request.limits or replace(self._limits, wall_sec=math.inf)
        return place.adopt(lambda: self._sandbox.start(request.argv, place.view(request.env), limits))

    def snapshot(self, workspace: str) -> SnapshotInfo:
        place = self._place(workspace)
        with place.lock:
            taken = place.workspace.snapshot()
        return SnapshotInfo(snapshot=taken.id, tree=taken.tree, violations=_violations(taken.violations))

    def restore(self, workspace: str, snapshot: str, paths: tuple[str, ...] = ()) -> None:
        """Put files back. All that runs is ended first, so that nothing writes on, or remembers what is gone."""
        place = self._place(workspace)
        check_object(snapshot)
        with place.stilled():
            place.workspace.restore(snapshot, paths)

    def export_snapshot(self, workspace: str, snapshot: str, whole: bool = False) -> Iterator[bytes]:
        """A snapshot as bytes for `import_snapshot`; unless whole it leaves out what the workspace's base holds."""
        place = self._place(workspace)
        check_object(snapshot)
        with place.lock:
            return place.workspace.export_snapshot(snapshot, whole)

    def import_snapshot(self, workspace: str, chunks: Iterable[bytes]) -> SnapshotInfo:
        """Take in a snapshot of another workspace, so that it can be restored here."""
        place = self._place(workspace)
        with place.lock:
            taken = place.workspace.import_snapshot(chunks)
        return SnapshotInfo(snapshot=taken.id, tree=taken.tree, violations=_violations(taken.violations))

    def diff(self, workspace: str, base_tree: str) -> DiffResult:
        place = self._place(workspace)
        check_object(base_tree)
        with place.lock:
            found = place.workspace.diff(base_tree)
        changes = (
            FileChange(
                path=shown(change.path),
                change=change.kind,
                old_mode=change.old_mode,
                new_mode=change.new_mode,
                binary=change.binary,
            )
            for change in found.changes
        )
        return DiffResult(
            patch=found.patch,
            base_tree=base_tree,
            tree=found.tree,
            changes=tuple(changes),
            violations=_violations(found.violations),
            ignored=tuple(shown(path) for path in found.ignored),
        )

    def read_file(self, workspace: str, path: str) -> bytes:
        return self._place(workspace).workspace.read_file(path)

    def interrupt(self, workspace: str) -> None:
        self._place(workspace).interrupt()

    def interrupt_all(self) -> None:
        """Interrupt what runs in every workspace that is open here."""
        with self._lock:
            places = list(self._places.values())
        for place in places:
            place.interrupt()

    def delete(self, workspace: str) -> None:
        """End everything in a workspace and remove it; one that is not there is fine."""
        check_name(workspace)
        with self._lock:
            place = self._places.pop(workspace, None)
        if place is not None:
            place.answers.leave()
            place.end()
            place.network.close()
            place.workspace.delete()
            place.close()
        elif (self._home / workspace).is_dir():
            here = self._home / workspace
            Workspace(here, ObjectStore(here / "snapshots", ())).delete()

    def release(self, workspace: str) -> None:
        """End everything in a workspace and let go of it; its files stay."""
        check_name(workspace)
        with self._lock:
            place = self._places.pop(workspace, None)
        if place is not None:
            place.close()

    def init_git(self, workspace: str) -> CommandResult:
        """Give the agent a throwaway repository of one commit, made inside; the host never reads it."""
        return self.run_command(making_git(workspace))

    def close(self) -> None:
        """End everything that runs; the workspaces stay."""
        with self._lock:
            places, self._places = list(self._places.values()), {}
        for place in places:
            place.close()

    def _place(self, workspace: str) -> Place:
        check_name(workspace)
        with self._lock:
            place = self._places.get(workspace) or self._reopen(workspace)
        if place is None:
            raise UnknownWorkspace(workspace)
        return place

    def _make(self, request: CreateWorkspace) -> Place:
        network = Network(self._home / request.workspace / "network", self.level, self._credentials, self._seen)
        return Place(
            self._home, request, self._sandbox, self._limits, self._prelude, self._durable, self._answer, network
        )

    def _reopen(self, workspace: str) -> Place | None:
        """A workspace that an earlier process made, as it was asked for then."""
        if not self._durable:
            return None
        try:
            kept = (self._home / workspace / _REQUEST).read_bytes()
        except FileNotFoundError:
            return None
        place = self._places[workspace] = self._make(CreateWorkspace.model_validate_json(kept))
        place.reopened()
        place.laid_down(created=False)
        return place

    def _forget_unmade(self, workspace: str, place: Place) -> None:
        with self._lock:
            if not place.workspace.exists and self._places.get(workspace) is place:
                del self._places[workspace]


def _write(file: Path, text: str) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(file)


def _violations(found: tuple[Found, ...]) -> tuple[Violation, ...]:
    return tuple(Violation(rule=one.rule, path=shown(one.path), detail=shown(one.detail)) for one in found)


def _code_result(result: ActionResult) -> CodeResult:
    error = None
    if result.error is not None:
        seen = result.error
        error = CodeError(type=seen.type, message=seen.message, traceback=seen.traceback, line=seen.line)
    return CodeResult(
        status=result.status,
        stdout=result.stdout,
        stderr=result.stderr,
        value=result.value,
        error=error,
        limit=result.limit,
        exit_code=result.exit_code,
        duration_ms=result.duration_ms,
        kernel_restarted=result.kernel_restarted,
        calls=result.calls,
    )
