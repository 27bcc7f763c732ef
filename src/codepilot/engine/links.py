"""Where the bytes of an artifact can be read from outside."""

from __future__ import annotations

from codepilot.core.artifacts import ArtifactRef
from codepilot.engine.house import House
from codepilot.store import FileArtifacts


def link_to(house: House, ref: ArtifactRef, seconds: int) -> str | None:
    """A link that anyone may follow for so long, or the file on this machine; None if the bytes are gone."""
    if not house.artifacts.has(ref):
        return None
    if isinstance(house.artifacts, FileArtifacts):
        return str(house.artifacts.path(ref))
    return house.artifacts.link(ref, seconds)
