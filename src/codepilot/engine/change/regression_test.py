"""Attach a regression test to a confirmed repair of the model-free engine.

A plausible repair gets no test, because the test would fix a guess as a rule. The test is proved separately, on clean
copies of the base and the change. If none can be written or its proof fails, the repair stays as it was proved and the
reason is recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from codepilot.agents import write_file
from codepilot.core.areas import outside
from codepilot.core.artifacts import ArtifactType, PolicyCheck, RegressionTest
from codepilot.core.events import EventDraft, PatchProposed, ProofRecorded
from codepilot.core.failures import CodePilotError, FailureKind, Origin
from codepilot.core.text import decoded
from codepilot.engine.change.proposal import broken_rules, check_change, proposal_events, restore
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.work import Work
from codepilot.project import is_test
from codepilot.repair import (
    DistinguishingInputs,
    DistinguishingRequest,
    Unwritable,
    find_distinguishing_inputs,
    nearby_tests,
    write_test,
)
from codepilot.verify import Baseline, RegressionCheck, judged_tree, tree_checks
from codepilot.verify.testcode import is_documented

LEAST_SEC = 20.0
"""With less time than this left no test is written."""
DISTINGUISHING_SEC = 20.0
TRIES = 2
"""The number of different tests that are tried at most."""

_log = logging.getLogger(__name__)


class _NoTest(Exception):
    """No test is attached; the message is the reason."""


def attach_regression_test(
    work: Work, context: ExecutionContext, baseline: Baseline, proof: ProofRecorded
) -> tuple[ProofRecorded, list[EventDraft]]:
    """Return the proof with the test or the reason for none, and the events that add the test to the change."""
    proposal = work.run.proposal
    if proposal is None or not proof.ok or not proposal.patch.searched or not work.run.task.policy.regression_test:
        return proof, []
    try:
        if proof.verdict != "confirmed":
            raise _NoTest("the repair is only plausible, and a test would make a rule of it")
        return _Attachment(work, context, baseline, proof, proposal).made()
    except _NoTest as none:
        why = str(none)
    except CodePilotError as error:
        if error.failure.handling.origin not in (Origin.INPUT, Origin.WORK):
            raise
        why = error.failure.message
    except Exception as error:  # noqa: BLE001 - a defect must not cost the repair; a stop is raised again below
        _log.exception("writing a regression test failed", extra={"run_id": work.run.run_id})
        why = f"writing one failed: {type(error).__name__}"
    work.step.raise_if_stopped()
    return proof.model_copy(update={"regression_test": RegressionTest(reason=why)}), []


@dataclass(frozen=True)
class _Attachment:
    work: Work
    context: ExecutionContext
    baseline: Baseline
    proof: ProofRecorded
    proposal: PatchProposed

    def made(self) -> tuple[ProofRecorded, list[EventDraft]]:
        if self.work.step.seconds_left() < LEAST_SEC:
            raise _NoTest("no time was left to write one")
        why = "no input tells base and repair apart"
        for test, content in self._written():
            check = self._check(test, content)
            self.work.step.raise_if_stopped()
            if check.ok:
                return self._attached(test, content, check)
            why = check.evidence
        raise _NoTest(why)

    # --- writing it -----------------------------------------------------------------------------------

    def _written(self) -> Iterator[tuple[RegressionTest, bytes]]:
        """Candidate tests, the simplest first."""
        if any(_is_example(test) for test in self.baseline.targets):
            raise _NoTest("the failing test is a doctest")
        found = self._distinguishing_inputs()
        place, subject = found.place, found.subject
        if not found.examples or place is None or subject is None:
            raise _NoTest(found.reason)
        if not is_test(place.path) or outside(self.work.run.plan, (place.path,)):
            raise _NoTest(f"{place.path} is no file that tests may be added to")
        before = self._content(self.work.base.tree, place.path)
        unwritable = ""
        for number in range(min(TRIES, len(found.examples))):
            try:
                written = write_test(before, place, subject, found.examples[number:], found.things or {})
            except Unwritable as error:
                unwritable = unwritable or str(error)
                continue
            yield RegressionTest(test=place.sibling(written.name), path=place.path), written.content
        if unwritable:
            raise _NoTest(unwritable)

    def _distinguishing_inputs(self) -> DistinguishingInputs:
        """Search for inputs on which base and repair differ, on a clean copy of the base."""
        (path,) = self.proposal.patch.touched_files
        tests, targets = nearby_tests(self.baseline.targets, self.baseline.suite, path)
        place = f"{self.work.workspace}-proof"
        executor = self.context.executor
        executor.delete(place)
        try:
            self.context.create(place, self.work.base.tree)
            return find_distinguishing_inputs(
                DistinguishingRequest(
                    executor=executor,
                    workspace=place,
                    project=self.context.project,
                    tests=tests,
                    targets=targets,
                    path=path,
                    original=self._content(self.work.base.tree, path),
                    patched=self._content(self.proposal.tree, path),
                    others=tuple(self._others(path)),
                    seconds=min(DISTINGUISHING_SEC, self.work.step.seconds_left() / 4),
                    raise_if_stopped=self.work.step.raise_if_stopped,
                )
            )
        finally:
            executor.delete(place)

    def _others(self, path: str) -> Iterator[bytes]:
        """The contents of the file in the alternative repairs."""
        encoding = decoded(self._content(self.work.base.tree, path))[1]
        for diff in self.proposal.patch.alternatives:
            try:
                tree = self.context.objects.apply(self.work.base.tree, diff.encode(encoding, "replace"))
            except CodePilotError as error:
                if error.kind is not FailureKind.PATCH_CONFLICT:
                    raise
            else:
                yield self._content(tree, path)

    def _content(self, tree: str, path: str) -> bytes:
        return self.context.objects.read_blob(self.context.objects.read_tree(tree)[path].oid)

    # --- proving it -----------------------------------------------------------------------------------

    def _check(self, test: RegressionTest, content: bytes) -> PolicyCheck:
        """Check that the test fails on the base, passes on the change, and does not break its neighbours."""
        return RegressionCheck(
            self.context.executor,
            self.context.objects,
            self.context.project,
            self.context.request,
            f"{self.work.workspace}-proof",
            self.work.run.task.budget.command_sec,
            self.baseline.suite,
        ).judge(test, self.work.base.tree, self._with_test(test, content))

    def _with_test(self, test: RegressionTest, content: bytes) -> str:
        """The tree of the change with the test in it."""
        objects = self.context.objects
        entries = objects.read_tree(self.proposal.tree)
        entries[test.path] = entries[test.path]._replace(oid=objects.write_blob(content))
        return objects.write_tree(entries)

    def _attached(
        self, test: RegressionTest, content: bytes, check: PolicyCheck
    ) -> tuple[ProofRecorded, list[EventDraft]]:
        """Write the test into the workspace and check the whole change again by policy, review and judged tree."""
        work, context, base = self.work, self.context, self.work.base.tree
        restore(work, context, self.proposal.snapshot)
        write_file(work.step_context(context, self.baseline), test.path, content)
        diff, taken = context.executor.diff(work.workspace, base), work.snapshot()
        judged_before = {*self.proposal.patch.touched_files} - {test.path}  # a person may have allowed them
        broken = [one for one in broken_rules(work, diff, "test_writer") if one.path not in judged_before]
        if broken:
            raise _NoTest(f"{broken[0].path} may not be changed ({broken[0].rule})")
        if {diff.tree, taken.tree} != {self._with_test(test, content)}:
            raise _NoTest("the workspace changed while it was being examined")
        if (review := check_change(work, context)).verdict != "APPROVE":
            raise _NoTest(f"the review refused it: {review.reasons[0]}")
        judged = [judged_tree(context.objects, base, tree)[0] for tree in (self.proposal.tree, diff.tree)]
        if judged[0] != judged[1]:
            raise _NoTest(f"with it other files would be taken from the base than {test.path}")
        work.step.raise_if_stopped()
        renewed = tree_checks(context.objects, base, diff.tree, diff.tree)
        names = {one.name for one in renewed}
        checks = (*renewed, *(one for one in self.proof.checks if one.name not in names), check)
        stored = work.artifacts.put(diff.patch, ArtifactType.PATCH)
        events = proposal_events(work, self.proposal.patch, diff, taken.snapshot, stored, ())
        return self.proof.model_copy(update={"checks": checks, "regression_test": test}), events


def _is_example(test: str) -> bool:
    """True for a doctest, of a module or of a text file."""
    path, mark, _ = test.partition("::")
    return is_documented(test) or (bool(mark) and not path.endswith(".py"))
