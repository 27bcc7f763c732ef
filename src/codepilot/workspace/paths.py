"""Paths inside a tree: `str` as the operating system gives them, undecodable bytes escaped as surrogates. Pure."""

from __future__ import annotations

from codepilot.core.failures import CodePilotError, FailureKind


def shown(path: str) -> str:
    """A path as text that any encoder takes: undecodable bytes become `\\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_git_name(name: str) -> bool:
    """Whether a name is `.git` on any file system."""
    return len(name) == 4 and name.lower() == ".git"


def is_plain_name(name: str) -> bool:
    """Whether a name names something in its directory and nothing elsewhere."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def split(path: str) -> list[str]:
    """The parts of a path that stays beneath its root; anything else is refused."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS, f"not a path inside the workspace: {path!r}", path=shown(path)
        )
    return parts
