"""Tasks of kind build: the directory that they start from, the program's environment, and the files on the way.

The program's directory is a plain directory, which need not be a git repository. CodePilot writes each judged iteration
there. What a person changes there meanwhile is taken over into the next iteration.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from codepilot.core.events import (
    BasePinned,
    DependencyDegraded,
    EditsFound,
    EventType,
    OutputWritten,
    PatchProposed,
    ProofRecorded,
    SnapshotTaken,
    State,
    StepQueued,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.git_names import NO_COMMIT
from codepilot.core.task import TaskSpec
from codepilot.engine.execution_context import ExecutionContext, seen_at
from codepilot.engine.work import Work
from codepilot.executor import RunCommand
from codepilot.project import Project, fresh_project, is_test, run_tests, summarise
from codepilot.verify import Baseline, ProgramBench, empty_baseline, prove_program
from codepilot.workspace import Entry, ObjectStore, pin_directory, promote

LINEAGE = "builds"
"""All builds share their memories: a similar program may have been built elsewhere."""
OUTPUT = "output"
"""The dependency that degrades when a person changed files of the program's directory."""
MAX_DIFF = 12_000
WRITE_SEC = 60.0
_WRITER = """
import base64, json, os, pathlib, sys
for path, (content, executable) in json.load(sys.stdin).items():
    place = pathlib.Path(path)
    if content is None:
        place.unlink(missing_ok=True)
        continue
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(base64.b64decode(content))
    os.chmod(place, 0o755 if executable else 0o644)
"""


# The start ------------------------------------------------------------------------------------------


def pin_build(task: TaskSpec, identity: str, objects: ObjectStore) -> BasePinned:
    """The base of a build: nothing, or the files that its directory holds already."""
    directory = Path(task.repo)
    try:
        if not task.dry_run:
            directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CodePilotError(
            FailureKind.REPO_UNREACHABLE,
            f"The directory {directory} cannot be made: {os.strerror(error.errno or 0)}.",
            next_action="Name another one with --out.",
        ) from error
    return BasePinned(
        repo_id=identity,
        commit=NO_COMMIT,
        commit_tree=objects.write_tree({}),
        tree=pin_directory(directory, objects) if directory.is_dir() else objects.write_tree({}),
        checkout=os.fspath(directory),
        lineage=LINEAGE,
    )


def build_project(work: Work, objects: ObjectStore) -> Project:
    """How the program will be tested: by its language, since there may be nothing yet to detect."""
    task, base, executor, settings = work.run.task, work.base, work.executor, work.runtime.settings
    root = Path(base.checkout or task.repo)
    inside = str(root) if executor.remaps else seen_at(executor, objects, work.workspace)
    settings = settings.for_repository(root if root.is_dir() else None)
    project = fresh_project(
        task.language or "python", root, inside, settings.environ, work.home.envs, settings.project, python=task.python
    )
    return replace(project, hosts=task.test_hosts)


def build_baseline(work: Work, context: ExecutionContext) -> Baseline:
    """The tests that the given files bring and that pass before anything is made; usually there are none."""
    if not any(is_test(path) for path in context.objects.read_tree(work.base.tree)):
        return empty_baseline()
    suite = run_tests(context.executor, work.workspace, context.project, (), work.run.task.budget.command_sec)
    if suite.status != "finished":
        return empty_baseline()
    return Baseline((), "", suite, summarise(suite), "full")


# Iterations -----------------------------------------------------------------------------------------


def last_files(work: Work) -> str | None:
    """The snapshot in which the run left its files: an iteration goes on with them."""
    states: dict[str | None, State] = {}
    last = work.run.base_snapshot
    for event in work.store.events(work.run.run_id):
        if isinstance(event.data, StepQueued):
            states[event.step_id] = event.data.state
        elif isinstance(event.data, SnapshotTaken | PatchProposed) and states.get(event.step_id) is State.IMPLEMENT:
            last = event.data.snapshot
    return last


def take_edits(work: Work, context: ExecutionContext) -> None:
    """Bring into the workspace what a person changed in the program's directory, and record it for the agent."""
    directory = _directory(work)
    if directory is None or work.recorded(EditsFound) is not None:
        return
    objects, known = context.objects, work.run.output_tree or work.base.tree
    now = pin_directory(directory, objects)
    made = _proposed_tree(work, context, work.run.proposal) if work.run.proposal else known
    ours = objects.read_tree(made)
    edits = {
        path: after
        for path, _, after in objects.changes(known, now)
        if after != ours.get(path) and (after is None or after.mode in ("100644", "100755"))
    }
    if not edits:
        return
    _put(work, context, edits)
    diff = objects.diff(known, now).patch.decode("utf-8", "backslashreplace")
    found = EditsFound(directory=str(directory), tree=now, files=tuple(sorted(edits)), diff=diff[:MAX_DIFF])
    work.append([work.draft(EventType.EDITS_FOUND, found), *work.snapshot_events(work.snapshot())])


def _proposed_tree(work: Work, context: ExecutionContext, proposal: PatchProposed) -> str:
    """The tree of the proposal, in the objects of this home: the workspace has objects of its own."""
    if not context.objects.has_tree(proposal.tree):
        context.objects.apply(work.base.tree, work.artifacts.get(proposal.diff))
    return proposal.tree


def _put(work: Work, context: ExecutionContext, files: dict[str, Entry | None]) -> None:
    """Write a person's files into the workspace."""
    read = context.objects.read_blob
    contents = {path: None if entry is None else read(entry.oid) for path, entry in files.items()}
    _write(work, context, contents, [path for path, entry in files.items() if entry and entry.mode == "100755"])


