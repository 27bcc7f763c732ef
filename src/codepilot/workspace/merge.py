"""Three-way merge of trees in our own object store: nothing is checked out, and no work tree is walked.

A path that only one side changed takes that side. A file that both changed is merged line by line by `git merge-file`,
which reads three files of a private directory; what it cannot merge is a conflict.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from codepilot.workspace.git import run_git
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.trees import EXECUTABLE, FILE, Entry

MERGED_BYTES = 4 << 20
"""A file of which one version is larger than this is not merged by lines."""
_MEMORY_BYTES = 1 << 30
_SECONDS = 60.0
_FILES = (FILE, EXECUTABLE)


@dataclass(frozen=True)
class Merge:
    """The merged tree, and the paths at which both sides made different changes; there the tree has `ours`."""

    tree: str
    conflicts: tuple[str, ...] = ()


def merge_trees(objects: ObjectStore, base: str, ours: str, theirs: str) -> Merge:
    """The tree with the changes that `ours` and `theirs` made to `base`."""
    if theirs in (base, ours):
        return Merge(ours)
    if ours == base:
        return Merge(theirs)
    mine = {path: after for path, _, after in objects.changes(base, ours)}
    merged, written, conflicts = objects.read_tree(ours), [], []
    for path, before, after in objects.changes(base, theirs):
        found = _merged(objects, before, mine[path], after) if path in mine else after
        if isinstance(found, Conflict):
            conflicts.append(path)
        elif found is None:
            merged.pop(path, None)
        else:
            merged[path] = found
            written.append(path)
    folders = {folder for path in merged for folder in _folders(path)}
    conflicts += [path for path in written if path in folders or any(one in merged for one in _folders(path))]
    if conflicts:
        return Merge(ours, tuple(conflicts))
    return Merge(objects.write_tree(merged))


class Conflict:
    """Both sides changed a path in ways that do not go together."""


def _folders(path: str) -> list[str]:
    """The directories above a path."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]


def _merged(
    objects: ObjectStore, base: Entry | None, ours: Entry | None, theirs: Entry | None
) -> Entry | Conflict | None:
    """One path that both sides changed."""
    if ours == theirs:
        return ours
    if ours is None or theirs is None or ours.mode not in _FILES or theirs.mode not in _FILES:
        return Conflict()
    mode = theirs.mode if base is not None and ours.mode == base.mode else ours.mode
    if base is None or base.mode not in _FILES:
        return Entry(mode, ours.oid) if ours.oid == theirs.oid else Conflict()
    if base.oid in (ours.oid, theirs.oid):
        return Entry(mode, theirs.oid if ours.oid == base.oid else ours.oid)
    content = _merged_lines(objects, base.oid, ours.oid, theirs.oid)
    return Conflict() if content is None else Entry(mode, objects.write_blob(content))


def _merged_lines(objects: ObjectStore, base: str, ours: str, theirs: str) -> bytes | None:
    """The merged content; None if there are conflicts, or a version is binary or too large."""
    versions = {"ours": ours, "base": base, "theirs": theirs}
    if any((objects.header(oid) or ("blob", 0))[1] > MERGED_BYTES for oid in versions.values()):
        return None
    with tempfile.TemporaryDirectory(prefix="merge-", dir=objects.path) as place:
        for name, oid in versions.items():
            (Path(place) / name).write_bytes(objects.read_blob(oid))
        paths = [str(Path(place) / name) for name in versions]
        done = run_git(
            ["merge-file", "-p", "-q", *paths], objects.path, timeout_sec=_SECONDS, memory_bytes=_MEMORY_BYTES
        )
    return done.stdout if done.returncode == 0 else None
