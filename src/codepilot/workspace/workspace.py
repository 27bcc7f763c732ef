"""A workspace: a private plain directory with a pinned tree, which an agent may change.

`path/` holds `tree/` (the agent's files), `snapshots/` (an object store that also reads from the base's) and
`index.json` (the files as first written). A workspace exists whole or not at all. A snapshot restores exactly; snapshot
and restore cost in proportion to what changed. Tree and diff hold every file that the base does not ignore. The agent's
own `.git` at the top is never read, kept or touched. Nothing outside `path` is ever written.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import dirfd
from codepilot.workspace.base_index import BaseIndex
from codepilot.workspace.materialise import Restorer, copy_in, materialise
from codepilot.workspace.objects import RECEIVED_BYTES, ObjectStore
from codepilot.workspace.patch_parts import Change, PatchParts
from codepilot.workspace.shadow import SHADOW, SPARE, RunTree, Shadow
from codepilot.workspace.stat_cache import GRANULARITY_NS, CachedFile, StatCache, is_coarse
from codepilot.workspace.transfer import receive
from codepilot.workspace.trees import SnapshotRecord, decode_record, encode_record, is_record, shown, split
from codepilot.workspace.walk import Violation, Walk, Walked, WalkLimits


@dataclass(frozen=True)
class Snapshot:
    """An exact copy of the workspace, and the tree it stands for. Equal states have equal ids."""

    id: str
    tree: str
    violations: tuple[Violation, ...] = ()


@dataclass(frozen=True)
class Scan:
    """The current content of the workspace."""

    tree: str
    violations: tuple[Violation, ...]
    ignored: tuple[str, ...]


@dataclass(frozen=True)
class WorkspaceDiff:
    """How the workspace differs from a tree. Ignored files are evidence, not part of the change."""

    patch: bytes
    tree: str
    changes: tuple[Change, ...]
    violations: tuple[Violation, ...]
    ignored: tuple[str, ...]


class Workspace:
    """See the module. One instance may be shared by threads; its operations take turns."""

    def __init__(self, path: Path, objects: ObjectStore, limits: WalkLimits | None = None) -> None:
        self.path = path.absolute()
        self._base_objects = objects
        self._limits = limits or WalkLimits()
        self._lock = threading.RLock()
        self._store: ObjectStore | None = None
        self._base_index: BaseIndex | None = None
        self._stat_cache = StatCache()
        self._shadow: Shadow | None = None
        self._parts = PatchParts()
        """Of the patches between its trees: a checkpoint makes only those that are new."""

    @property
    def tree_path(self) -> Path:
        """The directory in which the agent works: the shadow while there is one."""
        shadow = self.path / SHADOW
        return shadow if shadow.is_dir() else self.path / "tree"

    @property
    def exists(self) -> bool:
        return (self.path / "tree").is_dir()

    @property
    def made_at(self) -> float:
        """When it was completed; later changes have a later status time."""
        return (self.path / "index.json").stat().st_mtime

    def create(self, tree: str, carried: Mapping[str, Path] | None = None) -> bool:
        """Lay a tree down; false if it was there already. `carried` adds host files that are no part of the tree.

        A workspace that was begun and never finished is made again; one made from another tree is refused.
        """
        with self._lock, dirfd.disk_full_is_typed():
            if self.exists:
                if self._index()["tree"] != tree:
                    raise CodePilotError(
                        FailureKind.INTERNAL, f"the workspace {self.path.name} was made from another tree"
                    )
                return False
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._discard_leftovers()
            partial = self.path / f"partial-{secrets.token_hex(6)}"
            partial.mkdir(mode=0o755)
            with dirfd.opened(partial) as root:
                os.fchmod(root, 0o755)
                known = materialise(self._base_objects, tree, root)
                for target, source in sorted((carried or {}).items()):
                    copy_in(source, root, split(target))
            known = _settled(known)
            self._write_index(tree, sorted(carried or {}), known)
            partial.rename(self.path / "tree")
            self._stat_cache = StatCache.of(known)
            return True

    def scan(self) -> Scan:
        """The tree as it is now, without keeping a snapshot."""
        walked = self._walk(snapshot=False)[0]
        return Scan(walked.tree, walked.violations, walked.ignored)

    def snapshot(self) -> Snapshot:
        """Keep the workspace exactly as it is. Violations are reported; the offending entries are not kept."""
        walked, snapshot = self._walk(snapshot=True)
        if not walked.complete:
            excess = next(found for found in walked.violations if found.rule == "quota")
            raise CodePilotError(
                FailureKind.POLICY_VIOLATION,
                f"the workspace is too large to keep: {excess.detail}",
                "Delete generated files, or work in a temporary directory outside the tree.",
            )
        return Snapshot(snapshot, walked.tree, walked.violations)

    def restore(self, snapshot: str, paths: Sequence[str] = ()) -> None:
        """Make the workspace, or only the given paths of it, exactly what it was at a snapshot."""
        with self._lock, dirfd.disk_full_is_typed():
            if self._shadow is None:
                self.close_shadow()  # of a process that was killed: the tree itself is to be what the snapshot says
            store = self._objects()
            record = self._record(snapshot)
            asked = [_inside(path) for path in paths]
            self._discard_leftovers()
            staging_path = self.path / f"staging-{secrets.token_hex(6)}"
            staging_path.mkdir(mode=0o700)
            with dirfd.opened(self.path) as home:
                with dirfd.opened(staging_path.name, home) as staging:
                    self._restore(home, Restorer(store, staging, self._stat_cache), record, asked)
                dirfd.remove(home, staging_path.name)

    def export_snapshot(self, snapshot: str, whole: bool = False) -> Iterator[bytes]:
        """A snapshot as a byte stream, for `import_snapshot` of a workspace elsewhere.

        Unless asked for whole it leaves out what the base tree holds, and names that tree as needed.
        """
        with self._lock:
            store = self._objects()
            self._record(snapshot)
            return store.export(snapshot, () if whole else (self._index()["tree"],))

    def import_snapshot(self, chunks: Iterable[bytes], limit_bytes: int = RECEIVED_BYTES) -> Snapshot:
        """Take in a snapshot of another workspace; `restore` then gives exactly the files it was made from.

        What a snapshot does not hold is not known of it afterwards: the violations that were found when it was made.
        """
        with self._lock, dirfd.disk_full_is_typed():
            name = receive(self._objects(), chunks, limit_bytes, role="snapshot").root
            return Snapshot(name, self._record(name).tree)

    def diff(self, base_tree: str) -> WorkspaceDiff:
        """The exact change from a tree to the workspace."""
        with self._lock:
            if not self._objects().has_tree(base_tree):
                raise CodePilotError(FailureKind.PATH_NOT_FOUND, f"there is no tree {base_tree}")
            walked = self._walk(snapshot=False)[0]
            difference = self._objects().diff(base_tree, walked.tree)
        return WorkspaceDiff(difference.patch, walked.tree, difference.changes, walked.violations, walked.ignored)

    def compare(self, before: str, after: str, *, patch: bool = True) -> WorkspaceDiff:
        """The exact change between two trees of the workspace, without looking at its files."""
        with self._lock:
            for tree in (before, after):
                if not self._objects().has_tree(tree):
                    raise CodePilotError(FailureKind.PATH_NOT_FOUND, f"there is no tree {tree}")
            store = self._objects()
            difference = store.diff(before, after, self._parts) if patch else store.listing(before, after)
        return WorkspaceDiff(difference.patch, after, difference.changes, (), ())

    def open_shadow(self, place: Path | None = None) -> RunTree:
        """Let the agent work in a copy from now on; the tree itself changes only by `promote`.

        With `place`, the tree is laid out there for a person. Everything in the workspace must have ended.
        """
        with self._lock, dirfd.disk_full_is_typed():
            self.close_shadow()
            taken = self.snapshot()
            self._discard_leftovers()
            kept = self._stat_cache
            opened = Shadow(self.path, place, self._objects(), self._load(), self._limits, kept)
            found = opened.open(self._record(taken.id), taken.tree)
            self._shadow, self._stat_cache = opened, opened.agent_cache
            return found

    def promote(self, snapshot: str) -> RunTree:
        """Make the tree exactly what the agent's directory was at a snapshot, in one exchange of directories."""
        with self._lock, dirfd.disk_full_is_typed():
            return self._opened_shadow().promote(self._record(snapshot))

    def run_tree(self) -> RunTree:
        """The tree that was promoted, as it is now: a person may have edited it."""
        with self._lock, dirfd.disk_full_is_typed():
            return self._opened_shadow().look()

    def close_shadow(self) -> None:
        """Remove the shadow: what was not promoted is gone."""
        with self._lock:
            if self._shadow is not None:
                self._stat_cache, self._shadow = self._shadow.close(), None
            if (self.path / SHADOW).exists():
                self._stat_cache = StatCache()
                with dirfd.opened(self.path) as home:
                    os.rename(SHADOW, f"partial-{secrets.token_hex(6)}", src_dir_fd=home, dst_dir_fd=home)
                self._discard_leftovers()

    def _opened_shadow(self) -> Shadow:
        if self._shadow is None:
            raise CodePilotError(FailureKind.EXECUTOR_LOST, f"the workspace {self.path.name} has no shadow")
        return self._shadow

    def read_again(self, since_ns: int) -> None:
        """Read every file whose status changed since a moment again at the next look."""
        with self._lock:
            self._stat_cache = self._stat_cache.before(since_ns)

    def read_files_again(self, inodes: Set[int]) -> None:
        """Read these files again at the next look, whatever their status."""
        with self._lock:
            self._stat_cache = self._stat_cache.without(inodes)

    def read_file(self, path: str, limit: int = 32 << 20) -> bytes:
        """The content of a regular file inside, reached without following any link."""
        parts = _inside(path)
        try:
            with dirfd.opened(self.tree_path) as root, dirfd.descended(root, parts[:-1]) as parent:
                fd = dirfd.open_regular(parent, parts[-1])
                if fd is None:
                    raise _not_found(path)
                try:
                    return _read_within(fd, path, limit)
                finally:
                    os.close(fd)
        except OSError as error:
            raise _not_found(path) from error

    def delete(self) -> None:
        """Remove the workspace with its snapshots. Removing what is not there is fine."""
        with self._lock:
            self.close()
            self._shadow = None
            self._base_index = None
            self._stat_cache = StatCache()
            remove_workspace(self.path)

    def close(self) -> None:
        """Let go of open files."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None

    @contextlib.contextmanager
    def _root(self) -> Iterator[int]:
        """The tree, opened also where an agent has taken its owner's rights to look into it away."""
        with dirfd.opened(self.path) as home:
            found = dirfd.status(home, self.tree_path.name)
            closed = found is not None and found.st_mode & 0o500 != 0o500
            opened = dirfd.open_for_change if closed else _open_directory
            root = opened(home, self.tree_path.name)
        try:
            yield root
        finally:
            os.close(root)

    def _walk(self, snapshot: bool) -> tuple[Walked, str]:
        with self._lock, dirfd.disk_full_is_typed():
            base_index = self._load()
            with self._root() as root, self._objects().writer() as writer:
                walked = Walk(base_index, self._stat_cache, writer, self._limits).run(root)
                name = ""
                if snapshot and walked.complete:
                    mode = stat.S_IMODE(os.fstat(root).st_mode)
                    name = writer.add("blob", encode_record(SnapshotRecord(walked.tree, walked.manifest, mode)))
            self._stat_cache = walked.stat_cache
            return walked, name

    def _restore(self, home: int, restorer: Restorer, record: SnapshotRecord, asked: Sequence[list[str]]) -> None:
        root = dirfd.open_for_change(home, self.tree_path.name)
        try:
            if asked:
                for parts in asked:
                    restorer.path(root, record.manifest, parts)
            else:
                restorer.directory(root, record.manifest)
                os.fchmod(root, record.mode)
        finally:
            os.close(root)

    def _record(self, snapshot: str) -> SnapshotRecord:
        store = self._objects()
        data = store.read_blob(snapshot) if store.has(snapshot) and store.kind(snapshot) == "blob" else b""
        if not is_record(data):
            raise CodePilotError(FailureKind.PATH_NOT_FOUND, f"there is no snapshot {snapshot}")
        return decode_record(data)

    def _objects(self) -> ObjectStore:
        if self._store is None:
            if not self.exists:
                raise CodePilotError(FailureKind.EXECUTOR_LOST, f"the workspace {self.path.name} is not there")
            self._store = ObjectStore.open(self.path / "snapshots", [self._base_objects.path], durable=False)
        return self._store

    def _load(self) -> BaseIndex:
        """The index of the base, read once; after a restart also the files as first written."""
        if self._base_index is None:
            store = self._objects()
            index = self._index()
            self._base_index = BaseIndex.of(self._base_objects, index["tree"], index["carried"])
            if not self._stat_cache.directories:
                known = {path: CachedFile(*row) for path, row in index["files"].items() if store.has(row[4])}
                self._stat_cache = StatCache.of(known)
        return self._base_index

    def _index(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.path / "index.json").read_bytes())
        return loaded

    def _write_index(self, tree: str, carried: Sequence[str], known: Mapping[str, CachedFile]) -> None:
        temporary = self.path / f"index.json.{secrets.token_hex(6)}"
        temporary.write_text(json.dumps({"tree": tree, "carried": carried, "files": known}))
        temporary.rename(self.path / "index.json")

    def _discard_leftovers(self) -> None:
        """Remove what an interrupted operation left in the workspace's directory."""
        with dirfd.opened(self.path) as home:
            for name in dirfd.names(home):
                left = name == SPARE and self._shadow is None
                if left or name.startswith(("partial-", "staging-", "index.json.")):
                    dirfd.remove(home, name)


