"""The pinned base: the content of the user's repository as one tree in our own object store.

Without a ref the base is HEAD plus all uncommitted files that git does not ignore, read raw from disk. With a ref it is
exactly that commit. The user's checkout, index, refs, reflog and configuration stay byte-identical. Symbolic links are
kept and never followed. Submodules stay at their recorded commits. Untracked bytecode, tool caches and installed
environments (virtual environments, `node_modules`) are left out. Only git commands that execute nothing from the
repository's configuration run, so a repository that someone else owns is safe to read. Large files are streamed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from codepilot.core.git_names import is_git_name
from codepilot.workspace import dirfd
from codepilot.workspace.base_index import keep_tree
from codepilot.workspace.directory import file_entry
from codepilot.workspace.ignore import IgnoreRules
from codepilot.workspace.objects import ObjectStore, Writer
from codepilot.workspace.pack import LARGE
from codepilot.workspace.repository import Repository, find_repository, resolve, unreachable
from codepilot.workspace.trees import EXECUTABLE, FILE, GITLINK, SYMLINK, Entry, shown

_BATCH_BYTES = 64 << 20
_LEFTOVERS = IgnoreRules.read({})
"""What tools leave behind: no part of a base even where the repository forgot to ignore it."""


@dataclass(frozen=True)
class Base:
    """What a run starts from. `commit_tree` is the commit itself; `tree` adds what was not committed.

    `left_out` names environments found in the checkout that are neither committed nor ignored.
    """

    root: Path
    commit: str
    commit_tree: str
    tree: str
    submodules: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def dirty(self) -> bool:
        """True if the base holds anything that the commit does not."""
        return self.tree != self.commit_tree


def pin_base(checkout: Path, objects: ObjectStore, ref: str | None = None) -> Base:
    """Store the base of a run and name it. Nothing in the checkout changes."""
    repository = find_repository(checkout)
    commit = resolve(repository, ref)
    committed = _listed(repository.git("ls-tree", "-r", "-z", "--full-tree", commit))
    with objects.writer() as writer, dirfd.disk_full_is_typed():
        reader = _Reader(repository, writer)
        if ref is not None:
            tree_entries = commit_entries = reader.committed(committed, {})
        else:
            tree_entries, same = reader.on_disk(committed)
            commit_entries = reader.committed(committed, same)
    commit_tree = objects.write_tree(commit_entries)
    tree = objects.write_tree(tree_entries)
    submodules = tuple(sorted(path for path, entry in tree_entries.items() if entry.mode == GITLINK))
    for path in submodules:
        _keep_submodule(repository.root, path, tree_entries[path].oid, objects)
    return Base(repository.root, commit, commit_tree, tree, submodules, tuple(sorted(reader.left_out)))


class _Reader:
    """Streams a repository's files into the store."""

    def __init__(self, repository: Repository, writer: Writer) -> None:
        self._repository = repository
        self._writer = writer
        self.left_out: frozenset[str] = frozenset()

    def on_disk(self, committed: Mapping[str, Entry]) -> tuple[dict[str, Entry], dict[str, str]]:
        """The files as they lie on disk, and for those equal to their commit's blob, our name for it."""
        tracked, kept_back = self._index()
        paths = tracked.keys() | self._untracked()
        entries: dict[str, Entry] = {}
        same: dict[str, str] = {}
        with dirfd.opened(self._repository.root) as root:
            descent = dirfd.Descent(root)
            try:
                for path in sorted(paths, key=_by_directory):
                    recorded = tracked.get(path)
                    if recorded is not None and recorded.mode == GITLINK:
                        entries[path] = Entry(GITLINK, recorded.oid.ljust(64, "0"))
                        continue
                    known = committed[path].oid if path in committed else ""
                    found = self._file(descent, path, known)
                    if found is None:
                        continue
                    entries[path], native = found
                    if known and native == known:
                        same[known] = entries[path].oid
            finally:
                descent.close()
        absent = {path: entry for path, entry in kept_back.items() if path not in entries}
        return entries | self.committed(absent, same), same

    def _untracked(self) -> set[str]:
        """Untracked files that are not ignored, without nested repositories, environments and tools' caches."""
        listed = self._repository.git("ls-files", "-o", "--exclude-standard", "-z").split(b"\0")
        paths = {os.fsdecode(raw) for raw in listed if raw and not raw.endswith(b"/")}
        self.left_out = _environments(paths)
        return {
            path
            for path in paths
            if not _LEFTOVERS.ignores(path) and not any(above in self.left_out for above in _directories_above(path))
        }

    def committed(self, listed: Mapping[str, Entry], same: Mapping[str, str]) -> dict[str, Entry]:
        """Entries of the user's repository as entries of ours; blobs we do not have yet are copied."""
        names = dict(same)
        wanted = sorted({entry.oid for entry in listed.values() if entry.mode != GITLINK} - names.keys())
        names.update(_blobs(self._repository, wanted, self._writer))
        return {
            path: Entry(GITLINK, entry.oid.ljust(64, "0"))
            if entry.mode == GITLINK
            else Entry(entry.mode, names[entry.oid])
            for path, entry in listed.items()
        }

    def _index(self) -> tuple[dict[str, Entry], dict[str, Entry]]:
        """The files that the index tracks, and those of them that a sparse checkout leaves out."""
        tracked: dict[str, Entry] = {}
        kept_back: dict[str, Entry] = {}
        for row in self._repository.git("ls-files", "-s", "-t", "-z").split(b"\0"):
            if not row:
                continue
            meta, _, raw = row.partition(b"\t")
            tag, mode, oid, _stage = meta.decode().split(" ")
            path = os.fsdecode(raw)
            tracked[path] = Entry(_mode(mode), oid)
            if tag == "S":
                kept_back[path] = tracked[path]
        return tracked, kept_back

    def _file(self, descent: dirfd.Descent, path: str, recorded: str) -> tuple[Entry, str] | None:
        """A file or link on disk; None if it is gone or something else. With it, its name in the user's repository.

        That name is computed only where the commit has a blob `recorded` for the path.
        """
        directory, _, name = path.rpartition("/")
        parent = descent.directory(directory)
        status = dirfd.status(parent, name) if parent is not None else None
        if parent is None or status is None:
            return None
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=parent))
            return Entry(SYMLINK, self._writer.add("blob", target)), _native_id(recorded, len(target), [target])
        if not stat.S_ISREG(status.st_mode):
            return None
        try:
            fd = dirfd.open_regular(parent, name)
        except PermissionError as error:
            raise unreachable(
                f"{shown(path)} cannot be read", "Make the file readable, or ignore it in git."
            ) from error
        if fd is None:
            return None
        try:
            oid, size = self._writer.add_file(fd, status.st_size)
            native = _native_id(recorded, size, _from_start(fd, size)) if recorded else ""
        finally:
            os.close(fd)
        return Entry(EXECUTABLE if status.st_mode & 0o100 else FILE, oid), native


