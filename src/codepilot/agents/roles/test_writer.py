"""Test writer: tests that would have caught the bug. It never judges; the platform runs what it wrote."""

from pathlib import Path

from codepilot.agents.protocol import Desk
from codepilot.agents.roles import sections
from codepilot.agents.roles.role import Role, Sections
from codepilot.core.contract import Contract
from codepilot.core.task import Capability


class TestsWritten(Contract):
    """Which tests were added, and what each would have caught."""

    __test__ = False

    tests: tuple[str, ...]
    rationale: str


def _inputs(desk: Desk) -> Sections:
    return {
        "Constraints": sections.constraints(desk),
        "Where tests are": sections.test_places(desk),
        "What must hold": sections.criteria(desk),
        "Failing tests before": sections.failing_tests(desk),
    }


TEST_WRITER = Role(
    name="TestWriter",
    purpose="You write regression tests for a change that another has made.",
    output=TestsWritten,
    temperature=0.3,
    max_tokens=4096,
    template=Path(__file__).with_suffix(".md"),
    inputs=_inputs,
    capability=Capability.WRITE_AND_RUN_TESTS,
)
