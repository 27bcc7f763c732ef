"""Measures snapshots and exact restores of a tree with a few changes, and the same with tar and git."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from benchmarks.figures import Goal, Table, Times, ratio
from benchmarks.machine import Quiet
from benchmarks.sizes import Size
from codepilot.workspace import Entry, ObjectStore, Workspace

GOALS = {2_000: (30.0, 100.0), 20_000: (120.0, 250.0)}
_PER_DIRECTORY = 20
_EDITS, _ADDS, _DELETES = 20, 10, 10
_MODES = (0o600, 0o755, 0o444, 0o640)
_ENOUGH_SEC = 45.0
_SETTLE_SEC = 0.05
_TEXT = (
    "{count:,} files of about {size:,} bytes; {edits} edited, {adds} added, {deletes} deleted, {modes} given"
    " another mode, one empty directory made. *Snapshot* stores the changed tree; *restore* brings back the state"
    " before the changes. *Exact* compares every path, content, mode and modification time with that state after"
    " the last restore. tar writes the POSIX format, which has fractions of seconds, and restores into an emptied"
    " directory. git has a private index and runs `git add -A`, `write-tree`, then `read-tree --reset -u` and"
    " `clean`. Milliseconds, median and 5th to 95th percentile of *n*; file systems are synced before each"
    " measurement, outside its time."
)


class Method(Protocol):
    """One way to keep a tree. `keep` remembers its state; `back` restores what the first `keep` saw."""

    name: str
    tree: Path
    store: Path

    def keep(self) -> None: ...

    def back(self) -> None: ...

    def close(self) -> None: ...


class OursMethod:
    name = "CodePilot"

    def __init__(self, home: Path, count: int, size: int) -> None:
        self._objects = ObjectStore.open(home / "objects", durable=False)
        names = []

        def contents() -> Iterator[bytes]:
            for name, data in _files(count, size):
                names.append(name)
                yield data

        blobs = self._objects.write_blobs(contents())
        entries = {name: Entry("100644", blob) for name, blob in zip(names, blobs, strict=True)}
        self._workspace = Workspace(home / "workspace", self._objects)
        self._workspace.create(self._objects.write_tree(entries))
        self.tree = self._workspace.tree_path
        self.store = self._workspace.path / "snapshots"
        self._first = ""

    def keep(self) -> None:
        taken = self._workspace.snapshot()
        self._first = self._first or taken.id

    def back(self) -> None:
        self._workspace.restore(self._first)

    def close(self) -> None:
        self._workspace.delete()
        self._objects.close()


class TarMethod:
    name = "tar"

    def __init__(self, home: Path, count: int, size: int) -> None:
        self.tree, self.store = home / "tree", home / "store"
        _lay_out(self.tree, count, size)
        self.store.mkdir()

    def keep(self) -> None:
        first = self.store / "first.tar"
        name = first if not first.exists() else self.store / "last.tar"
        _run("tar", "--format=posix", "-cf", str(name), "-C", str(self.tree), ".")

    def back(self) -> None:
        _run("find", str(self.tree), "-mindepth", "1", "-delete")
        _run("tar", "-xpf", str(self.store / "first.tar"), "-C", str(self.tree))

    def close(self) -> None:
        pass


class GitMethod:
    name = "git, private index"

    def __init__(self, home: Path, count: int, size: int) -> None:
        self.tree, self.store = home / "tree", home / "store"
        _lay_out(self.tree, count, size)
        _run("git", "init", "-q", "--bare", str(self.store))
        self._git = ("git", f"--git-dir={self.store}", f"--work-tree={self.tree}", "-c", "gc.auto=0")
        self._first = ""

    def keep(self) -> None:
        _run(*self._git, "add", "-A", cwd=self.tree)
        tree = _run(*self._git, "write-tree", cwd=self.tree)
        self._first = self._first or tree

    def back(self) -> None:
        _run(*self._git, "read-tree", "--reset", "-u", self._first, cwd=self.tree)
        _run(*self._git, "clean", "-fdq", cwd=self.tree)

    def close(self) -> None:
        pass


METHODS: tuple[type[OursMethod] | type[TarMethod] | type[GitMethod], ...] = (OursMethod, TarMethod, GitMethod)


class Kept:
    """What one method gave on trees of one size."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.snapshots: list[float] = []
        self.restores: list[float] = []
        self.grown = 0
        self.exact = ""

    @property
    def enough(self) -> bool:
        return len(self.snapshots) > 1 and sum(self.snapshots) + sum(self.restores) > _ENOUGH_SEC * 1000


def measure(size: Size, quiet: Quiet) -> tuple[list[Table], list[Goal]]:
    tables: list[Table] = []
    goals: list[Goal] = []
    for count in size.files:
        with tempfile.TemporaryDirectory(prefix="codepilot-bench-") as home:
            found = _measure(Path(home).resolve(), count, size, quiet)
        tables.append(_table(count, size, found))
        if count in GOALS:
            ours = found[0]
            for what, below, times in zip(("snapshot", "exact restore"), GOALS[count], _times(ours), strict=True):
                goals.append(Goal(f"{what} of {count:,} files with 40 changes", below, times.median))
    return tables, goals


