"""The shadow of a workspace: the agent works in a copy, and valid states are promoted to the run's tree.

A promotion brings the spare directory, which is the tree before last, to the wanted state, and exchanges it with the
tree in one system call: there is no moment without a whole tree, and the cost follows what changed. The tree may lie
where a person edits it; what the person changed there is found by comparing it with what was promoted last.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import dirfd
from codepilot.workspace.base_index import BaseIndex
from codepilot.workspace.materialise import Restorer
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.stat_cache import StatCache
from codepilot.workspace.trees import SnapshotRecord, encode_record, split
from codepilot.workspace.walk import Walk, Walked, WalkLimits

SHADOW, SPARE = "shadow", "spare"
_OWNER = "owner.json"


@dataclass(frozen=True)
class RunTree:
    """The run's tree: where it is, what was promoted last, and what it holds now."""

    path: Path
    promoted: str
    tree: str
    snapshot: str
    """What it holds now; restores exactly. Empty after a promotion that nobody could interfere with."""
    late: tuple[str, str] | None = None
    """Tree and snapshot of the tree before a promotion, if a person edited it since it was looked at last."""


class Shadow:
    """See the module. Not for several threads at once."""

    def __init__(
        self,
        home: Path,
        place: Path | None,
        objects: ObjectStore,
        base_index: BaseIndex,
        limits: WalkLimits,
        tree_cache: StatCache,
    ) -> None:
        self._home = home
        self._place = place
        self._objects = objects
        self._base_index = base_index
        self._limits = limits
        self._kept = tree_cache
        self._tree_cache = tree_cache if place is None else StatCache()
        self._spare_cache = StatCache()
        self.agent_cache = StatCache()
        self._promoted = ""
        self._seen = ""
        """What the tree held when it was looked at last: what differs from it, nobody knows of."""

    @property
    def path(self) -> Path:
        """The run's tree."""
        return self._place or self._home / "tree"

    @property
    def _near(self) -> Path:
        """Where spare and staging directories are: on the same file system as the tree."""
        if self._place is None:
            return self._home
        return self._place.with_name(f".{self._place.name}.codepilot")

    def open(self, record: SnapshotRecord, tree: str) -> RunTree:
        """Make the copy for the agent, and lay the tree out if it has a place of its own."""
        found = self._own_place(tree)
        self._lay(self._home, SHADOW, record, StatCache())
        self.agent_cache = self._walk(self._home / SHADOW).stat_cache
        if found is None:
            self._promoted = tree
            if self._place is not None:
                self._lay(self._place.parent, self._place.name, record, StatCache())
            self._note(tree)
        self._lay(self._near, SPARE, record, StatCache())
        self._spare_cache = self._walk(self._near / SPARE).stat_cache
        return self.look()

    def look(self) -> RunTree:
        """The tree as it is now."""
        walked = self._walk(self.path, self._tree_cache)
        self._tree_cache, self._seen = walked.stat_cache, walked.tree
        return RunTree(self.path, self._promoted, walked.tree, self._kept_as(walked))

    def promote(self, record: SnapshotRecord) -> RunTree:
        """Exchange the tree for one that is exactly `record`."""
        spare = self._walk(self._near / SPARE, self._spare_cache)
        self._lay(self._near, SPARE, record, spare.stat_cache)
        exchange = {"seen": self._seen, "tree": record.tree}
        self._note(self._promoted, exchange)
        if self._place is None:
            _exchange(self.path, self._near / SPARE)
            self._tree_cache, self._spare_cache = spare.stat_cache, self._tree_cache
            self._note(record.tree)
            return RunTree(self.path, record.tree, record.tree, "")
        _exchange(self.path, self._near / SPARE)
        after = self._walk(self._near / SPARE, self._tree_cache)
        late = None if after.tree == self._seen else (after.tree, self._kept_as(after))
        self._bring((*after.ignored, ".git"))  # a person's ignored files, and a repository of theirs
        self._note(record.tree, {**exchange, "left": after.tree})
        self._tree_cache, self._spare_cache = spare.stat_cache, after.stat_cache
        now = self.look()
        self._seen = record.tree
        return RunTree(now.path, now.promoted, now.tree, now.snapshot, late)

    def close(self) -> StatCache:
        """Remove what only promotions need; the statuses of the workspace's own tree."""
        with contextlib.suppress(FileNotFoundError), dirfd.opened(self._near) as near:
            dirfd.remove(near, SPARE)
        return self._tree_cache if self._place is None else self._kept

    # The place of a person --------------------------------------------------------------------------

    def _own_place(self, tree: str) -> str | None:
        """The tree that this run promoted last to its place; None if it is to be made. Another's place is refused."""
        if self._place is None:
            return None
        run = self._home.name.partition(".")[0]
        self._near.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            owner = json.loads((self._near / _OWNER).read_text())
            if owner["run"] == run and self._place.is_dir() and self._objects.has_tree(owner["tree"]):
                self._promoted = str(owner["tree"])
                self._complete(owner.get("exchange"))
                return self._promoted
        if os.path.lexists(self._place) and (not self._place.is_dir() or any(self._place.iterdir())):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{self._place} is not empty.",
                "Name a directory that does not exist yet with --worktree.",
            )
        self._place.mkdir(parents=True, exist_ok=True)
        return None

    def _complete(self, exchange: Mapping[str, str] | None) -> None:
        """After a kill: bring what a person edited in the moment of the last exchange from the spare to the place."""
        if exchange is None or not (self._near / SPARE).is_dir():
            return
        spare, now = self._walk(self._near / SPARE), self._walk(self.path)
        ended = spare.tree != exchange.get("left", spare.tree)  # the next promotion had begun to fill the spare
        if not ended and spare.tree != exchange["tree"] and all(map(self._objects.has_tree, exchange.values())):
            there, given = (self._objects.read_tree(tree) for tree in (now.tree, exchange["tree"]))
            edited = [path for path, _, _ in self._objects.changes(exchange["seen"], spare.tree)]
            self._bring([path for path in edited if there.get(path) == given.get(path)])
            self._bring((*spare.ignored, ".git"), replace=False)
        self._note(self._promoted)

    def _note(self, tree: str, exchange: Mapping[str, str] | None = None) -> None:
        """Note what was promoted last, and the exchange whose edits may not be known yet."""
        self._promoted = tree
        if self._place is not None:
            owner = {"run": self._home.name.partition(".")[0], "tree": tree, "exchange": exchange}
            partial = self._near / f"{_OWNER}.{secrets.token_hex(4)}"
            partial.write_text(json.dumps(owner))
            partial.rename(self._near / _OWNER)

    def _bring(self, paths: Iterable[str], *, replace: bool = True) -> None:
        """Move what the exchanged directory holds at some paths to the place."""
        with dirfd.opened(self._near / SPARE) as before, dirfd.opened(self.path) as after:
            for path in paths:
                *parents, name = path.rstrip("/").split("/") if path == ".git" else split(path.rstrip("/"))
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    _move(before, after, parents, name, replace)

    # Directories ------------------------------------------------------------------------------------

    def _lay(self, parent: Path, name: str, record: SnapshotRecord, cache: StatCache) -> None:
        """Make a directory hold exactly `record`."""
        staging_name = f"staging-{secrets.token_hex(6)}"
        around = self._home if parent == self._home else self._near
        (around / staging_name).mkdir(mode=0o700)
        with contextlib.suppress(FileExistsError):
            (parent / name).mkdir(mode=0o700)
        with dirfd.opened(around) as near, dirfd.opened(parent) as home:
            with dirfd.opened(staging_name, near) as staging:
                root = dirfd.open_for_change(home, name)
                try:
                    Restorer(self._objects, staging, cache).directory(root, record.manifest)
                    os.fchmod(root, record.mode)
                finally:
                    os.close(root)
            dirfd.remove(near, staging_name)

    def _walk(self, path: Path, cache: StatCache | None = None) -> Walked:
        with dirfd.opened(path) as root, self._objects.writer() as writer:
            return Walk(self._base_index, cache or StatCache(), writer, self._limits).run(root)

    def _kept_as(self, walked: Walked) -> str:
        with dirfd.opened(self.path) as root, self._objects.writer() as writer:
            mode = stat.S_IMODE(os.fstat(root).st_mode)
            return writer.add("blob", encode_record(SnapshotRecord(walked.tree, walked.manifest, mode)))


def _exchange(one: Path, other: Path) -> None:
    """Exchange two directories in one step, wherever they lie on one file system."""
    with dirfd.opened(one.parent) as parent, dirfd.opened(other.parent) as other_parent:
        dirfd.exchange_between(parent, one.name, other_parent, other.name)


def _move(before: int, after: int, parents: list[str], name: str, replace: bool) -> None:
    """Move what is at a path of one open directory to the same path of another, which may have something there."""
    with dirfd.descended(before, parents) as source:
        if dirfd.status(source, name) is None:
            return
        for number, part in enumerate(parents):
            with dirfd.descended(after, parents[:number]) as above, contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=above)
        with dirfd.descended(after, parents) as target:
            if replace or dirfd.status(target, name) is None:
                dirfd.remove(target, name)
                os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)
