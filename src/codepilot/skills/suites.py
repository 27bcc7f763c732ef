"""Runs the project's tests and reads their report. Standard library only: this source is shipped into the sandbox."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass

from codepilot.project.report import MAX_BYTES, Case, Report, Trouble, parse
from codepilot.project.runner_command import FOLDER, VARIABLE, read_command
from codepilot.skills.running import CommandOutcome, execute

RUNNER = ""

MAX_TAIL = 4_000
MAX_SHOWN = 20


@dataclass(frozen=True)
class FailedTest:
    """A test that did not pass, with its message and the end of its traceback."""

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
        """True if tests ran and none was red."""
        return self.exit_code == 0 and not self.failed and not self.errors and self.passed + self.skipped > 0

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None

    def __str__(self) -> str:
        red = [f"FAILED {one}" for one in self.failed] + [f"ERROR {one}" for one in self.errors]
        more = [f"… and {len(red) - MAX_SHOWN} more"] if len(red) > MAX_SHOWN else []
        counts = ((self.passed, "passed"), (len(self.failed), "failed"), (len(self.errors), "errors"))
        parts = [f"{number} {what}" for number, what in (*counts, (self.skipped, "skipped")) if number]
        ended = "stopped at its timeout" if self.exit_code is None else f"exit code {self.exit_code}"
        tail = [] if self.ok else [self.tail]
        return "\n".join([*tail, *red[:MAX_SHOWN], *more, f"{', '.join(parts) or 'no tests ran'} [{ended}]"])

    __repr__ = __str__


def run_tests(tests: list[str] | None = None, timeout: float = 300.0) -> TestsOutcome:
    """Run the project's tests: those named, as its runner names them, or all.

    The result has passed, failed and errors (each with test, message, detail), skipped, exit_code, tail and ok.
    """
    named = _named(tests)
    argv, env = read_command(os.environ, named)
    if not argv:
        raise RuntimeError(f"The command that runs the tests is not known here: {VARIABLE} is not set.")
    nonce = os.urandom(16).hex()
    header = json.dumps({"nonce": nonce, "tests": list(dict.fromkeys(named))}) + "\n"
    done = execute(argv, timeout, env, MAX_BYTES, stdin=header.encode(), folder=os.environ.get(FOLDER, ""))
    return _outcome(done, parse(done.stdout.encode("utf-8", "replace"), nonce))


def _named(tests: object) -> list[str]:
    if tests is None:
        return []
    if isinstance(tests, (list, tuple, set, frozenset)) and all(isinstance(one, (str, os.PathLike)) for one in tests):
        return [os.fsdecode(one) for one in tests]
    like = tests.split() if isinstance(tests, str) and tests.strip() else ["tests/test_a.py::test_b"]
    raise ValueError(f"run_tests takes a list of names, like {json.dumps(like)}, or nothing for all.")


def _outcome(done: CommandOutcome, report: Report) -> TestsOutcome:
    """The outcome as the judge's own report reader sees it."""
    failed = [_failed(case) for case in report.cases.values() if case.status == "failed"]
    errors = [_failed(case) for case in report.cases.values() if case.status == "error"]
    errors += [FailedTest(name, "there is no such test") for name in report.missing]
    if report.startup is not None:
        errors.append(FailedTest(report.startup.where, _message(report.startup), report.startup.traceback[-MAX_TAIL:]))
    lost = report.started and (not report.ended or report.unreported) and not done.timed_out and not errors
    if lost:
        at = report.running or next(iter(report.unreported), RUNNER)
        errors.append(FailedTest(at, "the test process ended before the suite's end"))
    code = done.exit_code
    if code == 0 and (failed or errors):
        code = 1
    counts = [case.status for case in report.cases.values()]
    return TestsOutcome(code, counts.count("passed"), failed, errors, counts.count("skipped"), _tail(done.stderr))


def _failed(case: Case) -> FailedTest:
    return FailedTest(case.test, _message(case), (case.traceback or case.message)[-MAX_TAIL:])


def _message(one: Case | Trouble) -> str:
    return ": ".join(part for part in (one.error_type, one.message) if part)


def _tail(text: str) -> str:
    plain = _COLOUR.sub("", text).rstrip()
    return plain if len(plain) <= MAX_TAIL else f"[…]\n{plain[-MAX_TAIL:]}"


_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")
