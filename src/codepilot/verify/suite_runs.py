"""Run the tests before and after a change.

A baseline is returned only for tests that fail twice in the same way. A change passes only if the named tests
pass every time and nothing that passed before is broken, skipped or gone. A suite that cannot be judged raises an error
that says what is wrong and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from codepilot.core.artifacts import TestResult, TestStatus, TestSummary
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import Executor
from codepilot.project import Project, SuiteRun, run_tests
from codepilot.verify.verdict import (
    CUT_SHORT,
    LIMITED,
    PASSES_REQUIRED,
    Comparison,
    Failing,
    SuiteKind,
    baseline_verdict,
    compare,
    judge,
    passes,
    selects,
    settle,
    settle_lost,
    suite_kind,
    summary,
)

MAX_CANDIDATE_TARGETS = 5
"""How many failing tests of a suite are tried, in order, before all are called flaky."""
CLOSE_MATCHES = 3
RERUNS = 3
"""How often a suspect is run again on each tree; many suspects are run again only once."""
MANY_SUSPECTS = 20
HUNG_SEC = 60.0
"""The limit for further runs of the base after one of its tests hung."""


@dataclass(frozen=True)
class Baseline:
    """The failing tests before the change, and how much of the suite was run."""

    targets: tuple[str, ...]
    signature: str
    suite: SuiteRun
    summary: TestSummary
    suite_kind: SuiteKind

    @property
    def cut_short(self) -> str:
        """The limit that stopped the suite before its end; empty if it finished."""
        return self.suite.message if self.suite.status in LIMITED else ""


# Before the change ----------------------------------------------------------------------------------


def run_baseline(
    executor: Executor,
    workspace: str,
    project: Project,
    targets: Sequence[str],
    command_sec: float,
    narrowed: bool = False,
) -> Baseline:
    """Run the targets twice and the suite once. Without targets, take the first failure of the suite.

    `narrowed` leaves the suite out.
    """
    bench = _Bench(executor, workspace, project, command_sec)
    if not targets:
        return _first_failure(bench)
    named = tuple(dict.fromkeys(_as_collected(target, project) for target in targets))
    if bench.starts_slowly and not narrowed:
        return _confirm_by_suite(bench, named)
    failing, first = _confirm(bench, named)
    if narrowed:
        return Baseline(failing.tests, failing.signature, first, _before(failing, first), "none")
    return _with_suite(failing, bench.after(first).suite())


@dataclass(frozen=True)
class _Bench:
    """One tree on which tests are run."""

    executor: Executor
    workspace: str
    project: Project
    command_sec: float

    @property
    def starts_slowly(self) -> bool:
        """True if every run needs a build first; the suite then also counts as a run of its named tests."""
        return bool(self.project.driver)

    def run(self, tests: Sequence[str]) -> SuiteRun:
        return run_tests(self.executor, self.workspace, self.project, tuple(tests), self.command_sec)

    def suite(self) -> SuiteRun:
        return self.run(())

    def after(self, run: SuiteRun) -> _Bench:
        """The bench for further runs on this tree, with a shorter limit if `run` timed out."""
        return replace(self, command_sec=min(self.command_sec, HUNG_SEC)) if run.status == "timeout" else self


def _as_collected(target: str, project: Project) -> str:
    """A target relative to the project's root, as the runner's ids are."""
    return target.removeprefix(project.root.rstrip("/") + "/").removeprefix("./")


def _confirm_by_suite(bench: _Bench, named: Sequence[str]) -> Baseline:
    """Run the named tests alone and in the suite; if the results disagree, run them alone again."""
    first = bench.run(named)
    _require_start(first, bench, named)
    suite = bench.after(first).suite()
    verdict = baseline_verdict(first, replace(suite, resolved=first.resolved), named)
    if not isinstance(verdict, Failing):
        verdict, _ = _confirm(bench, named, first)
    return _with_suite(verdict, suite)


def _confirm(bench: _Bench, named: Sequence[str], first: SuiteRun | None = None) -> tuple[Failing, SuiteRun]:
    first = first or bench.run(named)
    _require_start(first, bench, named)
    second = bench.after(first).run(named)
    verdict = baseline_verdict(first, second, named)
    if isinstance(verdict, Failing):
        return verdict, first
    if verdict.kind is FailureKind.TEST_NOT_FOUND:
        raise _not_found(bench, named)
    raise CodePilotError.of(verdict)


def _first_failure(bench: _Bench) -> Baseline:
    suite = bench.suite()
    _require_start(suite, bench, ())
    if not suite.red:
        if suite.status in CUT_SHORT:
            return _hanging(bench, suite)
        passed = len(suite.having(TestStatus.PASSED))
        raise CodePilotError(
            FailureKind.TEST_ALREADY_PASSES,
            f"Nothing fails: all {passed} tests of the suite that were run pass.",
            "Write a test that shows the bug, then name it with --test.",
        )
    unloadable: SuiteRun | None = None
    for test in _in_order(suite)[:MAX_CANDIDATE_TARGETS]:
        first = bench.run((test,))
        if first.status == "cannot_start" and first.missing_module:
            unloadable = unloadable or first
            continue
        verdict = baseline_verdict(first, bench.run((test,)), (test,))
        if isinstance(verdict, Failing):
            return _with_suite(verdict, suite)
    if unloadable is not None:
        raise _cannot_start(unloadable, bench.project)
    raise _unreliable(suite)


def _hanging(bench: _Bench, suite: SuiteRun) -> Baseline:
    """Take a test that used most of the suite's time and also hangs alone as the first failure."""
    running = next((test for test in suite.collected if test not in suite.cases), None)
    spent = suite.duration_sec - sum(case.duration_sec for case in suite.cases.values())
    if suite.status != "timeout" or running is None or spent < bench.command_sec / 2:
        raise _too_slow(bench, running)
    verdict = baseline_verdict(suite, bench.after(suite).run((running,)), (running,))
    if not isinstance(verdict, Failing):
        raise _too_slow(bench, running)
    return _with_suite(verdict, suite)


