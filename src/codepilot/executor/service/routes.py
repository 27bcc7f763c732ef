"""Every route of the service as data. `app.py` serves this table and `openapi.py` describes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from codepilot.core.contract import Contract
from codepilot.executor import protocol
from codepilot.executor.protocol import (
    NAME_PATTERN,
    OBJECT_PATTERN,
    DiffResult,
    EndpointInfo,
    Frozen,
    HostAnswer,
    RunCode,
    RunCommand,
    RunTreeInfo,
    SessionInfo,
    SnapshotInfo,
    WorkspaceInfo,
)
from codepilot.executor.service.manager import WorkspaceManager
from codepilot.executor.wire import (
    About,
    BaseState,
    Compare,
    CreateRemote,
    Diff,
    Done,
    Health,
    Named,
    OpenEndpoint,
    ProcessState,
    Promote,
    ReadFile,
    Resize,
    Restore,
    Signal,
    StartRemote,
    WaitRemote,
    Written,
)
from codepilot.sandbox import CodeResult, CommandResult

BYTES, JSON, TEXT = "application/octet-stream", "application/json", "text/plain"

Queue = Literal["runs", "files", "control"]
"""The queue that an operation waits in. `control` has none: it holds what stops work."""

PATH_PATTERNS = {
    "process": "^[0-9a-f]{32}$",
    "tree": OBJECT_PATTERN,
    "snapshot": OBJECT_PATTERN,
    "workspace": NAME_PATTERN,
}
_FLAG = {"type": "boolean", "default": False}
QUERY_SCHEMAS: dict[str, dict[str, Any]] = {
    "offset": {"type": "integer", "minimum": 0, "maximum": 10**17, "default": 0},
    "end": _FLAG,
    "whole": _FLAG,
}


@dataclass(frozen=True)
class Operation:
    """How a route that acts on one workspace is carried out. A result of None is answered with `Done`."""

    queue: Queue
    act: Callable[[WorkspaceManager, Any], Contract | bytes | None]
    ordered: bool = True
    """True if requests of the same queue for the same workspace take turns."""
    work: bool = True
    """True if the route is refused while the service drains."""


@dataclass(frozen=True)
class Route:
    """One method of one path. A route without an operation is served by the method of `HttpApp` of its name."""

    method: str
    path: str
    name: str
    summary: str
    gives: type[Contract] | str
    """A contract, or the media type of what is no contract."""
    takes: type[protocol.Request] | str | None = None
    failures: tuple[int, ...] = ()
    query: tuple[str, ...] = ()
    operation: Operation | None = None
    public: bool = False
    """True if no token is needed."""

    @property
    def path_parameters(self) -> list[str]:
        return re.findall(r"\{(\w+)\}", self.path)


def _workspace(
    name: str,
    summary: str,
    takes: type[protocol.Request],
    gives: type[Contract] | str,
    operation: Operation,
) -> Route:
    failures = (403, 404, 409, 507, *((429,) if operation.queue != "control" else ()), *((503,) * operation.work))
    return Route("POST", f"/workspace/{name}", name, summary, gives, takes, failures, operation=operation)


def _process(
    method: str,
    name: str,
    summary: str,
    gives: type[Contract] | str,
    takes: type[protocol.Request] | str | None = None,
    failures: tuple[int, ...] = (),
    query: tuple[str, ...] = (),
) -> Route:
    path = "/process/{process}" + (f"/{name}" if name != "state" else "")
    return Route(method, path, f"process_{name}", summary, gives, takes, (400, 404, *failures), query)


_UPLOAD = (400, 404, 409, 429, 503, 507)
_TREE = "/base/{tree}"

ROUTES = (
    _workspace(
        "create",
        "Make a workspace, or find it",
        CreateRemote,
        WorkspaceInfo,
        Operation("files", WorkspaceManager.create),
    ),
    _workspace(
        "run_code",
        "Run a Python action in the workspace's kernel",
        RunCode,
        CodeResult,
        Operation("runs", WorkspaceManager.run_code),
    ),
    _workspace(
        "answer_call",
        "Answer a call that an action waits for, and wait for what it comes to next",
        HostAnswer,
        CodeResult,
        Operation("runs", lambda manager, request: manager.actions.answer(request), ordered=False, work=False),
    ),
    _workspace(
        "run_command",
        "Run a command to its end",
        RunCommand,
        CommandResult,
        Operation("runs", WorkspaceManager.run_command, ordered=False),
    ),
    _workspace(
        "start_process",
        "Start a process to speak to",
        StartRemote,
        ProcessState,
        Operation("files", lambda manager, request: manager.start_process(request).state()),
    ),
    _workspace(
        "open_endpoint",
        "Open a port inside whose connections travel through the streams of a process",
        OpenEndpoint,
        EndpointInfo,
        Operation("files", WorkspaceManager.open_endpoint),
    ),
    _workspace(
        "snapshot",
        "Keep the workspace exactly as it is",
        Named,
        SnapshotInfo,
        Operation("files", lambda manager, request: manager.executor.snapshot(request.workspace)),
    ),
    _workspace(
        "restore", "End what runs and put files back", Restore, Done, Operation("files", WorkspaceManager.restore)
    ),
    _workspace(
        "diff",
        "The exact change since a tree",
        Diff,
        DiffResult,
        Operation("files", lambda manager, request: manager.executor.diff(request.workspace, request.base_tree)),
    ),
    _workspace(
        "compare",
        "The exact change between two trees that the workspace has had",
        Compare,
        DiffResult,
        Operation(
            "files",
            lambda manager, request: manager.executor.compare(
                request.workspace, request.before, request.after, patch=request.patch
            ),
        ),
    ),
    _workspace(
        "open_shadow",
        "End what runs, and let what starts from now on work in a copy",
        Named,
        RunTreeInfo,
        Operation("files", WorkspaceManager.open_shadow),
    ),
    _workspace(
        "promote",
        "Exchange the run's tree for a snapshot of the copy",
        Promote,
        RunTreeInfo,
        Operation("files", lambda manager, request: manager.executor.promote(request.workspace, request.snapshot)),
    ),
    _workspace(
        "run_tree",
        "The run's tree as it is now",
        Named,
        RunTreeInfo,
        Operation("files", lambda manager, request: manager.executor.run_tree(request.workspace)),
    ),
    _workspace(
        "close_shadow",
        "End what runs and remove the copy",
        Named,
        Done,
        Operation("files", WorkspaceManager.close_shadow),
    ),
    _workspace(
        "read_file",
        "The content of a regular file",
        ReadFile,
        BYTES,
        Operation(
            "files", lambda manager, request: manager.executor.read_file(request.workspace, request.path), ordered=False
        ),
    ),
    _workspace(
        "interrupt",
        "Stop the action and the commands that run",
        Named,
        Done,
        Operation("control", lambda manager, request: manager.executor.interrupt(request.workspace), work=False),
    ),
    _workspace(
        "freeze",
        "Stop everything that runs; its clocks stand still",
        Named,
        Frozen,
        Operation("control", lambda manager, request: manager.executor.freeze(request.workspace), work=False),
    ),
    _workspace(
        "thaw",
        "Let everything go on",
        Named,
        Done,
        Operation("control", lambda manager, request: manager.executor.thaw(request.workspace), work=False),
    ),
    _workspace(
        "session",
        "What its processes can have",
        Named,
        SessionInfo,
        Operation("control", lambda manager, request: manager.executor.session(request.workspace), work=False),
    ),
    _workspace(
        "release",
        "End everything in a workspace; its files stay",
        Named,
        Done,
        Operation("control", WorkspaceManager.release, work=False),
    ),
    _workspace(
        "delete",
        "End everything in a workspace and remove it",
        Named,
        Done,
        Operation("control", WorkspaceManager.delete, work=False),
    ),
    _process("GET", "state", "How a process is", ProcessState),
    _process(
        "POST",
        "write",
        "Bytes for its standard input, from an offset on; `end` closes it",
        Written,
        BYTES,
        (409, 429),
        ("offset", "end"),
    ),
    _process(
        "GET",
        "read",
        "Its standard output from an offset on, as it comes, to the end",
        BYTES,
        failures=(409,),
        query=("offset",),
    ),
    _process("GET", "stderr", "What it has written to standard error so far", BYTES),
    _process("POST", "resize", "Give its terminal another size", Done, Resize),
    _process("POST", "signal", "Interrupt it", Done, Signal),
    _process("POST", "wait", "Its state once it ended, or after a time", ProcessState, WaitRemote),
    _process("POST", "kill", "End its whole tree", ProcessState),
    Route("GET", _TREE, "base_state", "Whether a base is here", BaseState, failures=(400,)),
    Route(
        "PUT", _TREE, "base_upload", "Send a base, or carried files, as a stream of objects", BaseState, BYTES, _UPLOAD
    ),
    Route(
        "GET",
        "/snapshot/{workspace}/{snapshot}",
        "snapshot_export",
        "A snapshot as a stream of objects; `whole` includes what the base holds",
        BYTES,
        failures=(400, 404, 409, 429),
        query=("whole",),
    ),
    Route(
        "PUT",
        "/snapshot/{workspace}",
        "snapshot_import",
        "Take in a snapshot of another workspace",
        SnapshotInfo,
        BYTES,
        _UPLOAD,
    ),
    Route("GET", "/about", "about", "How code is confined here", About),
    Route("GET", "/healthz", "health", "Whether it takes work", Health, public=True),
    Route("GET", "/metrics", "metrics", "What it counted, for Prometheus", TEXT),
    Route("GET", "/openapi.json", "openapi", "This document", JSON, public=True),
)
