"""The rules of the verdict, pure: which tests are failing, fixed, broken, skipped, lost or flaky.

The functions take runs of the suite as data. A run that was cut short never counts as one in which nothing broke, and a
missing or skipped test never counts as one that passes.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from codepilot.core.artifacts import TestError, TestResult, TestStatus, TestSummary
from codepilot.core.failures import Failure, FailureKind
from codepilot.project import SuiteRun, TestCase, summarise

PASSES_REQUIRED = 3
SLOWDOWN_BLAMED = 2.0
"""A suite that finished on the base and now times out after this many times as long is broken, not slow."""

RED = (TestStatus.FAILED, TestStatus.ERROR)
LIMITED = ("timeout", "limit")
CUT_SHORT = (*LIMITED, "interrupted")
MAX_ERRORS = 20
MAX_TRACEBACK = 4_000

_OF_PROGRAMS = re.compile(r"subprocess\.py:\d+: in _execute_child|subprocess\.py\", line \d+, in _execute_child")
OUTSIDE = frozenset(
    {"ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "ConnectTimeout", "TimeoutError", "gaierror"}
    | {"URLError", "HTTPError", "ProxyError", "SSLError", "OperationalError", "InterfaceError"}
    | {"ServerSelectionTimeoutError", "NoBrokersAvailable", "DockerException"}
)
"""Errors of tests that lack a server or the network."""
_OF_SQL = re.compile(
    r"no such (?:table|column|function|index)|has no column|ambiguous column|syntax error|incomplete input"
)
"""Messages of a database that answers: the statement or the schema is wrong."""

MARKS = ("::", "[", ".", "/", "#", "$", " > ")
"""The separators after the name of a directory, file, class, group or method in test ids."""

SuiteKind = Literal["full", "partial", "none"]


@dataclass(frozen=True)
class Failing:
    """Tests that fail at the baseline each time in the same way."""

    tests: tuple[str, ...]
    signature: str


@dataclass(frozen=True)
class Comparison:
    """The suite on the patched tree, compared with the suite on the base.

    `suspects` passed (or were not reached) before and are red now. They count as broken until reruns on both trees
    show otherwise.
    """

    fixed: tuple[str, ...] = ()
    still_failing: tuple[str, ...] = ()
    regressions: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    newly_skipped: tuple[str, ...] = ()
    lost_ids: tuple[str, ...] = ()
    new_failures: tuple[str, ...] = ()
    flaky: tuple[str, ...] = ()

    @property
    def broken(self) -> tuple[str, ...]:
        """The tests that the change broke, each id once."""
        return tuple(dict.fromkeys((*self.regressions, *self.suspects, *self.newly_skipped, *self.lost_ids)))


# Names and signatures -------------------------------------------------------------------------------


def lacks_server(case: TestCase) -> bool:
    """True if the test failed for lack of a server or the network."""
    return case.error_type.rpartition(".")[2] in OUTSIDE and not _OF_SQL.search(case.message)


def lacks_locale(case: TestCase) -> bool:
    """True if the test failed as it set a locale that the machine does not have."""
    return case.message.startswith("unsupported locale setting")


def lacks_program(case: TestCase) -> bool:
    """True if the test failed as it started a program that is not there."""
    started = _OF_PROGRAMS.search(case.traceback) and not re.search(r"/", case.message.rpartition(": ")[2])
    return case.error_type == "FileNotFoundError" and bool(started)


def selects(target: str, test: str) -> bool:
    """True if `target` names `test` itself, or its class, module, file or directory."""
    name = target.removeprefix("./").rstrip("/")
    if name in ("", "."):
        return True
    return test == name or any(test.startswith(name + mark) for mark in MARKS)


def named_cases(run: SuiteRun, target: str) -> list[TestCase]:
    """The results of the tests that `target` names, by the runner's own resolution if it has one."""
    exact = run.cases.get(target)
    if exact is not None:
        return [exact]
    stands_for = set(run.resolved.get(target, ()))
    return [case for test, case in run.cases.items() if test in stands_for or selects(target, test)]


