"""The executor in this process: workspaces in a directory, everything inside a sandbox."""

from __future__ import annotations

import logging
import math
import shlex
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import JsonValue

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.network import Network, NetworkSeen, check_hosts
from codepilot.executor.protocol import (
    Count,
    CreateWorkspace,
    DiffResult,
    EndpointInfo,
    FileChange,
    Frozen,
    RunCode,
    RunCommand,
    RunTreeInfo,
    SessionInfo,
    SnapshotInfo,
    StartProcess,
    UnknownWorkspace,
    Violation,
    WorkspaceInfo,
    check_name,
    check_object,
    count_calls,
    making_git,
)
from codepilot.executor.workspace_session import AnswerFor, WorkspaceSession
from codepilot.sandbox import (
    Answer,
    CodeResult,
    CommandResult,
    Credential,
    Level,
    Limits,
    Process,
    Sandbox,
    with_own_python,
)
from codepilot.workspace import Change, ObjectStore, RunTree, Workspace, shown
from codepilot.workspace import Violation as Found

_REQUEST = "request.json"

_log = logging.getLogger(__name__)


class LocalExecutor:
    """See the protocol. `home` holds the workspaces; after a restart `create` attaches to one that is there.

    A `durable` executor reopens its workspaces and their recorded answers after a restart. `answer` calls the skills
    that run on the host; it gets the workspace's name. `count` is called with the skill calls of each action. The proxy
    adds `credentials` to requests to their hosts, and calls `seen` for every request.
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
        self._sessions: dict[str, WorkspaceSession] = {}
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
            session = self._sessions.get(request.workspace)
            if session is None:
                session = self._sessions[request.workspace] = self._make(request)
        with session.lock:
            session.attach(request)
            carried = {spec.target: Path(spec.source) for spec in request.carried}
            try:
                created = session.workspace.create(request.tree, carried)
                session.materialised(created)
            finally:
                self._forget_unmade(request.workspace, session)
            if self._durable:
                _write(self._home / request.workspace / _REQUEST, request.model_dump_json())
            with self._lock:
                self._sessions.setdefault(request.workspace, session)
            return session.info(created)

    def run_code(self, request: RunCode, answer: Answer | None = None) -> CodeResult:
        session = self._session(request.workspace)
        own = _with_host_calls(request.host_calls, answer, session.answer)
        return session.answers.give(request, CodeResult, lambda: self._run_code(session, request, own))

    def _run_code(self, session: WorkspaceSession, request: RunCode, answer: Answer | None) -> CodeResult:
        kernel = session.kernel()
        with session.running():
            try:
                result = kernel.run(request.code, request.timeout_sec, answer)
            finally:
                session.used(kernel)
        count_calls(self._count, result.calls)
        return result.model_copy(update={"kernel_restarted": True}) if session.was_reopened() else result

    def run_command(self, request: RunCommand) -> CommandResult:
        session = self._session(request.workspace)
        return session.answers.give(request, CommandResult, lambda: self._run_command(session, request))

    def _run_command(self, session: WorkspaceSession, request: RunCommand) -> CommandResult:
        longest = request.timeout_sec if request.limits is None else min(request.timeout_sec, request.limits.wall_sec)
        limits = replace(request.limits or self._limits, wall_sec=longest)
        argv, spec = list(request.argv), session.spec(request.env, request.cwd)
        if request.packages:
            argv, spec = with_own_python(self._sandbox, spec, argv, request.packages)
        private = request.private_network
        proxied = session.network.for_command(session.request.hosts, request.hosts, private=private)
        with session.running() as cancel, proxied as proxy:
            done = self._sandbox.run(argv, replace(spec, proxy=proxy), limits, request.stdin, cancel)
        seconds = done.duration_ms / 1000
        _log.info("ran %s: %s, exit code %s, %.1f s", shlex.join(argv)[:500], done.status, done.exit_code, seconds)
        return done

    def start_process(self, request: StartProcess) -> Process:
        """A process that is ended by a restore unless it is frozen, and with the workspace."""
        limits = request.limits or replace(self._limits, wall_sec=math.inf)
        return self._session(request.workspace).start(request, limits)

    def endpoint(self, workspace: str, name: str, target: str) -> EndpointInfo:
        check_name(name)
        return self._session(workspace).endpoint(name, target)

    def freeze(self, workspace: str) -> Frozen:
        done = self._session(workspace).freezer.freeze(self._sandbox.offer().freeze)
        return Frozen(by=done.by, processes=done.processes, duration_ms=done.duration_ms, already=done.already)

    def thaw(self, workspace: str) -> None:
        self._session(workspace).freezer.thaw()

    def session(self, workspace: str) -> SessionInfo:
        return self._session(workspace).session()

    def snapshot(self, workspace: str) -> SnapshotInfo:
        session = self._session(workspace)
        with session.lock:
            session.read_mapped_again(ended=True)
            taken = session.workspace.snapshot()
            session.note_mapped()  # what was mapped while it was read may have changed since
        return SnapshotInfo(snapshot=taken.id, tree=taken.tree, violations=_violations(taken.violations))

    def restore(self, workspace: str, snapshot: str, paths: tuple[str, ...] = ()) -> None:
        """Put files back. Everything that is not frozen is ended first: nothing writes on or holds stale state."""
        session = self._session(workspace)
        check_object(snapshot)
        with session.still():
            session.read_mapped_again()
            session.workspace.restore(snapshot, paths)

    def export_snapshot(self, workspace: str, snapshot: str, whole: bool = False) -> Iterator[bytes]:
        session = self._session(workspace)
        check_object(snapshot)
        with session.lock:
            return session.workspace.export_snapshot(snapshot, whole)

    def import_snapshot(self, workspace: str, chunks: Iterable[bytes]) -> SnapshotInfo:
        session = self._session(workspace)
        with session.lock:
            taken = session.workspace.import_snapshot(chunks)
        return SnapshotInfo(snapshot=taken.id, tree=taken.tree, violations=_violations(taken.violations))

    def diff(self, workspace: str, base_tree: str) -> DiffResult:
        session = self._session(workspace)
        check_object(base_tree)
        with session.lock:
            found = session.workspace.diff(base_tree)
        return DiffResult(
            patch=found.patch,
            base_tree=base_tree,
            tree=found.tree,
            changes=_changes(found.changes),
            violations=_violations(found.violations),
            ignored=tuple(shown(path) for path in found.ignored),
        )

    def compare(self, workspace: str, before: str, after: str, *, patch: bool = True) -> DiffResult:
        check_object(before)
        check_object(after)
        found = self._session(workspace).workspace.compare(before, after, patch=patch)
        return DiffResult(patch=found.patch, base_tree=before, tree=after, changes=_changes(found.changes))

    def open_shadow(self, workspace: str, place: str | None = None) -> RunTreeInfo:
        session = self._session(workspace)
        self._refuse_without_remapping()
        with session.quiesced():
            found = session.workspace.open_shadow(None if place is None else Path(place))
            session.moved()
        return _run_tree(found)

    def promote(self, workspace: str, snapshot: str) -> RunTreeInfo:
        session = self._session(workspace)
        check_object(snapshot)
        with session.lock:
            return _run_tree(session.workspace.promote(snapshot))

    def run_tree(self, workspace: str) -> RunTreeInfo:
        session = self._session(workspace)
        with session.lock:
            return _run_tree(session.workspace.run_tree())

    def close_shadow(self, workspace: str) -> None:
        session = self._session(workspace)
        with session.quiesced():
            session.workspace.close_shadow()
            session.materialised(created=True)

    def _refuse_without_remapping(self) -> None:
        if not self.remaps:
            raise CodePilotError(
                FailureKind.SANDBOX_UNAVAILABLE,
                f"At the level {self.level} code sees real paths, so that an agent cannot work in a shadow.",
                "Use --strategy direct without --worktree, or a machine on which bubblewrap works.",
            )

    def read_file(self, workspace: str, path: str) -> bytes:
        return self._session(workspace).workspace.read_file(path)

    def interrupt(self, workspace: str) -> None:
        self._session(workspace).interrupt()

    def interrupt_all(self) -> None:
        """Interrupt what runs in every workspace that is open here."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            session.interrupt()

    def delete(self, workspace: str) -> None:
        """End everything in a workspace and remove it; one that is not there is fine."""
        check_name(workspace)
        with self._lock:
            session = self._sessions.pop(workspace, None)
        if session is not None:
            session.answers.leave()
            session.end()
            session.network.close()
            session.workspace.delete()
            session.close()
        elif (self._home / workspace).is_dir():
            here = self._home / workspace
            Workspace(here, ObjectStore(here / "snapshots", ())).delete()

    def release(self, workspace: str) -> None:
        """End everything in a workspace and close it; its files stay."""
        check_name(workspace)
        with self._lock:
            session = self._sessions.pop(workspace, None)
        if session is not None:
            session.close()

    def init_git(self, workspace: str) -> CommandResult:
        return self.run_command(making_git(workspace))

    def close(self) -> None:
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close()

    def _session(self, workspace: str) -> WorkspaceSession:
        check_name(workspace)
        with self._lock:
            session = self._sessions.get(workspace) or self._reopen(workspace)
        if session is None:
            raise UnknownWorkspace(workspace)
        return session

    def _make(self, request: CreateWorkspace) -> WorkspaceSession:
        network = Network(self._home / request.workspace / "network", self.level, self._credentials, self._seen)
        return WorkspaceSession(
            self._home, request, self._sandbox, self._limits, self._prelude, self._durable, self._answer, network
        )

    def _reopen(self, workspace: str) -> WorkspaceSession | None:
        """Open a workspace of an earlier process with its recorded request."""
        if not self._durable:
            return None
        try:
            kept = (self._home / workspace / _REQUEST).read_bytes()
        except FileNotFoundError:
            return None
        session = self._sessions[workspace] = self._make(CreateWorkspace.model_validate_json(kept))
        session.reopened()
        session.materialised(created=False)
        return session

    def _forget_unmade(self, workspace: str, session: WorkspaceSession) -> None:
        with self._lock:
            if not session.workspace.exists and self._sessions.get(workspace) is session:
                del self._sessions[workspace]


