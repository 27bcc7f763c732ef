"""The executor over HTTP. Bases and carried files are sent as bytes."""

from __future__ import annotations

import contextlib
import math
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.executor import protocol
from codepilot.executor.protocol import (
    Count,
    CreateWorkspace,
    DiffResult,
    EndpointInfo,
    Frozen,
    HostAnswer,
    RunCode,
    RunCommand,
    RunTreeInfo,
    SessionInfo,
    SnapshotInfo,
    StartProcess,
    WorkspaceInfo,
    check_name,
    check_object,
    count_calls,
    making_git,
)
from codepilot.executor.remote_http import BYTES, Ask, Http
from codepilot.executor.remote_process import RemoteProcess
from codepilot.executor.tunnel import Tunnel
from codepilot.executor.wire import (
    FOREVER_SEC,
    About,
    Compare,
    CreateRemote,
    Diff,
    Done,
    Named,
    OpenEndpoint,
    ProcessState,
    Promote,
    ReadFile,
    Restore,
    StartRemote,
)
from codepilot.sandbox import Answer, CodeResult, CommandResult, HostCall, Level, Limits
from codepilot.workspace import ObjectStore, Workspace

_FILES_SEC = 300.0
_QUEUE_SEC = 60.0
"""How long a request may wait in the service's queue."""

Reply = TypeVar("Reply", bound=Contract)


