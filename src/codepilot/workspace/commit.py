"""An accepted change as one commit on a new branch of the user's repository.

The branch is created only if its name is free; otherwise nothing is written. Files, index, HEAD, stash and other
branches stay unchanged. No hook, filter, monitor or signing program runs and no work tree is read. The commit's bytes
depend on the change alone, so every git and every configuration gives the same name: after an interruption the same
call completes the work, and when all is done it does nothing.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace.git import last_line, run_git
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.promote import refuse_unfit
from codepilot.workspace.repository import Repository, find_repository, unreachable
from codepilot.workspace.trees import Entry, shown

Changes = Sequence[tuple[str, Entry | None, Entry | None]]

_WHO = "CodePilot <codepilot@localhost>"
_IDENTITY = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "CodePilot"), ("EMAIL", "codepilot@localhost"))
}
_SETTINGS = (
    *("-c", "core.splitIndex=false", "-c", "core.sparseCheckout=false", "-c", "index.sparse=false"),
    *("-c", "core.fsync=committed,loose-object", "-c", "core.filesRefLockTimeout=10000"),
)
"""No part of our index goes to the user's git directory; what a branch names is on disk before the branch is."""


@dataclass(frozen=True)
class Commit:
    """What is to be committed: the way from `base_tree` to `new_tree`, on top of the commit `parent`.

    `commit_tree` is what the parent holds and `base_tree` what was on disk, all as our own store names them; `at` is
    microseconds UTC.
    """

    parent: str
    commit_tree: str
    base_tree: str
    new_tree: str
    message: str
    at: int

    def after_tree(self) -> bytes:
        """The commit as git keeps it, but for its first line, which names the tree."""
        when = f"{_WHO} {self.at // 1_000_000} +0000"
        return f"parent {self.parent}\nauthor {when}\ncommitter {when}\n\n{self.message}".encode()


def write_commit(
    checkout: Path,
    objects: ObjectStore,
    commit: Commit,
    branch: str,
    before_commit: Callable[[], None] = lambda: None,
) -> str:
    """Make the commit and the branch, or find both there; the commit's name.

    `before_commit` is called when everything else has been prepared: what it raises leaves no commit and no branch.
    """
    changes = list(objects.changes(commit.base_tree, commit.new_tree))
    refuse_unfit(changes)
    _refuse_uncommitted(objects, commit, [path for path, _, _ in changes])
    with _system_refusals(checkout):
        repository = _repository_of(checkout, commit.parent)
        found = branch_commit(repository, branch)
        if found is None:
            refuse_no_place(repository, branch)
        elif not _reads_like(repository, found, commit):
            raise _taken(repository, branch, found)
        tree = _write_tree(repository, objects, commit, changes)
        if found is None:
            before_commit()
        name = _write_commit_of(repository, tree, commit)
        if found is None:
            found = _make_branch(repository, branch, name)
        if found != name:
            raise _taken(repository, branch, found)
        return name


def write_object(repository: Repository, objects: ObjectStore, commit: Commit, changes: Changes) -> str:
    """Make the commit in the repository, where nothing names it yet."""
    with _system_refusals(repository.root):
        return _write_commit_of(repository, _write_tree(repository, objects, commit, changes), commit)


def move_branch(repository: Repository, branch: str, commit: str, old: str | None) -> bool:
    """Let a branch name this commit if it still names `old`, or with None does not exist; False if it does not."""
    ref = f"refs/heads/{branch}"
    arguments = ["update-ref", "--no-deref", "-m", "codepilot land", ref, commit, old or "0" * len(commit)]
    try:
        _write(repository, *arguments, env=_IDENTITY)
    except CodePilotError:
        if branch_commit(repository, branch) == old:
            raise
        return False
    return True


def refuse_branch(checkout: Path, branch: str) -> None:
    """Raise if no new branch can be called so there."""
    repository = find_repository(checkout)
    try:
        if (found := branch_commit(repository, branch)) is not None:
            raise _taken(repository, branch, found)
        refuse_no_place(repository, branch)
    except CodePilotError as error:
        advice = "Choose another name, for example codepilot/{run}."
        raise CodePilotError(error.kind, error.failure.message, advice) from error


def _refuse_uncommitted(objects: ObjectStore, commit: Commit, touched: Sequence[str]) -> None:
    """Refuse a change that builds on uncommitted edits: a commit must hold the change only."""
    edited = [path for path, _, _ in objects.changes(commit.commit_tree, commit.base_tree)]
    around_edits, around_change = (
        {place for path in paths for place in _and_above(path)} for paths in (edited, touched)
    )
    mixed = sorted(
        {shown(path) for path in touched if path in around_edits}
        | {shown(path) for path in edited if path in around_change}
    )
    if mixed:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"the change builds on files that differed from their commit when the run began: {', '.join(mixed[:20])}"
            " (edits that were not committed, or line ends and filters that git converts)",
            "Commit or stash edits and start again, or write the change into the checkout: codepilot apply RUN",
            files=mixed,
        )


def _and_above(path: str) -> Iterator[str]:
    """A path and the directories that it is in."""
    while path:
        yield path
        path = path.rpartition("/")[0]


