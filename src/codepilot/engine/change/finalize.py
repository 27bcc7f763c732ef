"""FINALIZE: prove the change on a clean copy, attach the regression test, and write the bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from codepilot import __version__
from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.decide import Outcome, Refused, Succeeded
from codepilot.core.events import (
    BundleWritten,
    Event,
    EventDraft,
    EventType,
    PatchProposed,
    ProofRecorded,
    State,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import FollowUp, TaskKind, TaskOrigin
from codepilot.engine.change.commit import commit_wanted
from codepilot.engine.change.regression_test import attach_regression_test
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.kinds.build import hand_out, prove_build
from codepilot.engine.kinds.scaffold import prove_module
from codepilot.engine.memory.learning import learn
from codepilot.engine.work import Work
from codepilot.project import SuiteRun, command
from codepilot.repair import MutationScore, Spread, Variants, measure_spread, mutation_score, nearby_tests
from codepilot.telemetry import report, report_json, rfc3339, timeline, transcript
from codepilot.verify import (
    Baseline,
    BundleContents,
    Provenance,
    Versions,
    brings_tests,
    prove,
    sandbox_used,
    write_bundle,
)
from codepilot.workspace import git_version

_TYPES = {
    "patch.diff": ArtifactType.PATCH,
    "base.diff": ArtifactType.PATCH,
    "transcript.jsonl": ArtifactType.TRANSCRIPT,
    "timeline.json": ArtifactType.TIMELINE,
}
STRENGTH_SEC = 30.0
"""How long mutation testing of the changed code may take."""
SPREAD_SEC = 15.0
"""How long comparing the changed functions with the base's may take."""


def finalize(work: Work) -> Outcome:
    """Prove, propose follow-ups, commit, write the bundle and learn. A restart skips the parts that are recorded."""
    proposal = work.run.proposal
    if work.run.task.kind is TaskKind.QUESTION:
        return Succeeded("the answer is an artifact")
    if work.run.task.kind is TaskKind.PROMPT:
        return Succeeded("the change is a patch")
    if proposal is None:
        raise CodePilotError(FailureKind.INTERNAL, f"Run {work.run.run_id} has nothing to finalize.")
    context, baseline = work.settled()
    proof = work.recorded(ProofRecorded)
    if proof is None:
        attached: Sequence[EventDraft] = ()
        if work.run.task.scaffold is not None:
            proof = prove_module(work, context, baseline, proposal)
        elif work.run.task.kind is TaskKind.BUILD:
            proof = prove_build(work, context, baseline, proposal)
        else:
            proved = _prove(work, context, baseline, proposal)
            proof, attached = attach_regression_test(work, context, baseline, proved)
        work.step.raise_if_stopped()
        work.append([*attached, work.draft(EventType.PROOF_RECORDED, proof)])
        proposal = work.run.proposal or proposal
    if not proof.ok:
        return Refused(Failure(kind=FailureKind.PROOF_FAILED, message=proof.reason))
    proposed = _proposed(work.store.events(work.run.run_id))
    work.propose([one for one in _follow_ups(work.run) if one not in proposed])
    if work.recorded(BundleWritten) is None:
        if not context.objects.has_tree(proposal.tree):  # another machine proved it
            context.objects.apply(work.base.tree, work.artifacts.get(proposal.diff))
        commit_wanted(work, context)
        work.step.raise_if_stopped()  # a worker that lost its lease must not overwrite the bundle
        if work.run.task.kind is TaskKind.BUILD:
            hand_out(work, context)
        _hand_over(work, context, baseline, proposal)
    if work.run.task.kind not in (TaskKind.PROVE, TaskKind.SCAFFOLD):
        learn(work, context, baseline)
    return Succeeded(f"{proof.verdict}: {proof.reason}")


def _prove(work: Work, context: ExecutionContext, baseline: Baseline, proposal: PatchProposed) -> ProofRecorded:
    def measure(workspace: str, failing: Sequence[str]) -> MutationScore | None:
        seconds = min(STRENGTH_SEC, work.step.seconds_left() / 2)
        return strength_of(context, workspace, proposal.tree, baseline.targets, seconds, failing)

    def compare(workspace: str, suite: SuiteRun, versions: Variants) -> Spread:
        seconds = min(SPREAD_SEC, work.step.seconds_left() / 4)
        return spread_of(context, workspace, baseline.targets, suite, versions, seconds)

    budget = work.run.task.budget
    return prove(
        context.executor,
        context.objects,
        work.base.tree,
        work.artifacts.get(proposal.diff),
        context.project,
        baseline,
        workspace=work.workspace,
        create=context.request,
        command_sec=budget.command_sec,
        tree=proposal.tree,
        agreement=agreement_of(proposal),
        narrowed=work.run.narrowed,
        measure=measure,
        compare=compare,
        brings_tests=brings_tests(work.run.task, dirty=work.base.dirty),
        commands=work.run.task.accept,
    )


def agreement_of(proposal: PatchProposed) -> float | None:
    """The estimate of the model-free search; a model's claim about its own change is no evidence."""
    return proposal.patch.confidence if proposal.patch.searched else None


