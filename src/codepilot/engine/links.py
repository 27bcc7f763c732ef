"""Where the bytes of an artifact can be read from outside."""

from __future__ import annotations

from codepilot.core.artifacts import ArtifactRef
from codepilot.engine.runtime import Runtime
from codepilot.store import FileArtifacts


def link_to(runtime: Runtime, ref: ArtifactRef, seconds: int) -> str | None:
    """A link that anyone may follow for so long, or the file on this machine; None if the bytes are gone."""
    if not runtime.artifacts.has(ref):
        return None
    if isinstance(runtime.artifacts, FileArtifacts):
        return str(runtime.artifacts.path(ref))
    return runtime.artifacts.link(ref, seconds)