def _too_slow(bench: _Bench, running: str | None = None) -> CodePilotError:
    then = f": it was running {running}" if running else ""
    return CodePilotError(
        FailureKind.SUITE_TIMEOUT,
        f"The suite did not end within {bench.command_sec:g} s and showed no failing test by then{then}.",
        "Name the failing test with --test, or raise --budget command_sec=SECONDS.",
    )


def _unreliable(suite: SuiteRun) -> CodePilotError:
    shown = ", ".join(_in_order(suite)[:CLOSE_MATCHES])
    return CodePilotError(
        FailureKind.FLAKY_TEST,
        f"{len(suite.red)} test(s) fail in the suite, but none fails each time when it is run by itself: {shown}.",
        failing=suite.red,
    )


def _in_order(suite: SuiteRun) -> list[str]:
    """Failing tests in the order of their files; files that could not be loaded come last."""
    place = {test: number for number, test in enumerate(suite.collected)}
    return sorted(suite.red, key=lambda test: place.get(test, len(place)))


def _with_suite(failing: Failing, suite: SuiteRun) -> Baseline:
    return Baseline(failing.tests, failing.signature, suite, _before(failing, suite), suite_kind(suite, suite))


def _before(failing: Failing, run: SuiteRun) -> TestSummary:
    """The summary of a run, with tests that were stopped in mid-run as errors."""
    found = summary(run)
    stopped = tuple(test for test in failing.tests if test not in run.cases)
    return found.model_copy(update={"errors": (*found.errors, *stopped)})


# Errors ---------------------------------------------------------------------------------------------


def _require_start(run: SuiteRun, bench: _Bench, named: Sequence[str]) -> None:
    """Raise if a run has no result for any test."""
    if run.status == "interrupted" and not run.cases:
        raise CodePilotError(FailureKind.SUITE_CANNOT_START, run.message or "The tests were stopped before any ended.")
    if run.status == "cannot_start":
        raise _cannot_start(run, bench.project)
    if run.status == "not_found" or (run.status == "no_tests" and named):
        raise _not_found(bench, run.not_found or named)
    if run.status == "no_tests":
        raise CodePilotError(
            FailureKind.NO_TEST_RUNNER,
            f"{bench.project.runner} found no tests in this project.",
            "Write a test that fails because of the bug, then try again.",
        )


def _cannot_start(run: SuiteRun, project: Project) -> CodePilotError:
    python = project.interpreter.executable
    if run.missing_module is None:
        last = run.message or (run.log_tail.strip().splitlines() or ["it printed nothing"])[-1]
        advice = f"Make the project's tests start by {project.runner} alone, then try again."
        if project.is_python:
            command = f"{python} -m {project.runner}"
            advice = f"Make `{command}` start by itself, then try again; --python chooses another Python."
        return CodePilotError(
            FailureKind.SUITE_CANNOT_START,
            f"The suite cannot start: {last}",
            advice,
            log_tail=run.log_tail[-2000:],
        )
    if not project.is_python:
        return CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The project needs {run.missing_module}, which is not there, and tests run without a network.",
            project.remedy,
            missing_module=run.missing_module,
        )
    package = run.missing_module.split(".")[0]
    return CodePilotError(
        FailureKind.SUITE_CANNOT_START,
        f"The suite cannot start: there is no module named {run.missing_module!r} for {python}.",
        f"Install what provides it (often `{python} -m pip install {package}`), or choose an interpreter that has it "
        "with --python.",
        missing_module=run.missing_module,
        python=python,
    )


