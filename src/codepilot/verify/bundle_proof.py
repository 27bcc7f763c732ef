"""Verify a bundle from nothing: its bytes, its base, the failure that it mends, and the change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from codepilot.core.artifacts import PolicyCheck
from codepilot.core.events import ProofRecorded
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import Executor
from codepilot.project import Project
from codepilot.verify.baseline import run_baseline
from codepilot.verify.bundle import BASE_DIFF, PATCH, Provenance, check_bundle, read_payload
from codepilot.verify.lacking import Missing
from codepilot.verify.proof import Compare, Create, Measure, RegressionCheck, prove
from codepilot.verify.proposed_change import brings_tests
from codepilot.verify.suite_runs import NOTHING_RUN, Baseline
from codepilot.workspace import ObjectStore

_DISPROVED = (FailureKind.TEST_ALREADY_PASSES, FailureKind.TEST_NOT_FOUND, FailureKind.FLAKY_TEST)
"""Failures of the baseline that disprove the bundle; any other means that this machine cannot check it."""


def verify_bundle(
    directory: Path,
    executor: Executor,
    objects: ObjectStore,
    project: Project,
    *,
    commit_tree: str,
    workspace: str,
    create: Create,
    expected: str | None = None,
    measure: Measure | None = None,
    missing: Missing | None = None,
    on_progress: Callable[[str], None] = lambda stage: None,
    compare: Compare | None = None,
) -> ProofRecorded:
    """Check every byte, rebuild base and change, and run the tests before and after.

    `commit_tree` is the tree of the recorded base commit, pinned into `objects` from a repository that has it.
    `expected` is the bundle's digest from the run's log, if that is available. Raises if bytes were altered or nothing
    can be run here; a claim that does not hold is returned as a failed proof. A regression test that fails here is a
    failed check and a part of the reason, and does not change the verdict: the base's tests judge the change.
    """
    provenance = check_bundle(directory, expected)
    patch = read_payload(directory, PATCH, provenance)
    intact = PolicyCheck(name="bytes_are_intact", ok=True, evidence=f"{len(provenance.files)} files")
    base_tree = rebuild_base(directory, provenance, objects, commit_tree)
    rebuilt = PolicyCheck(name="base_is_the_recorded_one", ok=True, evidence=base_tree)
    on_progress("running the tests before the change")
    try:
        baseline = _baseline(executor, project, provenance, base_tree, workspace, create, missing)
    except CodePilotError as error:
        if error.kind not in _DISPROVED:
            raise
        return _disproved((intact, rebuilt), error.failure.message)
    if baseline.signature != provenance.signature:
        reason = f"the tests fail in another way than recorded: {', '.join(baseline.targets)}"
        return _disproved((intact, rebuilt), reason)
    fails = PolicyCheck(name="fails_before", ok=True, evidence=", ".join(baseline.targets))
    on_progress("running the tests after the change")
    proof = prove(
        executor,
        objects,
        base_tree,
        patch,
        project,
        baseline,
        workspace=workspace,
        create=create,
        command_sec=provenance.task.budget.command_sec,
        tree=provenance.patched_tree,
        agreement=provenance.agreement,
        measure=measure,
        compare=compare,
        brings_tests=brings_tests(provenance.task, dirty=provenance.base_dirty),
        commands=provenance.task.accept,
    )
    proof = proof.model_copy(update={"checks": (intact, rebuilt, fails, *proof.checks)})
    test = provenance.regression_test
    if not proof.ok or test is None or not test.written:
        return proof
    on_progress("running the regression test before and after")
    command_sec = provenance.task.budget.command_sec
    check = RegressionCheck(executor, objects, project, create, f"{workspace}-proof", command_sec)
    return _with_test(proof, check.judge(test, base_tree, provenance.patched_tree))


def _with_test(proof: ProofRecorded, check: PolicyCheck) -> ProofRecorded:
    """The proof with the check of the regression test, which may have held only on the machine that wrote it."""
    failed = "" if check.ok else f"; but the regression test that came with it does not hold here: {check.evidence}"
    return proof.model_copy(update={"checks": (*proof.checks, check), "reason": proof.reason + failed})


def rebuild_program(directory: Path, provenance: Provenance, objects: ObjectStore, empty: str) -> tuple[str, bytes]:
    """The tree that a build started from, and its patch, both from the bundle alone."""
    return rebuild_base(directory, provenance, objects, empty), read_payload(directory, PATCH, provenance)


def rebuild_base(directory: Path, provenance: Provenance, objects: ObjectStore, commit_tree: str) -> str:
    """The tree that the run started from: the commit's tree with the uncommitted changes applied."""
    base_diff = read_payload(directory, BASE_DIFF, provenance)
    try:
        tree = objects.apply(commit_tree, base_diff) if base_diff else commit_tree
    except CodePilotError as error:
        if error.kind is not FailureKind.PATCH_CONFLICT:
            raise
        tree = ""
    if tree != provenance.base_tree:
        raise CodePilotError(
            FailureKind.PROOF_FAILED,
            f"The base cannot be rebuilt: {provenance.base_commit} with {BASE_DIFF} does not give the recorded tree.",
            "Pass the repository that the run worked on.",
            expected=provenance.base_tree,
            found=tree,
        )
    return tree


def _baseline(
    executor: Executor,
    project: Project,
    provenance: Provenance,
    tree: str,
    workspace: str,
    create: Create,
    missing: Missing | None,
) -> Baseline:
    place = f"{workspace}-base"
    if provenance.suite == "none" and provenance.task.judged_by_commands:
        return NOTHING_RUN
    try:
        executor.delete(place)
        executor.create(create(place, tree))
        command_sec = provenance.task.budget.command_sec
        narrowed = provenance.suite == "none"
        return run_baseline(
            executor, place, project, provenance.targets, command_sec, narrowed=narrowed, missing=missing
        )
    finally:
        executor.delete(place)


def _disproved(held: tuple[PolicyCheck, ...], reason: str) -> ProofRecorded:
    fails = PolicyCheck(name="fails_before", ok=False, evidence=reason)
    return ProofRecorded(
        ok=False, verdict=None, confidence=0.0, checks=(*held, fails), reason=f"The bundle does not hold: {reason}"
    )
