"""Finds the levels that work on this machine by running a command at each, and chooses one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.levels.bubblewrap import Bubblewrap
from codepilot.sandbox.levels.landlock import Landlock
from codepilot.sandbox.levels.subreaper import Unconfined
from codepilot.sandbox.limits import cleanup
from codepilot.sandbox.spec import Level, Limits, Mount, Sandbox, SandboxSpec

Wanted = Literal["best", "bubblewrap", "landlock", "none"]
Least = Literal["bubblewrap", "landlock"]

_STRENGTH = ("bubblewrap", "landlock", "none")


def weaker(level: str, least: str) -> bool:
    """True if a level confines less than another."""
    return _STRENGTH.index(level) > _STRENGTH.index(least)


_INSTALL = "Install bubblewrap: `apt install bubblewrap`, `dnf install bubblewrap` or `pacman -S bubblewrap`."
_APPARMOR = (
    "If it is installed, user namespaces may be restricted: on Ubuntu 24.04 and later allow them for bwrap with an"
    " AppArmor profile, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`."
)
_KERNEL = "Use Linux 6.12 or later with Landlock enabled (`landlock` in /sys/kernel/security/lsm)."
_MACOS = "no sandbox level exists for macOS yet"


@dataclass(frozen=True)
class LevelReport:
    """The result of trying a level here: it works, or the reason and the remedy."""

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


def choose(wanted: Wanted = "best", least: Least | None = None) -> Sandbox:
    """The level asked for, never a weaker one. "best" is the strongest that confines; "none" is only given by name.

    `least` is the weakest level that a policy accepts; below it the choice is refused, however it was made.
    """
    if wanted != "best" and least is not None and weaker(wanted, least):
        raise _demanded(least, f"{wanted} was asked for", f"Ask for the level `best` or `{least}`")
    if wanted == "none":
        return Unconfined()
    for report in probe():
        if wanted in ("best", report.level) and report.available:
            if least is not None and weaker(report.level, least):
                raise _too_weak(report.level, least)
            return _MAKE[report.level]()
    raise _refusal(wanted, least)


_MAKE: dict[Level, Callable[[], Sandbox]] = {Level.BUBBLEWRAP: Bubblewrap, Level.LANDLOCK: Landlock}


def _too_weak(best: Level, least: Least) -> CodePilotError:
    lacking = next(report for report in probe() if report.level == least)
    return _demanded(least, f"the strongest that works here is {best} ({least}: {lacking.reason})", lacking.advice)


def _demanded(least: Least, found: str, advice: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.SANDBOX_UNAVAILABLE,
        f"the policy demands at least the sandbox level {least}, and {found}",
        f"{advice.rstrip('.')}. Or let the policy accept a weaker level.",
        least=least,
    )


def _refusal(wanted: Wanted, least: Least | None) -> CodePilotError:
    reports = [report for report in probe() if wanted in ("best", report.level)]
    reasons = "; ".join(f"{report.level}: {report.reason}" for report in reports)
    advice = " ".join(dict.fromkeys(report.advice for report in reports))
    what = "no sandbox level works here" if wanted == "best" else f"the sandbox level {wanted} does not work here"
    if least is not None:
        what = f"{what}, and the policy demands at least {least}"
    return CodePilotError(
        FailureKind.SANDBOX_UNAVAILABLE,
        f"{what} ({reasons})",
        advice if least is not None else f"{advice} Or accept the risk with --unsafe-no-sandbox.",
        wanted=wanted,
    )


def _report(level: Level, make: Callable[[], Sandbox], advice: str) -> LevelReport:
    if sys.platform != "linux":
        reason = _MACOS if sys.platform == "darwin" else f"no sandbox level exists for {sys.platform} yet"
        return LevelReport(level, False, reason, "Run CodePilot on Linux, for example in a virtual machine.")
    outer = cleanup.make_directory(Path(tempfile.gettempdir()).resolve(), "codepilot-probe-")
    try:
        here = outer / "tree"
        here.mkdir()
        done = make().run(["/bin/sh", "-c", "exit 42"], SandboxSpec(Mount(here, here)), Limits(wall_sec=20))
    except CodePilotError as error:
        return LevelReport(level, False, str(error), advice)
    finally:
        cleanup.remove_directory(outer)
    if done.exit_code == 42:
        return LevelReport(level, True)
    stderr = done.stderr.decode(errors="replace").strip()
    return LevelReport(level, False, stderr or f"a trivial command ended as {done.status}", advice)
