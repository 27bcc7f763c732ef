"""Which levels this machine gives, found out by running a command at each, and the choice among them."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.bubblewrap import Bubblewrap
from codepilot.sandbox.landlock import Landlock
from codepilot.sandbox.none import Unconfined
from codepilot.sandbox.spec import Level, Limits, Mount, Sandbox, View

Wanted = Literal["best", "bubblewrap", "landlock", "none"]

_INSTALL = "Install bubblewrap: `apt install bubblewrap`, `dnf install bubblewrap` or `pacman -S bubblewrap`."
_APPARMOR = (
    "If it is installed, user namespaces may be restricted: on Ubuntu 24.04 and later allow them for bwrap with an"
    " AppArmor profile, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`."
)
_KERNEL = "Use Linux 6.12 or later with Landlock enabled (`landlock` in /sys/kernel/security/lsm)."
_MACOS = "no sandbox level exists for macOS yet"


@dataclass(frozen=True)
class LevelReport:
    """Whether a level works here; if not, why, and what would make it work."""

    level: Level
    available: bool
    reason: str = ""
    advice: str = ""


@cache
def probe() -> tuple[LevelReport, ...]:
    """Every level that confines, strongest first."""
    return (
        _report(Level.BUBBLEWRAP, Bubblewrap, f"{_INSTALL} {_APPARMOR}"),
        _report(Level.LANDLOCK, Landlock, _KERNEL),
    )


def choose(wanted: Wanted = "best") -> Sandbox:
    """The level asked for, never a weaker one. "best" is the strongest that confines; "none" is only given by name."""
    if wanted == "none":
        return Unconfined()
    for report in probe():
        if wanted in ("best", report.level) and report.available:
            return _MAKE[report.level]()
    raise _refusal(wanted)


_MAKE: dict[Level, Callable[[], Sandbox]] = {Level.BUBBLEWRAP: Bubblewrap, Level.LANDLOCK: Landlock}


def _refusal(wanted: Wanted) -> CodePilotError:
    reports = [report for report in probe() if wanted in ("best", report.level)]
    reasons = "; ".join(f"{report.level}: {report.reason}" for report in reports)
    advice = " ".join(dict.fromkeys(report.advice for report in reports))
    what = "no sandbox level works here" if wanted == "best" else f"the sandbox level {wanted} does not work here"
    return CodePilotError(
        FailureKind.SANDBOX_UNAVAILABLE,
        f"{what} ({reasons})",
        f"{advice} Or accept the risk with --unsafe-no-sandbox.",
        wanted=wanted,
    )


def _report(level: Level, make: Callable[[], Sandbox], advice: str) -> LevelReport:
    if sys.platform != "linux":
        reason = _MACOS if sys.platform == "darwin" else f"no sandbox level exists for {sys.platform} yet"
        return LevelReport(level, False, reason, "Run CodePilot on Linux, for example in a virtual machine.")
    with tempfile.TemporaryDirectory(prefix="codepilot-probe-") as name:
        here = Path(name).resolve()
        try:
            done = make().run(["/bin/sh", "-c", "exit 42"], View(Mount(here, here)), Limits(wall_sec=20))
        except CodePilotError as error:
            return LevelReport(level, False, str(error), advice)
    if done.exit_code == 42:
        return LevelReport(level, True)
    said = done.stderr.decode(errors="replace").strip()
    return LevelReport(level, False, said or f"a trivial command ended as {done.status}", advice)
