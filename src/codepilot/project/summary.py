"""A suite's run in counts and names, and as JSON to keep."""

from __future__ import annotations

from functools import cache

from pydantic import TypeAdapter

from codepilot.core.artifacts import TestStatus, TestSummary
from codepilot.core.contract import canonical_json
from codepilot.project.suite import SuiteRun


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
