"""The verdict of a proof that holds, by the strength of the tests."""

from __future__ import annotations

import pytest

from codepilot.repair import MutationScore
from codepilot.verify.confidence import grade


def measured(killed: int, near: int, near_killed: int, mutants: int = 40) -> MutationScore:
    return MutationScore(mutants, killed, round(killed / mutants, 3), near, near_killed)


@pytest.mark.parametrize(
    ("strength", "alone", "with_tests"),
    [
        (measured(38, 8, 8), "confirmed", "confirmed"),
        (measured(16, 4, 2), "plausible", "confirmed"),  # old code around the change that no test pins down
        (measured(38, 10, 3), "plausible", "plausible"),
        (measured(30, 0, 0), "plausible", "confirmed"),
        (measured(3, 3, 3, mutants=4), "plausible", "plausible"),
        (None, "plausible", "plausible"),
    ],
)
def test_the_tests_that_a_change_brings_answer_for_its_lines_only(
    strength: MutationScore | None, alone: str, with_tests: str
) -> None:
    assert grade(strength, "full", ("test_a",), ()).verdict == alone
    assert grade(strength, "full", ("test_a",), (), brings_tests=True).verdict == with_tests


def test_its_own_tests_do_not_make_a_change_confirmed_that_breaks_another_rule() -> None:
    strong = measured(40, 8, 8)
    assert grade(strong, "partial", ("test_a",), (), brings_tests=True).verdict == "plausible"
    assert grade(strong, "full", (), (), brings_tests=True).verdict == "plausible"
    assert grade(strong, "full", ("test_a",), ("test_a",), brings_tests=True).verdict == "plausible"


def test_what_is_not_measured_is_not_called_too_little() -> None:
    assert "Python code only" in grade(None, "full", ("test_a",), (), python=False).reason
    assert "too few mutants" in grade(None, "full", ("test_a",), ()).reason
