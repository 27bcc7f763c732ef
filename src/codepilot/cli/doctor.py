"""`codepilot doctor`: what works on this machine and in the project of this directory, and what to install."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.text import Text

from codepilot import __version__
from codepilot.cli import output
from codepilot.cli.live import Stages
from codepilot.cli.output import say
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.text import counted
from codepilot.engine import CodePilot, Request, Settings
from codepilot.sandbox import Level, choose, enforcement, probe
from codepilot.skills import all_skills

TESTS_SEC = 60.0
"""How long the project's tests may run."""
MARKS = {"ok": ("✓", "green"), "missing": ("-", "magenta"), "failed": ("✗", "red")}
_SHOWN = 5
_FROZEN_BY = {
    "cgroup2": "control group v2",
    "freezer": "control group v1",
    "sigstop": "signals, which is weaker: a program's parent sees it stop",
}


@dataclass(frozen=True)
class Finding:
    """The result of one check. CodePilot cannot work if a `needed` one fails."""

    name: str
    status: Literal["ok", "missing", "failed"]
    """`missing` is something optional that is not there."""
    detail: str
    advice: str = ""
    needed: bool = False

    @property
    def ok(self) -> bool:
        return self.status == "ok"


def examine(console: Console, *, tests: bool, as_json: bool) -> int:
    """Print the findings; 0 if CodePilot can work here, else 4."""
    findings = [_python(), _git(), *_levels()]
    try:
        settings = Settings.load(Path.cwd())
    except CodePilotError as error:
        findings += [_failed("configuration", error), _home(Settings.for_reading()), *_skills()]
    else:
        findings += [_home(settings), *_runs(settings), _workers(settings)]
        findings += [*_skills(), *_models(settings), *_agents(settings), _notify(settings)]
        findings += _project(settings, tests=tests)
    findings += _disk(Settings.for_reading())
    healthy = all(finding.ok for finding in findings if finding.needed)
    if as_json:
        document = [{**asdict(finding), "ok": finding.ok} for finding in findings]
        say(json.dumps({"schema_version": 1, "ok": healthy, "findings": document}))
        return 0 if healthy else 4
    for finding in findings:
        console.print(Text.assemble(MARKS[finding.status], f" {finding.name:<20} {finding.detail}"), soft_wrap=True)
        if finding.advice and not finding.ok:
            console.print(Text(f"  → {finding.advice}", "blue"), soft_wrap=True)
    console.print("Ready: try `codepilot demo`." if healthy else "Not ready: follow the arrows above.")
    return 0 if healthy else 4


def _failed(name: str, error: CodePilotError, *, needed: bool = True) -> Finding:
    return Finding(name, "failed", error.failure.message, error.failure.advice, needed)


def _python() -> Finding:
    detail = f"{platform.python_version()} at {sys.executable}; codepilot {__version__}"
    return Finding("python", "ok", detail, needed=True)


def _git() -> Finding:
    found = shutil.which("git")
    if found is None:
        return Finding("git", "failed", "not found", "Install git with your system's package manager.", needed=True)
    shown = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return Finding("git", "ok", f"{shown.removeprefix('git version ')} at {found}", needed=True)


def _skills() -> list[Finding]:
    """The skills of installed packages that could not be loaded."""
    return [
        Finding(f"skills of {failure.details['package']}", "failed", failure.message, failure.advice)
        for failure in all_skills().left_out
    ]


def _models(settings: Settings) -> list[Finding]:
    """The chat models that can be used here. The repair agent needs none."""
    from codepilot.models import configured_models, usual_model

    environ, chosen = settings.environ, settings.models
    findings = []
    for provider in configured_models(environ, chosen):
        name = f"model {provider.name}"
        if not provider.sdk_installed:
            advice = f"pip install {provider.package} genai-prices into CodePilot's environment."
            findings.append(Finding(name, "missing", f"{provider.package} is not installed", advice))
            continue
        ready = provider.key_present or provider.key_optional
        key = f"{provider.variable} is {'set' if provider.key_present else 'not set'}"
        if provider.key_optional and not provider.key_present:
            key = f"no key is sent; {provider.variable} sets one"
        detail = f"{key}; asked at {provider.url}" if provider.url else key
        findings.append(Finding(name, "ok" if ready else "missing", detail, f"Set {provider.variable}."))
    try:
        usual = usual_model(environ, chosen)
    except CodePilotError as error:
        detail = "none; the built-in agent needs no model"
        return [*findings, Finding("model by default", "missing", detail, error.failure.advice)]
    fallback = f", else {chosen.fallback}" if chosen.fallback else ""
    return [*findings, Finding("model by default", "ok", f"{usual}{fallback}")]


def _agents(settings: Settings) -> list[Finding]:
    """The programs that can be agents: found, version, credentials, and what works with them."""
    findings: list[Finding] = []
    try:
        found = CodePilot(settings).agents()
    except CodePilotError as error:
        return [_failed("agents", error, needed=False)]
    for one in found:
        probe = one.probe
        if not probe.found:
            findings.append(Finding(f"agent {one.name}", "missing", probe.problem or "not found", one.advice))
            continue
        login = "logged in" if probe.logged_in else "not logged in"
        shared = "its own login is shared" if one.shared else "asked through the gateway"
        works = ", ".join(name.replace("_", " ") for name in probe.works) or "one task at a time"
        version = f"{probe.version} " if probe.version else ""
        detail = f"{version}at {probe.found}; {login}; {one.key}; {shared}; {works}"
        status: Literal["ok", "missing", "failed"] = "failed" if probe.problem else "ok" if one.ready else "missing"
        findings.append(Finding(f"agent {one.name}", status, detail, probe.problem or one.advice))
    return findings


