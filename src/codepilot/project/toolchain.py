"""Where this machine keeps what new projects are built with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from codepilot.project.build import Checkout
from codepilot.project.jvm import maven_places as _maven_places


def maven_places(root: Path, environ: Mapping[str, str]) -> tuple[Path, Path]:
    """The local repository and the JDK of builds by Maven, for a project at `root`."""
    return _maven_places(Checkout(root.absolute(), str(root), environ))
