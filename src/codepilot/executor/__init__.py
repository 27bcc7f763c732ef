"""The execution plane: one protocol, here in-process."""

from codepilot.executor.local import LocalExecutor
from codepilot.executor.protocol import (
    CodeError,
    CodeResult,
    CommandResult,
    CreateWorkspace,
    DiffResult,
    Executor,
    FileChange,
    MountSpec,
    RunCode,
    RunCommand,
    SnapshotInfo,
    StartProcess,
    Violation,
    WorkspaceInfo,
)

__all__ = [
    "CodeError",
    "CodeResult",
    "CommandResult",
    "CreateWorkspace",
    "DiffResult",
    "Executor",
    "FileChange",
    "LocalExecutor",
    "MountSpec",
    "RunCode",
    "RunCommand",
    "SnapshotInfo",
    "StartProcess",
    "Violation",
    "WorkspaceInfo",
]
