"""Finds the user's repository around a path, and reads its history.

The innermost repository is found, whatever its owner. Linked worktrees and submodules lead to their git directory.
Every refusal says what is wrong and what to do. History is read from commits alone, never from a work tree; no filter,
converter or configured program runs; commits and seconds are bounded. Where lines cannot be dated (one commit, a clone
that lacks objects, no time left) the answer is empty.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace.git import last_line, must_git, run_git
from codepilot.workspace.trees import shown


@dataclass(frozen=True)
class Repository:
    """A work tree and the git directory that belongs to it."""

    root: Path
    git_dir: Path

    def git(self, *args: str, stdin: bytes = b"", stdout: IO[bytes] | None = None) -> bytes:
        return must_git(args, self.git_dir, work_tree=self.root, stdin=stdin, stdout=stdout)


def find_root(path: Path) -> Path:
    """The top of the innermost work tree that contains `path`."""
    return find_repository(path).root


def find_repository(path: Path) -> Repository:
    """The innermost repository around a path, or a refusal that says what is wrong."""
    try:
        start = path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise unreachable(
            f"{shown(str(path))} is no file, directory or test here",
            "Name a checkout, or a directory, file or test in one; --test takes any unique name of a test.",
        ) from error
    if not start.is_dir():
        start = start.parent
    for directory in (start, *start.parents):
        if not os.access(directory, os.X_OK):
            raise unreachable(f"{directory} may not be entered", "Ask for permission, or name another directory.")
        git_dir = _git_dir(directory / ".git")
        if git_dir is not None:
            return Repository(directory, git_dir)
        if is_git_directory(directory):
            raise unreachable(
                f"{directory} is a bare repository, without files to work on", "Clone it, and name the clone."
            )
    raise unreachable(
        f"{shown(str(path))} is not in a git repository",
        "Run `git init` and commit the project, or name another directory.",
    )


def resolve_commit(checkout: Path, ref: str | None = None) -> str:
    """The commit that a ref, or HEAD, names; refused as `pin_base` would refuse it, but at once."""
    return resolve(find_repository(checkout), ref)


def resolve(repository: Repository, ref: str | None) -> str:
    if ref is None:
        done = run_git(["rev-parse", "--verify", "-q", "HEAD^{commit}"], repository.git_dir, work_tree=repository.root)
        if done.returncode == 0:
            return done.stdout.decode().strip()
        if done.stderr.strip():
            raise unreachable(f"git cannot read {repository.root}: {last_line(done.stderr)}")
        raise unreachable(
            f"{repository.root} has no commit yet",
            "Commit the project once (`git add -A && git commit`), then try again.",
        )
    done = run_git(["rev-parse", "--verify", "-q", f"{ref}^{{commit}}"], repository.git_dir, work_tree=repository.root)
    commit = done.stdout.decode("utf-8", "replace").strip()
    if ref.startswith("-") or done.returncode != 0 or not re.fullmatch("[0-9a-f]{40,64}", commit):
        shallow = (repository.git_dir / "shallow").exists()
        hint = " This is a shallow clone: `git fetch --unshallow` brings the rest." if shallow else ""
        raise CodePilotError(
            FailureKind.REF_NOT_FOUND,
            f"there is no commit, branch or tag {ref!r} in {repository.root}",
            f"Name a commit, branch or tag that exists (see `git log --all`).{hint}",
            ref=ref,
        )
    return commit


def fork_point(checkout: Path, commit: str, other: str) -> str:
    """The commit from which two commits diverged."""
    done = _try_git(find_repository(checkout), "merge-base", commit, other)
    if not done:
        raise unreachable(f"{commit[:12]} and {other[:12]} have no common history", "Name the base with --onto.")
    return done


def default_branch(checkout: Path) -> str | None:
    """The commit of the branch that others are merged into, if the repository shows which it is."""
    repository = find_repository(checkout)
    for name in ("refs/remotes/origin/HEAD", "refs/heads/main", "refs/heads/master"):
        if commit := _try_git(repository, "rev-parse", "--verify", "-q", f"{name}^{{commit}}"):
            return commit
    return None


def _try_git(repository: Repository, *args: str) -> str:
    done = run_git(list(args), repository.git_dir, work_tree=repository.root)
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else ""


def first_commit(checkout: Path, commit: str) -> str | None:
    """The first commit of the line that `commit` is the end of: the same in every clone, unknown to a shallow one."""
    repository = find_repository(checkout)
    if repository.git("rev-parse", "--is-shallow-repository").strip() != b"false":
        return None
    asked = ["rev-list", "--first-parent", "--max-parents=0", commit]
    done = run_git(asked, repository.git_dir, work_tree=repository.root)
    return done.stdout.decode().strip() or None if done.returncode == 0 else None


def _git_dir(place: Path) -> Path | None:
    """The git directory that a `.git` stands for: itself, or the one a `.git` file names."""
    if place.is_dir():
        return place if is_git_directory(place) else None
    if not place.is_file():
        return None
    with place.open("rb") as file:
        content = file.read(4096)
    if not content.startswith(b"gitdir: "):
        return None
    target = place.parent / os.fsdecode(content.removeprefix(b"gitdir: ").rstrip(b"\r\n"))
    if not is_git_directory(target):
        raise unreachable(
            f"{place} points to {target}, which is not a git directory",
            "Repair it (`git worktree repair`, `git submodule update`), or name another directory.",
        )
    return target.resolve()


def is_git_directory(place: Path) -> bool:
    """True for a git directory of any name, also a linked worktree's or a submodule's."""
    if not (place / "HEAD").is_file() and not (place / "HEAD").is_symlink():
        return False
    return (place / "commondir").is_file() or ((place / "objects").is_dir() and (place / "refs").is_dir())


def unreachable(message: str, next_action: str = "") -> CodePilotError:
    return CodePilotError(FailureKind.REPO_UNREACHABLE, message, next_action)


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
    """Asks a repository until a deadline."""

    def __init__(self, place: Path, until: float) -> None:
        bare = not (place / ".git").exists() and (place / "objects").is_dir() and (place / "HEAD").is_file()
        found = None if bare else find_repository(place)
        self._git_dir, self._root = found.git_dir if found else place, found.root if found else None
        self._until = until

    def git(self, *args: str) -> bytes | None:
        """Git's output; None if it fails, as for a file that the commit does not have."""
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
        blame = repository.git(*_BLAME, f"{commits[-1].decode()}..{commits[0].decode()}", "--", path)
        if blame is not None:
            found[path] = tuple(_lines(blame, ages))
    return found


def _lines(blame: bytes, ages: Mapping[bytes, int]) -> Iterable[DatedLine]:
    oid = b""
    for row in blame.split(b"\n"):
        if row.startswith(b"\t"):
            yield row[1:], ages.get(oid)
        elif header := _HEADER.fullmatch(row):
            oid = header[1]
