"""What a process tree uses right now, read from /proc, and how much it has written to disk."""

# Read many times a second; plain calls cost a fraction of Path objects.
# ruff: noqa: PTH112, PTH116, PTH123, PTH208
from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codepilot.sandbox.held import Held

PAGE = os.sysconf("SC_PAGE_SIZE")
_HAS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
_WALK_SECONDS = 2.0
_PAUSES = 5
_LITTLE = 1 << 20
_BYTES_PER_INODE = 4096
_MAPPED_BYTES = 4 << 30
"""Page tables are a 512th of what is mapped, at most; below this they do not count."""
_BYTES_PER_FILE_IN_MEMORY = 1024
_LONG_PATH = 3000
_MOST_HELD = 64


@dataclass(frozen=True)
class Usage:
    processes: int
    threads: int
    memory_bytes: int


def children(pid: int) -> list[int]:
    """The direct children of `pid`; none if it is gone."""
    if not _HAS_CHILDREN:
        return _parents().get(pid, [])
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            found.extend(map(int, _read(f"/proc/{pid}/task/{task}/children").split()))
    except OSError:
        return found
    return found


def descendants(root: int, most: int | None = None) -> list[int]:
    """Every process below `root`, parents first; after `most` there is no need to know the others."""
    parents = None if _HAS_CHILDREN else _parents()
    found: list[int] = []
    queue = [root]
    while queue and (most is None or len(found) <= most):
        pid = queue.pop()
        below = children(pid) if parents is None else parents.get(pid, [])
        found.extend(below)
        queue.extend(below)
    return found


def measure(root: int, memory_limit: int, most: int) -> Usage:
    """Usage of everything below `root`; of more than `most` processes, which multiply while they are looked at, none.

    Resident sizes count shared pages once for each process, so a sum over the limit is checked again by
    proportional sizes, which cost more to read.
    """
    pids = descendants(root, most)
    if len(pids) > most:
        return Usage(len(pids), len(pids), 0)
    threads = sum(_thread_count(pid) for pid in pids)
    memory = sum(map(_resident, pids))
    if memory > memory_limit:
        memory = sum(_proportional(pid) + _tables(pid) for pid in pids)
    return Usage(len(pids), threads, memory)


def held_by_files(pid: int, sizes: Mapping[str, int]) -> int:
    """Bytes that the kernel needs for the files of the file systems in memory that `pid` sees at these paths."""
    files = 0
    for path, size in sizes.items():
        try:
            found = os.statvfs(f"/proc/{pid}/root{path}")
        except OSError:
            continue
        if found.f_blocks * found.f_frsize == size:  # not so before it is mounted
            files += found.f_files - found.f_ffree
    return files * _BYTES_PER_FILE_IN_MEMORY


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def _thread_count(pid: int) -> int:
    try:
        return max(1, os.stat(f"/proc/{pid}/task").st_nlink - 2)
    except OSError:
        return 0


def _resident(pid: int) -> int:
    """Resident bytes, with the page tables of a process that maps enough to have large ones."""
    try:
        mapped, resident, *_ = map(int, _read(f"/proc/{pid}/statm").split())
    except (OSError, ValueError):
        return 0
    return resident * PAGE + (_tables(pid) if mapped * PAGE > _MAPPED_BYTES else 0)


