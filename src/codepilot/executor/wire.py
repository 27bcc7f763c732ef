"""Messages between `RemoteExecutor` and the service, beyond the protocol's contracts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from codepilot.core.contract import Contract
from codepilot.executor.protocol import (
    Many,
    Name,
    ObjectId,
    Request,
    StartProcess,
    Text,
    WorkspaceFields,
)
from codepilot.sandbox import Level, Terminal

ProcessId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
PROCESS_WAIT_SEC = 60.0
FOREVER_SEC = 1e9
"""Stands for a limit without end: JSON has no infinity."""


class CreateRemote(WorkspaceFields):
    """Make a workspace from a base and carried files that were uploaded before."""

    carried: Many[Text] = ()
    """Targets of carried files; the entry `0` of the snapshot goes to the first, and so on."""
    carried_snapshot: ObjectId | None = None


class Named(Request):
    """A workspace, by its name."""

    workspace: Name


class Restore(Request):
    workspace: Name
    snapshot: ObjectId
    paths: Many[Text] = ()


class Diff(Request):
    workspace: Name
    base_tree: ObjectId


class Compare(Request):
    workspace: Name
    before: ObjectId
    after: ObjectId
    patch: bool = True


class Promote(Request):
    workspace: Name
    snapshot: ObjectId


class ReadFile(Request):
    workspace: Name
    path: Text = Field(min_length=1)


class StartRemote(StartProcess):
    """The caller names the process, so that asking again starts no second one."""

    process: ProcessId


class OpenEndpoint(Request):
    """The caller names the process whose streams carry the connections, so that asking again opens no second one."""

    workspace: Name
    name: Name
    process: ProcessId


class WaitRemote(Request):
    timeout_sec: float = Field(default=PROCESS_WAIT_SEC, ge=0, le=PROCESS_WAIT_SEC)


class Signal(Request):
    signal: Literal["interrupt"] = "interrupt"


class Resize(Request):
    terminal: Terminal


class Done(Contract):
    done: Literal[True] = True


class ProcessState(Contract):
    process: str
    running: bool
    exit_code: int | None = None
    limit: str | None = None
    stderr_tail: bytes = b""


class Written(Contract):
    """How much of a process's standard input has arrived."""

    received: int


class BaseState(Contract):
    tree: str
    present: bool


class About(Contract):
    """The properties of an executor that callers need first."""

    level: Level
    remaps: bool
    version: str


class Health(Contract):
    status: Literal["ok", "draining"]