def _notify(settings: Settings) -> Finding:
    """The receiver of notifications, without the part of its URL that may be secret."""
    place = CodePilot(settings).notify_place
    if place is None:
        return Finding("notify", "missing", "no [notify] url is configured: nobody is called when a run ends")
    return Finding("notify", "ok", f"the end of a run is posted to {place}")


def _levels() -> list[Finding]:
    return [
        Finding(f"sandbox {report.level}", "ok" if report.available else "missing", report.reason, report.advice)
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
        detail = f"use the executor at {settings.executor.url}, which confines by {level}"
        return [Finding("runs", "ok", detail, needed=True)]
    return [Finding("runs", "ok", f"use {level}", needed=True), _limits(level), _session(level)]


def _limits(level: Level) -> Finding:
    """How limits are enforced. Without control groups they act a little later."""
    found = enforcement()
    root_alone = os.geteuid() == 0 and level is Level.LANDLOCK and "pids" not in found.controllers
    advice = "Run as an ordinary user: as root, without control groups, only the watchdog bounds forks at this level."
    return Finding("limits", "failed" if root_alone else "ok", str(found), advice)


def _session(level: Level) -> Finding:
    """What an agent that is a program can have at this level, and how it is frozen."""
    offer = choose(level.value).offer()
    detail = f"frozen by {_FROZEN_BY[offer.freeze]}; offers {', '.join(offer.offers)}"
    if not offer.refused:
        return Finding("sessions", "ok", detail)
    refused = "; ".join(f"no {name}: {reason}" for name, reason in offer.refused.items())
    return Finding("sessions", "missing", f"{detail}; {refused}", "Install bubblewrap, which offers all of it.")


def _home(settings: Settings) -> Finding:
    home = settings.home
    try:
        CodePilot(settings).open().close()
    except CodePilotError as error:
        return _failed("home", error)
    free = shutil.disk_usage(home.path).free / 1e9
    advice = "Free some disk space (`codepilot gc`, `codepilot rm`), or set CODEPILOT_HOME."
    status: Literal["ok", "failed"] = "ok" if free > 1 else "failed"
    return Finding("home", status, f"{home.path} ({free:.0f} GB free)", advice, needed=True)


def _disk(settings: Settings) -> list[Finding]:
    """What takes the space of the home."""
    used = {kind: found for kind, found in settings.home.disk_use().items() if found[0]}
    if not used:
        return []
    total = sum(size for size, _ in used.values())
    largest = sorted(
        ((kind, found) for kind, found in used.items() if found[0] * 100 >= total), key=lambda one: -one[1][0]
    )
    parts = ", ".join(f"{kind} {'' if whole else 'over '}{_size(size)}" for kind, (size, whole) in largest)
    return [Finding("disk use", "ok", f"{_size(total)}: {parts}")]


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"


def _workers(settings: Settings) -> Finding:
    """True if somebody takes queued runs."""
    try:
        with CodePilot(settings) as pilot:
            found = [worker for worker in pilot.workers() if worker.takes_queued]
    except CodePilotError as error:
        return _failed("workers", error, needed=False)
    if not found:
        advice = "`codepilot fix` needs none. For queued runs start one: codepilot worker"
        return Finding("workers", "missing", "none is running", advice)
    places = ", ".join(f"{worker.worker} on {worker.host}" for worker in found[:_SHOWN])
    return Finding("workers", "ok", f"{counted(len(found), 'worker')}: {places}")


def _project(settings: Settings, *, tests: bool) -> list[Finding]:
    """The project in this directory, as a run would find it; nothing outside a repository."""
    with CodePilot(settings) as pilot, Stages(output.console(err=True)) as stages:
        try:
            task = pilot.task(Request(repo="."))
            found = pilot.inspect(task, tests_sec=TESTS_SEC if tests else None, on_progress=stages.begin)
        except CodePilotError as error:
            if error.kind is FailureKind.REPO_UNREACHABLE:
                return [Finding("project", "missing", error.failure.message, error.failure.advice)]
            return [_failed("project", error, needed=False)]
    findings = [
        Finding("project", "ok", f"{found.root}, {found.language}, tested by {found.runner}"),
        Finding("interpreter", "ok", f"{found.interpreter} ({found.origin})"),
    ]
    if found.declared:
        findings.append(_dependencies(found.declared, found.missing, found.install))
    if found.suite is not None:
        usable = found.suite.status == "finished" and bool(found.suite.cases)
        advice = "A run needs a suite that starts: run it yourself and correct what it says."
        if found.suite.status == "timeout":
            advice = "Name the failing test with --test; only parts of the suite are run then."
        findings.append(Finding("tests", "ok" if usable else "failed", found.tests, advice))
    return findings


def _dependencies(declared: tuple[str, ...], missing: tuple[str, ...] | None, install: str) -> Finding:
    if missing is None:
        return Finding("dependencies", "failed", "the interpreter does not answer inside the sandbox")
    if not missing:
        every = f"all {len(declared)} declared packages are" if len(declared) > 1 else "the one declared package is"
        return Finding("dependencies", "ok", f"{every} installed")
    names = ", ".join(missing[:_SHOWN]) + (", …" if len(missing) > _SHOWN else "")
    are = "is" if len(missing) == 1 else "are"
    detail = f"{len(missing)} of {len(declared)} declared packages {are} not installed: {names}"
    how = f": {install}" if install else ""
    advice = f"Install the project's dependencies{how}; or name the interpreter that has them with [project] python."
    return Finding("dependencies", "failed", detail, advice)