def signature(cases: Iterable[TestCase]) -> str:
    """A hash of the failing ids and their error types, independent of their order; empty if there are none."""
    facts = sorted(f"{case.test}|{case.status}|{case.error_type}" for case in cases)
    return hashlib.sha256("\n".join(facts).encode("utf-8", "surrogatepass")).hexdigest()[:16] if facts else ""


def summary(run: SuiteRun, flaky: Iterable[str] = ()) -> TestSummary:
    """Counts and names, with the flaky tests."""
    return summarise(run).model_copy(update={"flaky": tuple(flaky)})


# Before the change ----------------------------------------------------------------------------------


def baseline_verdict(first: SuiteRun, second: SuiteRun, targets: Sequence[str]) -> Failing | Failure:
    """Return the tests that fail twice in the same way, or why the targets cannot be repaired."""
    failing: dict[str, TestCase] = {}
    for target in targets:
        once, twice = _reached(first, target), _reached(second, target)
        refused = _refusal(target, once, twice)
        if refused is not None:
            return refused
        failing.update((case.test, case) for case in once if case.status in RED)
    return Failing(tests=tuple(failing), signature=signature(failing.values()))


def unloadable(run: SuiteRun) -> tuple[TestCase, ...]:
    """The files of tests, or the modules, that could not be imported."""
    collected = set(run.collected)
    return tuple(case for case in run.cases.values() if case.status is TestStatus.ERROR and case.test not in collected)


def _reached(run: SuiteRun, target: str) -> list[TestCase]:
    """The results of the tests that `target` names.

    A test that a limit stopped in mid-run is an error, and so is one whose file could not be imported.
    """
    ended = named_cases(run, target)
    if not ended:
        broken = [case for case in unloadable(run) if run.status == "cannot_start" or selects(case.test, target)]
        ended = [replace(case, test=target) for case in broken[:1]]
    if run.status not in LIMITED:
        return ended
    unfinished = [test for test in run.collected if selects(target, test) and test not in run.cases]
    if unfinished or not ended:
        stopped = unfinished[0] if unfinished else target
        cause = run.limit or run.status
        ended.append(TestCase(stopped, TestStatus.ERROR, error_type=cause, message=f"stopped by the limit: {cause}"))
    return ended


def _refusal(target: str, once: list[TestCase], twice: list[TestCase]) -> Failure | None:
    if not once and not twice:
        return Failure(kind=FailureKind.TEST_NOT_FOUND, message=f"There is no test {target}.")
    red_once = [case for case in once if case.status in RED]
    red_twice = [case for case in twice if case.status in RED]
    if not red_once and not red_twice:
        skipped = all(case.status is TestStatus.SKIPPED for case in (*once, *twice))
        state = "is skipped" if skipped else "already passes"
        return Failure(kind=FailureKind.TEST_ALREADY_PASSES, message=f"{target} {state}: there is nothing to repair.")
    if signature(red_once) != signature(red_twice):
        ways = f"{_outcome(red_once)}, then {_outcome(red_twice)}"
        return Failure(
            kind=FailureKind.FLAKY_TEST,
            message=f"{target} gave two different results on the same code: {ways}.",
        )
    return None


def _outcome(red: list[TestCase]) -> str:
    if not red:
        return "passed"
    kinds = sorted({case.error_type or str(case.status) for case in red})
    return f"failed {len(red)} test(s) with {', '.join(kinds)}"


# After the change -----------------------------------------------------------------------------------


