"""The verdict's rules, held against every combination of results that a suite can give."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.artifacts import TestStatus
from codepilot.core.failures import Failure, FailureKind
from codepilot.project import SuiteRun, TestCase
from codepilot.verify.verdict import (
    Comparison,
    Failing,
    baseline_verdict,
    compare,
    judge,
    passes,
    selects,
    settle,
    settle_lost,
    signature,
    suite_kind,
)

PASSED, FAILED, ERROR, SKIPPED = TestStatus.PASSED, TestStatus.FAILED, TestStatus.ERROR, TestStatus.SKIPPED
NAMES = [f"tests/test_a.py::test_{letter}" for letter in "abcdef"]
TARGET = NAMES[0]


def suite(statuses: dict[str, TestStatus], status: str = "finished", **more: object) -> SuiteRun:
    cases = {
        name: TestCase(name, ended, error_type="AssertionError" if ended in (FAILED, ERROR) else "")
        for name, ended in statuses.items()
    }
    run = SuiteRun(
        status=status,  # type: ignore[arg-type]
        cases=cases,
        collected=tuple(cases),
        cmd=("python", "-m", "pytest"),
        exit_code=0,
        duration_sec=1.0,
        log_tail="",
    )
    return replace(run, **more)  # type: ignore[arg-type]


def runs(*required: str) -> st.SearchStrategy[SuiteRun]:
    statuses = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(list(TestStatus)), max_size=6)
    ends = st.sampled_from(["finished", "timeout", "limit", "cannot_start", "not_found", "no_tests", "interrupted"])
    return st.builds(lambda cases, end, extra: _with_extra(suite(cases, end), extra), statuses, ends, st.booleans())


def _with_extra(run: SuiteRun, extra: bool) -> SuiteRun:
    return replace(run, collected=tuple(NAMES)) if extra else run


# Names ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "test", "expected"),
    [
        ("tests/test_a.py::test_x", "tests/test_a.py::test_x", True),
        ("tests/test_a.py::test_x", "tests/test_a.py::test_x[1-2]", True),
        ("tests/test_a.py::test_x", "tests/test_a.py::test_xy", False),
        ("tests/test_a.py::TestC", "tests/test_a.py::TestC::test_x", True),
        ("tests/test_a.py", "tests/test_a.py::test_x", True),
        ("./tests/", "tests/test_a.py::test_x", True),
        ("tests.test_a", "tests.test_a.Case.test_x", True),
        (".", "tests/test_a.py::test_x", True),
        ("tests/test_b.py", "tests/test_a.py::test_x", False),
    ],
)
def test_a_target_selects_what_the_runner_would_run(target: str, test: str, expected: bool) -> None:
    assert selects(target, test) is expected


@given(st.permutations(NAMES))
def test_a_signature_does_not_depend_on_order_or_message(order: list[str]) -> None:
    one = [TestCase(name, FAILED, "ValueError", message="first") for name in NAMES]
    other = [TestCase(name, FAILED, "ValueError", message="second 0x7f00") for name in order]
    assert signature(one) == signature(other) != signature(one[1:])
    assert signature([]) == ""


# Baseline -------------------------------------------------------------------------------------------


def kind_of(first: SuiteRun, second: SuiteRun, *targets: str) -> FailureKind | None:
    verdict = baseline_verdict(first, second, targets or (TARGET,))
    return verdict.kind if isinstance(verdict, Failure) else None


def test_a_test_that_fails_twice_in_one_way_is_worked_on() -> None:
    red = suite({TARGET: FAILED, NAMES[1]: PASSED})
    verdict = baseline_verdict(red, red, (TARGET,))
    assert isinstance(verdict, Failing)
    assert verdict.tests == (TARGET,)
    assert verdict.signature


def test_a_file_stands_for_the_tests_in_it_that_fail() -> None:
    red = suite({NAMES[0]: PASSED, NAMES[1]: FAILED, NAMES[2]: ERROR})
    verdict = baseline_verdict(red, red, ("tests/test_a.py",))
    assert isinstance(verdict, Failing)
    assert verdict.tests == (NAMES[1], NAMES[2])


def test_what_cannot_be_worked_on_is_refused() -> None:
    red, green, empty = suite({TARGET: FAILED}), suite({TARGET: PASSED}), suite({})
    assert kind_of(green, green) is FailureKind.TEST_ALREADY_PASSES
    assert kind_of(suite({TARGET: SKIPPED}), suite({TARGET: SKIPPED})) is FailureKind.TEST_ALREADY_PASSES
    assert kind_of(red, green) is FailureKind.FLAKY_TEST
    assert kind_of(green, red) is FailureKind.FLAKY_TEST
    assert kind_of(empty, empty) is FailureKind.TEST_NOT_FOUND
    assert kind_of(red, red, TARGET, "tests/other.py::test_z") is FailureKind.TEST_NOT_FOUND
    other_way = replace(red, cases={TARGET: TestCase(TARGET, FAILED, "KeyError")})
    assert kind_of(red, other_way) is FailureKind.FLAKY_TEST


def test_a_test_that_hangs_both_times_fails() -> None:
    hung = suite({NAMES[1]: PASSED}, "timeout", collected=tuple(NAMES))
    verdict = baseline_verdict(hung, hung, ("tests/test_a.py",))
    assert isinstance(verdict, Failing)
    assert verdict.tests == (TARGET,)


@given(runs(), runs())
def test_a_baseline_is_never_given_for_a_test_that_passed(first: SuiteRun, second: SuiteRun) -> None:
    verdict = baseline_verdict(first, second, (TARGET,))
    if isinstance(verdict, Failing):
        assert not passes(first, TARGET)
        assert not passes(second, TARGET)


# Comparison -----------------------------------------------------------------------------------------


def test_every_change_of_a_test_has_its_name() -> None:
    before = suite({NAMES[0]: FAILED, NAMES[1]: PASSED, NAMES[2]: PASSED, NAMES[3]: PASSED, NAMES[4]: FAILED})
    after = suite({NAMES[0]: PASSED, NAMES[1]: FAILED, NAMES[2]: SKIPPED, NAMES[4]: ERROR, NAMES[5]: FAILED})
    found = compare(before, after, (TARGET,))
    assert found == Comparison(
        fixed=(NAMES[0],),
        still_failing=(NAMES[4],),
        suspects=(NAMES[1],),
        newly_skipped=(NAMES[2],),
        lost_ids=(NAMES[3],),
        new_failures=(NAMES[5],),
    )


def test_a_red_test_that_the_cut_short_baseline_never_reached_is_a_suspect() -> None:
    before = suite({NAMES[0]: FAILED}, "timeout", collected=(NAMES[0], NAMES[1]))
    after = suite({NAMES[0]: PASSED, NAMES[1]: FAILED})
    assert compare(before, after, (TARGET,)).suspects == (NAMES[1],)


def test_a_suite_that_does_not_end_any_more_is_blamed_on_the_change() -> None:
    before = suite({NAMES[0]: FAILED, NAMES[1]: PASSED}, duration_sec=1.0)
    hung = suite({NAMES[0]: PASSED}, "timeout", collected=(NAMES[0], NAMES[1]), duration_sec=60.0)
    assert compare(before, hung, (TARGET,)).regressions == (NAMES[1],)
    slow = replace(before, duration_sec=50.0)
    assert compare(slow, hung, (TARGET,)).regressions == ()


def test_suspects_are_settled_by_reruns_on_both_trees() -> None:
    found = Comparison(suspects=(NAMES[1],))
    red, green = suite({NAMES[1]: FAILED}), suite({NAMES[1]: PASSED})
    assert settle(found, [green], [red]).regressions == (NAMES[1],)
    assert settle(found, [red], [red]).flaky == (NAMES[1],)
    assert settle(found, [green], [green, red]).flaky == (NAMES[1],)
    assert settle(found, [green], [green], again=red).regressions == (NAMES[1],)
    assert settle(found, [], [red]).regressions == (NAMES[1],)


def test_ids_that_the_base_loses_too_are_unstable_names() -> None:
    found = Comparison(lost_ids=(NAMES[1], NAMES[2]))
    settled = settle_lost(found, suite({NAMES[1]: PASSED}))
    assert (settled.lost_ids, settled.flaky) == ((NAMES[1],), (NAMES[2],))
    assert settle_lost(found, suite({}, "timeout")) == found


# Judgement ------------------------------------------------------------------------------------------


def judged(before: SuiteRun, after: SuiteRun | None, attempts: list[SuiteRun], targets: tuple[str, ...] = (TARGET,)):
    found = compare(before, after, targets) if after is not None else Comparison()
    return judge(before, after, targets, attempts, found)


def test_a_change_that_mends_the_test_and_breaks_nothing_passes() -> None:
    green = suite({TARGET: PASSED, NAMES[1]: PASSED})
    result = judged(suite({TARGET: FAILED, NAMES[1]: PASSED}), green, [green] * 3)
    assert result.passed
    assert (result.suite, result.signature, result.errors) == ("full", "", ())
    assert (result.failed_tests_before, result.failed_tests_after) == ((TARGET,), ())


def test_two_passes_are_not_enough() -> None:
    green = suite({TARGET: PASSED})
    assert not judged(suite({TARGET: FAILED}), green, [green] * 2).passed


def test_a_target_that_passes_beside_one_that_fails_is_neither_failing_nor_flaky() -> None:
    before, partly = suite({TARGET: FAILED, NAMES[1]: FAILED}), suite({TARGET: PASSED, NAMES[1]: FAILED})
    result = judged(before, None, [partly], (TARGET, NAMES[1]))
    assert (result.passed, result.failed_tests_after, result.summary.flaky) == (False, (NAMES[1],), ())
    assert [error.test for error in result.errors] == [NAMES[1]]


def test_a_target_that_wavers_is_called_flaky() -> None:
    before, green, red = suite({TARGET: FAILED}), suite({TARGET: PASSED}), suite({TARGET: FAILED})
    result = judged(before, None, [green, red])
    assert not result.passed
    assert result.summary.flaky == (TARGET,)
    assert result.failed_tests_after == (TARGET,)


GREEN_RUNS = st.just([suite({TARGET: PASSED})] * 3)


@given(runs(), st.one_of(st.none(), runs()), st.one_of(GREEN_RUNS, st.lists(runs(), min_size=1, max_size=4)))
def test_no_combination_of_runs_passes_wrongly(
    before: SuiteRun, after: SuiteRun | None, attempts: list[SuiteRun]
) -> None:
    result = judged(before, after, attempts)
    assert bool(result.signature) is not result.passed
    if result.suite == "full":
        assert after is not None
        assert before.status == after.status == "finished"
    if not result.passed:
        return
    assert len(attempts) >= 3
    assert all(passes(run, TARGET) for run in attempts)
    assert TARGET not in result.failed_tests_after
    if after is not None and after.status == "finished":
        assert set(before.collected) <= set(after.collected)
        for name, case in before.cases.items():
            if case.status is PASSED:
                assert after.cases[name].status is PASSED


@given(runs(), runs())
def test_a_partial_suite_never_claims_to_be_full(before: SuiteRun, after: SuiteRun) -> None:
    if suite_kind(before, after) == "full":
        assert before.status == "finished"
        assert after.status == "finished"
    assert suite_kind(before, None) == "none"


@given(runs(), runs(), st.lists(runs(), max_size=2), st.lists(runs(), min_size=1, max_size=2))
def test_settling_loses_no_suspect(
    before: SuiteRun, after: SuiteRun, base: list[SuiteRun], patched: list[SuiteRun]
) -> None:
    found = compare(before, after, (TARGET,))
    settled = settle(found, base, patched)
    assert set(found.suspects) <= set(settled.regressions) | set(settled.flaky)
    assert settled.suspects == ()
