"""Names that git takes for its own directory, on any file system. Pure."""

from __future__ import annotations

_HFS_IGNORED = dict.fromkeys((*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
"""Characters that HFS+ ignores when it compares names."""


def is_git_name(name: str) -> bool:
    """True for `.git` in any case."""
    return len(name) == 4 and name.lower() == ".git"


def is_git_alias(name: str) -> bool:
    """True if git on NTFS or HFS+ reads the name, or a part of it there, as `.git`."""
    if len(name) < 4 or ("git" not in name.translate(_HFS_IGNORED).lower()):
        return False
    for part in name.split("\\"):
        shortened = part.partition(":")[0].rstrip(" .").lower()
        if shortened in (".git", "git~1") or part.translate(_HFS_IGNORED).lower() == ".git":
            return True
    return False


def is_in_git_directory(path: str) -> bool:
    """True if any component of the path names a git directory."""
    return any(is_git_alias(part) for part in path.split("/"))


def check_copied_path(path: str) -> str:
    """Return a relative path that a workspace may receive a copy of; raise ValueError for any other."""
    if is_in_git_directory(path):
        raise ValueError(f"{path!r} is in a git directory, which is never copied into a workspace")
    if any(part in ("", ".", "..") or "\0" in part for part in path.split("/")):
        raise ValueError(f"{path!r} is not a relative path inside the repository")
    return path