def _not_found(bench: _Bench, missing: Sequence[str]) -> CodePilotError:
    """The error for a missing test, with the closest names, of the same file if it exists."""
    name = missing[0]
    known: tuple[str, ...] = ()
    place = name.split("::")[0].split("#")[0]
    if place != name:
        known = bench.run((place,)).collected
    known = known or bench.suite().collected
    near = difflib.get_close_matches(name, known, n=CLOSE_MATCHES, cutoff=0.5)
    advice = f"Did you mean {' or '.join(near)}?" if near else ""
    return CodePilotError(FailureKind.TEST_NOT_FOUND, f"There is no test {name}.", advice, close_matches=near)


# After the change -----------------------------------------------------------------------------------


def run_gate(
    executor: Executor,
    workspace: str,
    project: Project,
    baseline: Baseline,
    command_sec: float,
    base_workspace: Callable[[], str] | None = None,
    narrowed: bool = False,
) -> TestResult:
    """Run the named tests until they have passed often enough, then the suite, then every suspect on both trees.

    `base_workspace` creates a workspace of the base tree if reruns need one. Without it, suspects are rerun on the
    patched tree alone. `narrowed` skips a suite that is too slow: only its tests that ended in time at the baseline
    are run, or only the named ones if all did.
    """
    bench = _Bench(executor, workspace, project, command_sec)
    spared = narrowed and baseline.suite_kind == "full"
    alone_only = spared or baseline.suite_kind == "none"
    by_suite = 1 if bench.starts_slowly and not alone_only else 0
    attempts = _attempts(bench, baseline.targets, PASSES_REQUIRED - by_suite)
    alone = Comparison()
    if alone_only or not all(passes(run, target) for run in attempts for target in baseline.targets):
        judged = judge(baseline.suite, None, baseline.targets, attempts, alone)
        return judged.model_copy(update={"suite": "partial"}) if spared and judged.passed else judged
    before, chosen = _comparable(baseline)
    after = bench.run(chosen)
    attempts += [after] * by_suite
    found = compare(before, after, baseline.targets)
    if after.status == "interrupted":
        return judge(before, after, baseline.targets, attempts, found)
    base = _Bench(executor, base_workspace(), project, command_sec) if base_workspace and _doubtful(found) else None
    settled = _settled(found, bench, base, chosen)
    return judge(before, after, baseline.targets, attempts, settled)


def _attempts(bench: _Bench, targets: Sequence[str], most: int) -> list[SuiteRun]:
    """Run the named tests up to `most` times, until a run fails."""
    attempts: list[SuiteRun] = []
    while len(attempts) < most:
        attempts.append(bench.run(targets))
        if not all(passes(attempts[-1], target) for target in targets):
            break
    return attempts


def _comparable(baseline: Baseline) -> tuple[SuiteRun, tuple[str, ...]]:
    """The run to compare with, and its tests: the whole suite, or those that ended before it was cut short."""
    suite = baseline.suite
    if baseline.suite_kind == "full":
        return suite, ()
    ended = tuple(dict.fromkeys((*suite.cases, *baseline.targets)))
    known = tuple(test for test in suite.collected if test in suite.cases)
    return replace(suite, collected=known), ended


def _doubtful(found: Comparison) -> bool:
    return bool(found.suspects or found.lost_ids)


def _settled(found: Comparison, patched: _Bench, base: _Bench | None, chosen: Sequence[str]) -> Comparison:
    if found.lost_ids and base is not None:
        found = settle_lost(found, base.run(chosen))
    if not found.suspects:
        return found
    rounds = RERUNS if len(found.suspects) <= MANY_SUSPECTS else 1
    alone = [_rerun(patched, found.suspects) for _ in range(rounds)]
    on_base = [_rerun(base, found.suspects) for _ in range(rounds)] if base is not None else []
    pollution = any(all(passes(run, test) for run in alone) for test in found.suspects)
    return settle(found, on_base, alone, patched.run(chosen) if pollution else None)


def _rerun(bench: _Bench, tests: Sequence[str]) -> SuiteRun:
    """Run those of the tests that exist on this tree: a runner refuses all if one is missing."""
    run = bench.run(tests)
    present = [test for test in tests if not any(selects(gone, test) for gone in run.not_found)]
    return bench.run(present) if run.status == "not_found" and present and len(present) < len(tests) else run
