"""The pinned base of a run: taken from the checkout or the URL, kept in this home, and carried to other machines."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import closing
from pathlib import Path

from codepilot.core.artifacts import ArtifactType
from codepilot.core.events import BasePinned
from codepilot.core.task import TaskSpec
from codepilot.engine.runtime import Runtime
from codepilot.store import Home
from codepilot.workspace import ObjectStore, clone, find_root, first_commit, is_url, lay_out, pin_base


def repo_id(repo: str) -> str:
    """The name under which a repository's objects are kept."""
    return hashlib.sha256(repo.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def open_objects(home: Home, identity: str) -> ObjectStore:
    return ObjectStore.open(home.repos / f"{identity}.git")


def pin(task: TaskSpec, home: Home) -> BasePinned:
    """Clone if the task names a URL, then pin the exact base."""
    identity = repo_id(task.repo)
    ref = task.ref
    if is_url(task.repo):
        checkout, ref = clone(task.repo, home.repos / f"{identity}.checkout", task.ref), "HEAD"
    else:
        checkout = find_root(Path(task.repo))
    objects = open_objects(home, identity)
    try:
        base = pin_base(checkout, objects, ref=ref)
    finally:
        objects.close()
    return BasePinned(
        repo_id=identity,
        commit=base.commit,
        commit_tree=base.commit_tree,
        tree=base.tree,
        checkout=os.fspath(checkout),
        lineage=first_commit(checkout, base.commit) or f"{identity}@{socket.gethostname()}",
    )


def carry_base(runtime: Runtime, base: BasePinned) -> BasePinned:
    """Put the base's trees where every worker finds them."""
    if not runtime.shared:
        return base
    runtime.leave_name()
    with closing(open_objects(runtime.home, base.repo_id)) as objects:
        whole = runtime.artifacts.put_stream(objects.export(base.tree), ArtifactType.SNAPSHOT)
        if not base.dirty:
            return base.model_copy(update={"carried": (whole,)})
        rest = runtime.artifacts.put_stream(objects.export(base.commit_tree, [base.tree]), ArtifactType.SNAPSHOT)
        return base.model_copy(update={"carried": (whole, rest)})


def can_be_had(runtime: Runtime, base: BasePinned) -> bool:
    """Whether the base's trees are in this home or can be brought here: one that was pinned in another home, which
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
