"""`codepilot verify`: prove a bundle again from nothing but its bytes and a repository that has its base commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from codepilot.core.events import BasePinned, BundleWritten, ProofRecorded
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskKind
from codepilot.engine.base import local_checkout, open_objects, pin
from codepilot.engine.change.finalize import spread_of, strength_of
from codepilot.engine.execution_context import ExecutionContext, find_project, open_executor, seen_at
from codepilot.engine.kinds.build_check import verify_build
from codepilot.engine.runtime import Runtime
from codepilot.engine.task import absolute
from codepilot.project import Dependencies, SuiteRun
from codepilot.repair import MutationScore, Spread, Variants
from codepilot.sandbox import Wanted
from codepilot.store import new_id
from codepilot.verify import Missing, Provenance, check_bundle
from codepilot.verify import verify_bundle as prove_bundle
from codepilot.workspace import is_url


@dataclass(frozen=True)
class Checking:
    """What the one who checks decides. A bundle may come from anywhere, so nothing of this is taken from it."""

    repo: Path | None = None
    python: str | None = None
    unsafe_no_sandbox: bool = False
    on_progress: Callable[[str], None] = lambda stage: None


def verify_bundle(runtime: Runtime, directory: Path, checking: Checking) -> ProofRecorded:
    """The proof as it comes out here and now; altered bytes and an unreachable base are errors."""
    on_progress = checking.on_progress
    on_progress("checking the bundle's bytes")
    expected = _recorded_digest(runtime, directory)
    provenance = check_bundle(directory, expected)
    if provenance.task.kind is TaskKind.BUILD:
        level: Wanted = "none" if checking.unsafe_no_sandbox else runtime.settings.sandbox.level
        python = absolute(checking.python)
        return verify_build(runtime, directory, provenance, python=python, wanted=level, on_progress=on_progress)
    on_progress("fetching the base commit")
    base = _commit(runtime, provenance, checking.repo)
    task = provenance.task.model_copy(update={"python": absolute(checking.python)})
    settings = runtime.settings
    wanted: Wanted = "none" if checking.unsafe_no_sandbox else settings.sandbox.level
    name = new_id("v-")
    with (
        closing(open_executor(settings, wanted, settings.policy)) as executor,
        closing(open_objects(runtime.home, base.repo_id)) as objects,
    ):
        root = local_checkout(runtime.home, base, objects)
        inside = partial(seen_at, executor, objects, f"{name}-proof")
        project = find_project(task, base, root, executor, inside, settings, settings.policy.test_hosts)
        carry = settings.for_repository(root).project.carry
        context = ExecutionContext(executor, objects, base, project, settings.policy.hosts, carry)

        def measure(workspace: str, failing: Sequence[str]) -> MutationScore | None:
            on_progress("trying mutants of the changed code")
            targets = provenance.targets
            return strength_of(context, workspace, provenance.patched_tree, targets, failing=failing)

        def compare(workspace: str, suite: SuiteRun, versions: Variants) -> Spread:
            return spread_of(context, workspace, provenance.targets, suite, versions)

        return prove_bundle(
            directory,
            context.executor,
            context.objects,
            project,
            commit_tree=base.tree,
            workspace=name,
            create=context.request,
            expected=expected,
            measure=measure,
            missing=Missing(Dependencies(root, project.folder).facts, may_be_written=True),
            on_progress=on_progress,
            compare=compare,
        )


def _commit(runtime: Runtime, provenance: Provenance, repo: Path | None) -> BasePinned:
    """The base commit's own tree, from the repository named, or the one the run worked on."""
    where = str(repo.resolve()) if repo is not None else provenance.task.repo
    if is_url(where) and repo is None:
        raise CodePilotError(
            FailureKind.REPO_UNREACHABLE,
            f"The bundle was made from {where}, which is not fetched on a bundle's word alone.",
            next_action="Clone it yourself, and name the clone with --repo.",
        )
    task = provenance.task.model_copy(update={"repo": where, "ref": provenance.base_commit, "proposed": None})
    try:
        return pin(task, runtime.home, runtime.settings.service.repository_hosts)
    except CodePilotError as error:
        if error.kind not in (FailureKind.REF_NOT_FOUND, FailureKind.REPO_UNREACHABLE):
            raise
        raise CodePilotError(
            error.kind,
            f"The base commit {provenance.base_commit[:12]} cannot be had from {where}: {error.failure.message}",
            next_action="Name a clone that has it with --repo.",
        ) from error


def _recorded_digest(runtime: Runtime, directory: Path) -> str | None:
    """The digest that this home's own log has for a bundle that lies here."""
    run_id = directory.resolve().name
    if directory.resolve().parent != runtime.home.bundles.resolve():
        return None
    events = runtime.store.events(run_id)
    digests = [event.data.sha256 for event in events if isinstance(event.data, BundleWritten)]
    return digests[-1] if digests else None
