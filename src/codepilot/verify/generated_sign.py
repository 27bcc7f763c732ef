"""One place in a generated program that is blocked, or that a person has to allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})
MAX_SNIPPET = 300


@dataclass(frozen=True)
class Sign:
    """What is done where. `kind` is `blocked`, or the operation that a person is asked about."""

    kind: Literal["blocked", "network", "command", "install"]
    path: str
    line: int
    subject: str
    why: str
    snippet: str = ""
    hosts: tuple[str, ...] = ()
    """The hosts that the file names."""

    @property
    def local(self) -> bool:
        """True if the file names hosts, and all of them are this machine."""
        return bool(self.hosts) and set(self.hosts) <= LOOPBACK

    @property
    def remote_hosts(self) -> tuple[str, ...]:
        return tuple(host for host in self.hosts if host not in LOOPBACK)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.subject}: {self.why}"


def first_line(lines: Sequence[str], number: int) -> str:
    return lines[number - 1].strip()[:MAX_SNIPPET] if 0 < number <= len(lines) else ""