def _measure(home: Path, count: int, size: Size, quiet: Quiet) -> list[Kept]:
    found = []
    for kind in METHODS:
        place = home / kind.__name__
        place.mkdir()
        method = kind(place, count, size.file_bytes)
        _plant_odd(method.tree)
        time.sleep(_SETTLE_SEC)
        method.keep()
        found.append(Kept(method))
    before = [_state(one.method.tree) for one in found]
    for turn in range(-1, size.snapshot_rounds):
        quiet.look()
        for one in found:
            if not one.enough:
                _round(one, count, turn, os.sync if size.synced else lambda: None)
    for one, state in zip(found, before, strict=True):
        one.exact = _differences(state, _state(one.method.tree))
        one.method.close()
    return found


def _round(one: Kept, count: int, turn: int, sync: Callable[[], None]) -> None:
    """Change, keep, go back; the first round is for warming up."""
    _change(one.method.tree, count, random.Random(turn))
    size = _size(one.method.store)
    sync()
    started = time.perf_counter()
    one.method.keep()
    kept = time.perf_counter() - started
    grown = _size(one.method.store) - size
    sync()
    started = time.perf_counter()
    one.method.back()
    back = time.perf_counter() - started
    if turn >= 0:
        one.snapshots.append(kept * 1000)
        one.restores.append(back * 1000)
        one.grown = max(one.grown, grown)
    time.sleep(_SETTLE_SEC)
    one.method.keep()
    (one.method.store / "last.tar").unlink(missing_ok=True)


def _times(one: Kept) -> tuple[Times, Times]:
    return Times(tuple(one.snapshots)), Times(tuple(one.restores))


def _table(count: int, size: Size, found: list[Kept]) -> Table:
    ours = _times(found[0])
    rows = []
    for one in found:
        times = _times(one)
        cells: list[str] = []
        for mine, theirs in zip(ours, times, strict=True):
            cells += [str(theirs), ratio(theirs.median, mine.median)]
        rows.append([one.method.name, *cells, f"{one.grown / 1024:,.0f}", one.exact, str(len(one.snapshots))])
    text = _TEXT.format(
        count=count, size=size.file_bytes, edits=_EDITS, adds=_ADDS, deletes=_DELETES, modes=len(_MODES)
    )
    head = ["", "snapshot", "to ours", "restore", "to ours", "KiB kept", "exact", "n"]
    return Table(f"Snapshot of {count:,} files", text, head, rows)


def _files(count: int, size: int) -> Iterator[tuple[str, bytes]]:
    """Source-like paths; contents that differ and compress by half."""
    for number in range(count):
        chance = random.Random(number)
        yield _name(number), chance.randbytes(chance.randrange(size // 4, size * 3 // 4)).hex().encode() + b"\n"


def _name(number: int) -> str:
    directory = number // _PER_DIRECTORY
    return f"pkg{directory % 10}/sub{directory // 10}/module{number}.py"


def _lay_out(tree: Path, count: int, size: int) -> None:
    for name, data in _files(count, size):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _plant_odd(tree: Path) -> None:
    """What trees also hold: ignored files, private ones, links, empty directories."""
    (tree / ".gitignore").write_text("*.log\n")
    (tree / "notes.log").write_text("ignored\n")
    (tree / "private").write_text("secret\n")
    (tree / "private").chmod(0o600)
    (tree / "link").symlink_to("pkg0")
    (tree / "empty").mkdir()


def _change(tree: Path, count: int, chance: random.Random) -> None:
    chosen = chance.sample(range(count), _EDITS - 1 + _DELETES + len(_MODES))
    (tree / "notes.log").write_text(f"{chance.random()}\n")
    for number in chosen[: _EDITS - 1]:
        with (tree / _name(number)).open("ab") as file:
            file.write(b"# edited %d\n" % chance.randrange(10**9))
    for number in chosen[_EDITS - 1 : _EDITS - 1 + _DELETES]:
        (tree / _name(number)).unlink()
    for number, mode in zip(chosen[-len(_MODES) :], _MODES, strict=True):
        (tree / _name(number)).chmod(mode)
    for number in range(_ADDS):
        path = tree / "added" / f"new{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(chance.randbytes(2_000).hex().encode())
    (tree / "made").mkdir(exist_ok=True)


def _state(tree: Path) -> dict[str, tuple[str, int, int]]:
    """Content, mode and modification time of every path; directories have no time, and links no mode."""
    found: dict[str, tuple[str, int, int]] = {}
    for directory, names, files in os.walk(tree):
        for name in [*names, *files]:
            path = Path(directory, name)
            status = path.lstat()
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                entry = (f"link {path.readlink()}", 0, 0)
            elif stat.S_ISDIR(status.st_mode):
                entry = ("directory", mode, 0)
            else:
                entry = (hashlib.sha1(path.read_bytes()).hexdigest(), mode, status.st_mtime_ns)
            found[str(path.relative_to(tree))] = entry
    return found


def _differences(before: dict[str, tuple[str, int, int]], after: dict[str, tuple[str, int, int]]) -> str:
    both = before.keys() & after.keys()
    counts = {
        "paths": len(before.keys() ^ after.keys()),
        "contents": sum(before[path][0] != after[path][0] for path in both),
        "modes": sum(before[path][1] != after[path][1] for path in both),
        "times": sum(before[path][2] != after[path][2] for path in both),
    }
    wrong = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    return f"no: {wrong} differ" if wrong else "yes"


def _size(store: Path) -> int:
    return sum(Path(directory, name).lstat().st_size for directory, _, files in os.walk(store) for name in files)


def _run(*command: str, cwd: Path | None = None) -> str:
    env = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    return subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout.strip()
