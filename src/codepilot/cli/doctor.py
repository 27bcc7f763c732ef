"""`codepilot doctor`: what works on this machine, and what to install."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from codepilot import __version__
from codepilot.cli.output import say
from codepilot.core.failures import CodePilotError
from codepilot.engine import CodePilot, Settings
from codepilot.sandbox import Level, enforcement, probe
from codepilot.skills import all_skills


@dataclass(frozen=True)
class Finding:
    """The result of one check. `needed` ones decide whether CodePilot can work here."""

    name: str
    ok: bool
    detail: str
    advice: str = ""
    needed: bool = True


def examine(console: Console, *, as_json: bool) -> int:
    """Print the findings; 0 when a run can work here, else 4."""
    findings = [_python(), _git(), *_levels()]
    try:
        settings = Settings.load(Path.cwd())
    except CodePilotError as error:
        findings += [_failed("configuration", error), _home(Settings.for_reading()), *_skills()]
    else:
        findings += [_home(settings), *_runs(settings), *_skills(), *_models(settings), _notify(settings)]
    healthy = all(finding.ok for finding in findings if finding.needed)
    if as_json:
        document = [vars(finding) for finding in findings]
        say(json.dumps({"schema_version": 1, "ok": healthy, "findings": document}))
    else:
        for finding in findings:
            mark = ("✓", "green") if finding.ok else ("✗", "red") if finding.needed else ("-", "magenta")
            console.print(Text.assemble(mark, f" {finding.name:<20} {finding.detail}"), soft_wrap=True)
            if finding.advice and not finding.ok:
                console.print(Text(f"  → {finding.advice}", "blue"), soft_wrap=True)
        console.print("Ready: try `codepilot demo`." if healthy else "Not ready: follow the arrows above.")
    return 0 if healthy else 4


def _failed(name: str, error: CodePilotError) -> Finding:
    return Finding(name, False, error.failure.message, error.failure.advice)


def _python() -> Finding:
    return Finding("python", True, f"{platform.python_version()} at {sys.executable}; codepilot {__version__}")


def _git() -> Finding:
    found = shutil.which("git")
    if found is None:
        return Finding("git", False, "not found", "Install git with your system's package manager.")
    shown = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return Finding("git", True, f"{shown.removeprefix('git version ')} at {found}")


def _skills() -> list[Finding]:
    """The skills of installed packages that could not be loaded."""
    return [
        Finding(f"skills of {failure.details['package']}", False, failure.message, failure.advice, needed=False)
        for failure in all_skills().left_out
    ]


def _models(settings: Settings) -> list[Finding]:
    """The chat models that can be used here. The repair agent needs none."""
    from codepilot.models import configured_models, usual_model

    environ, chosen = settings.environ, settings.models
    findings = []
    for provider in configured_models(environ, chosen):
        if not provider.sdk_installed:
            advice = f"pip install {provider.package} genai-prices into CodePilot's environment."
            findings.append(
                Finding(f"model {provider.name}", False, f"{provider.package} is not installed", advice, False)
            )
            continue
        ready = provider.key_present or provider.key_optional
        key = f"{provider.variable} is {'set' if provider.key_present else 'not set'}"
        detail = f"{key}; asked at {provider.url}" if provider.url else key
        findings.append(Finding(f"model {provider.name}", ready, detail, f"Set {provider.variable}.", needed=False))
    try:
        usual = usual_model(environ, chosen)
    except CodePilotError as error:
        return [*findings, Finding("model by default", False, "none", error.failure.advice, needed=False)]
    behind = f", else {chosen.fallback}" if chosen.fallback else ""
    return [*findings, Finding("model by default", True, f"{usual}{behind}", needed=False)]


def _notify(settings: Settings) -> Finding:
    """The receiver of notifications, without the part of its URL that may be secret."""
    place = CodePilot(settings).notify_place
    return Finding("notify", True, f"the end of a run is sent to {place}" if place else "no url is configured")


def _levels() -> list[Finding]:
    return [
        Finding(f"sandbox {report.level}", report.available, report.reason, report.advice, needed=False)
        for report in probe()
        if report.level is not Level.NONE
    ]


def _runs(settings: Settings) -> list[Finding]:
    """Where the configuration of this directory runs code, and within which limits."""
    try:
        level = Level(CodePilot(settings).level())
    except CodePilotError as error:
        return [_failed("runs", error)]
    if settings.executor.url is not None:
        return [Finding("runs", True, f"use the executor at {settings.executor.url}, which confines by {level}")]
    return [Finding("runs", True, f"use {level}"), _limits(level)]


def _limits(level: Level) -> Finding:
    """How limits are enforced. Without control groups they act a little later."""
    found = enforcement()
    root_alone = os.geteuid() == 0 and level is Level.LANDLOCK and "pids" not in found.controllers
    advice = "Run as an ordinary user: as root, without control groups, only the watchdog bounds forks at this level."
    return Finding("limits", not root_alone, str(found), advice if root_alone else "", needed=False)


def _home(settings: Settings) -> Finding:
    home = settings.home
    try:
        CodePilot(settings).open().close()
    except CodePilotError as error:
        return _failed("home", error)
    free = shutil.disk_usage(home.path).free / 1e9
    return Finding(
        "home", free > 1, f"{home.path} ({free:.0f} GB free)", "Free some disk space, or set CODEPILOT_HOME."
    )
