"""A branch of the user's repository that changes are added to: its tip, and a compare-and-swap for each commit.

Files, index, HEAD, stash and other branches stay unchanged. No hook, filter, monitor or signing program runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from codepilot.core.commit import run_named
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace.base import pin_base
from codepilot.workspace.commit import Commit, branch_commit, move_branch, refuse_no_place, write_object
from codepilot.workspace.git import run_git
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.promote import refuse_unfit
from codepilot.workspace.repository import Repository, find_repository, resolve


@dataclass(frozen=True)
class Tip:
    """Where a branch stands. `exists` is False for a branch that the first commit creates on top of HEAD."""

    commit: str
    tree: str
    exists: bool


def branch_tip(checkout: Path, branch: str, objects: ObjectStore) -> Tip:
    """The branch's commit with its tree in our own store; HEAD's for a branch that does not exist."""
    repository = find_repository(checkout)
    found = branch_commit(repository, branch)
    if found is None:
        refuse_no_place(repository, branch)
    else:
        _refuse_checked_out(repository, branch)
    commit = resolve(repository, found)
    return Tip(commit, pin_base(checkout, objects, ref=commit).commit_tree, found is not None)


def landed_before(checkout: Path, branch: str, run_id: str) -> tuple[str, str] | None:
    """The commit of the branch that holds a run's change, and its parent, if a run of that name has landed there."""
    repository = find_repository(checkout)
    if branch_commit(repository, branch) is None:
        return None
    asked = ["log", "-z", "--format=%H %P%n%B", f"--grep=^Run: {run_id}$", f"refs/heads/{branch}", "--"]
    done = run_git(asked, repository.git_dir, work_tree=repository.root)
    for one in done.stdout.decode("utf-8", "replace").split("\0") if done.returncode == 0 else ():
        names, _, message = one.partition("\n")
        commit, _, parent = names.partition(" ")
        if run_named(message) == run_id and parent and " " not in parent:
            return commit, parent
    return None


def add_to_branch(checkout: Path, objects: ObjectStore, commit: Commit, branch: str, *, exists: bool) -> str | None:
    """Make the commit and let the branch name it, if the branch still names its parent; None if it does not."""
    changes = list(objects.changes(commit.base_tree, commit.new_tree))
    refuse_unfit(changes)
    repository = find_repository(checkout)
    _refuse_checked_out(repository, branch)
    name = write_object(repository, objects, commit, changes)
    return name if move_branch(repository, branch, name, commit.parent if exists else None) else None


def _refuse_checked_out(repository: Repository, branch: str) -> None:
    """A branch that somebody has checked out would leave their files behind it."""
    done = run_git(["worktree", "list", "--porcelain", "-z"], repository.git_dir, work_tree=repository.root)
    place = ""
    for line in done.stdout.decode("utf-8", "replace").split("\0"):
        key, _, value = line.partition(" ")
        place = value if key == "worktree" else place
        if key == "branch" and value == f"refs/heads/{branch}":
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The branch {branch} is checked out in {place}, and no file of a checkout is touched.",
                next_action=f"Land onto a branch that is not checked out, for example --onto {branch}-landing, then:"
                f" git merge --ff-only {branch}-landing",
            )
