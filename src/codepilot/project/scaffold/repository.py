"""A repository as a module's registration sees it: its files as data, and what joining changes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project.scaffold.templates import Surroundings

MAX_PARTS = 100
"""A pattern of more parts names no directory."""


@dataclass(frozen=True)
class Tree:
    """The files of a repository's base."""

    paths: Collection[str]
    read: Callable[[str], bytes | None]

    def has(self, folder: str) -> bool:
        """True if there is a file or a directory of this name."""
        return folder in self.paths or any(path.startswith(f"{folder}/") for path in self.paths)

    def folders_with(self, name: str) -> list[str]:
        """The directories that hold a file of this name, sorted."""
        return sorted(path[: -len(name) - 1] for path in self.paths if path.endswith(f"/{name}"))


@dataclass(frozen=True)
class Joined:
    """Where a module goes, the files that register it, and what its template adapts to."""

    folder: str
    edits: dict[str, bytes] = field(default_factory=dict)
    around: Surroundings = field(default_factory=Surroundings)
    notes: tuple[str, ...] = ()
    """What registers it, in words, and what a person has to do."""


def cannot_join(message: str, advice: str) -> CodePilotError:
    return CodePilotError(FailureKind.INVALID_SPEC, message, next_action=advice)


def is_member(patterns: Collection[str], place: str) -> bool:
    """True if a workspace's patterns name this directory: `*` stays within a name, `**` spans several."""
    parts = place.split("/")
    split = (pattern.removeprefix("./").rstrip("/").split("/") for pattern in patterns)
    return any(_matches(pattern, parts) for pattern in split if len(pattern) <= MAX_PARTS)


def _matches(pattern: list[str], parts: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[:2] == ["**", "**"]:
        return _matches(pattern[1:], parts)
    if pattern[0] == "**":
        return any(_matches(pattern[1:], parts[at:]) for at in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(pattern[1:], parts[1:])


def place_for(patterns: Collection[str], name: str) -> str:
    """The directory of a new member: below the first pattern that ends in `*`, else next to the first member."""
    plain = [pattern.removeprefix("./").rstrip("/") for pattern in patterns if not pattern.startswith("!")]
    for pattern in plain:
        above, _, last = pattern.rpartition("/")
        if last in ("*", "**") and not set("*?[") & set(above):
            return f"{above}/{name}".lstrip("/")
    folder = next((pattern.rpartition("/")[0] for pattern in plain if not set("*?[") & set(pattern)), "")
    return f"{folder}/{name}".lstrip("/")
