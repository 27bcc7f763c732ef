"""The result of a run of a project's tests, in the project's own test ids."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Literal

from pydantic import TypeAdapter

from codepilot.core.artifacts import TestStatus, TestSummary
from codepilot.core.contract import canonical_json

RunnerName = Literal["pytest", "unittest", "maven", "gradle", "npm"]
SuiteStatus = Literal["finished", "timeout", "limit", "cannot_start", "not_found", "no_tests", "interrupted"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")


@dataclass(frozen=True)
class TestCase:
    """One test's end."""

    __test__ = False

    test: str
    status: TestStatus
    error_type: str = ""
    message: str = ""
    traceback: str = ""
    duration_sec: float = 0.0

    @property
    def signature(self) -> str:
        """Equal for equal failures of this test. Memory addresses are left out because they differ from run to run."""
        first = next(iter(self.message.splitlines()), "")
        return f"{self.test}|{self.status}|{self.error_type}|{_ADDRESS.sub('0x', first)}"


@dataclass(frozen=True)
class SuiteRun:
    """One invocation of the runner. `finished` means that it ran to its end, red or green.

    A run whose process died, whose report is incomplete, or whose exit code contradicts its report is `interrupted`.
    """

    status: SuiteStatus
    cases: dict[str, TestCase]
    collected: tuple[str, ...]
    cmd: tuple[str, ...]
    exit_code: int | None
    duration_sec: float
    log_tail: str
    message: str = ""
    missing_module: str | None = None
    not_found: tuple[str, ...] = ()
    limit: str | None = None
    resolved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For every test that was asked for, the collected ids it stands for."""
    warnings: tuple[str, ...] = ()
    """A compiler's warnings, each with its file and without its line."""

    def having(self, *statuses: TestStatus) -> tuple[str, ...]:
        return tuple(name for name, case in self.cases.items() if case.status in statuses)

    @property
    def red(self) -> tuple[str, ...]:
        return self.having(TestStatus.FAILED, TestStatus.ERROR)


@dataclass(frozen=True)
class Interpreter:
    """The Python that runs the project's tests, and what it needs to be seen inside."""

    executable: str
    version: tuple[int, int, int]
    prefix: str
    base_prefix: str
    origin: str
    mounts: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    """Directories of installed packages."""
    editable: tuple[str, ...] = ()
    """Paths inside the checkout at which the environment's editable installs point."""
    has_pytest: bool = False


@dataclass(frozen=True)
class Project:
    """How to test a project: its runner, its interpreter, and what the sandbox must show of the host.

    Where the project is no Python one, the interpreter runs the driver of its build system and an agent's code.
    """

    runner: RunnerName
    interpreter: Interpreter
    root: str
    mounts: tuple[tuple[str, str], ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    """Hosts that the test command may reach in addition to those of its workspace."""
    driver: tuple[str, ...] = ()
    """The build system's driver in the plugin directory, with its arguments; none for Python's own runners."""
    remedy: str = ""
    """How a person installs missing dependencies."""
    folder: str = ""
    """The project's directory, relative to `root`, the top of the repository; "" is the top itself."""

    @property
    def is_python(self) -> bool:
        return self.runner in ("pytest", "unittest")

    @property
    def language(self) -> str:
        """The language of its tests, by its runner."""
        if self.is_python:
            return "python"
        return "javascript" if self.runner == "npm" else "java"


def summarise(run: SuiteRun) -> TestSummary:
    """Counts of what went well, names of what did not."""
    return TestSummary(
        passed=len(run.having(TestStatus.PASSED)),
        failed=run.having(TestStatus.FAILED),
        errors=run.having(TestStatus.ERROR),
        skipped=len(run.having(TestStatus.SKIPPED)),
    )


def suite_to_json(run: SuiteRun) -> str:
    return canonical_json(_adapter().dump_python(run, mode="json"))


def suite_from_json(text: str | bytes) -> SuiteRun:
    return _adapter().validate_json(text)


@cache
def _adapter() -> TypeAdapter[SuiteRun]:
    return TypeAdapter(SuiteRun)
