"""Watches for changes outside the sandbox: files before and after each bug, and processes that outlive it."""

from __future__ import annotations

import math
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from codepilot.store import Home

BOUND = 100_000
"""How many files of a root are looked at; the first snapshot decides which."""
SETTLED_SEC = 3600.0
"""Since when a file of a shared root must have been left alone to count."""
CACHES = "__pycache__"


@dataclass(frozen=True)
class Root:
    """A place to watch. In a shared one other programs come and go: there only its own entries that nobody had touched
    for long count, if they are changed or removed; what is new, and what lies deeper, does not."""

    path: Path
    shared: bool = False


@dataclass(frozen=True)
class HostChanges:
    """How the watched files differ from the snapshot before, and how many files that was about."""

    changes: tuple[str, ...]
    watched: int


@dataclass(frozen=True)
class Snapshot:
    """Every file that was looked at, with a mark that is another one if the file is; and the directories whose entries
    are not known: unreadable ones, and those beyond the bound."""

    marks: dict[str, int] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


class Outside:
    """Reports what was made, changed and removed in the roots since the last call of `seen`.

    Links are looked at and not followed, and no other file system is entered.
    """

    def __init__(self, roots: Iterable[Root], left_out: Iterable[Path] = (), bound: int = BOUND) -> None:
        self._left_out = {str(path.resolve()) for path in left_out}
        self._roots: dict[str, bool] = {}
        for root in roots:
            self._roots.setdefault(str(root.path.resolve()), root.shared)
        self._bound = bound
        self._first: Snapshot | None = None
        self._last = Snapshot()
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Take the snapshot that the first answer compares with."""
        with self._lock:
            self._last = self._first = self._snapshot()

    def seen(self) -> HostChanges:
        """Take another snapshot and compare it with the last one."""
        with self._lock:
            before, self._last = self._last, self._snapshot()
            return HostChanges(tuple(differences(before, self._last)), len(self._last.marks))

    def _snapshot(self) -> Snapshot:
        snapshot = Snapshot()
        for place, shared in self._roots.items():
            if place not in self._left_out:
                self._look_at_shared(place, snapshot) if shared else self._walk(place, snapshot)
        return snapshot

    def _walk(self, place: str, snapshot: Snapshot) -> None:
        """One root, breadth first. What the first snapshot read is always read; what is new, up to twice the bound."""
        with suppress(OSError):
            top = os.lstat(place)
            snapshot.marks[place] = _mark(top)
            waiting = deque([place] if stat.S_ISDIR(top.st_mode) else [])
            room = (self._bound if self._first is None else 2 * self._bound) - 1
            while waiting:
                directory = waiting.popleft()
                known = self._first is not None and directory in self._first.marks
                closed = known and self._first is not None and directory in self._first.unknown
                found = None if closed else self._entries(directory, math.inf if known else room)
                if found is None:
                    snapshot.unknown.add(directory)
                    continue
                snapshot.marks.update((path, _mark(status)) for path, status in found)
                below = (path for path, one in found if stat.S_ISDIR(one.st_mode) and one.st_dev == top.st_dev)
                waiting.extend(sorted(below))
                room -= len(found)

    def _look_at_shared(self, place: str, snapshot: Snapshot) -> None:
        """A root in which others work: its entries that had settled before the first snapshot, and nothing else."""
        since = time.time() - SETTLED_SEC
        for path, status in self._entries(place, math.inf) or ():
            settled = max(status.st_mtime, status.st_ctime) < since
            if settled if self._first is None else path in self._first.marks:
                snapshot.marks[path] = _mark(status)

    def _entries(self, directory: str, room: float) -> list[tuple[str, os.stat_result]] | None:
        """A directory's entries; None if it cannot be read or has more than there is room for."""
        found: list[tuple[str, os.stat_result]] = []
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.name == CACHES or entry.path in self._left_out or entry.path in self._roots:
                    continue
                if len(found) >= room:
                    return None
                with suppress(OSError):  # it vanished meanwhile
                    found.append((entry.path, entry.stat(follow_symlinks=False)))
            return found
        return None


def _mark(status: os.stat_result) -> int:
    """A directory's entries tell its size and time already."""
    if stat.S_ISDIR(status.st_mode):
        return hash((status.st_ino, status.st_mode))
    return hash((status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode))


