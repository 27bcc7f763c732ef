"""The change that a run found: shown, written into its checkout, committed to a branch, or packed."""

from __future__ import annotations

import zipfile
from contextlib import closing
from pathlib import Path
from typing import IO

from codepilot.core.commit import CommitRecorded
from codepilot.core.events import BasePinned, BundleWritten, EventDraft, EventType, PatchApplied, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import TaskKind
from codepilot.engine.base import fetch_base, open_objects
from codepilot.engine.change.commit import commit_change
from codepilot.engine.close import open_log
from codepilot.engine.runtime import Runtime
from codepilot.workspace import ObjectStore, is_url, promote, shown

_FILES = {"100644": 0o644, "100755": 0o755}
"""The modes of regular files. Links are left out: nobody should have to trust where they lead."""


def patch_of(runtime: Runtime, run: Run) -> bytes:
    """The change of a run as any git can apply it; nothing if it has none."""
    if run.base is None or run.proposal is None or run.proposal.refused_by:
        return b""
    if run.state is not State.DONE and run.task.attempt is None:
        return runtime.artifacts.get(run.proposal.diff)
    with closing(changed_objects(runtime, run, run.base)) as objects:
        return objects.patch_for_sha1(run.base.untouched, run.proposal.tree)


def changed_objects(runtime: Runtime, run: Run, base: BasePinned) -> ObjectStore:
    """The repository's objects with the changed tree, fetched if the run was finished on another machine."""
    objects = open_objects(runtime.home, base.repo_id)
    if run.proposal is not None and not objects.has_tree(run.proposal.tree):
        fetch_base(runtime, base, objects)
        for event in reversed(runtime.store.events(run.run_id)):
            if isinstance(event.data, BundleWritten) and event.data.tree is not None:
                objects.receive(runtime.artifacts.stream(event.data.tree))
                break
        else:
            objects.apply(base.tree, runtime.artifacts.get(run.proposal.diff))
    return objects


def apply_run(runtime: Runtime, run_id: str, *, accept_plausible: bool, by: str = "user") -> PatchApplied:
    """Refused unless the change was proved, is trusted, and every touched file is still as it was."""
    run = runtime.store.load(run_id)
    if run.state is not State.DONE or run.proposal is None or run.base is None or run.base.checkout is None:
        raise _nothing(run)
    if is_url(run.task.repo):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Run {run_id} worked on a clone of {run.task.repo}; there is no checkout of yours to write to.",
            next_action=f"In your checkout run: codepilot diff {run_id} | git apply",
        )
    if run.task.dry_run:
        raise dry_run_refusal(run_id)
    require_settled(run)
    if run.verdict != "confirmed" and not accept_plausible:
        raise CodePilotError(
            FailureKind.DENIED,
            f"The change of {run_id} is only plausible: the tests around it are too weak to trust it unread.",
            next_action=f"Read `codepilot diff {run_id}`, then add --accept-plausible.",
        )
    try:
        journal = runtime.home.bundles / f"{run_id}.apply.json"
        with closing(changed_objects(runtime, run, run.base)) as objects:
            if run.task.starts_empty:
                _make_directory(Path(run.base.checkout), journal)
            files = promote(Path(run.base.checkout), objects, run.base.untouched, run.proposal.tree, journal)
    except CodePilotError as error:
        if error.kind is not FailureKind.PATCH_CONFLICT:
            raise
        raise CodePilotError(FailureKind.INVALID_SPEC, error.failure.message, error.failure.advice) from error
    applied = PatchApplied(checkout=run.base.checkout, files=run.proposal.patch.touched_files, by=by)

    def record(current: Run) -> list[EventDraft]:
        return [
            EventDraft(type=EventType.PATCH_APPLIED, data=applied, step_id=current.step_id, attempt=current.attempt)
        ]

    if not any(isinstance(event.data, PatchApplied) for event in runtime.store.events(run_id)):
        runtime.store.control(run_id, record)
        open_log(runtime, run_id).close()
    return applied.model_copy(update={"files": files})


def require_settled(run: Run) -> None:
    """Refuse a change while a checkpoint with a violation of severity error or critical is not settled."""
    if run.chain.blocked_by:
        raise CodePilotError(
            FailureKind.POLICY_VIOLATION,
            f"Checkpoint {run.chain.blocked_by} of {run.run_id} breaks a rule, and no later one is valid.",
            next_action=f"See `codepilot checkpoints {run.run_id}`.",
        )


def dry_run_refusal(run_id: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.DENIED,
        f"Run {run_id} was a dry run: its change is only shown.",
        next_action=f"Read `codepilot diff {run_id}`, then run the task without --dry-run.",
    )


def _make_directory(place: Path, journal: Path) -> None:
    """The new directory of a module; one that exists is refused, unless this very call was interrupted."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir()
    except FileExistsError as error:
        if not journal.exists() and not _is_empty(place):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{place} exists, and nothing there is overwritten.",
                next_action="Move it away, then apply again.",
            ) from error
    except OSError as error:
        raise CodePilotError(
            FailureKind.REPO_UNREACHABLE, f"{place} cannot be made: {error.strerror}.", next_action="Choose another."
        ) from error


def _is_empty(place: Path) -> bool:
    """True for a directory in which there is nothing, as a call leaves it that was interrupted at once."""
    try:
        return not place.is_symlink() and next(place.iterdir(), None) is None
    except OSError:
        return False


def commit_run(runtime: Runtime, run_id: str, branch: str, *, accept_plausible: bool) -> CommitRecorded:
    """Instead of the checkout, a new branch gets the change, as a commit. Refused as `apply_run` refuses."""
    run = runtime.store.load(run_id)
    if run.state is not State.DONE or run.proposal is None or run.base is None:
        raise _nothing(run)
    if run.task.dry_run:
        raise dry_run_refusal(run_id)
    require_settled(run)
    with closing(changed_objects(runtime, run, run.base)) as objects:
        events = runtime.store.events(run_id)
        committed = commit_change(run, events, objects, branch, accept_plausible=accept_plausible)

    def record(current: Run) -> list[EventDraft]:
        if current.committed == committed:
            return []
        return [
            EventDraft(type=EventType.COMMIT_RECORDED, data=committed, step_id=current.step_id, attempt=current.attempt)
        ]

    runtime.store.control(run_id, record)
    open_log(runtime, run_id).close()
    return committed


def _nothing(run: Run) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"Run {run.run_id} is {run.state} and has no proved change to apply.",
        next_action=f"See `codepilot show {run.run_id}`.",
    )


def makes_program(run: Run) -> bool:
    """True if the run made a directory of its own instead of changing a repository."""
    return run.task.kind is TaskKind.BUILD or run.task.starts_empty


def pack_program(runtime: Runtime, run: Run, into: IO[bytes]) -> None:
    """Write the proposed files as a zip archive."""
    if not makes_program(run) or run.base is None or run.proposal is None:
        raise CodePilotError(
            FailureKind.PATH_NOT_FOUND,
            f"Run {run.run_id} has made no program.",
            next_action=f"See its change: codepilot diff {run.run_id}",
        )
    with closing(changed_objects(runtime, run, run.base)) as objects, zipfile.ZipFile(into, "w") as archive:
        for path, entry in sorted(objects.read_tree(run.proposal.tree).items()):
            if (mode := _FILES.get(entry.mode)) is None:
                continue
            about = zipfile.ZipInfo(shown(path))
            about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            archive.writestr(about, objects.read_blob(entry.oid))