def _write(file: Path, text: str) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(text)
    partial.rename(file)


def _changes(found: tuple[Change, ...]) -> tuple[FileChange, ...]:
    return tuple(
        FileChange(
            path=shown(change.path),
            change=change.kind,
            old_mode=change.old_mode,
            new_mode=change.new_mode,
            binary=change.binary,
            before=change.before,
            after=change.after,
            size=change.size,
        )
        for change in found
    )


def _run_tree(found: RunTree) -> RunTreeInfo:
    tree, snapshot = found.late or ("", "")
    return RunTreeInfo(
        path=str(found.path),
        promoted=found.promoted,
        tree=found.tree,
        snapshot=found.snapshot,
        late_tree=tree,
        late_snapshot=snapshot,
    )


def _violations(found: tuple[Found, ...]) -> tuple[Violation, ...]:
    return tuple(Violation(rule=one.rule, path=shown(one.path), detail=shown(one.detail)) for one in found)


def _with_host_calls(names: Collection[str], caller: Answer | None, installed: Answer | None) -> Answer | None:
    """Send the calls that the caller named to the caller, and the rest to the installed skills."""
    if caller is None or not names:
        return installed

    def answer(function: str, arguments: JsonObject) -> JsonValue:
        if function in names:
            return caller(function, arguments)
        if installed is None:
            raise CodePilotError(FailureKind.TOOL_FAILED, f"{function} cannot be called here.")
        return installed(function, arguments)

    return answer
