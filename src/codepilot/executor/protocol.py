"""The execution plane's one protocol, in-process and over HTTP alike.

Only an executor touches a workspace path or starts code that an agent wrote. It needs no network and never
calls back into the engine. Every method may be called again with the same arguments after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from codepilot.core.contract import Contract
from codepilot.core.events import SkillCall
from codepilot.sandbox import Level, Limits, Process

Status = Literal["ok", "error", "timeout", "limit", "violation", "interrupted"]


class MountSpec(Contract):
    """A host path shown read-only inside."""

    source: str
    target: str


class CreateWorkspace(Contract):
    """A private directory holding `tree` exactly. `at` is the path at which code inside sees it."""

    workspace: str
    objects: str
    tree: str
    at: str | None = None
    mounts: tuple[MountSpec, ...] = ()
    carried: tuple[MountSpec, ...] = ()
    """Host files copied in when the workspace is made; they are no part of its tree. Targets are relative to it."""
    env: Mapping[str, str] = {}
    kernel_python: str | None = None
    hosts: tuple[str, ...] = ()
    """What code inside may reach, through the executor's proxy; none by default."""


class WorkspaceInfo(Contract):
    workspace: str
    path: str
    inside: str
    level: Level
    created: bool


class RunCode(Contract):
    """A Python action for the workspace's kernel; variables persist between actions."""

    workspace: str
    code: str
    timeout_sec: float = 300.0
    idempotency_key: str = ""


class CodeError(Contract):
    type: str
    message: str
    traceback: str = ""
    line: int | None = None


class CodeResult(Contract):
    status: Status
    stdout: str = ""
    stderr: str = ""
    value: str | None = None
    error: CodeError | None = None
    limit: str | None = None
    exit_code: int | None = None
    duration_ms: float = 0.0
    tree: str | None = None
    kernel_restarted: bool = False
    calls: tuple[SkillCall, ...] = ()


class RunCommand(Contract):
    """A command of the platform's or, already checked against policy, of an agent's."""

    workspace: str
    argv: tuple[str, ...]
    timeout_sec: float = 300.0
    stdin: bytes = b""
    env: Mapping[str, str] = {}
    cwd: str = "."
    hosts: tuple[str, ...] = ()
    """Hosts that this one command may reach through the proxy, beside the workspace's own."""
    packages: tuple[str, ...] = ()
    """Packages beside CodePilot's own. With any, `argv` is Python source and its arguments for CodePilot's interpreter."""
    limits: Limits | None = None
    idempotency_key: str = ""


class CommandResult(Contract):
    status: Status
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    limit: str | None = None
    duration_ms: float = 0.0
    truncated: bool = False


class StartProcess(Contract):
    workspace: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    limits: Limits | None = None


class Violation(Contract):
    """Something in the tree that may not be there, or may not leave it."""

    rule: str
    path: str
    detail: str = ""


class SnapshotInfo(Contract):
    """An exact copy of the workspace that can be restored, and the tree it stands for."""

    snapshot: str
    tree: str
    violations: tuple[Violation, ...] = ()


class FileChange(Contract):
    path: str
    change: Literal["added", "modified", "deleted", "mode"]
    old_mode: str | None = None
    new_mode: str | None = None
    binary: bool = False


class DiffResult(Contract):
    """The exact difference between a base tree and the workspace, as git writes it."""

    patch: bytes
    base_tree: str
    tree: str
    changes: tuple[FileChange, ...]
    violations: tuple[Violation, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def lines(self) -> int:
        """Added plus removed lines."""
        body = (line for line in self.patch.splitlines() if line[:1] in (b"+", b"-"))
        return sum(1 for line in body if not line.startswith((b"+++ ", b"--- ")))


class Executor(Protocol):
    @property
    def level(self) -> Level: ...

    def create(self, request: CreateWorkspace) -> WorkspaceInfo: ...

    def run_code(self, request: RunCode) -> CodeResult: ...

    def run_command(self, request: RunCommand) -> CommandResult: ...

    def start_process(self, request: StartProcess) -> Process: ...

    def snapshot(self, workspace: str) -> SnapshotInfo: ...

    def restore(self, workspace: str, snapshot: str, paths: tuple[str, ...] = ()) -> None: ...

    def diff(self, workspace: str, base_tree: str) -> DiffResult: ...

    def read_file(self, workspace: str, path: str) -> bytes: ...

    def interrupt(self, workspace: str) -> None: ...

    def delete(self, workspace: str) -> None: ...
