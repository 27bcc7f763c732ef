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
from typing import TYPE_CHECKING

from codepilot.project.plugin.codepilot_reports import BadReport, Case, read_report
from codepilot.skills.running import CommandOutcome, execute

if TYPE_CHECKING:
    from typing import Any

PYTHON = sys.executable
RUNNER = ""

DRIVER = "CODEPILOT_TESTS"
"""The variable that has the command of the project's build system, where it is no Python project."""

MAX_TAIL = 4_000
MAX_SHOWN = 20
MAX_FRAMES = 64 << 20


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
    if RUNNER not in ("", "pytest", "unittest"):
        return _driven(RUNNER, named, timeout)
    if RUNNER == "unittest":
        return _unittest(execute([PYTHON, "-m", "unittest", *named], timeout))
    return _pytest(named, timeout)


def _named(tests: object) -> list[str]:
    if tests is None:
        return []
    if isinstance(tests, (list, tuple, set, frozenset)) and all(isinstance(one, (str, os.PathLike)) for one in tests):
        return [os.fsdecode(one) for one in tests]
    like = tests.split() if isinstance(tests, str) and tests.strip() else ["tests/test_a.py::test_b"]
    raise ValueError(f"run_tests takes a list of names, like {json.dumps(like)}, or nothing for all.")


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


def _driven(runner: str, tests: Sequence[str], timeout: float) -> TestsOutcome:
    """The build system's driver, the same that judges the change: it tells of each test as a frame."""
    argv = json.loads(os.environ.get(DRIVER, "[]"))
    if not argv:
        raise RuntimeError(f"The command that runs the tests with {runner} is not known here: {DRIVER} is not set.")
    nonce = os.urandom(16).hex()
    header = json.dumps({"nonce": nonce, "tests": list(tests)}) + "\n"
    done = execute(argv, timeout, limit=MAX_FRAMES, stdin=header.encode())
    found: dict[str, dict[str, FailedTest]] = {"passed": {}, "failed": {}, "error": {}, "skipped": {}}
    for frame in _frames(done.stdout, nonce):
        outcome = _outcome_of(frame)
        if outcome:
            told = str(frame.get("message") or frame.get("error_type") or "")
            test = str(frame.get("id") or runner)
            found[outcome][test] = FailedTest(test, told, str(frame.get("traceback") or told)[-MAX_TAIL:])
        for name in frame.get("ids", []) if frame.get("event") == "missing" else []:
            found["error"][name] = FailedTest(name, "there is no such test")
    code = None if done.timed_out else done.exit_code
    said = _tail(CommandOutcome(code, "", done.stderr))
    failed, errors = [*found["failed"].values()], [*found["error"].values()]
    if code == 0 and (failed or errors):
        code = 1
    return TestsOutcome(code, len(found["passed"]), failed, errors, len(found["skipped"]), said)


def _frames(output: str, nonce: str) -> Iterator[dict[str, Any]]:
    prefix = f"@codepilot:{nonce} "
    for line in output.splitlines():
        if line.startswith(prefix):
            try:
                frame = json.loads(line[len(prefix) :])
            except ValueError:
                continue
            if isinstance(frame, dict):
                yield frame


def _outcome_of(frame: dict[str, Any]) -> str:
    if frame.get("event") in ("collect_error", "startup"):
        return "error"
    if frame.get("event") != "test":
        return ""
    outcome = str(frame.get("outcome"))
    return "error" if outcome == "failed" and frame.get("phase") != "call" else outcome


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
