"""Running the project's tests and reading what they said. Standard library only: this source travels as it is."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codepilot.skills.places import ROOT, walk
from codepilot.skills.reports import BadReport, Case, read_report
from codepilot.skills.running import CommandOutcome, execute

PYTHON = sys.executable
RUNNER = ""

LENIENT = ("-DfailIfNoTests=false", "-Dsurefire.failIfNoSpecifiedTests=false")
"""Modules without the named tests do not fail the build; that none ran at all is seen in the reports."""
_PARAMETERS = re.compile(r"[(\[{].*", re.DOTALL)
"""What reports add to the name of a method that is run with several arguments."""

MAX_TAIL = 4_000
MAX_SHOWN = 20
MAX_REPORTS = 2_000


@dataclass(frozen=True)
class FailedTest:
    """A test that did not pass, with the first words and the last lines of why."""

    test: str
    message: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.test}: {' '.join(self.message.split())[:300]}"

    __repr__ = __str__


@dataclass(frozen=True)
class TestsOutcome:
    """How a test run ended. `exit_code` is None when it was stopped at its timeout."""

    exit_code: int | None
    passed: int
    failed: list[FailedTest]
    errors: list[FailedTest]
    skipped: int
    tail: str

    @property
    def ok(self) -> bool:
        """Whether tests ran and none was red."""
        return self.exit_code == 0 and not self.failed and not self.errors and self.passed + self.skipped > 0

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None

    def __str__(self) -> str:
        told = [f"FAILED {one}" for one in self.failed] + [f"ERROR {one}" for one in self.errors]
        more = [f"… and {len(told) - MAX_SHOWN} more"] if len(told) > MAX_SHOWN else []
        counts = ((self.passed, "passed"), (len(self.failed), "failed"), (len(self.errors), "errors"))
        parts = [f"{number} {what}" for number, what in (*counts, (self.skipped, "skipped")) if number]
        ended = "stopped at its timeout" if self.exit_code is None else f"exit code {self.exit_code}"
        tail = [] if self.ok else [self.tail]
        return "\n".join([*tail, *told[:MAX_SHOWN], *more, f"{', '.join(parts) or 'no tests ran'} [{ended}]"])

    __repr__ = __str__


def run_tests(tests: list[str] | None = None, timeout: float = 300.0) -> TestsOutcome:
    """Run the project's tests: those named, as its runner names them, or all.

    The result has passed, failed and errors (each with test, message, detail), skipped, exit_code, tail and ok.
    """
    named = _named(tests)
    runner = RUNNER or _runner()
    if runner == "unittest":
        return _unittest(execute([PYTHON, "-m", "unittest", *named], timeout))
    return _built(runner, named, timeout) if runner in ("maven", "gradle") else _pytest(named, timeout)


def _named(tests: object) -> list[str]:
    if tests is None:
        return []
    if isinstance(tests, (list, tuple, set, frozenset)) and all(isinstance(one, (str, os.PathLike)) for one in tests):
        return [os.fsdecode(one) for one in tests]
    like = tests.split() if isinstance(tests, str) and tests.strip() else ["tests/test_a.py::test_b"]
    raise ValueError(f"run_tests takes a list of names, like {json.dumps(like)}, or nothing for all.")


def _runner() -> str:
    for name, runner in (("pom.xml", "maven"), ("build.gradle", "gradle"), ("build.gradle.kts", "gradle")):
        if (ROOT / name).is_file():
            return runner
    return "pytest"


def _pytest(tests: Sequence[str], timeout: float) -> TestsOutcome:
    handle, report = tempfile.mkstemp(".xml", "tests-")
    os.close(handle)
    options = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-o", "junit_family=xunit1"]
    try:
        done = execute([PYTHON, "-m", "pytest", *options, *tests], timeout)
        cases, unread = _read([Path(report)])
    finally:
        Path(report).unlink(missing_ok=True)
    return _outcome(done, cases, unread)


def _built(runner: str, tests: Sequence[str], timeout: float) -> TestsOutcome:
    """Maven or Gradle, without network; their reports are the files they wrote meanwhile."""
    wrapper = ROOT / ("mvnw" if runner == "maven" else "gradlew")
    program = str(wrapper) if os.access(wrapper, os.X_OK) else "mvn" if runner == "maven" else "gradle"
    methods = list(dict.fromkeys(_PARAMETERS.sub("", test) for test in tests))
    if runner == "maven":
        argv = [program, "-B", "-o", "test", *([f"-Dtest={','.join(methods)}", *LENIENT] if methods else [])]
    else:
        chosen = [part for test in methods for part in ("--tests", test.replace("#", "."))]
        argv = [program, "--offline", "--no-daemon", "--console=plain", "test", *chosen]
    before = dict(_reports())
    done = execute(argv, timeout)
    cases, unread = _read([file for file, state in _reports() if before.get(file) != state][:MAX_REPORTS])
    return _outcome(done, _settled(cases, done.exit_code == 0), unread)


def _settled(cases: Sequence[Case], green: bool) -> list[Case]:
    """Each failure once. Tests that were run again are told each time; if the build was content, so are we."""
    passed = {case.test for case in cases if case.status == "passed"} if green else set()
    told: dict[tuple[str, str, str], Case] = {}
    kept = []
    for case in cases:
        bad = case.status in ("failed", "error")
        if not bad or (case.test not in passed and told.setdefault(_failure(case), case) is case):
            kept.append(case)
    return kept


def _failure(case: Case) -> tuple[str, str, str]:
    return case.test, case.status, case.message


def _reports() -> Iterator[tuple[Path, tuple[int, ...]]]:
    """The reports that are there, each with what changes when it is written again."""
    for file in walk(ROOT):
        parts = file.parts
        if file.suffix != ".xml" or not {"surefire-reports", "failsafe-reports", "test-results"} & set(parts):
            continue
        if not file.is_symlink() and file.is_file():
            seen = file.stat()
            yield file, (seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino, seen.st_size)


def _read(reports: Sequence[Path]) -> tuple[list[Case], str]:
    """All their tests, and what could not be read."""
    cases: list[Case] = []
    unread = []
    for file in reports:
        try:
            if file.stat().st_size:
                cases += read_report(file.read_bytes())
        except BadReport as error:
            unread.append(f"[{file.name} cannot be read: {error}]")
    return cases, "\n".join(unread[:5])


def _outcome(done: CommandOutcome, cases: Sequence[Case], unread: str) -> TestsOutcome:
    return TestsOutcome(
        exit_code=done.exit_code,
        passed=sum(case.status == "passed" for case in cases),
        failed=[_failed(case) for case in cases if case.status == "failed"],
        errors=[_failed(case) for case in cases if case.status == "error"],
        skipped=sum(case.status == "skipped" for case in cases),
        tail=_tail(done, unread),
    )


def _failed(case: Case) -> FailedTest:
    return FailedTest(case.test, case.message, case.detail[-MAX_TAIL:])


def _tail(done: CommandOutcome, more: str = "") -> str:
    said = (_COLOUR.sub("", part).rstrip() for part in (done.stdout, done.stderr, more))
    told = "\n".join(part for part in said if part)
    return told if len(told) <= MAX_TAIL else f"[…]\n{told[-MAX_TAIL:]}"


_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
_COUNTED = re.compile(r"(skipped|expected failures|unexpected successes)=(\d+)")
_SECTION = re.compile(r"^={70}\n(FAIL|ERROR): (\S+) ?(?:\(([^)]*)\))?.*\n((?:.*\n)*?)-{70}\n", re.MULTILINE)


def _unittest(done: CommandOutcome) -> TestsOutcome:
    """From the text that unittest writes: it has no other report."""
    text = done.stderr
    sections = list(_SECTION.finditer(text))
    ends = [section.start() for section in sections[1:]] + [len(text)]
    found: dict[str, list[FailedTest]] = {"FAIL": [], "ERROR": []}
    for section, end in zip(sections, ends):  # noqa: B905 (3.9 runs this too)
        detail = re.split(r"^(?:-{70}\nRan |={70}$)", text[section.end() : end], flags=re.MULTILINE)[0].strip()
        name, place = section[2], section[3] or ""
        test = place if not place or place.endswith(f".{name}") else f"{place}.{name}"
        last = detail.splitlines()[-1] if detail else ""
        found[section[1]].append(FailedTest(test or name, last[:2_000], detail[-MAX_TAIL:]))
    ran = _RAN.search(text)
    summary = text[ran.end() :] if ran else ""
    counts = {name: int(number) for name, number in _COUNTED.findall(summary)}
    bad = len(found["FAIL"]) + len(found["ERROR"]) + sum(counts.values())
    passed = max(0, int(ran[1]) - bad) if ran else 0
    skipped = counts.get("skipped", 0) + counts.get("expected failures", 0)
    return TestsOutcome(done.exit_code, passed, found["FAIL"], found["ERROR"], skipped, _tail(done))
