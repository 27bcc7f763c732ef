"""`codepilot doctor`: what this machine gives, and what to install."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from codepilot import __version__
from codepilot.core.failures import CodePilotError
from codepilot.sandbox import Level, enforcement, probe
from codepilot.store import Home, Store


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `needed` findings decide whether CodePilot can work here."""

    name: str
    ok: bool
    detail: str
    advice: str = ""
    needed: bool = True


def examine(console: Console, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print the findings; 0 when a run can work here, else 4."""
    findings = [_python(), _git(), *_sandbox(), _home(environ)]
    healthy = all(finding.ok for finding in findings if finding.needed)
    if as_json:
        document = [vars(finding) for finding in findings]
        sys.stdout.write(json.dumps({"schema_version": 1, "ok": healthy, "findings": document}) + "\n")
    else:
        for finding in findings:
            mark = ("✓", "green") if finding.ok else ("✗", "red") if finding.needed else ("-", "yellow")
            console.print(Text.assemble(mark, f" {finding.name:<20} {finding.detail}"), soft_wrap=True)
            if finding.advice and not finding.ok:
                console.print(Text(f"  → {finding.advice}", "cyan"), soft_wrap=True)
        console.print("Ready: try `codepilot demo`." if healthy else "Not ready: follow the arrows above.")
    return 0 if healthy else 4


def _python() -> Finding:
    return Finding("python", True, f"{platform.python_version()} at {sys.executable}; codepilot {__version__}")


def _git() -> Finding:
    found = shutil.which("git")
    if found is None:
        return Finding("git", False, "not found", "Install git with your system's package manager.")
    shown = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return Finding("git", True, f"{shown.removeprefix('git version ')} at {found}")


def _sandbox() -> list[Finding]:
    reports = [report for report in probe() if report.level is not Level.NONE]
    findings = [
        Finding(f"sandbox {report.level}", report.available, report.reason, report.advice, needed=False)
        for report in reports
    ]
    best = next((report for report in reports if report.available), None)
    if best is None:
        advice = "Without a level runs are refused; --unsafe-no-sandbox overrides that and the bundle says so."
        return [*findings, Finding("sandbox", False, "no level works here", advice)]
    return [*findings, Finding("sandbox", True, f"runs use {best.level}"), _limits()]


def _limits() -> Finding:
    """How limits are enforced; without control groups they hold as well, a little later."""
    return Finding("limits", True, str(enforcement()), needed=False)


def _home(environ: Mapping[str, str]) -> Finding:
    home = Home.default(environ)
    try:
        home.ensure()
        Store.open(home.database, locks=home.locks).close()
    except CodePilotError as error:
        return Finding("home", False, error.failure.message, error.failure.advice)
    free = shutil.disk_usage(home.path).free / 1e9
    return Finding(
        "home", free > 1, f"{home.path} ({free:.0f} GB free)", "Free some disk space, or set CODEPILOT_HOME."
    )