def _from_start(fd: int, size: int) -> Iterator[bytes]:
    os.lseek(fd, 0, os.SEEK_SET)
    return dirfd.read_chunks(fd, size)


def _blobs(repository: Repository, oids: list[str], writer: Writer) -> Iterator[tuple[str, str]]:
    """Copy blobs of the user's repository, a bounded amount at a time; their names there and here."""
    if not oids:
        return
    asked = "".join(f"{oid}\n" for oid in oids).encode()
    sizes: dict[str, int] = {}
    for line in repository.git("cat-file", "--batch-check", stdin=asked).decode().splitlines():
        oid, _, rest = line.partition(" ")
        if not rest.startswith("blob "):
            raise unreachable(
                f"the repository lacks object {oid} of this commit",
                "Complete it with `git fetch` (`git fetch --refetch` for a partial clone), then try again.",
            )
        sizes[oid] = int(rest.removeprefix("blob "))
    for oid in (oid for oid in oids if sizes[oid] > LARGE):
        with tempfile.TemporaryFile() as file:
            repository.git("cat-file", "blob", oid, stdout=file)
            file.seek(0)
            yield oid, writer.add_file(file.fileno(), sizes[oid])[0]
    for group in _grouped((oid for oid in oids if sizes[oid] <= LARGE), sizes):
        output = repository.git("cat-file", "--batch", stdin="".join(f"{oid}\n" for oid in group).encode())
        position = 0
        for oid in group:
            start = output.index(b"\n", position) + 1
            yield oid, writer.add("blob", output[start : start + sizes[oid]])
            position = start + sizes[oid] + 1


def _grouped(oids: Iterable[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    group: list[str] = []
    total = 0
    for oid in oids:
        if group and total + sizes[oid] > _BATCH_BYTES:
            yield group
            group, total = [], 0
        group.append(oid)
        total += sizes[oid]
    if group:
        yield group


def _listed(output: bytes) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for row in output.split(b"\0"):
        if row:
            meta, _, raw = row.partition(b"\t")
            mode, _kind, oid = meta.decode().split()
            entries[os.fsdecode(raw)] = Entry(_mode(mode), oid)
    return entries


def _mode(mode: str) -> str:
    """Old repositories hold modes such as 100664; git reads them as plain files, and so do we."""
    if mode in (SYMLINK, GITLINK):
        return mode
    return EXECUTABLE if int(mode, 8) & 0o100 else FILE


def _native_id(like: str, size: int, content: Iterable[bytes]) -> str:
    """A blob's name in the user's own repository, by that repository's hash function."""
    digest = hashlib.new("sha1" if len(like) == 40 else "sha256", b"blob %d\0" % size, usedforsecurity=False)
    for chunk in content:
        digest.update(chunk)
    return digest.hexdigest()


def _environments(paths: Iterable[str]) -> frozenset[str]:
    """The directories among these that tools installed into."""
    found = {path.rpartition("/")[0] for path in paths if path.endswith("/pyvenv.cfg")}
    for path in paths:
        if "node_modules/" in path:
            found.update(above for above in _directories_above(path) if above.rpartition("/")[2] == "node_modules")
    return frozenset(place for place in found if not any(above in found for above in _directories_above(place)))


def _directories_above(path: str) -> Iterator[str]:
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def _by_directory(path: str) -> tuple[str, str]:
    directory, _, name = path.rpartition("/")
    return directory, name


def _keep_submodule(root: Path, path: str, gitlink: str, objects: ObjectStore) -> None:
    """Keep the files of a checked-out submodule, so that tests in a workspace find them."""
    entries: dict[str, Entry] = {}
    with dirfd.opened(root) as top:
        descent = dirfd.Descent(top)
        try:
            fd = descent.directory(path)
            if fd is None or dirfd.status(fd, ".git") is None:
                return
            with objects.writer() as writer:
                _collect(fd, "", writer, entries)
        finally:
            descent.close()
    keep_tree(objects, gitlink, objects.write_tree(entries))


def _collect(fd: int, prefix: str, writer: Writer, entries: dict[str, Entry]) -> None:
    for name in dirfd.names(fd):
        status = dirfd.status(fd, name)
        if status is None or is_git_name(name) or _LEFTOVERS.matches(prefix + name, stat.S_ISDIR(status.st_mode)):
            continue
        if stat.S_ISDIR(status.st_mode):
            with dirfd.opened(name, fd) as below:
                _collect(below, f"{prefix}{name}/", writer, entries)
        elif (entry := file_entry(fd, name, status, writer)) is not None:
            entries[prefix + name] = entry
