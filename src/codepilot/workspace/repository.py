"""Finding the user's repository around a path, without asking git to search.

Promises: the innermost repository is found, whoever owns it; linked worktrees and submodules are followed to their git
directory; anything else is refused with what is wrong and what to do.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace.git import last_line, must_git, run_git
from codepilot.workspace.paths import shown


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
        raise unreachable(f"there is no {shown(str(path))}", "Check the path of the repository.") from error
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
            f"{repository.root} has no commit yet: run git commit",
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
    content = place.read_bytes()[:4096]
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
    """True for a repository's own directory, whatever its name is: also a linked worktree's or a submodule's."""
    if not (place / "HEAD").is_file() and not (place / "HEAD").is_symlink():
        return False
    return (place / "commondir").is_file() or ((place / "objects").is_dir() and (place / "refs").is_dir())


def unreachable(message: str, next_action: str = "") -> CodePilotError:
    return CodePilotError(FailureKind.REPO_UNREACHABLE, message, next_action)
