"""Judges a generated program: its own tests pass, twice and in another order of hashes, and nothing given broke."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from codepilot.core.artifacts import Gate, PolicyCheck, TestError, TestResult, TestStatus
from codepilot.core.events import ProofRecorded
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CreateWorkspace, Executor, RunCommand
from codepilot.project import PLUGIN_DIR, Project, SuiteRun, is_test, run_tests, summarise
from codepilot.verify.proof import tree_checks
from codepilot.verify.suite_runs import Baseline
from codepilot.verify.verdict import compare, judge, signature
from codepilot.workspace import ObjectStore

OTHER_SEED = "20011"
REPORT = ".codepilot-coverage"
MAX_REPORT = 10_000
MAX_SHOWN = 5
COVERAGE_SEC = 60.0
UNMEASURED_CONFIDENCE = 0.5
"""The confidence in a program whose coverage could not be measured; with all lines run it is `MOST`."""
MOST = 0.9
_PROPERTIES = re.compile(rb"\bhypothesis\b|\bfast-check\b|\bjqwik\b")

NOTHING = SuiteRun(status="finished", cases={}, collected=(), cmd=(), exit_code=0, duration_sec=0.0, log_tail="")
"""The suite of a program that does not exist yet."""


def empty_baseline() -> Baseline:
    """What holds before a program exists."""
    return Baseline((), "", NOTHING, summarise(NOTHING), "full")


@dataclass(frozen=True)
class ProgramBench:
    """A program in a workspace, with how it is tested."""

    executor: Executor
    workspace: str
    project: Project
    command_sec: float

    def judge(self, baseline: Baseline) -> TestResult:
        """Run the tests; if they pass, run them again with another hash seed and measure the coverage."""
        first = self._run({"PYTHONHASHSEED": "0"})
        result = _judged(baseline, first)
        if not result.passed:
            return result
        second = self._run({"PYTHONHASHSEED": OTHER_SEED, **self._watching()})
        again = _judged(baseline, second)
        if not again.passed:
            note = TestError(test="the suite", error_type="Flaky", message="The tests passed once and failed again.")
            return again.model_copy(update={"errors": (*again.errors, note)})
        spent = result.duration_sec + again.duration_sec
        return again.model_copy(update={"duration_sec": spent, "coverage": self._coverage()})

    def _run(self, env: dict[str, str]) -> SuiteRun:
        project = replace(self.project, env={**self.project.env, **env})
        return run_tests(self.executor, self.workspace, project, (), self.command_sec)

    def _watching(self) -> dict[str, str]:
        """The variables that let the tests of this language measure themselves."""
        target = f"{self.project.root.rstrip('/')}/{REPORT}"
        if self.project.runner == "pytest":
            return {"PYTEST_ADDOPTS": "-p codepilot_cover", "CODEPILOT_COVERAGE": target}
        return {"NODE_V8_COVERAGE": target} if self.project.runner == "npm" else {}

    def _coverage(self) -> float | None:
        """The percentage of lines that ran, as the program's own process reports it; None without a report."""
        try:
            if self.project.runner == "pytest":
                found = self.executor.read_file(self.workspace, REPORT)[:MAX_REPORT]
            elif self.project.runner == "npm":
                found = self._v8_report()
            else:
                return None
            report = json.loads(found)
            run, lines = int(report["run"]), int(report["lines"])
            return round(100.0 * min(run, lines) / lines, 1) if lines > 0 <= run else None
        except (CodePilotError, ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return None

    def _v8_report(self) -> bytes:
        script, root = str(PLUGIN_DIR / "codepilot_v8.py"), self.project.root
        python = self.project.interpreter.executable
        done = self.executor.run_command(
            RunCommand(
                workspace=self.workspace,
                argv=(python, "-I", script, f"{root.rstrip('/')}/{REPORT}", root),
                timeout_sec=COVERAGE_SEC,
            )
        )
        return done.stdout[:MAX_REPORT]


def _judged(baseline: Baseline, run: SuiteRun) -> TestResult:
    result = judge(baseline.suite, run, (), [run], compare(baseline.suite, run, ()))
    if result.passed and not run.having(TestStatus.PASSED):
        message = "No test passed: the program has no tests that run."
        error = TestError(test="the suite", error_type="NoTests", message=message)
        return result.model_copy(update={"passed": False, "errors": (error,), "signature": "no-test-passed"})
    if not result.passed and run.status == "no_tests":
        message = "The runner found no tests. Write tests where it looks for them."
        error = TestError(test="the suite", error_type="NoTests", message=message)
        return result.model_copy(update={"errors": (error,), "signature": "no-tests"})
    if not result.passed and not result.failed_tests_after and run.status == "cannot_start":
        cases = [case for case in run.cases.values() if case.test in run.red]
        return result.model_copy(update={"signature": signature(cases) or result.signature})
    return result


def tests_gate(result: TestResult, baseline: Baseline, files: dict[str, bytes]) -> Gate:
    """The gate of the generated tests, with their coverage and whether some are property-based."""
    tests = [path for path in files if is_test(path)]
    properties = any(_PROPERTIES.search(files[path]) for path in tests)
    covered = "" if result.coverage is None else f", {result.coverage:g}% of the lines run"
    kinds = "examples and properties" if properties else "examples"
    red = len(result.failed_tests_after) + len(result.regressions)
    failing = "; ".join(f"{one.test}: {one.message or one.error_type}"[:300] for one in result.errors[:MAX_SHOWN])
    return Gate(
        name="own_tests",
        before=f"{baseline.summary.passed} pass",
        after=f"{result.summary.passed} pass, {red} fail{covered}",
        ok=result.passed,
        evidence=failing or (f"{len(tests)} test file(s) with {kinds}" if tests else "there is no test file"),
    )


Create = Callable[[str, str], CreateWorkspace]


def prove_program(
    objects: ObjectStore,
    base_tree: str,
    patch: bytes,
    tree: str,
    baseline: Baseline,
    bench: ProgramBench,
    create: Create,
) -> ProofRecorded:
    """Build the program from the base and the patch on a clean copy, and run its tests there."""
    try:
        built = objects.apply(base_tree, patch)
    except CodePilotError as error:
        if error.kind is not FailureKind.PATCH_CONFLICT:
            raise
        return _refuted([PolicyCheck(name="applies_to_base", ok=False, evidence=error.failure.message)])
    checks = [one for one in tree_checks(objects, base_tree, built, tree) if one.name != "judged_by_the_bases_tests"]
    if built != tree:
        return _refuted(checks)
    place = f"{bench.workspace}-proof"
    try:
        bench.executor.delete(place)
        bench.executor.create(create(place, built))
        result = replace(bench, workspace=place).judge(baseline)
    finally:
        bench.executor.delete(place)
    count = result.summary.passed
    broken = [*result.failed_tests_after, *result.regressions]
    errors = "; ".join(f"{error.test}: {error.message}" for error in result.errors[:3])
    evidence = f"{count} pass" if result.passed else ", ".join(broken[:5]) or errors
    checks.append(PolicyCheck(name="generated_tests_pass", ok=result.passed, evidence=evidence))
    if not result.passed:
        return _refuted(checks, result)
    covered = None if result.coverage is None else result.coverage / 100
    confidence = UNMEASURED_CONFIDENCE if covered is None else round(MOST * covered, 2)
    lines = "" if covered is None else f" and run {result.coverage:g}% of its lines"
    return ProofRecorded(
        ok=True,
        verdict="confirmed",
        confidence=confidence,
        confidence_parts={} if covered is None else {"coverage": round(covered, 3)},
        checks=tuple(checks),
        after=result.summary,
        suite=result.suite,
        reason=f"{count} generated test(s) pass on a clean copy{lines}",
    )


def _refuted(checks: Sequence[PolicyCheck], result: TestResult | None = None) -> ProofRecorded:
    reason = "; ".join(f"{check.name}: {check.evidence}" for check in checks if not check.ok)
    return ProofRecorded(
        ok=False,
        verdict=None,
        confidence=0.0,
        checks=tuple(checks),
        after=result.summary if result is not None else summarise(NOTHING),
        suite=result.suite if result is not None else "none",
        reason=f"The program did not hold on a clean copy: {reason}.",
    )
