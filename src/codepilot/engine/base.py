"""The pinned base of a run: taken from the checkout or the URL, kept in this home, and carried to other machines."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from codepilot.core.artifacts import ArtifactType
from codepilot.core.events import BasePinned
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import NO_COMMIT
from codepilot.core.task import ProposedChange, TaskKind, TaskSpec
from codepilot.engine.runtime import Runtime
from codepilot.store import Home
from codepilot.verify import tree_with_tests
from codepilot.workspace import (
    Base,
    ObjectStore,
    clone,
    find_root,
    first_commit,
    is_url,
    lay_out,
    pin_base,
    pin_directory,
)


def repo_id(repo: str) -> str:
    """The name under which a repository's objects are kept."""
    return hashlib.sha256(repo.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def open_objects(home: Home, identity: str) -> ObjectStore:
    return ObjectStore.open(home.repos / f"{identity}.git")


def pin(task: TaskSpec, home: Home, allowed_hosts: tuple[str, ...] = ()) -> BasePinned:
    """Clone if the task names a URL, then pin the exact base."""
    identity = repo_id(task.repo)
    if task.starts_empty:
        return _pin_nothing(task, identity, home)
    if task.kind is TaskKind.BUILD:
        from codepilot.engine.kinds.build import pin_build

        with closing(open_objects(home, identity)) as objects:
            return pin_build(task, identity, objects)
    if task.attempt is not None and not (Path(task.repo) / ".git").exists():
        return _pin_plain(Path(task.repo), identity, home)
    ref = task.ref
    if is_url(task.repo):
        place = home.repos / f"{identity}.checkout"
        only = task.public_hosts_only
        checkout = clone(task.repo, place, task.ref, public_only=only, allowed_hosts=allowed_hosts)
        ref = "HEAD"
    else:
        checkout = find_root(Path(task.repo))
    before = proposed = None
    with closing(open_objects(home, identity)) as objects:
        base = pin_base(checkout, objects, ref=ref or ("HEAD" if task.proposed else None))
        if task.proposed is not None:
            before, proposed = base.tree, _proposed_tree(task.proposed, base, checkout, objects)
            base = replace(base, tree=tree_with_tests(objects, base.tree, proposed))
    return BasePinned(
        repo_id=identity,
        commit=base.commit,
        commit_tree=base.commit_tree,
        tree=base.tree,
        checkout=os.fspath(checkout),
        lineage=first_commit(checkout, base.commit) or f"{identity}@{socket.gethostname()}",
        proposed=proposed,
        before=before,
    )


def _pin_nothing(task: TaskSpec, identity: str, home: Home) -> BasePinned:
    """The empty tree: the task makes the directory `repo`."""
    with closing(open_objects(home, identity)) as objects:
        empty = objects.write_tree({})
    lineage = f"{identity}@{socket.gethostname()}"
    return BasePinned(
        repo_id=identity, commit=NO_COMMIT, commit_tree=empty, tree=empty, checkout=task.repo, lineage=lineage
    )


def _pin_plain(directory: Path, identity: str, home: Home) -> BasePinned:
    """The files of a directory that is no checkout."""
    with closing(open_objects(home, identity)) as objects:
        tree = pin_directory(directory, objects)
        empty = objects.write_tree({})
    lineage = f"{identity}@{socket.gethostname()}"
    checkout = os.fspath(directory)
    return BasePinned(
        repo_id=identity, commit=NO_COMMIT, commit_tree=empty, tree=tree, checkout=checkout, lineage=lineage
    )


def _proposed_tree(change: ProposedChange, base: Base, checkout: Path, objects: ObjectStore) -> str:
    if change.diff is not None:
        try:
            return objects.apply(base.tree, change.diff.encode())
        except CodePilotError as error:
            if error.kind is not FailureKind.PATCH_CONFLICT:
                raise
            why = error.failure.message.removeprefix("the patch does not apply: ")
            raise CodePilotError(FailureKind.INVALID_SPEC, *_unusable(change.diff, why, base.commit)) from error
    return pin_base(checkout, objects, ref=change.ref).tree


def _unusable(diff: str, why: str, commit: str) -> tuple[str, str]:
    """What is wrong with a diff that cannot be applied, and what to do about it."""
    if not re.search(r"^(?:diff --git |--- |\+\+\+ |@@ )", diff, re.MULTILINE):
        return "This is no diff: it names no file.", "Make it with `git diff --binary`."
    if "binary patch" in why:
        return f"The diff leaves out the content of a binary file: {why}.", "Make it with `git diff --binary`."
    where = f"commit {commit[:12]}" if commit else "the files as they are"
    return f"The diff does not apply to {where}: {why}.", "Name the commit that it was made on with --onto REV."


def carry_base(runtime: Runtime, base: BasePinned) -> BasePinned:
    """Put the base's trees where every worker finds them."""
    if not runtime.shared:
        return base
    runtime.leave_name()
    with closing(open_objects(runtime.home, base.repo_id)) as objects:
        whole = runtime.artifacts.put_stream(objects.export(base.tree), ArtifactType.SNAPSHOT)
        others = [tree for tree in (base.commit_tree, base.before, base.proposed) if tree not in (None, base.tree)]
        rest = (objects.export(tree, [base.tree]) for tree in others if tree)
        carried = tuple(runtime.artifacts.put_stream(one, ArtifactType.SNAPSHOT) for one in rest)
        return base.model_copy(update={"carried": (whole, *carried)})


def can_be_had(runtime: Runtime, base: BasePinned) -> bool:
    """True if the base's trees are in this home or can be brought here: one that was pinned in another home, which
    only shares a database file with this one, is pinned anew.
    """
    with closing(open_objects(runtime.home, base.repo_id)) as objects:
        return bool(base.carried) or objects.has_tree(base.tree)


def fetch_base(runtime: Runtime, base: BasePinned, objects: ObjectStore) -> None:
    """Bring the base's trees here if they are not."""
    if not objects.has_tree(base.tree):
        for ref in base.carried:
            objects.receive(runtime.artifacts.stream(ref))


def local_checkout(home: Home, base: BasePinned, objects: ObjectStore) -> Path:
    """The checkout, or on another machine a copy of the base to read in its place."""
    if base.checkout is not None and Path(base.checkout).is_dir():
        return Path(base.checkout)
    return lay_out(objects, base.tree, home.repos / f"{base.repo_id}-{base.tree[:16]}.checkout")
