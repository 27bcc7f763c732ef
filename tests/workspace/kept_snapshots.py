"""Snapshots in an artifact store, where they outlive their workspace."""

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.store import Artifacts
from codepilot.workspace import Workspace
from codepilot.workspace.workspace import Snapshot


def keep(workspace: Workspace, artifacts: Artifacts, snapshot: str = "", *, whole: bool = False) -> ArtifactRef:
    """Put a snapshot, by default one of the files as they are, into the artifact store."""
    exported = workspace.export_snapshot(snapshot or workspace.snapshot().id, whole)
    return artifacts.put_stream(exported, ArtifactType.SNAPSHOT)


def fetch(workspace: Workspace, artifacts: Artifacts, ref: ArtifactRef) -> Snapshot:
    return workspace.import_snapshot(artifacts.stream(ref))
