"""Run the tests after a change and compare them with the baseline.

A change passes only if the named tests pass every time and nothing that passed before is broken, skipped or gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from codepilot.core.artifacts import TestResult, TestSummary
from codepilot.executor import Executor
from codepilot.project import Project, SuiteRun, run_tests
from codepilot.verify.verdict import (
    LIMITED,
    PASSES_REQUIRED,
    Comparison,
    SuiteKind,
    compare,
    judge,
    passes,
    selects,
    settle,
    settle_lost,
)

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
    left_out: tuple[str, ...] = ()
    """Tests that the change is asked to alter: they say nothing about it."""

    @property
    def has_tests(self) -> bool:
        """False if there is no test to judge a change by."""
        return bool(self.targets) or self.suite_kind != "none"

    @property
    def cut_short(self) -> str:
        """The limit that stopped the suite before its end; empty if it finished."""
        return self.suite.message if self.suite.status in LIMITED else ""


NOTHING_RUN = Baseline(
    (),
    "",
    SuiteRun(status="finished", cases={}, collected=(), cmd=(), exit_code=0, duration_sec=0.0, log_tail=""),
    TestSummary(),
    "none",
)
"""The baseline of a task whose change no test judges."""


@dataclass(frozen=True)
class Bench:
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

    def after(self, run: SuiteRun) -> Bench:
        """The bench for further runs on this tree, with a shorter limit if `run` timed out."""
        return replace(self, command_sec=min(self.command_sec, HUNG_SEC)) if run.status == "timeout" else self


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
    are run, or only the named ones if all did. Where there are no tests, the task's commands alone judge the change.
    """
    if not baseline.has_tests:
        return TestResult(passed=True, cmd=(), exit_code=0)
    bench = Bench(executor, workspace, project, command_sec)
    spared = narrowed and baseline.suite_kind == "full"
    alone_only = spared or baseline.suite_kind == "none"
    by_suite = 1 if bench.starts_slowly and not alone_only else 0
    attempts = _attempts(bench, baseline.targets, PASSES_REQUIRED - by_suite) if baseline.targets else []
    alone = Comparison()
    if alone_only or not all(passes(run, target) for run in attempts for target in baseline.targets):
        judged = judge(baseline.suite, None, baseline.targets, attempts, alone)
        return judged.model_copy(update={"suite": "partial"}) if spared and judged.passed else judged
    before, chosen = _comparable(baseline)
    before, after = without(before, baseline.left_out), without(bench.run(chosen), baseline.left_out)
    attempts += [after] * by_suite
    found = compare(before, after, baseline.targets)
    if after.status == "interrupted":
        return judge(before, after, baseline.targets, attempts, found)
    base = Bench(executor, base_workspace(), project, command_sec) if base_workspace and _doubtful(found) else None
    settled = _settled(found, bench, base, chosen)
    return judge(before, after, baseline.targets, attempts, settled)


def without(suite: SuiteRun, left_out: Sequence[str]) -> SuiteRun:
    """The run as if these tests were not there."""
    if not left_out:
        return suite

    def stays(test: str) -> bool:
        return not any(selects(one, test) for one in left_out)

    cases = {test: case for test, case in suite.cases.items() if stays(test)}
    return replace(suite, cases=cases, collected=tuple(test for test in suite.collected if stays(test)))


def _attempts(bench: Bench, targets: Sequence[str], most: int) -> list[SuiteRun]:
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


def _settled(found: Comparison, patched: Bench, base: Bench | None, chosen: Sequence[str]) -> Comparison:
    if found.lost_ids and base is not None:
        found = settle_lost(found, base.run(chosen))
    if not found.suspects:
        return found
    rounds = RERUNS if len(found.suspects) <= MANY_SUSPECTS else 1
    alone = [_rerun(patched, found.suspects) for _ in range(rounds)]
    on_base = [_rerun(base, found.suspects) for _ in range(rounds)] if base is not None else []
    pollution = any(all(passes(run, test) for run in alone) for test in found.suspects)
    return settle(found, on_base, alone, patched.run(chosen) if pollution else None)


def _rerun(bench: Bench, tests: Sequence[str]) -> SuiteRun:
    """Run those of the tests that exist on this tree: a runner refuses all if one is missing."""
    run = bench.run(tests)
    present = [test for test in tests if not any(selects(gone, test) for gone in run.not_found)]
    return bench.run(present) if run.status == "not_found" and present and len(present) < len(tests) else run
