"""The settings of a service."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path


def _concurrency() -> int:
    return max(4, 2 * (os.cpu_count() or 1))


@dataclass(frozen=True)
class ServiceSettings:
    """Bounds of one service. Everything a caller can make it hold is bounded by one of them."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    concurrency: int = field(default_factory=_concurrency)
    """How many code actions and commands run at once; as many operations on files run at the same time."""
    queue: int = 64
    """How many requests of each kind wait; the next is refused as busy."""
    workspaces: int = 64
    processes: int = 64
    allow_mounts: tuple[Path, ...] = ()
    allow_hosts: tuple[str, ...] = ()
    json_bytes: int = 16 << 20
    upload_bytes: int = 2 << 30
    objects_bytes: int = 32 << 30
    """The space for all bases together. They are removed when a service starts without workspaces."""
    body_sec: float = 30.0
    """How long a body may take, and how long an upload may pause."""
    header_sec: float = 15.0
    idle_sec: float = 75.0
    """How long an open connection may stay silent between requests."""
    connections: int = 512
    drain_sec: float = 30.0

    @property
    def workspaces_home(self) -> Path:
        return self.home / "workspaces"

    @property
    def objects_home(self) -> Path:
        return self.home / "objects"

    @property
    def staging(self) -> Path:
        return self.home / "staging"


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