def _open_directory(parent: int, name: str) -> int:
    return os.open(name, dirfd.DIRECTORY, dir_fd=parent)


def remove_workspace(path: Path) -> None:
    """Remove a workspace's directory by its path alone. Links in it are never followed.

    Its tree gives up its name first: a workspace that was half removed counts as one that was never finished.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), dirfd.opened(path) as home:
        os.rename("tree", f"partial-{secrets.token_hex(6)}", src_dir_fd=home, dst_dir_fd=home)
    if path.parent.is_dir():
        with dirfd.opened(path.parent) as parent:
            dirfd.remove(parent, path.name)


def _settled(known: Mapping[str, CachedFile]) -> dict[str, CachedFile]:
    """The files of which any later change is bound to show in their status; the first walk reads the others again.

    That is cheaper than to wait for the last of them: they are no more than were written in one tick of the clock.
    """
    before = time.time_ns() - GRANULARITY_NS
    return {path: entry for path, entry in known.items() if entry.ctime_ns < before and not is_coarse(entry.ctime_ns)}


def _inside(path: str) -> list[str]:
    parts = split(path)
    if parts[0] == ".git":
        raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, "the workspace's .git is not part of it", path=shown(path))
    return parts


def _read_within(fd: int, path: str, limit: int) -> bytes:
    status = os.fstat(fd)
    if status.st_nlink > 1:
        raise CodePilotError(
            FailureKind.POLICY_VIOLATION, f"{shown(path)} is a hard link and is not read", path=shown(path)
        )
    if status.st_size > limit:
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS, f"{shown(path)} has {status.st_size} bytes; at most {limit}"
        )
    return dirfd.read_all(fd, status.st_size)


def _not_found(path: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.PATH_NOT_FOUND, f"there is no regular file {path!r} in the workspace", path=shown(path)
    )
