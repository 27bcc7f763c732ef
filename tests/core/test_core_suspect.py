"""A test that may be wrong: the failure, its evidence and how a screen and the report show it."""

from __future__ import annotations

import io

from rich.console import Console
from run_kit import Log

from codepilot.cli.screens import failure
from codepilot.core.decide import Failed
from codepilot.core.events import State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.suspect import RefutedRepair, SuspectTest, suspect_failure, suspect_of
from codepilot.telemetry import exit_code, report, report_json

WRONG = SuspectTest(
    test="tests/test_roman.py::test_eight",
    reason="every repair that satisfies it breaks a test that passes",
    repairs=(
        RefutedRepair(change="numerals.py:9: `VIII` became `IIX`", breaks=("tests/test_roman.py::test_table",)),
        RefutedRepair(change="numerals.py:4: added `return 'IIX'`", breaks=("a", "b", "c", "d")),
    ),
)


def test_a_suspect_test_ends_the_run_with_its_evidence() -> None:
    log = Log()
    log.reach(State.IMPLEMENT)
    log.ends(Failed(suspect_failure(WRONG)))
    assert log.now.state is State.FAILED
    assert log.now.failure is not None
    assert log.now.failure.kind is FailureKind.TEST_SUSPECT
    assert suspect_of(log.now.failure) == WRONG
    assert exit_code(log.now) == 1
    document = report_json(report(log.now))
    assert document["test_suspect"] == WRONG.model_dump(mode="json")
    assert document["verdict"] is None


def test_a_screen_says_that_the_test_may_be_wrong_and_why() -> None:
    shown = io.StringIO()
    failure(Console(file=shown, width=300), suspect_failure(WRONG))
    assert shown.getvalue().splitlines() == [
        f"This test may be wrong: {WRONG.test}: {WRONG.reason}.",
        "  numerals.py:9: `VIII` became `IIX` breaks tests/test_roman.py::test_table",
        "  numerals.py:4: added `return 'IIX'` breaks a, b, c and 1 more",
        "→ Correct the test, or say with --prompt why it is right.",
    ]


def test_other_failures_have_no_evidence_against_a_test() -> None:
    assert suspect_of(None) is None
    assert suspect_of(Failure(kind=FailureKind.STUCK, message="nothing found")) is None
