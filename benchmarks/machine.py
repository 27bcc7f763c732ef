"""Describes the machine and whether it was busy."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

_SAMPLE_SEC = 0.5
_BUSY_SHARE = 0.1
_LOAD_PER_CPU = 0.25


@dataclass
class Quiet:
    """Looks, while nothing of ours runs, at how busy the machine is all the same."""

    load: float = field(default_factory=lambda: os.getloadavg()[0])
    shares: list[float] = field(default_factory=list)

    def look(self) -> None:
        before = _processor_times()
        time.sleep(_SAMPLE_SEC)
        after = _processor_times()
        total = sum(after) - sum(before)
        idle = (after[3] + after[4]) - (before[3] + before[4])
        self.shares.append(1 - idle / total if total else 0.0)

    def __str__(self) -> str:
        busiest = max(self.shares, default=0.0)
        message = (
            f"load average {self.load:.2f} at the start; others used up to {busiest:.0%} of the processors"
            f" in {len(self.shares)} looks between the measurements"
        )
        if busiest > _BUSY_SHARE or self.load > _LOAD_PER_CPU * (os.cpu_count() or 1):
            return f"**The machine was not quiet** ({message}): compare within this run, quote nothing from it."
        return f"The machine was quiet ({message})."


def described(peers: dict[str, str]) -> list[tuple[str, str]]:
    """What a reader needs to repeat the run, and nothing that names this machine."""
    release = re.match(r"\d+(\.\d+)*", platform.release())
    tools = [_tool("bwrap", "--version"), _tool("git", "--version"), _tool("tar", "--version"), _tool("patch", "-v")]
    return [
        ("Date", datetime.now(UTC).strftime("%Y-%m-%d")),
        ("Machine", f"{platform.system()} {release.group() if release else '?'}, {platform.machine()}, {_cpus()}"),
        (
            "Versions",
            ", ".join([f"CodePilot {version('codepilot-cli')}", f"Python {platform.python_version()}", *tools]),
        ),
        ("Peers", ", ".join(f"{name} {message}" for name, message in peers.items()) or "none were run"),
    ]


def _cpus() -> str:
    count = os.cpu_count() or 1
    return f"{count} CPU{'s' * (count > 1)}, {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >> 30} GiB"


def _tool(name: str, option: str) -> str:
    try:
        message = subprocess.run([name, option], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return f"{name} missing"
    found = re.search(r"\d+(\.\d+)+", message)
    return f"{name} {found.group() if found else '?'}"


def _processor_times() -> list[int]:
    return [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
