"""Counts what a workspace holds on disk beyond what it was made with, and watches what a tree adds to it."""

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
    """An estimate that grows until the directory is walked. Files changed after `since` count.

    `known` means that there are none yet. The estimate also grows when others use free space. `written` counts this
    workspace's processes only, for places that cannot be read.
    """

    def __init__(self, since: float, known: bool = True) -> None:
        self.since = since
        self._lock = threading.Lock()
        self._bytes = self._entries = 0.0 if known else math.inf
        self._written = 0
        self.total = 0
        """All bytes that were noted as written, ever."""

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
        """True if the workspace may hold more than this."""
        return self._bytes > size or self._entries > entries

    def looked(self, size: int, entries: int, hidden: bool) -> None:
        """Record what a walk found. If something was hidden, the bytes written still count."""
        with self._lock:
            self._written = max(size, self._written) if hidden else size
            self._bytes, self._entries = self._written, entries

    def forget(self) -> None:
        """Require the next watch to walk: the tree that grew too much may still grow while it is ended."""
        with self._lock:
            self._bytes = self._entries = math.inf


class DiskWatch:
    """Notices when a tree makes some directories (on one file system) hold more than `limit`.

    Free space and bytes written are cheap signs. Only if they are exceeded are the changed files summed, with deleted
    ones that are still open, so that writes of others do not count. Unreadable places count by what the tree's
    processes have written. `account` holds the use of earlier and parallel trees. If that is over the limit already,
    this tree may not add to it.
    """

    def __init__(self, directories: Sequence[Path], limit: int, account: DiskAccount | None = None) -> None:
        self._directories = directories
        self._limit = limit
        self._most_inodes = max(1, limit // _BYTES_PER_INODE)
        self._account = account or DiskAccount(time.time() - 1)
        self._free, self._inodes = self._mark = self._now = self._space()
        self._looked_at = self._most_dirtied = self._noted = 0
        self._added = (0, 0)
        self._before = (0, 0)
        self._again = 0.0
        self._calm = 0
        """Bytes that this tree had written when it was last within the limit."""
        if self._over:
            written, made, hidden = self._written(None)
            self._account.looked(written, made, hidden)
            self._before = (written, made)

    def note(self, root: int) -> bool:
        """Record what the tree has written so far. True if it is certainly within the limit."""
        self._now = free, inodes = self._space()
        self._free, self._inodes = max(self._free, free), max(self._inodes, inodes)  # others have made room
        self._mark = (max(self._mark[0], free), max(self._mark[1], inodes))
        self._most_dirtied = max(self._most_dirtied, _dirtied(root))
        self._add(*self._mark)
        if not self._over:
            self._add(free, inodes)
        if self._fell or self._over:
            return False
        self._calm = self._most_dirtied
        return True

    def forget(self) -> None:
        """The tree is ended without a walk; the next watch must walk."""
        self._account.forget()

    @property
    def idle(self) -> bool:
        """True if the workspace was full before and nothing was written since the last walk."""
        return self._before[0] > self._limit and self._most_dirtied == self._looked_at and self._added[0] < _LITTLE

    @property
    def urgent(self) -> bool:
        """True if this tree writes over the limit. Walks take at most a sixth of the time."""
        wrote = self._most_dirtied > self._looked_at
        return wrote and self._over and time.monotonic() >= self._again

    def exceeded(self, root: int, ended: bool = False) -> bool:
        """True if the limit is broken. `ended`: what an ended tree wrote may be incomplete."""
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
        self._mark, self._added = self._now, (0, 0)
        if self._fell:  # others wrote; look again when as much has gone again
            self._free, self._inodes = self._now
        return False

    @property
    def _over(self) -> bool:
        return self._account.over(self._limit, self._most_inodes)

    @property
    def _fell(self) -> bool:
        """True if more free space is gone than the limit."""
        free, inodes = self._now
        return self._free - free > self._limit or self._inodes - inodes > self._most_inodes

    def _has_added(self, written: int, made: int, hidden: bool) -> bool:
        """True if the workspace is over the limit and holds more than before this tree."""
        most = max(self._limit, self._before[0])
        if written > most or made > max(self._most_inodes, self._before[1]):
            return True
        return (self._fell and (hidden or self._most_dirtied > self._limit)) or (
            hidden and self._account.written > most
        )

    def _add(self, free: int, inodes: int) -> None:
        """Add to the account what this tree may have written since the last walk."""
        size = max(self._added[0], self._mark[0] - free, self._most_dirtied - self._looked_at)
        entries = max(self._added[1], self._mark[1] - inodes)
        self._account.grow(size - self._added[0], entries - self._added[1], self._most_dirtied - self._noted)
        self._added, self._noted = (size, entries), self._most_dirtied

    def _space(self) -> tuple[int, int]:
        found = os.statvfs(self._directories[0])
        return found.f_bfree * found.f_frsize, found.f_ffree

    def _written(self, root: int | None) -> tuple[int, int, bool]:
        """Bytes and entries changed since the start, found within two seconds, and whether any were unreadable."""
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
    """A short path for a directory with a long one: the directory is opened and named by its descriptor."""
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