def compare(before: SuiteRun, after: SuiteRun, targets: Sequence[str]) -> Comparison:
    """Compare two runs of the suite, test by test."""
    was = {test: case.status for test, case in before.cases.items()}
    now = {test: case.status for test, case in after.cases.items()}
    red_now = [test for test, status in now.items() if status in RED]
    lost = _lost(before, after)
    known = set(before.collected) | set(was)
    seen_whole = before.status == "finished"
    broken = [case.test for case in unloadable(before)]
    hidden = {test for test in red_now if test not in known and any(selects(file, test) for file in broken)}
    was_red = hidden.union(test for test, status in was.items() if status in RED)
    suspects = [test for test in red_now if test not in was_red and (test in known or not seen_whole)]
    return Comparison(
        fixed=tuple(test for test, status in now.items() if status is TestStatus.PASSED and was.get(test) in RED),
        still_failing=tuple(
            dict.fromkeys(
                [test for test in red_now if test in was_red or _named(test, targets)]
                + [t for t in targets if not passes(after, t) and (after.status == "finished" or t in lost)]
            )
        ),
        regressions=_broke_off(before, after),
        suspects=tuple(test for test in suspects if not _named(test, targets)),
        newly_skipped=tuple(
            test
            for test, status in now.items()
            if status is TestStatus.SKIPPED and was.get(test, TestStatus.SKIPPED) is not TestStatus.SKIPPED
        ),
        lost_ids=lost,
        new_failures=tuple(test for test in red_now if test not in known and seen_whole and test not in hidden),
    )


def _named(test: str, targets: Sequence[str]) -> bool:
    return any(selects(target, test) for target in targets)


def _lost(before: SuiteRun, after: SuiteRun) -> tuple[str, ...]:
    """Ids that are no longer collected; none if the run was cut short before it collected."""
    if after.status in CUT_SHORT and not after.collected:
        return ()
    still = set(after.collected) | set(after.cases)
    return tuple(test for test in before.collected if test not in still)


def _broke_off(before: SuiteRun, after: SuiteRun) -> tuple[str, ...]:
    """The test at which the suite stopped, if the suite finished on the base in much less time."""
    if before.status != "finished" or after.status not in LIMITED:
        return ()
    if after.status == "timeout" and before.duration_sec * SLOWDOWN_BLAMED > after.duration_sec:
        return ()
    order = after.collected or before.collected
    return tuple(test for test in order if test in before.cases and test not in after.cases)[:1]


def settle(
    comparison: Comparison, base: Sequence[SuiteRun], patched: Sequence[SuiteRun], again: SuiteRun | None = None
) -> Comparison:
    """Divide the suspects into regressions and flaky tests, by reruns of them alone on the base and the patched tree.

    `again` is a second run of the whole suite on the patched tree: the change broke a test that passes alone and fails
    there each time through another test.
    """
    regressions, flaky = list(comparison.regressions), list(comparison.flaky)
    for test in comparison.suspects:
        passes_without = all(passes(run, test) for run in base)
        fails_alone = not any(passes(run, test) for run in patched)
        fails_in_suite = again is not None and not passes(again, test)
        broken = passes_without and (fails_alone or fails_in_suite)
        (regressions if broken else flaky).append(test)
    return replace(comparison, suspects=(), regressions=tuple(regressions), flaky=tuple(flaky))


def settle_lost(comparison: Comparison, base: SuiteRun) -> Comparison:
    """Call lost ids flaky if a second run of the suite on the base lacks them too: their names are unstable."""
    if base.status != "finished":
        return comparison
    still = set(base.collected) | set(base.cases)
    lost = tuple(test for test in comparison.lost_ids if test in still)
    unstable = tuple(test for test in comparison.lost_ids if test not in still)
    return replace(comparison, lost_ids=lost, flaky=(*comparison.flaky, *unstable))


def passes(run: SuiteRun, target: str) -> bool:
    """True if the test of this id passed, or, if `target` names several, at least one and no red one."""
    if target in run.cases:
        return run.cases[target].status is TestStatus.PASSED
    statuses = {case.status for case in named_cases(run, target)}
    return run.status == "finished" and TestStatus.PASSED in statuses and not statuses & set(RED)


# The judgement --------------------------------------------------------------------------------------


def suite_kind(before: SuiteRun | None, after: SuiteRun | None) -> SuiteKind:
    """How much of the suite was run on both trees."""
    if before is None or after is None or not after.cases:
        return "none"
    return "full" if before.status == after.status == "finished" else "partial"


