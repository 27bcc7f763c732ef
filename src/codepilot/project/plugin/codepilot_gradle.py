"""Runs a Gradle project's tests and tells of them: `python codepilot_gradle.py GRADLE`. Offline, without a daemon."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codepilot.project.plugin.codepilot_build import TestReporter, folders_with, follow, relative
    from codepilot.project.plugin.codepilot_junit import Outputs, Reports, meaning, parsed
else:
    from codepilot_build import TestReporter, folders_with, follow, relative
    from codepilot_junit import Outputs, Reports, meaning, parsed

STALE = ("classes", "test-results", "tmp", "reports")
MAX_PROBLEMS = 50
MAX_WHY = 1_000

_PLACED = re.compile(
    r"^(?:[ew]: )?(?:file://)?(/\S.*?\.(?:java|kt|groovy|scala)):(\d+)(?::\d+)?:? (?:(error|warning): )?(.*)"
)
_MISSING = re.compile(r"No cached version of (\S+) available for offline mode|Could not (?:find|resolve) (\S+:\S+)")
_TASK = re.compile(r"^> Task ")


class Log:
    """What Gradle says on the way: compiler messages, and dependencies it lacks."""

    def __init__(self, reporter: TestReporter) -> None:
        self._telling = reporter
        self.errors: dict[str, list[str]] = {}
        self.missing = ""
        self.why = ""
        self._wrong = False

    def hear(self, line: str) -> None:
        placed = _PLACED.match(line)
        if placed and (placed[3] == "warning" or line.startswith("w: ")):
            self._telling.warning(f"{relative(placed[1])}: {placed[4]}")
        elif placed and (placed[3] == "error" or line.startswith("e: ")):
            known = self.errors.setdefault(relative(placed[1]), [])
            if len(known) < MAX_PROBLEMS:
                known.append(f"line {placed[2]}: {placed[4]}")
        elif not _TASK.match(line):
            lacking = _MISSING.search(line)
            self.missing = self.missing or (next(filter(None, lacking.groups())).rstrip(",:.") if lacking else "")
            if self._wrong and len(self.why) < MAX_WHY:
                self.why = f"{self.why} {line.strip()}".strip()
            self._wrong = line.startswith("* What went wrong") or (self._wrong and bool(line.strip()))


def chosen(asked: list[str]) -> list[str]:
    """What `--tests` takes, once for each name."""
    found = []
    for name in map(parsed, asked):
        if name.package:
            found.append(f"{name.package.lstrip('.')}*")
        elif name.method:
            found.append(f"{_anywhere(name.group)}.{name.plain_method}")
        else:
            found.append(f"{_anywhere(name.group)}*")
    return [part for one in dict.fromkeys(found) for part in ("--tests", one)]


def _anywhere(group: str) -> str:
    return group if "." in group else f"*{group}"


def main(program: str) -> int:
    reporter = TestReporter("gradle", meaning)
    log = Log(reporter)
    modules = folders_with(["build.gradle", "build.gradle.kts"], ["build"]) or [Path()]
    builds = [folder / "build" for folder in modules]
    outputs = Outputs(builds, STALE)
    reports = Reports(reporter, [build / "test-results" for build in builds])
    argv = [program, "--offline", "--no-daemon", "--console=plain", "--continue", "cleanTest", "test"]
    try:
        code = follow([*argv, *chosen(reporter.asked)], log.hear, reports.look)
        return _ended(reporter, log, reports, code)
    finally:
        outputs.remove()


def _ended(reporter: TestReporter, log: Log, reports: Reports, code: int) -> int:
    for path, said in log.errors.items():
        told = "\n".join(said)
        reporter.unloadable(path, error_type="CompilationError", message=told, traceback=told)
    if code and reporter.silent and not log.errors and "No tests found for given includes" not in log.why:
        kind = "DependencyMissing" if log.missing else "BuildFailed"
        reporter.cannot_start(kind, log.why or f"Gradle ended with exit code {code}", log.missing)
    return code or 1 if reports.unread else reporter.end(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
