"""The operations on workspaces, as data: what each takes and gives, and how it takes its turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from codepilot.core.contract import Contract
from codepilot.executor import protocol
from codepilot.executor.protocol import (
    CodeResult,
    CommandResult,
    DiffResult,
    HostAnswer,
    RunCode,
    RunCommand,
    SnapshotInfo,
    WorkspaceInfo,
)
from codepilot.executor.service.manager import WorkspaceManager
from codepilot.executor.wire import (
    CreateRemote,
    Diff,
    Done,
    Named,
    ProcessState,
    ReadFile,
    Restore,
    StartRemote,
)

Turn = Literal["runs", "files", "control"]
"""Whose queue an operation waits in; what stops work waits in none."""


@dataclass(frozen=True)
class Operation:
    name: str
    summary: str
    takes: type[protocol.Request]
    gives: type[Contract] | None
    """None for plain bytes."""
    turn: Turn
    carry_out: Callable[[WorkspaceManager, Any], Contract | bytes]
    ordered: bool = False
    """Whether it takes turns with the others of its queue that name the same workspace."""
    work: bool = True
    """Whether it is refused while the service drains."""


def _done(act: Callable[[WorkspaceManager, Any], None]) -> Callable[[WorkspaceManager, Any], Done]:
    def acted(manager: WorkspaceManager, request: Any) -> Done:
        act(manager, request)
        return Done()

    return acted


def _start(manager: WorkspaceManager, request: StartRemote) -> ProcessState:
    return manager.start_process(request).state()


OPERATIONS = (
    Operation(
        "create",
        "Make a workspace, or find it",
        CreateRemote,
        WorkspaceInfo,
        "files",
        WorkspaceManager.create,
        ordered=True,
    ),
    Operation(
        "run_code",
        "Run a Python action in the workspace's kernel",
        RunCode,
        CodeResult,
        "runs",
        WorkspaceManager.run_code,
        ordered=True,
    ),
    Operation(
        "answer_call",
        "Answer a call that an action waits for, and wait for what it comes to next",
        HostAnswer,
        CodeResult,
        "runs",
        lambda manager, request: manager.actions.answer(request),
        work=False,
    ),
    Operation(
        "run_command", "Run a command to its end", RunCommand, CommandResult, "runs", WorkspaceManager.run_command
    ),
    Operation("start_process", "Start a process to speak to", StartRemote, ProcessState, "files", _start, ordered=True),
    Operation(
        "snapshot",
        "Keep the workspace exactly as it is",
        Named,
        SnapshotInfo,
        "files",
        lambda manager, request: manager.executor.snapshot(request.workspace),
        ordered=True,
    ),
    Operation(
        "restore",
        "End what runs and put files back",
        Restore,
        Done,
        "files",
        _done(WorkspaceManager.restore),
        ordered=True,
    ),
    Operation(
        "diff",
        "The exact change since a tree",
        Diff,
        DiffResult,
        "files",
        lambda manager, request: manager.executor.diff(request.workspace, request.base_tree),
        ordered=True,
    ),
    Operation(
        "read_file",
        "The content of a regular file",
        ReadFile,
        None,
        "files",
        lambda manager, request: manager.executor.read_file(request.workspace, request.path),
    ),
    Operation(
        "interrupt",
        "Stop the action and the commands that run",
        Named,
        Done,
        "control",
        _done(lambda manager, request: manager.executor.interrupt(request.workspace)),
        work=False,
    ),
    Operation(
        "release",
        "End everything in a workspace; its files stay",
        Named,
        Done,
        "control",
        _done(WorkspaceManager.release),
        work=False,
    ),
    Operation(
        "delete",
        "End everything in a workspace and remove it",
        Named,
        Done,
        "control",
        _done(WorkspaceManager.delete),
        work=False,
    ),
)
