"""Names that git takes for its own directory, on any file system. Pure."""

from __future__ import annotations

from codepilot.core.globs import HFS_IGNORED

NO_COMMIT = "0" * 40
"""The commit of a base that is no repository."""


def is_git_name(name: str) -> bool:
    """True for `.git` in any case."""
    return len(name) == 4 and name.lower() == ".git"


def is_git_alias(name: str) -> bool:
    """True if git on NTFS or HFS+ reads the name, or a part of it there, as `.git`."""
    if len(name) < 4 or ("git" not in name.translate(HFS_IGNORED).lower()):
        return False
    for part in name.split("\\"):
        shortened = part.partition(":")[0].rstrip(" .").lower()
        if shortened in (".git", "git~1") or part.translate(HFS_IGNORED).lower() == ".git":
            return True
    return False


def is_in_git_directory(path: str) -> bool:
    """True if any component of the path names a git directory."""
    return any(is_git_alias(part) for part in path.split("/"))


def check_folder(path: str) -> str:
    """Return a directory's path inside the repository, "" for its top; raise ValueError for any other."""
    path = path.removeprefix("./").rstrip("/")
    return check_copied_path(path) if path not in ("", ".") else ""


def check_copied_path(path: str) -> str:
    """Return a relative path that a workspace may receive a copy of; raise ValueError for any other."""
    if is_in_git_directory(path):
        raise ValueError(f"{path!r} is in a git directory, which is never copied into a workspace")
    if any(part in ("", ".", "..") or "\0" in part for part in path.split("/")):
        raise ValueError(f"{path!r} is not a relative path inside the repository")
    return path
