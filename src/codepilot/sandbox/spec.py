"""The types of a sandbox's requests and results: levels, specs, limits, processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import Annotated, BinaryIO, Literal, Protocol

from pydantic import ConfigDict, Field

from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.limits.disk import DiskAccount
from codepilot.sandbox.limits.freezer import FreezeMethod, Freezer

_MOST_BYTES = 1 << 44
_MOST_TASKS = 4_000_000
"""The kernel takes no larger limit."""


class Level(StrEnum):
    """How strongly code is confined, strongest first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    NONE = "none"


@dataclass(frozen=True)
class Mount:
    """A host path shown inside at `target`. Levels that cannot remap need `source == target`."""

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True)
class Limits:
    """What one command may use. A breach kills the whole process tree and is named in the result.

    `disk_bytes` limits what a workspace holds beyond what it was made with; each file and directory counts 4 KiB.
    `file_bytes` and `open_files` hold for each process.
    """

    wall_sec: Annotated[float, Field(gt=0)] = 300.0
    cpus: Annotated[float, Field(gt=0, le=1024)] = 1.0
    memory_bytes: Annotated[int, Field(ge=1 << 20, le=_MOST_BYTES)] = 1 << 30
    processes: Annotated[int, Field(ge=1, le=1 << 20)] = 100
    open_files: Annotated[int, Field(ge=16, le=1 << 20)] = 1024
    file_bytes: Annotated[int, Field(ge=0, le=_MOST_BYTES)] = 512 << 20
    disk_bytes: Annotated[int, Field(ge=0, le=_MOST_BYTES)] = 1 << 30
    output_bytes: Annotated[int, Field(ge=1, le=64 << 20)] = 4 << 20

    __pydantic_config__ = ConfigDict(extra="forbid", revalidate_instances="always", ser_json_inf_nan="constants")
    """Bounds are checked where limits are part of a request."""

    @property
    def tasks(self) -> int:
        """Processes and threads together, as the kernel counts them."""
        return min(max(5 * self.processes, self.processes + 64), _MOST_TASKS)


class Terminal(Contract):
    """The size of a terminal, in characters."""

    rows: Annotated[int, Field(ge=1, le=1000)] = 24
    columns: Annotated[int, Field(ge=1, le=1000)] = 80


@dataclass(frozen=True)
class Endpoint:
    """A port on the loopback inside that leads to a Unix socket of the host."""

    port: int
    socket: Path


@dataclass(frozen=True)
class SandboxSpec:
    """Everything that code inside can see beyond the system: one writable workspace, read-only extras."""

    workspace: Mount
    mounts: tuple[Mount, ...] = ()
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    """The host's own network. Code inside then reaches whatever the host reaches."""
    proxy: Path | None = None
    """A Unix socket of a host-side proxy, the only way out while `network` is off."""
    endpoints: tuple[Endpoint, ...] = ()
    home: Path | None = None
    """A directory of the host that is HOME inside, and stays; without one HOME is empty and ends with the command."""
    terminal: Terminal | None = None
    """Give the command a terminal of this size as its standard streams. Only for processes that are spoken to."""
    disk_account: DiskAccount | None = field(default=None, compare=False)
    """The disk use of the workspace, shared by everything that runs in it."""
    freezer: Freezer | None = field(default=None, compare=False)
    """Freezes everything that runs in the workspace, and stops its clock for that time."""


Status = Literal["ok", "error", "timeout", "limit", "violation", "interrupted"]


class CommandResult(Contract):
    """How a command ended. Partial output is always kept."""

    status: Status
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    limit: str | None = None
    duration_ms: float = 0.0
    truncated: bool = False


class Process(Protocol):
    """A long-lived process inside a sandbox, spoken to over its pipes."""

    stdin: BinaryIO
    stdout: BinaryIO

    @property
    def running(self) -> bool: ...

    @property
    def limit(self) -> str | None:
        """The limit that ended it, or is about to, if any."""

    def stderr(self) -> bytes:
        """What it has written to standard error so far. Of more than `output_bytes` the middle is left out."""

    def stderr_tail(self) -> bytes: ...

    def resize(self, terminal: Terminal) -> None:
        """Give its terminal another size."""

    def interrupt(self) -> None: ...

    def kill(self) -> None:
        """End the whole tree and wait until it is gone."""

    def wait(self, timeout_sec: float | None = None) -> int | None: ...


class SessionOffer(Contract):
    """What a level offers to a session on this machine, and why it refuses the rest."""

    level: Level
    freeze: FreezeMethod
    offers: tuple[str, ...]
    refused: Mapping[str, str] = {}


def not_offered(offer: SessionOffer, name: str) -> CodePilotError:
    """The refusal of something that a level does not offer, with its reason."""
    return CodePilotError(
        FailureKind.SANDBOX_UNAVAILABLE,
        offer.refused[name],
        "Install bubblewrap, whose sandbox offers it.",
        level=str(offer.level),
        refused=name,
    )


class Sandbox(Protocol):
    """One level of confinement."""

    level: Level
    remaps: bool

    def offer(self) -> SessionOffer:
        """What a session can have at this level."""

    def home(self, spec: SandboxSpec) -> Path:
        """The path of HOME inside."""

    def run(
        self,
        argv: Sequence[str],
        spec: SandboxSpec,
        limits: Limits,
        stdin: bytes = b"",
        cancel: Event | None = None,
    ) -> CommandResult: ...

    def start(
        self, argv: Sequence[str], spec: SandboxSpec, limits: Limits, ended: Callable[[], None] = lambda: None
    ) -> Process:
        """Start a process; `ended` is called once nothing of it is left."""
