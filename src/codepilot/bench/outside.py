"""What happened outside the sandbox: files of this machine before and after each bug, and processes that outlive it."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codepilot.store import Home

BOUND = 100_000
"""How many files of a root are looked at; the first snapshot decides which."""
SETTLED_SEC = 3600.0
"""Since when a file of a shared root must have been left alone to count."""
CACHES = "__pycache__"

Listing = dict[str, int]
"""The entries of a directory, each with its mark: a number that is another one if the file is."""
Snapshot = dict[str, Listing]
"""The directories that were looked at; the roots themselves are the listing of the directory ''."""


@dataclass(frozen=True)
class Root:
    """A place to watch. In a shared one other programs come and go: there only its own entries that nobody had touched
    for long count, if they are changed or removed; what is new, and what lies deeper, does not."""

    path: Path
    shared: bool = False


@dataclass(frozen=True)
class HostChanges:
    """What became of the watched files since the snapshot before, and how many files that was about."""

    changes: tuple[str, ...]
    watched: int


class Outside:
    """Tells what was made, changed and removed in the roots since it was asked last."""

    def __init__(self, roots: Iterable[Root], left_out: Iterable[Path] = (), bound: int = BOUND) -> None:
        places: dict[str, Root] = {}
        for root in roots:
            places.setdefault(str(root.path.resolve()), root)
        skipped = {str(path.resolve()) for path in left_out}
        every = skipped | places.keys()
        self._walks = [
            _SharedWalk(place, every) if root.shared else _Walk(place, every, bound)
            for place, root in places.items()
            if place not in skipped
        ]
        self._lock = threading.Lock()
        self._last: Snapshot | None = None

    def begin(self) -> None:
        """Take the snapshot that the first answer compares with."""
        with self._lock:
            self._last = self._snapshot()

    def seen(self) -> HostChanges:
        """Take another snapshot, and tell what differs from the last one."""
        with self._lock:
            before, after = self._last, self._snapshot()
            self._last = after
        changes = () if before is None else tuple(differences(before, after))
        return HostChanges(changes, sum(len(listing) for listing in after.values()))

    def _snapshot(self) -> Snapshot:
        snapshot: Snapshot = {"": {}}
        for walk in self._walks:
            walk.look(snapshot)
        return snapshot


class _Walk:
    """One root, breadth first and on its own file system only; links are looked at and not followed."""

    def __init__(self, place: str, skipped: Collection[str], bound: int) -> None:
        self._place = place
        self._skipped = frozenset(skipped) - {place}
        self._bound = bound
        self._known: set[str] | None = None
        self._closed: set[str] = set()

    def look(self, snapshot: Snapshot) -> None:
        status = _status(self._place)
        if status is None:
            return
        snapshot[""][self._place] = _mark(status)
        opened, count = set(), 1
        waiting = deque([self._place] if stat.S_ISDIR(status.st_mode) else [])
        while waiting:
            directory = waiting.popleft()
            found = self._list(directory, status.st_dev, count)
            if found is not None:
                snapshot[directory], below = found
                opened.add(directory)
                count += len(snapshot[directory])
                waiting.extend(below)
        if self._known is None:
            self._known = opened

    def _list(self, directory: str, device: int, count: int) -> tuple[Listing, list[str]] | None:
        """A directory's entries, and those of them to open; nothing if it cannot be read or there is no room for it."""
        if directory in self._closed:
            return None
        listing: Listing = {}
        below: list[str] = []
        room = self._room(directory) - count
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name == CACHES or entry.path in self._skipped:
                        continue
                    if len(listing) >= room:
                        self._closed.add(directory)
                        return None
                    with suppress(OSError):  # It vanished meanwhile.
                        status = entry.stat(follow_symlinks=False)
                        listing[entry.name] = _mark(status)
                        if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
                            below.append(entry.path)
        except OSError:
            return None
        return listing, sorted(below)

    def _room(self, directory: str) -> float:
        """What the first snapshot looked at is always looked at; new directories may be as much again."""
        if self._known is None:
            return self._bound
        return float("inf") if directory in self._known else 2 * self._bound


class _SharedWalk:
    """A root in which others work: its entries that had settled before the first snapshot, and nothing else."""

    def __init__(self, place: str, skipped: Collection[str]) -> None:
        self._place = place
        self._skipped = skipped
        self._settled: list[str] | None = None

    def look(self, snapshot: Snapshot) -> None:
        if self._settled is None:
            since = time.time() - SETTLED_SEC
            self._settled = [name for name, touched, _ in self._entries() if touched < since]
        marks = {name: mark for name, _, mark in self._entries()}
        snapshot[self._place] = {name: marks[name] for name in self._settled if name in marks}

    def _entries(self) -> Iterator[tuple[str, float, int]]:
        """Each entry, when it was last touched, and its mark."""
        with suppress(OSError), os.scandir(self._place) as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.path not in self._skipped:
                        yield entry.name, max(status.st_mtime, status.st_ctime), _mark(status)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _mark(status: os.stat_result) -> int:
    """One number a file, for there are many; odd for a directory, whose size and time its entries tell already."""
    if stat.S_ISDIR(status.st_mode):
        return hash((status.st_ino, status.st_mode)) | 1
    return hash((status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)) & ~1


def differences(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """What happened to each file, directories before what lies in them. A directory that could be read at one time
    only tells nothing about its entries, unless it was itself made or removed."""
    for directory in sorted(before.keys() | after.keys()):
        old, new = before.get(directory), after.get(directory)
        if old == new or (old is None and _has(before, directory)) or (new is None and _has(after, directory)):
            continue
        for name in sorted((old or {}).keys() | (new or {}).keys()):
            was, now = (old or {}).get(name), (new or {}).get(name)
            if was != now:
                what = "made" if was is None else "removed" if now is None else "changed"
                yield f"{what} {_printable(os.path.join(directory, name))}"  # noqa: PTH118


def _has(snapshot: Snapshot, directory: str) -> bool:
    above, name = os.path.split(directory)
    mark = snapshot[""].get(directory) or snapshot.get(above, {}).get(name, 0)
    return mark % 2 == 1


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
"""Where the name of a bug's directory ends: not in the middle of another's."""


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
