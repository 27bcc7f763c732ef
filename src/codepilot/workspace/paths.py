"""Paths inside a tree: `str` as the operating system gives them, undecodable bytes escaped as surrogates. Pure."""

from __future__ import annotations

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import is_git_name

_NAME_BYTES = 255


def shown(path: str) -> str:
    """A path as text that any encoder takes: undecodable bytes become `\\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_plain_name(name: str) -> bool:
    """Whether a name names something in its directory and nothing elsewhere."""
    fits = len(name) <= 63 or len(name.encode("utf-8", "surrogateescape")) <= _NAME_BYTES
    return fits and name not in ("", ".", "..") and "/" not in name and "\0" not in name


def split(path: str) -> list[str]:
    """The parts of a path that stays beneath its root; anything else is refused."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS, f"not a path inside the workspace: {path!r}", path=shown(path)
        )
    return parts


def leads_out(path: str, links: dict[str, str]) -> bool:
    """Whether following a link could lead out of the tree or into its `.git`, by way of the tree's other links."""
    at = path.split("/")[:-1]
    ahead = list(reversed(links[path].split("/")))
    if links[path].startswith("/"):
        return True
    hops = 0
    while ahead:
        part = ahead.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(part)
        if len(at) == 1 and is_git_name(part):
            return True
        target = links.get("/".join(at))
        if target is not None:
            hops += 1
            if hops > 40 or target.startswith("/"):
                return True
            at.pop()
            ahead.extend(reversed(target.split("/")))
    return False
