"""A change that somebody else made: which of it are tests, and whether it weakens tests that were there.

Its tests become a part of the base, so that they fail there and pass with the rest of the change. The tests that it
alters must also pass in their base form, and keep their assertions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codepilot.core.artifacts import Gate, TestResult
from codepilot.core.task import TaskKind, TaskSpec
from codepilot.executor import CreateWorkspace, DiffResult, Executor, FileChange
from codepilot.project import Project, is_test, run_tests
from codepilot.verify.configuration import bends_runner
from codepilot.verify.proof import Create, judged_tree
from codepilot.verify.suite_runs import Baseline, run_gate
from codepilot.verify.verdict import summary
from codepilot.workspace import Entry, ObjectStore

MAX_SHOWN = 5


def tree_with_tests(objects: ObjectStore, base: str, changed: str) -> str:
    """The base with the tests that the change adds or alters, without what configures the runner.

    Deleted tests stay.
    """
    entries = objects.read_tree(base)
    for path, before, after in objects.changes(base, changed):
        if after is not None and is_test(path) and not _bends(objects, path, before, after):
            entries[path] = after
    return objects.write_tree(entries)


def brings_tests(task: TaskSpec, *, dirty: bool) -> bool:
    """True if a change that is judged has tests of its own: they make its base differ from the commit."""
    return task.kind is TaskKind.PROVE and not task.tests and dirty


def _bends(objects: ObjectStore, path: str, before: Entry | None, after: Entry) -> bool:
    def content(entry: Entry | None) -> bytes | None:
        return None if entry is None or entry.mode == "160000" else objects.read_blob(entry.oid)

    return bends_runner(path, content(before), content(after))


def change_between(objects: ObjectStore, before: str, after: str) -> DiffResult:
    """The difference of two trees in the form that reviews read."""
    diff = objects.diff(before, after)
    changes = tuple(
        FileChange(path=one.path, change=one.kind, old_mode=one.old_mode, new_mode=one.new_mode, binary=one.binary)
        for one in diff.changes
    )
    return DiffResult(patch=diff.patch, base_tree=before, tree=after, changes=changes)


# The tests in their base form -----------------------------------------------------------------------


@dataclass(frozen=True)
class BaseTests:
    """Runs the tests of the base, in their base form, on the changed code."""

    executor: Executor
    objects: ObjectStore
    project: Project
    create: Create
    workspace: str
    command_sec: float

    def judge(self, base: str, changed: str, red: Sequence[str] = ()) -> Gate:
        """`base` is the tree without any of the change, `changed` the tree with all of it.

        `red` are the tests that fail after the change: those that it brought must not.
        """
        judged, restored = judged_tree(self.objects, base, changed)
        if not restored and not red:
            return Gate(name="base_tests", ok=None, evidence="the change alters no test that was there")
        there = f"{self.workspace}-base"
        try:
            self._make(there, base)
            suite = run_tests(self.executor, there, self.project, (), self.command_sec)
            if self.project.is_python and suite.status == "cannot_start" and suite.red:
                suite = replace(suite, status="finished")  # it ran to its end: every file of tests failed to load
            baseline = Baseline((), "", suite, summary(suite), "full")
            if suite.status != "finished":
                return Gate(name="base_tests", ok=None, evidence=f"the suite of the base did not end: {suite.message}")
            forms = [("in their base form", judged)] if restored else []
            for form, tree in (*forms, ("as the change leaves them", changed)):
                result, where = self._result(tree, baseline), form
                if not result.passed:
                    break
        finally:
            self.executor.delete(there)
        why = [f"{one.test} ({one.message or one.error_type})" for one in result.errors[:MAX_SHOWN]]
        evidence = ", ".join(why or restored[:MAX_SHOWN]) or "the tests of the change"
        return Gate(
            name="base_tests",
            before=f"{baseline.summary.passed} pass",
            after=f"{result.summary.passed} pass, {len(result.errors)} broken",
            ok=result.passed,
            evidence=f"{where}: {evidence}".encode("utf-8", "backslashreplace").decode(),
        )

    def _result(self, tree: str, baseline: Baseline) -> TestResult:
        """The suite on this tree, compared with that of the base."""
        here = f"{self.workspace}-copy"
        try:
            self._make(here, tree)
            return run_gate(
                self.executor, here, self.project, baseline, self.command_sec, lambda: f"{self.workspace}-base"
            )
        finally:
            self.executor.delete(here)

    def _make(self, place: str, tree: str) -> None:
        self.executor.delete(place)
        request: CreateWorkspace = self.create(place, tree)
        self.executor.create(request)
