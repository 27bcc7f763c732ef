"""What a workspace holds on disk beyond what it was made with, and the watch over what a tree adds to it."""

# ruff: noqa: PTH116, PTH208  (read many times a second; plain calls cost a fraction of Path objects)
from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from codepilot.sandbox.limits.usage import descendants, read

_WALK_SECONDS = 2.0
_PAUSES = 5
_LITTLE = 1 << 20
_BYTES_PER_INODE = 4096
_LONG_PATH = 3000
_MOST_HELD = 64


class DiskAccount:
    """An estimate that only grows until somebody looks. Files changed after `since` are what counts.

    `known` says that there are none yet. Not every sign is this workspace's doing: free space goes for others' sake as
    well. `written` counts its own processes alone, for places that cannot be looked into.
    """

    def __init__(self, since: float, known: bool = True) -> None:
        self.since = since
        self._lock = threading.Lock()
        self._bytes = self._entries = 0.0 if known else math.inf
        self._written = 0
        self.total = 0
        """All that was ever written, as far as it was noted."""

    @property
    def written(self) -> int:
        return self._written

    def grow(self, size: int, entries: int, written: int) -> None:
        with self._lock:
            self._bytes += max(0, size)
            self._entries += max(0, entries)
            self._written += max(0, written)
            self.total += max(0, written)

    def over(self, size: int, entries: int) -> bool:
        """Whether it may be more than this."""
        return self._bytes > size or self._entries > entries

    def looked(self, size: int, entries: int, hidden: bool) -> None:
        """So much was found; if something was hidden, what was written is not forgotten."""
        with self._lock:
            self._written = max(size, self._written) if hidden else size
            self._bytes, self._entries = self._written, entries

    def forget(self) -> None:
        """Whoever comes next must look: what grew too much is being ended, and may still grow."""
        with self._lock:
            self._bytes = self._entries = math.inf


class DiskWatch:
    """Notices when this tree makes what some directories hold (on one file system) more than `limit`.

    Free space and what the tree has written are cheap signs; only then are the files changed since the start summed,
    deleted ones that are still open included, so that others' writes are not blamed on this tree. What the tree has
    hidden from that counts by what its processes have written, and a place made unreadable counts against it. `account`
    is what there was before, of trees that ended and those that run beside; where that is too much already, this tree
    may do anything but add to it.
    """

    def __init__(self, directories: Sequence[Path], limit: int, account: DiskAccount | None = None) -> None:
        self._directories = directories
        self._limit = limit
        self._most_inodes = max(1, limit // _BYTES_PER_INODE)
        self._account = account or DiskAccount(time.time() - 1)
        self._free, self._inodes = self._mark = self._now = self._space()
        self._looked_at = self._most_dirtied = self._noted = 0
        self._told = (0, 0)
        self._before = (0, 0)
        self._again = 0.0
        self._calm = 0
        """What this tree had written when it was last found in order."""
        if self._over:
            written, made, hidden = self._written(None)
            self._account.looked(written, made, hidden)
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

    def forget(self) -> None:
        """The tree is ended without a look at what it has written; whoever comes next must look."""
        self._account.forget()

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
        wrote_nothing = self._most_dirtied == calm and self._account.total > 0  # where writing shows at all
        if wrote_nothing and not ended:
            self._before = (max(written, self._before[0]), self._before[1])
        if self._has_added(written, made, hidden):
            self._account.forget()
            return True
        self._account.looked(written, made, hidden)
        self._looked_at = self._calm = self._most_dirtied
        self._mark, self._told = self._now, (0, 0)
        if self._fell:  # others wrote; look again when as much has gone again
            self._free, self._inodes = self._now
        return False

    @property
    def _over(self) -> bool:
        return self._account.over(self._limit, self._most_inodes)

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
        return (self._fell and (hidden or self._most_dirtied > self._limit)) or (
            hidden and self._account.written > most
        )

    def _tell(self, free: int, inodes: int) -> None:
        """Add what this tree may have added since anybody looked."""
        size = max(self._told[0], self._mark[0] - free, self._most_dirtied - self._looked_at)
        entries = max(self._told[1], self._mark[1] - inodes)
        self._account.grow(size - self._told[0], entries - self._told[1], self._most_dirtied - self._noted)
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
                if found.st_ctime > self._account.since:
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
            lines = dict(line.split(": ") for line in read(f"/proc/{pid}/io").splitlines())
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
