"""The proof: apply the patch to a clean copy of the base and run the base's own tests.

The proved tree is exactly the validated one. Existing tests, conftest and runner configuration come from the base, so
that a change cannot vouch for itself. The workspaces are deleted afterwards. The verdict depends on how many mutants of
the changed code the tests notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from codepilot.core.artifacts import Concern, PolicyCheck, RegressionTest, TestResult, TestSummary
from codepilot.core.events import ProofRecorded
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CreateWorkspace, Executor
from codepilot.project import Project, SuiteRun, is_test, run_tests
from codepilot.verify.confidence import grade
from codepilot.verify.configuration import bends_runner
from codepilot.verify.gates import run_shell
from codepilot.verify.generality import changed_files, concerns, signs, sources_of, versions
from codepilot.verify.suite_runs import Baseline, run_gate
from codepilot.verify.verdict import OUTSIDE, RED, named_cases, passes
from codepilot.workspace import Entry, ObjectStore

if TYPE_CHECKING:
    from codepilot.repair import MutationScore, Spread, Variants

REGRESSION_TEST = "regression_test_tells_them_apart"
OTHER_SEED = "20011"
"""A hash seed that no other run of a regression test uses."""
VALIDATED = "tree_is_the_validated_one"
MAX_EVIDENCE = 5
ENVIRONMENTAL = OUTSIDE | {"ModuleNotFoundError", "ImportError", "OSError", "PermissionError", "FileNotFoundError"}
"""Errors of tests that lack something outside the code, which no change can mend."""


Create = Callable[[str, str], CreateWorkspace]
"""Build the request for a workspace of this name and tree, with the project's environment."""
Measure = Callable[[str, Sequence[str]], "MutationScore | None"]
"""Measure the strength of the tests in a workspace that holds the patched tree; also which failing tests reach it."""
Compare = Callable[[str, SuiteRun, "Variants"], "Spread"]
"""Compare the changed Python files in a workspace with other versions of them, by inputs of the suite's tests."""


def prove(
    executor: Executor,
    objects: ObjectStore,
    base_tree: str,
    patch: bytes,
    project: Project,
    baseline: Baseline,
    *,
    workspace: str,
    create: Create,
    command_sec: float,
    tree: str,
    agreement: float | None = None,
    narrowed: bool = False,
    measure: Measure | None = None,
    compare: Compare | None = None,
    brings_tests: bool = False,
    commands: Sequence[str] = (),
) -> ProofRecorded:
    """Prove that `patch` on `base_tree` gives `tree`, that the tests then pass and the task's `commands` succeed.

    `agreement` is the search's estimate, if it found the change. `brings_tests` is true if the change came with tests
    of its own, which are a part of the base. Works in `<workspace>-proof` and, for reruns,
    `<workspace>-base`, and deletes both.
    """
    try:
        built = objects.apply(base_tree, patch)
    except CodePilotError as error:
        if error.kind is not FailureKind.PATCH_CONFLICT:
            raise
        return _refuted([PolicyCheck(name="applies_to_base", ok=False, evidence=error.failure.message)])
    checks = tree_checks(objects, base_tree, built, tree)
    if built != tree:
        return _refuted(checks)
    judged, _ = judged_tree(objects, base_tree, built)
    proof_place, base_place = f"{workspace}-proof", f"{workspace}-base"

    def base_workspace() -> str:
        executor.delete(base_place)
        executor.create(create(base_place, base_tree))
        return base_place

    try:
        executor.delete(proof_place)
        executor.create(create(proof_place, judged))
        result = run_gate(executor, proof_place, project, baseline, command_sec, base_workspace, narrowed)
        unmended = _unmended(baseline, result)
        varied = result.passed and baseline.has_tests
        strength = measure(proof_place, unmended) if measure is not None and varied else None
        doubts = _concerns(objects, base_tree, judged, built, baseline, proof_place, compare) if varied else ()
        if commands and result.passed:
            executor.delete(proof_place)
            executor.create(create(proof_place, built))
            ended = {one: run_shell(executor, proof_place, project, one, command_sec) for one in commands}
            checks.append(_commands_succeed(ended))
    finally:
        executor.delete(proof_place)
        executor.delete(base_place)
    return _recorded(
        result, checks, baseline, strength, doubts, agreement, brings_tests=brings_tests, python=project.is_python
    )