def complete(work: Work, context: ExecutionContext) -> None:
    """Give the program the README and the list of requirements that its agent left out, so that people can use it."""
    task = work.run.task
    changes = context.executor.diff(work.workspace, work.base.tree).changes
    made = [one.path for one in changes if one.change != "deleted"]
    there = {*made, *context.objects.read_tree(work.base.tree)} - {
        one.path for one in changes if one.change == "deleted"
    }
    language = task.language or "python"
    tests = any(is_test(path) for path in there)
    if not made or not tests:
        return  # there is no program yet
    added: dict[str, bytes | None] = {}
    if not any(path.lower().startswith("readme") for path in there):
        added["README.md"] = readme(Path(task.repo).name, task.goal.natural, language).encode()
    if language == "python" and not there & {"requirements.txt", "pyproject.toml", "setup.py", "setup.cfg"}:
        packages = dict.fromkeys(name for one in work.run.environments for name in one.packages)
        added["requirements.txt"] = "".join(f"{name}\n" for name in packages).encode()
    if language == "node" and "package.json" not in there:
        package = {"name": "program", "private": True, "scripts": {"test": "node --test"}}
        added["package.json"] = (json.dumps(package, indent=2) + "\n").encode()
    if added:
        _write(work, context, added)


def readme(name: str, task: str, language: str) -> str:
    """A README that says what the program does and how it is tested."""
    how = {
        "python": "python -m pip install -r requirements.txt pytest hypothesis\npython -m pytest",
        "node": "npm install\nnpm test",
        "java": "mvn test",
    }
    return f"# {name}\n\n{task}\n\n## Test\n\n```sh\n{how[language]}\n```\n"


def _write(
    work: Work, context: ExecutionContext, files: dict[str, bytes | None], executable: Collection[str] = ()
) -> None:
    """Write files into the workspace, inside the sandbox: the host never writes to an agent's tree."""
    content = {
        path: (None if data is None else base64.b64encode(data).decode(), path in executable)
        for path, data in files.items()
    }
    python = context.project.interpreter.executable
    done = context.executor.run_command(
        RunCommand(
            workspace=work.workspace,
            argv=(python, "-I", "-S", "-c", _WRITER),
            stdin=json.dumps(content).encode(),
            timeout_sec=WRITE_SEC,
        )
    )
    if done.status != "ok" or done.exit_code != 0:
        errors = done.stderr[-300:].decode("utf-8", "replace")
        raise CodePilotError(FailureKind.TOOL_FAILED, f"Files of the program could not be written: {errors}")


def write_output(work: Work, context: ExecutionContext) -> None:
    """Write the proposed files to the program's directory. A file that a person changed meanwhile is never replaced."""
    directory, proposal = _directory(work), work.run.proposal
    if directory is None or proposal is None or work.run.task.dry_run:
        return
    known = work.run.output_tree or work.base.tree
    if known == proposal.tree:
        return
    journal = work.home.bundles / f"{work.run.run_id}.output.json"
    try:
        files = promote(directory, context.objects, known, _proposed_tree(work, context, proposal), journal)
    except CodePilotError as error:
        if error.kind is not FailureKind.PATCH_CONFLICT:
            raise
        return  # the next iteration takes the person's files over; at the end the conflict is reported
    written = OutputWritten(directory=str(directory), tree=proposal.tree, files=files)
    work.record(EventType.OUTPUT_WRITTEN, written)


def prove_build(work: Work, context: ExecutionContext, baseline: Baseline, proposal: PatchProposed) -> ProofRecorded:
    """Build the proposed files on a clean copy and run their tests there."""
    seconds = work.run.task.budget.command_sec
    bench = ProgramBench(context.executor, work.workspace, context.project, seconds)
    patch = work.artifacts.get(proposal.diff)
    return prove_program(context.objects, work.base.tree, patch, proposal.tree, baseline, bench, create=context.request)


def hand_out(work: Work, context: ExecutionContext) -> None:
    """Write the proved files to the program's directory, and report those that a person changed meanwhile."""
    write_output(work, context)
    if changed := output_conflicts(work, context):
        failure = Failure(
            kind=FailureKind.PATCH_CONFLICT,
            message=f"{len(changed)} file(s) in {work.base.checkout} differ from what was proved: "
            + ", ".join(changed[:10]),
            next_action=f"Keep them, or see what was proved with `codepilot diff {work.run.run_id}`.",
        )
        degraded = DependencyDegraded(
            dependency=OUTPUT, consequence="your files were left as they are", failure=failure
        )
        work.record(EventType.DEPENDENCY_DEGRADED, degraded)


def output_conflicts(work: Work, context: ExecutionContext) -> tuple[str, ...]:
    """The files of the program that a person changed in its directory, so that they are not what was proved."""
    directory, proposal = _directory(work), work.run.proposal
    if directory is None or proposal is None or work.run.task.dry_run:
        return ()
    now = context.objects.read_tree(pin_directory(directory, context.objects))
    proved = context.objects.read_tree(_proposed_tree(work, context, proposal))
    return tuple(path for path, entry in proved.items() if now.get(path) != entry)


def _directory(work: Work) -> Path | None:
    """The program's directory, if it is on this machine."""
    place = Path(work.base.checkout or work.run.task.repo)
    return place if place.is_dir() else None
