"""Files with a project's version that its build writes and git ignores, as its pyproject.toml declares them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from codepilot.project.import_paths import read_toml

_KEYS = ("version-file", "version_file", "write_to")


def version_files(root: Path, folder: str = "") -> tuple[str, ...]:
    """Declared version files that are there, relative to the checkout; `folder` is the project's place in it."""
    tool = read_toml(root / folder / "pyproject.toml").get("tool", {})
    paths = (PurePosixPath(folder) / name for name in _declared(tool) if isinstance(name, str))
    return tuple(dict.fromkeys(str(path) for path in paths if _inside(path) and (root / path).is_file()))


def _inside(path: PurePosixPath) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)  # `..`, and whatever means a git directory
    return path.suffix == ".py" and not path.is_absolute() and not hidden


def _declared(tool: Any) -> Iterator[Any]:
    for path in (("setuptools_scm",), ("pdm", "version"), ("hatch", "build", "hooks", "vcs")):
        section = tool
        for name in path:
            section = section.get(name) if isinstance(section, dict) else None
        if isinstance(section, dict):
            yield from (section[key] for key in _KEYS if key in section)
