"""Tells an interpreter that is installed on the machine from one that a repository may have brought along."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from codepilot.project.boundary import SYSTEM, Boundary, is_within, points_into
from codepilot.sandbox import base_python

_SYSTEM = (*SYSTEM, *map(Path, ("/opt/conda", "/opt/homebrew", "/opt/python", "/opt/hostedtoolcache", "/nix/store")))
_MANAGED = (
    *(".pyenv/versions", ".local/share/uv/python", ".rye/py", ".asdf/installs/python"),
    *(".local/share/mise/installs/python", "miniconda3", "anaconda3", "miniforge3", "mambaforge"),
)
"""Directories below the home in which version managers install interpreters."""
_MANAGERS = {"PYENV_ROOT": "versions", "UV_PYTHON_INSTALL_DIR": "", "ASDF_DATA_DIR": "installs/python"}
"""Variables by which a user moves such a directory, and the part of it that holds interpreters."""


def is_installed(base: Path, boundary: Boundary, environ: Mapping[str, str]) -> bool:
    """True for the system's, a version manager's and CodePilot's own interpreter, and for those on the user's PATH."""
    real = base.resolve()
    if real == base_python().resolve():
        return True
    folders = search_folders(boundary.root, environ)
    if any(base.parent == folder or real == (folder / base.name).resolve() for folder in folders):
        return True
    if is_script(real) or boundary.is_own(real) or points_into(real, boundary.root):
        return False
    return any(is_within(real, place) for place in (*_SYSTEM, *_managed(boundary, environ)))


def search_folders(root: Path, environ: Mapping[str, str]) -> list[Path]:
    """The absolute directories of the user's PATH that do not lead into the checkout."""
    folders = [Path(one) for one in environ.get("PATH", os.defpath).split(os.pathsep) if one.startswith(os.sep)]
    return [folder for folder in folders if not points_into(folder, root)]


def _managed(boundary: Boundary, environ: Mapping[str, str]) -> Iterator[Path]:
    for home in boundary.homes:
        yield from (home / place for place in _MANAGED)
    for name, below in _MANAGERS.items():
        if environ.get(name, "").startswith(os.sep):
            yield (Path(environ[name]) / below).resolve()


def is_script(path: Path) -> bool:
    """True for a text that another program runs, as version managers put them on the PATH."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True
