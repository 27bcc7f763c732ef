"""`codepilot verify` for a build: the program is built from the bundle alone, and its tests run in the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from codepilot.core.artifacts import PolicyCheck
from codepilot.core.events import BasePinned, ProofRecorded
from codepilot.core.git_names import NO_COMMIT
from codepilot.engine.base import open_objects, repo_id
from codepilot.engine.execution_context import ExecutionContext, open_executor, seen_at
from codepilot.engine.runtime import Runtime
from codepilot.project import fresh_project, is_test, run_tests, summarise
from codepilot.sandbox import Wanted
from codepilot.store import new_id
from codepilot.verify import Baseline, ProgramBench, Provenance, empty_baseline, prove_program, rebuild_program


def verify_build(
    runtime: Runtime,
    directory: Path,
    provenance: Provenance,
    *,
    python: str | None,
    wanted: Wanted,
    on_progress: Callable[[str], None],
) -> ProofRecorded:
    """The proof of a build's bundle as it comes out here and now. The bundle's bytes were checked before."""
    settings, task, name = runtime.settings, provenance.task, new_id("v-")
    with (
        closing(open_executor(settings, wanted, settings.policy)) as executor,
        closing(open_objects(runtime.home, repo_id(task.repo))) as objects,
    ):
        empty = objects.write_tree({})
        base_tree, patch = rebuild_program(directory, provenance, objects, empty)
        base = BasePinned(
            repo_id=repo_id(task.repo), commit=NO_COMMIT, commit_tree=empty, tree=base_tree, checkout=task.repo
        )
        root = Path(task.repo)
        inside = task.repo if executor.remaps else seen_at(executor, objects, f"{name}-proof")
        language = task.language or "python"
        project = fresh_project(
            language, root, inside, settings.environ, runtime.home.envs, settings.project, python=python
        )
        context = ExecutionContext(executor, objects, base, project, settings.policy.hosts)
        seconds, baseline = task.budget.command_sec, empty_baseline()
        if any(is_test(path) for path in objects.read_tree(base_tree)):
            on_progress("running the given tests")
            place = f"{name}-base"
            try:
                context.create(place, base_tree)
                suite = run_tests(executor, place, project, (), seconds)
            finally:
                executor.delete(place)
            if suite.status == "finished":
                baseline = Baseline((), "", suite, summarise(suite), "full")
        on_progress("building the program and running its tests")
        bench = ProgramBench(executor, name, project, seconds)
        proof = prove_program(
            objects, base_tree, patch, provenance.patched_tree, baseline, bench, create=context.request
        )
    intact = PolicyCheck(name="bytes_are_intact", ok=True, evidence=f"{len(provenance.files)} files")
    return proof.model_copy(update={"checks": (intact, *proof.checks)})
