"""Whether the test that came with a change tells base and change apart: it fails on the one and passes on the other.

Existing test files are taken from the base when a change is judged, so such a test has no voice there; it is proved by
itself, on clean copies of both trees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codepilot.core.artifacts import PolicyCheck, RegressionTest
from codepilot.executor import CreateWorkspace, Executor
from codepilot.project import Project, SuiteRun, run_tests
from codepilot.verify.verdict import RED, named_cases, passes
from codepilot.workspace import ObjectStore

REGRESSION_TEST = "regression_test_tells_them_apart"
PASSES = 2
"""How often it is run after the change here; the agent and the gates have run it before."""


def fails(run: SuiteRun, test: str) -> bool:
    """Whether the test ran and was red; one that could not be found or loaded says nothing."""
    return run.status == "finished" and any(case.status in RED for case in named_cases(run, test))


@dataclass(frozen=True)
class Apart:
    """Where such a test is tried: `place` is made anew for each tree, and gone afterwards."""

    executor: Executor
    objects: ObjectStore
    project: Project
    create: Callable[[str, str], CreateWorkspace]
    place: str
    command_sec: float

    def told_by(self, regression: RegressionTest, base: str, changed: str) -> PolicyCheck:
        """Run the test on the base with nothing but its file added, and on the changed tree."""
        test = regression.test
        entries, added = self.objects.read_tree(base), self.objects.read_tree(changed).get(regression.path)
        if added is None:
            return _check(False, f"there is no {regression.path} in the change")
        entries[regression.path] = added
        try:
            if not all(fails(run, test) for run in self._runs(self.objects.write_tree(entries), test, 1)):
                return _check(False, f"{test} does not fail on the base")
            if not all(passes(run, test) for run in self._runs(changed, test, PASSES)):
                return _check(False, f"{test} does not pass after the change")
        finally:
            self.executor.delete(self.place)
        return _check(True, f"{test} fails before and passes after")

    def _runs(self, tree: str, test: str, times: int) -> list[SuiteRun]:
        self.executor.delete(self.place)
        self.executor.create(self.create(self.place, tree))
        return [run_tests(self.executor, self.place, self.project, (test,), self.command_sec) for _ in range(times)]


def _check(ok: bool, evidence: str) -> PolicyCheck:
    return PolicyCheck(name=REGRESSION_TEST, ok=ok, evidence=evidence.encode("utf-8", "backslashreplace").decode())
