"""Snapshots that other machines can go on from, kept as artifacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codepilot.core.artifacts import ArtifactType
from codepilot.core.events import DependencyDegraded, EventType, SnapshotKept
from codepilot.core.failures import CodePilotError, FailureKind

if TYPE_CHECKING:
    from codepilot.engine.work import Work


def keep_snapshot(work: Work, snapshot: str) -> None:
    """Let others have the snapshot. Without artifacts the run goes on here, and only here."""
    if not work.house.shared or _kept(work, snapshot) is not None:
        return
    try:
        stream = work.executor.export_snapshot(work.workspace, snapshot)
        ref = work.artifacts.put_stream(stream, ArtifactType.SNAPSHOT)
    except CodePilotError as error:
        if error.kind is not FailureKind.ARTIFACT_STORE_UNAVAILABLE:
            raise
        consequence = "no other machine can go on from here until the next snapshot is kept"
        degraded = DependencyDegraded(dependency="artifacts", consequence=consequence, failure=error.failure)
        work.record(EventType.DEPENDENCY_DEGRADED, degraded)
        return
    work.record(EventType.SNAPSHOT_KEPT, SnapshotKept(snapshot=snapshot, kept=ref), (ref,))


def fetch_snapshot(work: Work, snapshot: str) -> bool:
    """Bring a snapshot here that was taken elsewhere; whether it could be."""
    kept = _kept(work, snapshot)
    if kept is None:
        return False
    work.executor.import_snapshot(work.workspace, work.artifacts.stream(kept.kept))
    return True


def _kept(work: Work, snapshot: str) -> SnapshotKept | None:
    for event in reversed(work.store.events(work.run.run_id)):
        if isinstance(event.data, SnapshotKept) and event.data.snapshot == snapshot:
            return event.data
    return None