def strength_of(
    context: ExecutionContext,
    workspace: str,
    tree: str,
    targets: Sequence[str],
    seconds: float = STRENGTH_SEC,
    failing: Sequence[str] = (),
) -> MutationScore | None:
    """Mutate the changed Python functions and count the mutants that the tests notice; None for other languages."""
    if not context.project.is_python:
        return None
    changed = {path: before for path, before, after in context.objects.changes(context.base.tree, tree) if after}
    originals = {path: context.objects.read_blob(entry.oid) for path, entry in changed.items() if entry}
    paths = tuple(changed)
    return mutation_score(
        context.executor,
        workspace,
        context.project,
        paths,
        targets,
        seconds=seconds,
        originals=originals,
        failing=failing,
    )


def spread_of(
    context: ExecutionContext,
    workspace: str,
    targets: Sequence[str],
    suite: SuiteRun,
    versions: Variants,
    seconds: float = SPREAD_SEC,
) -> Spread:
    """Compare the changed Python functions with other versions on inputs like those of the tests."""
    path = next(iter(versions.base), "")
    if not context.project.is_python or not path:
        return Spread()
    tests, failing = nearby_tests(targets, suite, path)
    return measure_spread(context.executor, workspace, context.project, tests, failing, versions, seconds)


def _follow_ups(run: Run) -> list[FollowUp]:
    """Suggested next tasks, ready to be submitted."""
    origin = TaskOrigin(from_task=run.task.task_id)
    found = []
    after = run.proof.after if run.proof else None
    left: list[JsonValue] = [*after.failed, *after.errors] if after else []
    if left:
        found.append(
            FollowUp(title="Repair the tests that still fail", kind="bugfix", inputs={"tests": left}, origin=origin)
        )
    if run.proof and run.proof.verdict == "plausible" and run.proposal:
        paths: list[JsonValue] = [*run.proposal.patch.touched_files]
        title = "Strengthen the tests around the change"
        found.append(FollowUp(title=title, kind="change", inputs={"paths": paths}, origin=origin))
    return found


def _proposed(events: Sequence[Event]) -> list[FollowUp]:
    """The follow-ups that the run has proposed, in earlier attempts too."""
    return [event.data for event in events if isinstance(event.data, FollowUp)]


def _hand_over(work: Work, context: ExecutionContext, baseline: Baseline, proposal: PatchProposed) -> None:
    directory = work.home.bundles / work.run.run_id
    events = work.store.events(work.run.run_id)
    document = report(
        work.run,
        patch=str(directory / "patch.diff"),
        bundle=str(directory),
        log=str(work.home.logs / f"{work.run.run_id}.jsonl"),
        next_steps=_proposed(events),
        status=State.DONE,
    )
    done, clean = work.run.model_copy(update={"state": State.DONE}), work.runtime.redact
    contents = BundleContents(
        patch=work.artifacts.get(proposal.diff),
        base_diff=_base_diff(context),
        report=report_json(document, clean),
        transcript=transcript(events, clean),
        timeline=timeline(done, events, clean),
        provenance=_provenance(work, context, baseline, proposal, rfc3339(events[-1].at)).redacted(clean),
    )
    written = write_bundle(directory, contents)
    data = BundleWritten(path=str(written.path), sha256=written.sha256)
    if work.runtime.shared:
        files = _kept_files(work, written.path)
        tree = work.artifacts.put_stream(
            context.objects.export(proposal.tree, [context.base.tree]), ArtifactType.SNAPSHOT
        )
        data = data.model_copy(update={"files": files, "tree": tree})
        work.record(EventType.BUNDLE_WRITTEN, data, (*files.values(), tree))
    else:
        work.record(EventType.BUNDLE_WRITTEN, data)


def _kept_files(work: Work, directory: Path) -> dict[str, ArtifactRef]:
    """The bundle's files as artifacts, for other machines."""
    return {
        path.name: work.artifacts.put(path.read_bytes(), _TYPES.get(path.name, ArtifactType.REPORT))
        for path in sorted(directory.iterdir())
    }


def _base_diff(context: ExecutionContext) -> bytes:
    """The diff from the base commit to the pinned base: the uncommitted changes when the run began."""
    return context.objects.diff(context.base.commit_tree, context.base.tree).patch if context.base.dirty else b""


def _provenance(
    work: Work, context: ExecutionContext, baseline: Baseline, proposal: PatchProposed, at: str
) -> Provenance:
    run = work.run
    return Provenance(
        run_id=run.run_id,
        task=run.task,
        base_commit=work.base.commit,
        base_dirty=work.base.dirty,
        base_tree=work.base.tree,
        patched_tree=proposal.tree,
        targets=baseline.targets,
        signature=baseline.signature,
        suite=baseline.suite_kind,
        verdict=run.verdict,
        confidence=run.confidence,
        agreement=agreement_of(proposal),
        versions=Versions(
            codepilot=__version__,
            python=".".join(map(str, context.project.interpreter.version)),
            git=git_version(),
        ),
        commands=(baseline.suite.cmd or command(context.project),),
        sandbox=sandbox_used(context.executor.level),
        created_at=at,
        checkout=work.base.checkout,
        regression_test=run.proof.regression_test if run.proof else None,
    )