def differences(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """The change of each file. Entries of a directory that only one snapshot could read are not compared."""
    for path in sorted(before.marks.keys() | after.marks.keys()):
        was, now = before.marks.get(path), after.marks.get(path)
        if was == now or (was is None and _within(path, before)) or (now is None and _within(path, after)):
            continue
        what = "made" if was is None else "removed" if now is None else "changed"
        yield f"{what} {_printable(path)}"


def _within(path: str, snapshot: Snapshot) -> bool:
    """True if the path lies in a directory whose entries are not known."""
    return any(str(above) in snapshot.unknown for above in Path(path).parents)


def _printable(path: str) -> str:
    """A file may have any name; a report may not."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in path)


def usual(data: Iterable[Path], python: str | None, out: Path) -> Outside:
    """The set's data, the interpreter's environment, the user's home, the system's settings, the temporary directory;
    without what the sweep and CodePilot themselves write, and without caches."""
    roots = [Root(path) for path in (*data, prefix_of(python), Path("/etc"))]
    left_out = [out, Home.default(os.environ).path]
    with suppress(RuntimeError):
        home = Path.home()
        roots.append(Root(home))
        left_out.append(home / ".cache")
    return Outside([*roots, Root(Path(tempfile.gettempdir()), shared=True)], left_out)


def prefix_of(python: str | None) -> Path:
    """The environment of an interpreter, which may be named by its directory, its path or its name."""
    if python is None:
        return Path(sys.prefix)
    named = Path(shutil.which(python) or python).expanduser().absolute()
    return named if named.is_dir() else named.parent.parent


# --- processes -------------------------------------------------------------------------------------------------------


GRACE_SEC = 5.0
"""How long those that were killed may take to be gone."""
EVERY_SEC = 0.1
_PROC = Path("/proc")
_END = rb"(?![\w.-])"
"""Matches the end of the name of a bug's directory, not the middle of another's."""


def survivors(place: Path, grace: float = GRACE_SEC) -> tuple[str, ...]:
    """What lives on in a bug's directory after its process has ended; where there is no /proc, nothing is known."""
    end = time.monotonic() + grace
    while found := tuple(_living(place)):
        if time.monotonic() >= end:
            return found
        time.sleep(EVERY_SEC)
    return ()


def _living(place: Path) -> Iterator[str]:
    mounts = _read(_PROC / "self" / "mountinfo")
    if not mounts:
        return
    named, real = os.fsencode(place.absolute()), os.fsencode(place.resolve())
    here = re.compile(b"(?:%s|%s)%s" % (re.escape(named), re.escape(real), _END))
    mounted = re.compile(re.escape(_source(real, mounts)) + _END)
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        command = _read(entry / "cmdline")
        if here.search(command) or here.match(_directory(entry)) or _mounts(entry, mounted):
            yield f"process {entry.name} lives on: {_command_line(command)}"


def _mounts(entry: Path, mounted: re.Pattern[bytes]) -> bool:
    """The fourth field of a mount is the directory that was mounted, as its own file system names it."""
    lines = (line.split() for line in _read(entry / "mountinfo").splitlines())
    return any(len(fields) > 4 and mounted.match(fields[3]) for fields in lines)


def _source(place: bytes, mounts: bytes) -> bytes:
    """How the file system that holds a directory names it."""
    wanted = _escaped(place)
    best, found = -1, wanted
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 5:
            continue
        root, point = fields[3].rstrip(b"/"), fields[4].rstrip(b"/")
        if len(point) >= best and wanted.startswith(point + b"/"):
            best, found = len(point), root + wanted[len(point) :]
    return found


def _escaped(path: bytes) -> bytes:
    return re.sub(rb"[ \t\n\\]", lambda match: b"\\%03o" % match[0][0], path)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""  # It ended meanwhile, or is not ours to read.


def _directory(entry: Path) -> bytes:
    try:
        return os.fsencode((entry / "cwd").readlink())
    except OSError:
        return b""


def _command_line(command: bytes) -> str:
    return _printable(command.replace(b"\0", b" ").decode("utf-8", "backslashreplace").strip())[:200]