def _tables(pid: int) -> int:
    try:
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith("VmPTE:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def _proportional(pid: int) -> int:
    try:
        for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return _resident(pid)
    return 0


def _parents() -> dict[int, list[int]]:
    """Children by parent for the whole machine, for kernels that do not list a task's children."""
    found: dict[int, list[int]] = {}
    if not os.path.isdir("/proc"):
        return found
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = _read(f"/proc/{name}/stat")
            except OSError:
                continue
            found.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    return found


class DiskWatch:
    """Notices when this tree makes what some directories hold (on one file system) more than `limit`.

    Free space and what the tree has written are cheap signs; only then are the files changed since the start summed,
    deleted ones that are still open included, so that others' writes are not blamed on this tree. What the tree has
    hidden from that counts by what its processes have written, and a place made unreadable counts against it. `held`
    is what there was before, of trees that ended and those that run beside; where that is too much already, this tree
    may do anything but add to it.
    """

    def __init__(self, directories: Sequence[Path], limit: int, held: Held | None = None) -> None:
        self._directories = directories
        self._limit = limit
        self._most_inodes = max(1, limit // _BYTES_PER_INODE)
        self._held = held or Held(time.time() - 1)
        self._free, self._inodes = self._mark = self._now = self._space()
        self._looked_at = self._most_dirtied = self._noted = 0
        self._told = (0, 0)
        self._before = (0, 0)
        self._again = 0.0
        self._calm = 0
        """What this tree had written when it was last found in order."""
        if self._over:
            written, made, hidden = self._written(None)
            self._held.looked(written, made, hidden)
            self._before = (written, made)

    def note(self, root: int) -> bool:
        """Remember what a tree has written so far: it may have ended when it is looked at. Is all in order?"""
        self._now = free, inodes = self._space()
        self._free, self._inodes = max(self._free, free), max(self._inodes, inodes)  # others have made room
        self._mark = (max(self._mark[0], free), max(self._mark[1], inodes))
        self._most_dirtied = max(self._most_dirtied, _dirtied(root))
        self._tell(*self._mark)
        if not self._over:
            self._tell(free, inodes)
        if self._fell or self._over:
            return False
        self._calm = self._most_dirtied
        return True

    @property
    def idle(self) -> bool:
        """Whether it was full before, and nothing has come since anybody looked."""
        return self._before[0] > self._limit and self._most_dirtied == self._looked_at and self._told[0] < _LITTLE

    @property
    def urgent(self) -> bool:
        """Whether this tree writes where there may be no room; looking may take a sixth of the time at most."""
        wrote = self._most_dirtied > self._looked_at
        return wrote and self._over and time.monotonic() >= self._again

    def exceeded(self, root: int, ended: bool = False) -> bool:
        """Whether it is too much. Of a tree that has ended not all that it wrote may be told."""
        calm = self._calm
        if self.note(root):
            return False
        written, made, hidden = self._written(root)
        wrote_nothing = self._most_dirtied == calm and self._held.total > 0  # where writing shows at all
        if wrote_nothing and not ended:
            self._before = (max(written, self._before[0]), self._before[1])
        if self._has_added(written, made, hidden):
            self._held.forget()
            return True
        self._held.looked(written, made, hidden)
        self._looked_at = self._calm = self._most_dirtied
        self._mark, self._told = self._now, (0, 0)
        if self._fell:  # others wrote; look again when as much has gone again
            self._free, self._inodes = self._now
        return False

    @property
    def _over(self) -> bool:
        return self._held.over(self._limit, self._most_inodes)

    @property
    def _fell(self) -> bool:
        """Whether so much space has gone that this tree may have taken too much."""
        free, inodes = self._now
        return self._free - free > self._limit or self._inodes - inodes > self._most_inodes

    def _has_added(self, written: int, made: int, hidden: bool) -> bool:
        """Whether it is too much, and more than there was before this tree."""
        most = max(self._limit, self._before[0])
        if written > most or made > max(self._most_inodes, self._before[1]):
            return True
        return (self._fell and (hidden or self._most_dirtied > self._limit)) or (hidden and self._held.written > most)

    def _tell(self, free: int, inodes: int) -> None:
        """Add what this tree may have added since anybody looked."""
        size = max(self._told[0], self._mark[0] - free, self._most_dirtied - self._looked_at)
        entries = max(self._told[1], self._mark[1] - inodes)
        self._held.grow(size - self._told[0], entries - self._told[1], self._most_dirtied - self._noted)
        self._told, self._noted = (size, entries), self._most_dirtied

    def _space(self) -> tuple[int, int]:
        found = os.statvfs(self._directories[0])
        return found.f_bfree * found.f_frsize, found.f_ffree

    def _written(self, root: int | None) -> tuple[int, int, bool]:
        """Bytes and entries changed since the start, as far as two seconds of looking find them; was any hidden?"""
        written, made, hidden = _deleted_but_open(root) if root is not None else 0, 0, False
        begun = time.monotonic()
        deadline = begun + _WALK_SECONDS
        queue = [os.fspath(directory) for directory in self._directories]
        held: list[int] = []
        while queue and time.monotonic() < deadline:
            try:
                path = _shortened(queue.pop(), held)
                entries = list(os.scandir(path))
            except OSError as error:
                hidden = hidden or error.errno != errno.ENOENT
                continue
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError as error:
                    hidden = hidden or error.errno != errno.ENOENT
                    continue
                if found.st_ctime > self._held.since:
                    written += found.st_blocks * 512
                    made += 1
                if entry.is_dir(follow_symlinks=False):
                    queue.append(entry.path)
        for fd in held:
            os.close(fd)
        ended = time.monotonic()
        self._again = ended + _PAUSES * (ended - begun)
        return written, made, hidden


def _shortened(path: str, held: list[int]) -> str:
    """The same directory by a path that is not too long for the system; it is held open for that."""
    if len(path) < _LONG_PATH or len(held) >= _MOST_HELD:
        return path
    held.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
    return f"/proc/self/fd/{held[-1]}"


def _dirtied(root: int) -> int:
    """Bytes that the processes of a tree, those that it has ended included, have sent to disk."""
    total = 0
    for pid in (root, *descendants(root)):
        try:
            lines = dict(line.split(": ") for line in _read(f"/proc/{pid}/io").splitlines())
        except (OSError, ValueError):
            continue
        total += int(lines["write_bytes"]) - int(lines["cancelled_write_bytes"])
    return total


def _deleted_but_open(root: int) -> int:
    seen: dict[tuple[int, int], int] = {}
    for pid in descendants(root):
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            try:
                found = os.stat(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if found.st_nlink == 0:
                seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values())