def _commands_succeed(ended: Mapping[str, tuple[int | None, str]]) -> PolicyCheck:
    """The acceptance commands on the clean copy, which lacks what the agent left besides its change."""
    failed = [f"{command}: {output or code}" for command, (code, output) in ended.items() if code != 0]
    return PolicyCheck(name="commands_succeed", ok=not failed, evidence=_plain("; ".join(failed or ended)))


def tree_checks(objects: ObjectStore, base_tree: str, built: str, tree: str) -> list[PolicyCheck]:
    """The checks of the change as a tree: it is the validated one, and the base's tests judge it."""
    checks = [
        PolicyCheck(name="applies_to_base", ok=True, evidence=base_tree),
        PolicyCheck(name=VALIDATED, ok=built == tree, evidence=built),
    ]
    if built == tree:
        _, restored = judged_tree(objects, base_tree, built)
        kept = f"taken from the base: {', '.join(restored)}" if restored else "the change does not touch them"
        checks.append(PolicyCheck(name="judged_by_the_bases_tests", ok=True, evidence=_plain(kept)))
    return checks


def _recorded(
    result: TestResult,
    checks: list[PolicyCheck],
    baseline: Baseline,
    strength: MutationScore | None,
    doubts: Sequence[Concern],
    agreement: float | None,
    *,
    brings_tests: bool,
    python: bool,
) -> ProofRecorded:
    unmet = [target for target in baseline.targets if target in result.failed_tests_after]
    checks = [
        *checks,
        PolicyCheck(name="named_tests_pass", ok=not unmet, evidence=", ".join(unmet or baseline.targets)),
        PolicyCheck(name="nothing_else_broke", ok=not result.regressions, evidence=_suite_evidence(result)),
    ]
    if not result.passed or not all(check.ok for check in checks):
        return _refuted(checks, result)
    suite, flaky = result.suite, result.summary.flaky
    value = grade(strength, suite, baseline.targets, flaky, agreement, doubts, brings_tests=brings_tests, python=python)
    general = PolicyCheck(name="change_is_general", ok=not doubts, evidence="; ".join(map(str, doubts[:MAX_EVIDENCE])))
    strong = PolicyCheck(name="tests_are_strong", ok=value.verdict == "confirmed", evidence=value.reason)
    return ProofRecorded(
        ok=True,
        verdict=value.verdict,
        confidence=value.confidence,
        confidence_parts=value.parts,
        concerns=tuple(doubts),
        checks=(*checks, general, strong),
        after=result.summary,
        suite=result.suite,
        reason=value.reason,
    )


def _concerns(
    objects: ObjectStore,
    base_tree: str,
    judged: str,
    built: str,
    baseline: Baseline,
    workspace: str,
    compare: Compare | None,
) -> tuple[Concern, ...]:
    """The reasons to doubt that the change is general. Functions are only run if something in the change is odd."""
    files = changed_files(objects, base_tree, built)
    before = [case.message for case in baseline.suite.cases.values() if case.status in RED]
    tests, collected = baseline.targets, baseline.suite.collected
    found = signs(files, sources_of(objects, judged, tests), tests, before, collected)
    open_signs = any(not one.certain for one in found)
    python = {file.path: file.before for file in files if file.is_python and file.after is not None}
    if compare is None or not open_signs:
        return concerns(found, files)
    return concerns(found, files, compare(workspace, baseline.suite, versions(python, found)))


def _unmended(baseline: Baseline, result: TestResult) -> tuple[str, ...]:
    """Tests that fail before and after the change because of the code, not because of the machine."""
    before = baseline.suite.cases
    left = (test for test in result.failed_tests_after if test in before and test not in result.summary.flaky)
    return tuple(test for test in left if before[test].error_type.rpartition(".")[2] not in ENVIRONMENTAL)


def _suite_evidence(result: TestResult) -> str:
    if result.regressions:
        return ", ".join(result.regressions[:10])
    return {"full": "the whole suite was run", "partial": "only a part of the suite was run"}.get(
        result.suite, "no suite was run"
    )


def _refuted(checks: Sequence[PolicyCheck], result: TestResult | None = None) -> ProofRecorded:
    broken = [check for check in checks if not check.ok]
    reason = "; ".join(f"{check.name}: {check.evidence}" for check in broken)
    if not broken and result is not None:
        reason = "; ".join(f"{error.test}: {error.message or error.error_type}" for error in result.errors[:3])
    return ProofRecorded(
        ok=False,
        verdict=None,
        confidence=0.0,
        checks=tuple(checks),
        after=result.summary if result is not None else TestSummary(),
        suite=result.suite if result is not None else "none",
        reason=f"The change did not hold on a clean copy of the base: {reason}.",
    )


