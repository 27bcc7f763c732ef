"""What has to be installed for a project's tests, and the key of the environment that holds it.

The project's files are read as data; what they name is installed inside a sandbox.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from codepilot.project.boundary import read_head
from codepilot.project.import_paths import read_toml, table

MAX_BYTES = 1 << 20
MAX_FILES = 20
_GROUPS = ("test", "tests", "testing", "dev")
COMPLETE = "complete"
"""The file that an environment has once everything is in it."""
PACKAGES = "packages"
"""The directory of an environment that has packages and no Python of its own."""
MODULES = "modules"
"""The directory of an environment that has the `node_modules` of npm packages, by their places."""
LOCKS = ("package-lock.json", "npm-shrinkwrap.json")
OTHER_LOCKS = ("pnpm-lock.yaml", "yarn.lock")


@dataclass(frozen=True)
class Recipe:
    """What is installed: requirement files of the project, by their paths in the repository, and requirements."""

    manager: Literal["pip", "npm"] = "pip"
    files: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    python: str = ""
    """The version of the Python that it is for, such as 3.11."""
    whole: bool = True
    """False if only packages are installed, without a Python of their own."""

    @property
    def key(self) -> str:
        """The name of its environment: the same for the same contents on the same kind of machine."""
        parts = (*self.files, *self.contents, *self.requirements, self.python, platform.machine(), sys.platform)
        parts = (*parts, *((PACKAGES,) if not self.whole else ()), *((MODULES,) if self.manager == "npm" else ()))
        return hashlib.sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:24]

    @property
    def subject(self) -> str:
        """What a person is asked about."""
        named = (*self.files, *(one for one in self.requirements if one != "pytest"))
        return ", ".join(named) or ", ".join(self.requirements)


def own_version() -> str:
    """The version of this process's Python, such as 3.11."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def python_recipe(root: Path, folder: str = "") -> Recipe | None:
    """The recipe of a Python project; None if it declares nothing."""
    project = root / folder
    files = [path for path in _requirement_files(project) if read_head(path, MAX_BYTES, within=root).strip()]
    named = () if files else tuple(_declared(project))
    if not files and not named:
        return None
    return Recipe(
        files=tuple(path.relative_to(root).as_posix() for path in files),
        requirements=(*named, "pytest"),
        contents=tuple(read_head(path, MAX_BYTES, within=root) for path in files),
        python=own_version(),
    )


def npm_recipe(root: Path, folder: str = "", more: tuple[str, ...] = ()) -> Recipe | None:
    """The recipe of an npm package, or of the workspace around it, with `more` packages; None if there are none."""
    places = [folder, ""] if folder else [""]
    locked = [place for place in places if any((root / place / lock).is_file() for lock in LOCKS)]
    place = next(iter(locked), folder)
    files = [root / place / name for name in ("package.json", *LOCKS) if (root / place / name).is_file()]
    foreign = any((root / one / lock).is_file() for one in places for lock in OTHER_LOCKS)
    if not more and (foreign or not files or not _depends(read_head(files[0], MAX_BYTES, within=root))):
        return None
    return Recipe(
        manager="npm",
        files=tuple(path.relative_to(root).as_posix() for path in files),
        requirements=more,
        contents=tuple(read_head(path, MAX_BYTES, within=root) for path in files),
    )


def _depends(package: str) -> bool:
    try:
        document = json.loads(package)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and any(
        document.get(name) for name in ("dependencies", "devDependencies", "workspaces")
    )


def modules_for(envs: Path, root: Path, folder: str = "") -> Path | None:
    """The `node_modules` that were prepared for this project as it is now, by their places in it."""
    recipe = npm_recipe(root, folder)
    found = None if recipe is None else envs / recipe.key
    return found / MODULES if found is not None and (found / COMPLETE).is_file() else None


def environment_for(envs: Path, root: Path, folder: str = "") -> Path | None:
    """The Python of the environment that was prepared for this project as it is now."""
    recipe = python_recipe(root, folder)
    found = None if recipe is None else envs / recipe.key
    return found / "bin" / "python" if found is not None and (found / COMPLETE).is_file() else None


def _requirement_files(project: Path) -> list[Path]:
    found = [
        *project.glob("requirements*.txt"),
        *project.glob("*requirements.txt"),
        *project.glob("requirements/*.txt"),
    ]
    return sorted({path for path in found if path.is_file() and not path.is_symlink()})[:MAX_FILES]


def _declared(project: Path) -> Iterator[str]:
    """The requirements in `pyproject.toml`, those for its tests included."""
    document = read_toml(project / "pyproject.toml")
    extras, groups = table(document, "project", "optional-dependencies"), table(document, "dependency-groups")
    lists = [table(document, "project").get("dependencies"), *(extras.get(name) for name in _GROUPS)]
    for listed in (*lists, *(groups.get(name) for name in _GROUPS)):
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, str) and not one.lstrip().startswith("-") and "\n" not in one:
                yield one.strip()
