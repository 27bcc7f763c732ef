"""What a sandbox is asked for and what it answers: levels, specs, limits, results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import BinaryIO, Literal, Protocol

from codepilot.sandbox.limits.disk import DiskAccount

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

    `disk_bytes` is what a workspace may hold beyond what it was made with, where its account says what it holds; each
    file and directory counts 4 KiB. `file_bytes` and `open_files` hold for each process.
    """

    wall_sec: float = 300.0
    cpus: float = 1.0
    memory_bytes: int = 1 << 30
    processes: int = 100
    open_files: int = 1024
    file_bytes: int = 512 << 20
    disk_bytes: int = 1 << 30
    output_bytes: int = 4 << 20

    @property
    def tasks(self) -> int:
        """Processes and threads together: the kernel counts them alike, and a program has more threads."""
        return min(max(5 * self.processes, self.processes + 64), _MOST_TASKS)


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
    disk_account: DiskAccount | None = field(default=None, compare=False)
    """What the workspace holds already, so that the disk limit is one for all that runs in it."""


@dataclass(frozen=True)
class Completed:
    """How a command ended. Partial output is kept whatever happened."""

    status: Literal["ok", "error", "timeout", "limit", "interrupted"]
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    limit: str | None
    duration_ms: float
    truncated: bool = False


class Process(Protocol):
    """A long-lived process inside a sandbox, spoken to over its pipes."""

    stdin: BinaryIO
    stdout: BinaryIO

    @property
    def running(self) -> bool: ...

    @property
    def limit(self) -> str | None:
        """The limit that it broke, if any: it was ended for that, or is about to be."""

    def stderr_tail(self) -> bytes: ...

    def interrupt(self) -> None: ...

    def kill(self) -> None:
        """End the whole tree and wait until it is gone."""

    def wait(self, timeout_sec: float | None = None) -> int | None: ...


class Sandbox(Protocol):
    """One level of confinement. Never weaker than its name says."""

    level: Level
    remaps: bool

    def run(
        self,
        argv: Sequence[str],
        spec: SandboxSpec,
        limits: Limits,
        stdin: bytes = b"",
        cancel: Event | None = None,
    ) -> Completed: ...

    def start(self, argv: Sequence[str], spec: SandboxSpec, limits: Limits) -> Process: ...