# The regression test --------------------------------------------------------------------------------


@dataclass(frozen=True)
class RegressionCheck:
    """Checks that the regression test of a change fails on the base and passes on the change.

    The proof of a change takes existing test files from the base, without this test. It is therefore checked
    separately, on clean copies of both trees. Each copy is created in the workspace `place` and deleted.
    """

    executor: Executor
    objects: ObjectStore
    project: Project
    create: Create
    place: str
    command_sec: float
    before: SuiteRun | None = None
    """The suite on the base: its neighbours that passed must still pass with the test."""

    def judge(self, regression: RegressionTest, base: str, changed: str) -> PolicyCheck:
        """Run the test on the base with only its file added, then twice on the changed tree."""
        test = regression.test
        entries, added = self.objects.read_tree(base), self.objects.read_tree(changed).get(regression.path)
        if added is None:
            return _verdict_on_test(False, f"there is no {regression.path} in the change")
        entries[regression.path] = added
        neighbours = self._neighbours(regression)
        try:
            self._make(self.objects.write_tree(entries))
            if not _fails(self._run((test,)), test):
                return _verdict_on_test(False, f"{test} does not fail on the base")
            self._make(changed)
            runs = [self._run((test, *neighbours)), self._run((test,), OTHER_SEED)]
        finally:
            self.executor.delete(self.place)
        if not all(passes(run, test) for run in runs):
            return _verdict_on_test(False, f"{test} does not pass after the change")
        if broken := [other for other in neighbours if not passes(runs[0], other)]:
            return _verdict_on_test(False, f"{broken[0]} does not pass together with {test}")
        return _verdict_on_test(True, f"{test} fails before and passes after")

    def _neighbours(self, regression: RegressionTest) -> tuple[str, ...]:
        """The other tests of its file that passed before, found by their ids."""
        if self.before is None:
            return ()
        path, module = f"/{regression.path}", PurePosixPath(regression.path).stem

        def same_file(test: str) -> bool:
            file, by_file, _ = test.partition("::")
            return path.endswith(f"/{file}") if by_file else module in test.split(".")

        return tuple(one for one in self.before.cases if same_file(one) and passes(self.before, one))

    def _make(self, tree: str) -> None:
        self.executor.delete(self.place)
        self.executor.create(self.create(self.place, tree))

    def _run(self, tests: tuple[str, ...], seed: str = "0") -> SuiteRun:
        project = replace(self.project, env={**self.project.env, "PYTHONHASHSEED": seed})
        return run_tests(self.executor, self.place, project, tests, self.command_sec)


def _fails(run: SuiteRun, test: str) -> bool:
    """True if the test ran and failed; a test that was not found or loaded did not."""
    return run.status == "finished" and any(case.status in RED for case in named_cases(run, test))


def _verdict_on_test(ok: bool, evidence: str) -> PolicyCheck:
    return PolicyCheck(name=REGRESSION_TEST, ok=ok, evidence=_plain(evidence))


# The tree that is judged ----------------------------------------------------------------------------


def judged_tree(objects: ObjectStore, base_tree: str, patched_tree: str) -> tuple[str, tuple[str, ...]]:
    """The patched tree with the tests and runner configuration of the base restored, and the restored paths."""
    restored = [
        (path, before)
        for path, before, after in objects.changes(base_tree, patched_tree)
        if _judges(objects, path, before, after)
    ]
    if not restored:
        return patched_tree, ()
    entries = objects.read_tree(patched_tree)
    for path, before in restored:
        if before is None:
            entries.pop(path, None)
        else:
            _put(entries, path, before)
    return objects.write_tree(entries), tuple(path for path, _ in restored)


def _judges(objects: ObjectStore, path: str, before: Entry | None, after: Entry | None) -> bool:
    if before is not None and is_test(path):
        return True
    return bends_runner(path, _content(objects, before), _content(objects, after))


def _content(objects: ObjectStore, entry: Entry | None) -> bytes | None:
    if entry is None:
        return None
    return entry.oid.encode() if entry.mode == "160000" else objects.read_blob(entry.oid)


def _put(entries: dict[str, Entry], path: str, entry: Entry) -> None:
    """Add a file, and remove what the change put in its place: a file for a directory, or the reverse."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        entries.pop("/".join(parts[:depth]), None)
    for inner in [name for name in entries if name.startswith(path + "/")]:
        del entries[inner]
    entries[path] = entry


def _plain(text: str) -> str:
    """Escape the bytes of file names that are not text."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