def judge(
    before: SuiteRun,
    after: SuiteRun | None,
    targets: Sequence[str],
    attempts: Sequence[SuiteRun],
    comparison: Comparison,
) -> TestResult:
    """Judge a change.

    `attempts` are runs of the named tests alone on the patched tree, `after` is the suite on it (None if only the named
    tests were run), and `comparison` compares `before` and `after` with the suspects settled.
    """
    failed = [t for t in targets if not all(passes(run, t) for run in attempts)]
    unmet = failed or (list(targets) if len(attempts) < PASSES_REQUIRED else [])
    wavering = [t for t in failed if any(passes(run, t) for run in attempts)]
    counted = any(run is after for run in attempts)
    runs = [*attempts, *([after] if after is not None and not counted else [])]
    last = runs[-1]
    failing = tuple(dict.fromkeys((*unmet, *(t for t in targets if t in comparison.still_failing))))
    culprits = tuple(dict.fromkeys((*failing, *comparison.broken, *comparison.new_failures)))
    unsound = after is not None and after.status not in ("finished", *LIMITED)
    judged = bool(targets) or suite_kind(before, after) == "full"
    passed = judged and not culprits and not unsound
    cases = [_culprit(test, runs) for test in culprits]
    if unsound and not cases and after is not None:
        cases = [TestCase("the suite", TestStatus.ERROR, error_type=after.status, message=after.message)]
    return TestResult(
        passed=passed,
        cmd=last.cmd,
        exit_code=last.exit_code,
        failed_tests_before=before.red,
        failed_tests_after=tuple(dict.fromkeys((*failing, *last.red))),
        regressions=comparison.broken,
        duration_sec=sum(run.duration_sec for run in runs),
        log_tail=_relevant_log(runs, failing),
        errors=() if passed else tuple(_error(case) for case in cases[:MAX_ERRORS]),
        summary=summary(last, dict.fromkeys((*comparison.flaky, *wavering))),
        suite=suite_kind(before, after),
        signature="" if passed else signature(cases) or "nothing-judged",
        new_warnings=_new_warnings(before, after),
    )


def _new_warnings(before: SuiteRun, after: SuiteRun | None) -> tuple[str, ...]:
    """Compiler warnings that are more frequent than before the change."""
    return tuple((Counter(after.warnings) - Counter(before.warnings)).elements()) if after is not None else ()


def _culprit(test: str, runs: Sequence[SuiteRun]) -> TestCase:
    """The latest red result of `test`; else a case that says that it is skipped, unfinished or gone."""
    ends = [case for run in reversed(runs) for case in named_cases(run, test)]
    red = [case for case in ends if case.status in RED]
    if red:
        return replace(red[0], test=test)
    if any(case.status is TestStatus.SKIPPED for case in ends):
        return TestCase(test, TestStatus.SKIPPED, "Skipped", "it is skipped now and was not before")
    broken = next((run for run in runs if run.status == "cannot_start"), None)
    if broken is not None:
        return _unloadable(test, broken)
    if any(run.status in CUT_SHORT for run in runs):
        return TestCase(test, TestStatus.ERROR, "Unfinished", "the run was stopped before this test had ended")
    return TestCase(test, TestStatus.ERROR, "Lost", "it is not collected any more")


def _unloadable(test: str, run: SuiteRun) -> TestCase:
    """The case of a test that did not run because code could not be compiled or loaded, with the compiler's message."""
    cause = next((case for case in run.cases.values() if case.status is TestStatus.ERROR), None)
    if cause is None:
        return TestCase(test, TestStatus.ERROR, "CannotStart", run.message)
    return TestCase(test, TestStatus.ERROR, cause.error_type, f"{cause.test}: {cause.message}", cause.traceback)


def _error(case: TestCase) -> TestError:
    return TestError(
        test=case.test,
        error_type=case.error_type or str(case.status),
        message=case.message,
        traceback=case.traceback[-MAX_TRACEBACK:],
    )


def _relevant_log(runs: Sequence[SuiteRun], failing: Sequence[str]) -> str:
    """The log of the first run in which a named test fails, else of the last run."""
    for run in runs:
        if any(not passes(run, test) for test in failing):
            return run.log_tail
    return runs[-1].log_tail
