"""How one command-line agent is run, as its user configured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from codepilot.core.attempt import Profile

OnQuota = Literal["switch", "wait", "stop"]


@dataclass(frozen=True)
class CliSettings:
    """The user's settings of one agent. `fallback` are the agents that go on when its quota is used up."""

    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    model: str = ""
    credentials: Literal["gateway", "share"] = "gateway"
    no_progress_sec: float = 300.0
    on_quota: OnQuota = "switch"
    fallback: tuple[str, ...] = ()
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """How programs on a terminal are started and read, by name."""
