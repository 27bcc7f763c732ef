"""Runs the tests of a Maven or Gradle project and reports them as frames.

    python codepilot_jvm.py maven MVN REPOSITORY
    python codepilot_jvm.py gradle GRADLE

Both run offline and without anyone's settings. Test ids are `package.Class#method`. The results are read from the XML
reports that Surefire and Gradle write. Runs in the sandbox, on Python 3.8 and newer, with the standard library alone.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codepilot.project.plugin.codepilot_build import Matches, TestReporter, folders_with, follow, relative
    from codepilot.project.plugin.codepilot_reports import MAX_BYTES, BadReport, read_report
else:
    from codepilot_build import TestReporter, folders_with, follow, relative
    from codepilot_reports import MAX_BYTES, BadReport, read_report

MARK = ".codepilot"
MAX_FILES = 20_000
MAX_PROBLEMS = 50
_SOURCE = re.compile(r"\.(?:java|kt|groovy|scala)$")
_ROOTS = re.compile(r"^(?:.*/)?(?:java|kotlin|groovy|scala)/")
_PARAMETERS = re.compile(r"[(\[{].*", re.DOTALL)
"""What reports append to the name of a parameterised method."""
_METHOD = re.compile(r"^(?P<group>(?:.*\.)?[A-Z_][\w$]*)\.(?P<method>[a-z_][\w$]*)$")


class Name(NamedTuple):
    """A test as people write it: a class with or without its package, a method or none.

    A `package` ends in a dot; a dot alone matches every test.
    """

    group: str
    method: str = ""
    package: str = ""

    def matches(self, test: str) -> bool:
        group, _, method = test.partition("#")
        if self.package:
            return self.package == "." or group.startswith(self.package)
        if self.method and self.method not in (method, _PARAMETERS.sub("", method)):
            return False
        return f".{group}$".endswith(f".{self.group}$") or (not self.method and f".{self.group}$" in f".{group}$")

    @property
    def plain_method(self) -> str:
        return _PARAMETERS.sub("", self.method)


def parsed(asked: str) -> Name:
    """`Class#method`, `Class::method`, `package.Class.method`, a source file, or a directory of them."""
    place, mark, method = asked.replace("::", "#").partition("#")
    if place.startswith("./"):
        place = place[2:]
    if _SOURCE.search(place):
        return Name(_ROOTS.sub("", _SOURCE.sub("", place)).replace("/", "."), method)
    if "/" in place or place in (".", ""):
        below = _ROOTS.match(f"{place.rstrip('/')}/")
        package = place.rstrip("/")[below.end() :].replace("/", ".") if below else ""
        return Name("", package=f"{package}.")
    found = _METHOD.match(place)
    if found and not mark:
        return Name(found["group"], found["method"])
    return Name(place, method)


def meaning(asked: str) -> Matches:
    return parsed(asked).matches


class Reports:
    """The reports in some directories, each reported once it can be read."""

    def __init__(self, reporter: TestReporter, folders: Sequence[Path]) -> None:
        self._reporter = reporter
        self._folders = folders
        self._read: dict[Path, tuple[int, int]] = {}
        self.unread: dict[Path, str] = {}

    def look(self) -> None:
        for folder in self._folders:
            for path in sorted(folder.glob("**/*.xml"))[:MAX_FILES]:
                if path.is_symlink() or not path.is_file():
                    continue
                stat = path.stat()
                state = (stat.st_mtime_ns, stat.st_size)
                if stat.st_size and self._read.get(path) != state:
                    self._take(path, state)

    def _take(self, path: Path, state: tuple[int, int]) -> None:
        try:
            cases = read_report(path.read_bytes() if state[1] <= MAX_BYTES else b"")
        except (OSError, BadReport) as error:
            self.unread[path] = str(error)
            return
        self.unread.pop(path, None)
        self._read[path] = state
        for case in cases:
            self._reporter.test(
                f"{case.group}#{case.name}",
                case.status,
                error_type=case.kind.rpartition(".")[2],
                message=case.message,
                traceback=case.detail,
                duration=case.seconds,
            )


class Outputs:
    """Build directories. A new one is removed after the run; from an existing one only stale output is removed."""

    def __init__(self, folders: Sequence[Path], stale: Sequence[str]) -> None:
        self._ours = []
        for folder in folders:
            if folder.is_symlink():
                continue
            if folder.is_dir() and not (folder / MARK).exists():
                for name in stale:
                    shutil.rmtree(folder / name, ignore_errors=True)
                continue
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / MARK).touch()
            self._ours.append(folder)

    def remove(self) -> None:
        for folder in self._ours:
            shutil.rmtree(folder, ignore_errors=True)


class Log:
    """The output of a build tool: compiler messages, dependencies that are missing, and the first error."""

    def __init__(self, reporter: TestReporter) -> None:
        self._reporter = reporter
        self.errors: dict[str, list[str]] = {}
        self.missing = ""
        self.reason = ""

    def read(self, line: str) -> None:
        raise NotImplementedError

    def note_missing(self, found: re.Match[str] | None) -> None:
        """Keep the first dependency that is named as missing."""
        self.missing = self.missing or (next(filter(None, found.groups())).rstrip(",:.") if found else "")

    def report_errors(self) -> None:
        for path, messages in self.errors.items():
            text = "\n".join(messages)
            self._reporter.unloadable(path, error_type="CompilationError", message=text, traceback=text)

    def report_failure(self, tool: str, code: int) -> None:
        kind = "DependencyMissing" if self.missing else "BuildFailed"
        self._reporter.cannot_start(kind, self.reason or f"{tool} ended with exit code {code}", self.missing)


# Maven ----------------------------------------------------------------------------------------------


SETTINGS = str(Path(__file__).resolve().with_name("codepilot_settings.xml"))
MAVEN_STALE = ("classes", "test-classes", "surefire-reports", "maven-status")
LENIENT = ("-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false")
"""Modules without the named tests do not fail the build."""

_MAVEN_PLACED = re.compile(r"^\[(ERROR|WARNING)\] (/\S.*?\.(?:java|kt|groovy|scala)):\[?(\d+)(?:,(\d+))?\]? (.*)")
_UNPLACED = re.compile(r"^\[WARNING\] (/\S.*?\.(?:java|kt|groovy|scala)): (?:\1 )?(.*)")
_MORE = re.compile(r"^\[ERROR\] {2,}(\S.*)|^ {2,}(\S.*)")
_OFFLINE = re.compile(r"offline mode and the artifact (\S+) has not been downloaded|offline mode.*?artifact (\S+:\S+)")
_UNRESOLVED = re.compile(
    r"could not be resolved: (\S+)|Could not find artifact (\S+)|Non-resolvable .*?: .*?(\S+:pom:\S+)"
)
_RUNNING = re.compile(r"^\[INFO\] Running (\S+)")
_RAN = re.compile(r"^\[\w+\] Tests run: .* (?:in|-) \S+$")


class MavenLog(Log):
    """Also follows which class runs."""

    _open: list[str] | None = None

    def read(self, line: str) -> None:
        if placed := _MAVEN_PLACED.match(line):
            self._compiler(placed[1], relative(placed[2]), placed[3], placed[5])
            return
        if unplaced := _UNPLACED.match(line):
            self._reporter.warning(f"{relative(unplaced[1])}: {unplaced[2]}")
            return
        more = _MORE.match(line)
        if more and self._open is not None:
            self._open[-1] += f"\n  {more[1] or more[2]}"
            return
        self._open = None
        running = _RUNNING.match(line)
        if running or _RAN.match(line):
            self._reporter.running(running[1] if running else "")
        if line.startswith("[ERROR]"):
            self.note_missing(_OFFLINE.search(line) or _UNRESOLVED.search(line))
            self.reason = self.reason or line[7:].strip()

    def _compiler(self, kind: str, path: str, line: str, message: str) -> None:
        if kind == "WARNING":
            self._reporter.warning(f"{path}: {message}")
            return
        known = self.errors.setdefault(path, [])
        text = f"line {line}: {message}"
        self._open = None
        if len(known) < MAX_PROBLEMS and not any(one.split("\n")[0] == text for one in known):
            known.append(text)
            self._open = known


def maven_tests(asked: list[str]) -> str:
    """The value of `-Dtest`. A nested class belongs to its outer one."""
    patterns = []
    for name in map(parsed, asked):
        if name.package:
            patterns.append(f"{name.package.lstrip('.')}**" if name.package != "." else "*")
        elif name.method:
            patterns.append(f"{name.group}#{name.plain_method}")
        else:
            patterns += [name.group, f"{name.group}$*"]
    return ",".join(dict.fromkeys(patterns))


def run_maven(reporter: TestReporter, program: str, repository: str) -> int:
    log = MavenLog(reporter)
    targets = [folder / "target" for folder in folders_with(["pom.xml"], ["target"])]
    reports = Reports(reporter, [target / "surefire-reports" for target in targets])
    argv = [
        program,
        *("-B", "-o", "-s", SETTINGS, "-gs", SETTINGS, "--fail-at-end"),
        f"-Dmaven.repo.local={repository}",
        "-Daether.enhancedLocalRepository.trackingFilename=none",
        *("-Dstyle.color=never", "-Dmaven.test.failure.ignore=true"),
        *("-Dmaven.compiler.showWarnings=true", "-Dmaven.compiler.showDeprecation=true"),
        *([f"-Dtest={maven_tests(reporter.asked)}", *LENIENT] if reporter.asked else []),
        "test",
    ]
    code = _build(argv, log, reports, Outputs(targets, MAVEN_STALE))
    if code == 0 and not reports.unread:
        return reporter.end(0)
    log.report_errors()
    if not log.errors and reporter.silent:
        log.report_failure("Maven", code)
    elif not log.errors:
        return code or 1  # without an end frame the run counts as incomplete
    return reporter.end(code or 1)


# Gradle ---------------------------------------------------------------------------------------------


GRADLE_STALE = ("classes", "test-results", "tmp", "reports")
MAX_REASON = 1_000

_GRADLE_PLACED = re.compile(
    r"^(?:[ew]: )?(?:file://)?(/\S.*?\.(?:java|kt|groovy|scala)):(\d+)(?::\d+)?:? (?:(error|warning): )?(.*)"
)
_MISSING = re.compile(r"No cached version of (\S+) available for offline mode|Could not (?:find|resolve) (\S+:\S+)")
_TASK = re.compile(r"^> Task ")


class GradleLog(Log):
    """Keeps the explanation that follows `* What went wrong`."""

    _explains = False

    def read(self, line: str) -> None:
        placed = _GRADLE_PLACED.match(line)
        if placed and (placed[3] == "warning" or line.startswith("w: ")):
            self._reporter.warning(f"{relative(placed[1])}: {placed[4]}")
        elif placed and (placed[3] == "error" or line.startswith("e: ")):
            known = self.errors.setdefault(relative(placed[1]), [])
            if len(known) < MAX_PROBLEMS:
                known.append(f"line {placed[2]}: {placed[4]}")
        elif not _TASK.match(line):
            self.note_missing(_MISSING.search(line))
            if self._explains and len(self.reason) < MAX_REASON:
                self.reason = f"{self.reason} {line.strip()}".strip()
            self._explains = line.startswith("* What went wrong") or (self._explains and bool(line.strip()))


def gradle_tests(asked: list[str]) -> list[str]:
    """One `--tests` option for each name."""
    found = []
    for name in map(parsed, asked):
        anywhere = name.group if "." in name.group else f"*{name.group}"
        if name.package:
            found.append(f"{name.package.lstrip('.')}*")
        elif name.method:
            found.append(f"{anywhere}.{name.plain_method}")
        else:
            found.append(f"{anywhere}*")
    return [part for one in dict.fromkeys(found) for part in ("--tests", one)]


def run_gradle(reporter: TestReporter, program: str) -> int:
    log = GradleLog(reporter)
    modules = folders_with(["build.gradle", "build.gradle.kts"], ["build"]) or [Path()]
    builds = [folder / "build" for folder in modules]
    reports = Reports(reporter, [build / "test-results" for build in builds])
    argv = [program, "--offline", "--no-daemon", "--console=plain", "--continue", "cleanTest", "test"]
    code = _build([*argv, *gradle_tests(reporter.asked)], log, reports, Outputs(builds, GRADLE_STALE))
    log.report_errors()
    if code and reporter.silent and not log.errors and "No tests found for given includes" not in log.reason:
        log.report_failure("Gradle", code)
    return code or 1 if reports.unread else reporter.end(code)


def _build(argv: list[str], log: Log, reports: Reports, outputs: Outputs) -> int:
    """Run the tool and remove what it built; its exit code."""
    try:
        return follow(argv, log.read, reports.look)
    finally:
        outputs.remove()


def main(tool: str, *arguments: str) -> int:
    reporter = TestReporter(tool, meaning)
    return run_maven(reporter, *arguments) if tool == "maven" else run_gradle(reporter, *arguments)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
