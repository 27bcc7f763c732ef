"""Moves snapshots between machines: stored as artifacts where machines share a store, and fetched again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from codepilot.core.artifacts import ArtifactType
from codepilot.core.events import DependencyDegraded, EventDraft, EventType, PatchProposed, SnapshotKept
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.execution_context import ExecutionContext, leased_workspaces
from codepilot.store import ArtifactDamaged, ArtifactMissing
from codepilot.workspace import ObjectStore, Workspace

if TYPE_CHECKING:
    from codepilot.engine.work import Work


def keep_snapshot(work: Work, snapshot: str) -> list[EventDraft]:
    """Store the snapshot as an artifact; the events to record with the snapshot, or before it.

    A snapshot without its artifact is lost with its machine. While the artifact store is away the run continues on this
    machine only.
    """
    if not work.runtime.shared or _kept(work, snapshot) is not None:
        return []
    try:
        stream = work.executor.export_snapshot(work.workspace, snapshot)
        ref = work.artifacts.put_stream(stream, ArtifactType.SNAPSHOT)
    except CodePilotError as error:
        if error.kind is not FailureKind.ARTIFACT_STORE_UNAVAILABLE:
            raise
        consequence = "no other machine can go on from here until the next snapshot is kept"
        degraded = DependencyDegraded(dependency="artifacts", consequence=consequence, failure=error.failure)
        return [work.draft(EventType.DEPENDENCY_DEGRADED, degraded)]
    return [work.draft(EventType.SNAPSHOT_KEPT, SnapshotKept(snapshot=snapshot, kept=ref), (ref,))]


def restore_snapshot(work: Work, context: ExecutionContext, snapshot: str) -> bool:
    """Restore the workspace to a snapshot from the first source that has it; false if none has."""
    sources: tuple[Callable[[], str | None], ...] = (
        lambda: snapshot,
        lambda: _from_beside(work, context, snapshot),
        lambda: _from_artifacts(work, snapshot),
        lambda: _made_again(work, context, snapshot),
    )
    for source in sources:
        try:
            if (found := source()) is not None:
                context.executor.restore(work.workspace, found)
                return True
        except (ArtifactMissing, ArtifactDamaged):
            continue
        except CodePilotError as error:
            if error.kind is not FailureKind.PATH_NOT_FOUND:
                raise
    return False


def read_snapshot(directory: Path, objects: ObjectStore, snapshot: str) -> Iterator[bytes] | None:
    """Export a snapshot of a workspace of this machine, which another process may be using."""
    workspace = Workspace(directory, objects)
    if not workspace.exists:
        return None
    try:
        return workspace.export_snapshot(snapshot)
    except CodePilotError as error:
        if error.kind is not FailureKind.PATH_NOT_FOUND:
            raise
        return None


def _from_beside(work: Work, context: ExecutionContext, snapshot: str) -> str | None:
    """From another workspace of the run in this home, whose worker lost it."""
    for name in leased_workspaces(work.home, work.run.run_id):
        if name != work.workspace:
            chunks = read_snapshot(work.home.workspaces / name, context.objects, snapshot)
            if chunks is not None:
                return work.executor.import_snapshot(work.workspace, chunks).snapshot
    return None


def _from_artifacts(work: Work, snapshot: str) -> str | None:
    kept = _kept(work, snapshot)
    if kept is None:
        return None
    return work.executor.import_snapshot(work.workspace, work.artifacts.stream(kept.kept)).snapshot


def _made_again(work: Work, context: ExecutionContext, snapshot: str) -> str | None:
    """Rebuild the snapshot from the base and the recorded patch, without files that git ignores."""
    tree = _tree_of(work, context, snapshot)
    if tree is None:
        return None
    scratch = f"{work.workspace}-base"
    context.executor.delete(scratch)
    try:
        context.create(scratch, tree)
        taken = context.executor.snapshot(scratch).snapshot
        return context.executor.import_snapshot(
            work.workspace, context.executor.export_snapshot(scratch, taken, whole=True)
        ).snapshot
    finally:
        context.executor.delete(scratch)


def _tree_of(work: Work, context: ExecutionContext, snapshot: str) -> str | None:
    if snapshot == work.run.base_snapshot:
        return work.base.tree
    for event in work.store.events(work.run.run_id):
        if isinstance(event.data, PatchProposed) and event.data.snapshot == snapshot:
            return context.objects.apply(work.base.tree, work.artifacts.get(event.data.diff))
    return None


def _kept(work: Work, snapshot: str) -> SnapshotKept | None:
    for event in reversed(work.store.events(work.run.run_id)):
        if isinstance(event.data, SnapshotKept) and event.data.snapshot == snapshot:
            return event.data
    return None