class RemoteExecutor:
    """See the protocol. Several threads may use one; every request may be sent again without being done twice.

    `count` is called with the skill calls of each action, as in `LocalExecutor`.
    """

    def __init__(self, url: str, token: str | None = None, count: Count | None = None) -> None:
        self._http = Http(url, token)
        self._count = count
        self._lock = threading.Lock()
        self._about: About | None = None
        self._opened: set[str] = set()
        self._sent: dict[str, str] = {}
        self._tunnels: dict[tuple[str, str], tuple[EndpointInfo, RemoteProcess, Tunnel]] = {}

    @property
    def level(self) -> Level:
        return self._learn().level

    @property
    def remaps(self) -> bool:
        return self._learn().remaps

    def create(self, request: CreateWorkspace) -> WorkspaceInfo:
        """Send what the service lacks: the base's tree, and the carried files."""
        asked = CreateRemote(**request.shared(), carried=tuple(spec.target for spec in request.carried))
        try:
            info = self._do("create", asked, WorkspaceInfo, _FILES_SEC)
        except CodePilotError as error:
            missing = error.failure.details.get("missing")
            if not isinstance(missing, list):
                raise
            if "base" in missing:
                self._send_base(request)
            if "carried" in missing:
                asked = asked.model_copy(update={"carried_snapshot": self._send_carried(request)})
            info = self._do("create", asked, WorkspaceInfo, _FILES_SEC)
        with self._lock:
            self._opened.add(request.workspace)
            self._sent[request.objects] = request.tree
        return info

    def run_code(self, request: RunCode, answer: Answer | None = None) -> CodeResult:
        keyed = request.model_copy(update={"idempotency_key": request.idempotency_key or _key()})
        result = self._do("run_code", keyed, CodeResult, request.timeout_sec + _QUEUE_SEC)
        while (call := result.host_call) is not None:
            given = _answer(answer, call, request.workspace, keyed.idempotency_key)
            result = self._do("answer_call", given, CodeResult, request.timeout_sec + _QUEUE_SEC)
        count_calls(self._count, result.calls)
        return result

    def run_command(self, request: RunCommand) -> CommandResult:
        changed = {"idempotency_key": request.idempotency_key or _key(), "limits": _finite(request.limits)}
        keyed = request.model_copy(update=changed)
        return self._do("run_command", keyed, CommandResult, request.timeout_sec + _QUEUE_SEC)

    def start_process(self, request: StartProcess) -> RemoteProcess:
        fields = {**dict(request), "limits": _finite(request.limits)}
        asked = StartRemote(**fields, process=secrets.token_hex(16))
        self._do("start_process", asked, ProcessState, _FILES_SEC)
        return RemoteProcess(self._http, asked.process)

    def endpoint(self, workspace: str, name: str, target: str) -> EndpointInfo:
        """A port inside that leads to the service at `target` here, through a connection that we opened."""
        with self._lock:
            known = self._tunnels.get((workspace, name))
        if known is not None and known[2].running:
            known[2].target = target
            return known[0]
        asked = OpenEndpoint(workspace=workspace, name=name, process=secrets.token_hex(16))
        info = self._do("open_endpoint", asked, EndpointInfo, _FILES_SEC)
        process = RemoteProcess(self._http, asked.process)
        with self._lock:
            self._tunnels[workspace, name] = (info, process, Tunnel(process.stdout, process.stdin, target))
        return info

    def freeze(self, workspace: str) -> Frozen:
        return self._do("freeze", Named(workspace=workspace), Frozen, _FILES_SEC)

    def thaw(self, workspace: str) -> None:
        self._do("thaw", Named(workspace=workspace), Done, _FILES_SEC)

    def session(self, workspace: str) -> SessionInfo:
        return self._do("session", Named(workspace=workspace), SessionInfo, _FILES_SEC)

    def snapshot(self, workspace: str) -> SnapshotInfo:
        return self._do("snapshot", Named(workspace=workspace), SnapshotInfo, _FILES_SEC)

    def restore(self, workspace: str, snapshot: str, paths: tuple[str, ...] = ()) -> None:
        self._do("restore", Restore(workspace=workspace, snapshot=snapshot, paths=paths), Done, _FILES_SEC)

    def export_snapshot(self, workspace: str, snapshot: str, whole: bool = False) -> Iterator[bytes]:
        check_name(workspace)
        check_object(snapshot)
        return self._http.chunks(f"/snapshot/{workspace}/{snapshot}?whole={str(whole).lower()}")

    def import_snapshot(self, workspace: str, chunks: Iterable[bytes]) -> SnapshotInfo:
        check_name(workspace)
        with tempfile.TemporaryFile() as file:
            for chunk in chunks:
                file.write(chunk)

            def again() -> Iterator[bytes]:
                file.seek(0)
                return iter(lambda: file.read(1 << 20), b"")

            data = self._http.ask(Ask("PUT", f"/snapshot/{workspace}", again, BYTES, _FILES_SEC))
        return SnapshotInfo.model_validate_json(data)

    def diff(self, workspace: str, base_tree: str) -> DiffResult:
        return self._do("diff", Diff(workspace=workspace, base_tree=base_tree), DiffResult, _FILES_SEC)

    def compare(self, workspace: str, before: str, after: str, *, patch: bool = True) -> DiffResult:
        asked = Compare(workspace=workspace, before=before, after=after, patch=patch)
        return self._do("compare", asked, DiffResult, _FILES_SEC)

    def open_shadow(self, workspace: str, place: str | None = None) -> RunTreeInfo:
        if place is not None:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                "--worktree names a directory of this machine, and the executor is another one.",
                "Leave --worktree out, or work without [executor] url.",
            )
        return self._do("open_shadow", Named(workspace=workspace), RunTreeInfo, _FILES_SEC)

    def promote(self, workspace: str, snapshot: str) -> RunTreeInfo:
        return self._do("promote", Promote(workspace=workspace, snapshot=snapshot), RunTreeInfo, _FILES_SEC)

    def run_tree(self, workspace: str) -> RunTreeInfo:
        return self._do("run_tree", Named(workspace=workspace), RunTreeInfo, _FILES_SEC)

    def close_shadow(self, workspace: str) -> None:
        self._do("close_shadow", Named(workspace=workspace), Done, _FILES_SEC)

    def read_file(self, workspace: str, path: str) -> bytes:
        return self._send("read_file", ReadFile(workspace=workspace, path=path), _FILES_SEC)

    def interrupt(self, workspace: str) -> None:
        self._do("interrupt", Named(workspace=workspace), Done, _FILES_SEC)

    def interrupt_all(self) -> None:
        with self._lock:
            opened = sorted(self._opened)
        problems: list[CodePilotError] = []
        for workspace in opened:
            try:
                self.interrupt(workspace)
            except CodePilotError as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def delete(self, workspace: str) -> None:
        self._end("delete", workspace)

    def release(self, workspace: str) -> None:
        """End everything in a workspace; its files stay."""
        self._end("release", workspace)

    def _end(self, operation: str, workspace: str) -> None:
        self._do(operation, Named(workspace=workspace), Done, _FILES_SEC)
        with self._lock:
            self._opened.discard(workspace)
            ended = [self._tunnels.pop(key) for key in list(self._tunnels) if key[0] == workspace]
        for _, process, _ in ended:
            process.kill()

    def init_git(self, workspace: str) -> CommandResult:
        return self.run_command(making_git(workspace))

    def close(self) -> None:
        """End everything that runs in the workspaces opened through here. A lost service is not waited for."""
        with self._lock:
            opened, self._opened = sorted(self._opened), set()
            tunnels, self._tunnels = self._tunnels, {}
        for _, process, _ in tunnels.values():
            with contextlib.suppress(CodePilotError):
                process.kill()
        for workspace in opened:
            body = Named(workspace=workspace).model_dump_json().encode()
            with contextlib.suppress(CodePilotError):
                self._http.ask(Ask("POST", "/workspace/release", body, timeout_sec=_QUEUE_SEC, tries=1))
        self._http.close()

    def _learn(self) -> About:
        if self._about is None:
            self._about = About.model_validate_json(self._http.ask(Ask("GET", "/about")))
        return self._about

    def _do(self, operation: str, request: protocol.Request, reply: type[Reply], timeout_sec: float) -> Reply:
        return reply.model_validate_json(self._send(operation, request, timeout_sec))

    def _send(self, operation: str, request: protocol.Request, timeout_sec: float) -> bytes:
        body = request.model_dump_json().encode()
        return self._http.ask(Ask("POST", f"/workspace/{operation}", body, timeout_sec=timeout_sec))

    def _send_base(self, request: CreateWorkspace) -> None:
        """Send a tree; only its new objects if an earlier tree of the same repository was sent."""
        with self._lock:
            known = self._sent.get(request.objects)
        with ObjectStore.open(Path(request.objects)) as store:
            if known is not None and known != request.tree and store.has_tree(known):
                with contextlib.suppress(CodePilotError):  # The service may have removed it; then everything is sent.
                    self._put(request.tree, lambda: store.export(request.tree, (known,)))
                    return
            self._put(request.tree, lambda: store.export(request.tree))

    def _send_carried(self, request: CreateWorkspace) -> str:
        """Send the carried files, each named by its number, and return the snapshot that holds them."""
        numbered = {str(number): Path(spec.source) for number, spec in enumerate(request.carried)}
        with (
            tempfile.TemporaryDirectory(prefix="codepilot-carried-") as folder,
            ObjectStore.open(Path(folder) / "objects", durable=False) as store,
            contextlib.closing(Workspace(Path(folder) / "copies", store)) as copies,
        ):
            copies.create(store.write_tree({}), numbered)
            taken = copies.snapshot().id
            self._put(taken, lambda: copies.export_snapshot(taken, whole=True))
            return taken

    def _put(self, name: str, chunks: Callable[[], Iterable[bytes]]) -> None:
        self._http.ask(Ask("PUT", f"/base/{name}", chunks, BYTES, _FILES_SEC))


def _key() -> str:
    """A key that makes it safe to send a request again after its answer was lost."""
    return f"auto-{secrets.token_hex(12)}"


def _finite(limits: Limits | None) -> Limits | None:
    if limits is None or not math.isinf(limits.wall_sec):
        return limits
    return replace(limits, wall_sec=FOREVER_SEC)


def _answer(answer: Answer | None, call: HostCall, workspace: str, action: str) -> HostAnswer:
    """Answer a call that came over HTTP. A failure becomes the call's error, which the action can handle."""
    given = HostAnswer(workspace=workspace, action=action, number=call.number)
    try:
        if answer is None:
            raise CodePilotError(FailureKind.TOOL_FAILED, f"{call.function} cannot be called here.")
        return given.model_copy(update={"value": answer(call.function, call.arguments)})
    except CodePilotError as error:
        return given.model_copy(update={"error": error.failure})
    except Exception as error:  # noqa: BLE001 - the function may raise anything
        message = f"{call.function}: {type(error).__name__}: {error}"[:2000]
        return given.model_copy(update={"error": Failure(kind=FailureKind.TOOL_FAILED, message=message)})