@contextmanager
def _system_refusals(checkout: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise unreachable(f"the repository at {checkout} cannot be used: {reason}", "Give access to it.") from error


def _repository_of(checkout: Path, commit: str) -> Repository:
    """The repository that the run began in; another one at its place, or none, is refused."""
    elsewhere = "Where that checkout is: codepilot apply RUN --branch NAME"
    if not checkout.is_dir():
        raise unreachable(f"there is no {checkout} on this machine to commit to", elsewhere)
    repository = find_repository(checkout)
    if repository.root != checkout.resolve() or not _succeeds(repository, "cat-file", "-e", f"{commit}^{{commit}}"):
        raise unreachable(f"the repository at {checkout} does not hold the base commit {commit[:12]}", elsewhere)
    return repository


def branch_commit(repository: Repository, branch: str) -> str | None:
    """The commit that a branch names; None if there is no such branch."""
    asked = ["show-ref", "--verify", "--hash", f"refs/heads/{branch}"]
    done = run_git(asked, repository.git_dir, work_tree=repository.root)
    return done.stdout.decode().strip() if done.returncode == 0 else None


def _reads_like(repository: Repository, found: str, commit: Commit) -> bool:
    """True if a commit differs from ours in its tree at most."""
    done = run_git(["cat-file", "commit", found], repository.git_dir, work_tree=repository.root)
    return done.returncode == 0 and done.stdout.partition(b"\n")[2] == commit.after_tree()


def refuse_no_place(repository: Repository, branch: str) -> None:
    """Git keeps branches as files: one may not be called as another one's directory, nor HEAD wait for it."""
    asked = ["for-each-ref", "--count=1", "--format=%(refname:lstrip=2)", f"refs/heads/{branch}/"]
    done = run_git(asked, repository.git_dir, work_tree=repository.root)
    others = [done.stdout.decode("utf-8", "replace").strip(), *list(_and_above(branch))[1:]]
    for other in filter(None, others):
        if (found := branch_commit(repository, other)) is not None:
            raise _taken(repository, other, found)
    done = run_git(["symbolic-ref", "-q", "HEAD"], repository.git_dir, work_tree=repository.root)
    if done.stdout.decode("utf-8", "replace").strip() == f"refs/heads/{branch}":
        raise _refused(f"{repository.root} is about to begin the branch {branch} with its first commit")


def _taken(repository: Repository, branch: str, found: str) -> CodePilotError:
    return _refused(f"{repository.root} has a branch {branch} already, at {found[:12]}")


def _refused(message: str) -> CodePilotError:
    return CodePilotError(FailureKind.INVALID_SPEC, message, "Choose another name: codepilot apply RUN --branch NAME")


def _write_tree(repository: Repository, objects: ObjectStore, commit: Commit, changes: Changes) -> str:
    """The parent's tree with the change in it, by way of an index of our own."""
    gone = [_row("0", "0" * len(commit.parent), path) for path, _, after in changes if after is None]
    new = [
        _row(after.mode, _write_blob(repository, objects.read_blob(after.oid)), path)
        for path, _, after in changes
        if after is not None
    ]
    with tempfile.TemporaryDirectory(prefix="codepilot-index-") as directory:
        if os.geteuid() == 0:
            owner = repository.git_dir.stat()
            os.chown(directory, owner.st_uid, owner.st_gid)
        env = {"GIT_INDEX_FILE": f"{directory}/index"}
        _write(repository, "read-tree", "--no-recurse-submodules", commit.parent, env=env)
        _write(repository, "update-index", "-z", "--index-info", stdin=b"".join(gone + new), env=env)
        return _write(repository, "write-tree", env=env)


def _row(mode: str, name: str, path: str) -> bytes:
    return f"{mode} {name}\t".encode() + os.fsencode(path) + b"\0"


def _write_blob(repository: Repository, data: bytes) -> str:
    return _write(repository, "hash-object", "-w", "--stdin", "--no-filters", stdin=data)


def _write_commit_of(repository: Repository, tree: str, commit: Commit) -> str:
    written = f"tree {tree}\n".encode() + commit.after_tree()
    return _write(repository, "hash-object", "-t", "commit", "-w", "--stdin", stdin=written)


def _make_branch(repository: Repository, branch: str, commit: str) -> str:
    """Create the branch. Returns the commit that it names: another one if it exists already."""
    ref, absent = f"refs/heads/{branch}", "0" * len(commit)
    try:
        _write(repository, "update-ref", "--no-deref", "-m", "codepilot", ref, commit, absent, env=_IDENTITY)
    except CodePilotError:
        found = branch_commit(repository, branch)
        if found is None:
            raise
        return found
    return commit


def _without_configured_hooks(repository: Repository) -> dict[str, str]:
    """From git 2.54 on a configuration can name hooks, which no setting of where hooks are keeps from running."""
    asked = ["config", "-z", "--name-only", "--get-regexp", r"^hook\..*\.(command|event)$"]
    found = run_git(asked, repository.git_dir, work_tree=repository.root).stdout
    names = sorted({os.fsdecode(key).rpartition(".")[0] for key in found.split(b"\0") if key})
    off = {f"GIT_CONFIG_KEY_{n}": f"{name}.enabled" for n, name in enumerate(names)}
    return {**off, **{f"GIT_CONFIG_VALUE_{n}": "false" for n in range(len(names))}, "GIT_CONFIG_COUNT": str(len(names))}


def _write(repository: Repository, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
    owner = repository.git_dir.stat()
    asked = [*_SETTINGS, *args]
    env = {**_without_configured_hooks(repository), **(env or {})}
    done = run_git(asked, repository.git_dir, work_tree=repository.root, stdin=stdin, env=env, like=owner)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        message = next((line for line in lines if line.startswith(("fatal: ", "error: "))), last_line(done.stderr))
        raise unreachable(
            f"git {args[0]} cannot write to {repository.root}: {message.partition(': ')[2] or message}",
            "Make the repository writable, then: codepilot apply RUN --branch NAME",
        )
    return done.stdout.decode().strip()


def _succeeds(repository: Repository, *args: str) -> bool:
    return run_git(args, repository.git_dir, work_tree=repository.root).returncode == 0
