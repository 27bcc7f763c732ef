"""Runs a Maven project's tests and tells of them: `python codepilot_maven.py MVN REPOSITORY`.

Offline, with the local repository as it is shown (read-only), without anyone's settings.
"""

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

SETTINGS = str(Path(__file__).resolve().with_name("codepilot_settings.xml"))
STALE = ("classes", "test-classes", "surefire-reports", "maven-status")
LENIENT = ("-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false")
"""Modules without the named tests do not fail the build."""
MAX_PROBLEMS = 50

_PLACED = re.compile(r"^\[(ERROR|WARNING)\] (/\S.*?\.(?:java|kt|groovy|scala)):\[?(\d+)(?:,(\d+))?\]? (.*)")
_UNPLACED = re.compile(r"^\[WARNING\] (/\S.*?\.(?:java|kt|groovy|scala)): (?:\1 )?(.*)")
_MORE = re.compile(r"^\[ERROR\] {2,}(\S.*)|^ {2,}(\S.*)")
_OFFLINE = re.compile(r"offline mode and the artifact (\S+) has not been downloaded|offline mode.*?artifact (\S+:\S+)")
_UNRESOLVED = re.compile(
    r"could not be resolved: (\S+)|Could not find artifact (\S+)|Non-resolvable .*?: .*?(\S+:pom:\S+)"
)
_RUNNING = re.compile(r"^\[INFO\] Running (\S+)")
_RAN = re.compile(r"^\[\w+\] Tests run: .* (?:in|-) \S+$")


class Log:
    """What Maven says on the way: compiler messages, dependencies it lacks, the class it is at."""

    def __init__(self, reporter: TestReporter) -> None:
        self._telling = reporter
        self.errors: dict[str, list[str]] = {}
        self.missing = ""
        self.first_error = ""
        self._open: list[str] | None = None

    def hear(self, line: str) -> None:
        placed = _PLACED.match(line)
        if placed:
            self._compiler(placed[1], relative(placed[2]), placed[3], placed[5])
            return
        unplaced = _UNPLACED.match(line)
        if unplaced:
            self._telling.warning(f"{relative(unplaced[1])}: {unplaced[2]}")
            return
        more = _MORE.match(line)
        if more and self._open is not None:
            self._open[-1] += f"\n  {more[1] or more[2]}"
            return
        self._open = None
        running = _RUNNING.match(line)
        if running or _RAN.match(line):
            self._telling.running(running[1] if running else "")
        if line.startswith("[ERROR]"):
            lacking = _OFFLINE.search(line) or _UNRESOLVED.search(line)
            self.missing = self.missing or (next(filter(None, lacking.groups())).rstrip(",:.") if lacking else "")
            self.first_error = self.first_error or line[7:].strip()

    def _compiler(self, kind: str, path: str, line: str, said: str) -> None:
        if kind == "WARNING":
            self._telling.warning(f"{path}: {said}")
            return
        known = self.errors.setdefault(path, [])
        text = f"line {line}: {said}"
        self._open = None
        if len(known) < MAX_PROBLEMS and not any(one.split("\n")[0] == text for one in known):
            known.append(text)
            self._open = known


def chosen(asked: list[str]) -> str:
    """What `-Dtest` takes. A nested class belongs to its outer one."""
    patterns = []
    for name in map(parsed, asked):
        if name.package:
            patterns.append(f"{name.package.lstrip('.')}**" if name.package != "." else "*")
        elif name.method:
            patterns.append(f"{name.group}#{name.plain_method}")
        else:
            patterns += [name.group, f"{name.group}$*"]
    return ",".join(dict.fromkeys(patterns))


def main(program: str, repository: str) -> int:
    reporter = TestReporter("maven", meaning)
    log = Log(reporter)
    modules = folders_with(["pom.xml"], ["target"])
    targets = [folder / "target" for folder in modules]
    outputs = Outputs(targets, STALE)
    reports = Reports(reporter, [target / "surefire-reports" for target in targets])
    asked = reporter.asked
    argv = [
        program,
        *("-B", "-o", "-s", SETTINGS, "-gs", SETTINGS, "--fail-at-end"),
        f"-Dmaven.repo.local={repository}",
        "-Daether.enhancedLocalRepository.trackingFilename=none",
        *("-Dstyle.color=never", "-Dmaven.test.failure.ignore=true"),
        *("-Dmaven.compiler.showWarnings=true", "-Dmaven.compiler.showDeprecation=true"),
        *([f"-Dtest={chosen(asked)}", *LENIENT] if asked else []),
        "test",
    ]
    try:
        code = follow(argv, log.hear, reports.look)
        return _ended(reporter, log, reports, code)
    finally:
        outputs.remove()


def _ended(reporter: TestReporter, log: Log, reports: Reports, code: int) -> int:
    if code == 0 and not reports.unread:
        return reporter.end(0)
    for path, said in log.errors.items():
        told = "\n".join(said)
        reporter.unloadable(path, error_type="CompilationError", message=told, traceback=told)
    if log.errors:
        return reporter.end(code or 1)
    if reporter.silent:
        kind = "DependencyMissing" if log.missing else "BuildFailed"
        reporter.cannot_start(kind, log.first_error or f"Maven ended with exit code {code}", log.missing)
        return reporter.end(code or 1)
    return code or 1  # without its end the run is known to be incomplete


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
