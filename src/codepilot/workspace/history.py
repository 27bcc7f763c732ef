"""How long ago each line of a file was changed, asked of the user's repository at one commit.

Promises: only that commit and what lies before it is looked at, never a work tree; no filter, converter or program of
the repository's configuration runs; commits and seconds are bounded. Where there is no history to tell lines apart (a
plain folder, one commit, a clone that lacks objects, too little time), it says nothing instead of failing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace.git import run_git
from codepilot.workspace.repository import find_repository

MAX_COMMITS = 500
"""What was changed longer ago is old."""
SECONDS = 3.0

DatedLine = tuple[bytes, int | None]
"""A line without its newline, and how many commits ago it was changed: 1 is the newest; None is older than known."""

_HEADER = re.compile(rb"([0-9a-f]{40,64}) \d+ \d+(?: \d+)?")
_BLAME = ("blame", "--porcelain", "--first-parent", "--no-textconv", "--no-ignore-revs-file")


def line_ages(
    place: Path, commit: str, paths: Iterable[str], seconds: float = SECONDS
) -> dict[str, tuple[DatedLine, ...]]:
    """The lines that each file has in the commit, with their ages; `place` is a checkout or a git directory.

    For all files or for none, so that a slow one does not make others look newer than they are.
    """
    try:
        return _ages(_Asked(place, time.monotonic() + seconds), commit, tuple(paths))
    except (CodePilotError, OSError):
        return {}


class _Asked:
    """A repository that is asked until there is no time left."""

    def __init__(self, place: Path, until: float) -> None:
        bare = not (place / ".git").exists() and (place / "objects").is_dir() and (place / "HEAD").is_file()
        found = None if bare else find_repository(place)
        self._git_dir, self._root = found.git_dir if found else place, found.root if found else None
        self._until = until

    def git(self, *args: str) -> bytes | None:
        """What git says; nothing if it fails, as for a file that the commit does not have."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise CodePilotError(FailureKind.TOOL_TIMEOUT, "there is no time left to ask for the history")
        done = run_git(args, self._git_dir, work_tree=self._root, timeout_sec=left)
        return done.stdout if done.returncode == 0 else None


def _ages(repository: _Asked, commit: str, paths: tuple[str, ...]) -> dict[str, tuple[DatedLine, ...]]:
    listed = repository.git("rev-list", "--first-parent", f"--max-count={MAX_COMMITS + 1}", commit, "--")
    commits = (listed or b"").split()
    if len(commits) < 2:
        return {}
    ages = {oid: number for number, oid in enumerate(commits[:-1], 1)}
    found: dict[str, tuple[DatedLine, ...]] = {}
    for path in paths:
        told = repository.git(*_BLAME, f"{commits[-1].decode()}..{commits[0].decode()}", "--", path)
        if told is not None:
            found[path] = tuple(_lines(told, ages))
    return found


def _lines(told: bytes, ages: Mapping[bytes, int]) -> Iterable[DatedLine]:
    oid = b""
    for row in told.split(b"\n"):
        if row.startswith(b"\t"):
            yield row[1:], ages.get(oid)
        elif header := _HEADER.fullmatch(row):
            oid = header[1]
