"""The execution plane: one protocol, in-process and over HTTP. `service` serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codepilot.executor.local import LocalExecutor
from codepilot.executor.network import NetworkSeen
from codepilot.executor.protocol import (
    CreateWorkspace,
    DiffResult,
    EndpointInfo,
    Executor,
    FileChange,
    Frozen,
    HomeFile,
    MountSpec,
    RunCode,
    RunCommand,
    RunTreeInfo,
    SessionInfo,
    SnapshotInfo,
    StartProcess,
    Violation,
    WorkspaceInfo,
)
from codepilot.sandbox import CodeError, CodeResult, CommandResult

if TYPE_CHECKING:
    from codepilot.executor.remote import RemoteExecutor

__all__ = [
    "CodeError",
    "CodeResult",
    "CommandResult",
    "CreateWorkspace",
    "DiffResult",
    "EndpointInfo",
    "Executor",
    "FileChange",
    "Frozen",
    "HomeFile",
    "LocalExecutor",
    "MountSpec",
    "NetworkSeen",
    "RemoteExecutor",
    "RunCode",
    "RunCommand",
    "RunTreeInfo",
    "SessionInfo",
    "SnapshotInfo",
    "StartProcess",
    "Violation",
    "WorkspaceInfo",
]


def __getattr__(name: str) -> object:
    """Import the HTTP client on first use."""
    if name == "RemoteExecutor":
        from codepilot.executor.remote import RemoteExecutor

        return RemoteExecutor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
