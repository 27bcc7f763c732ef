"""Looks for bytes in everything of the sandboxed processes: environment, command line and memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import BinaryIO

PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST_REGION = 1 << 40


def confined() -> list[int]:
    """The processes of all sandboxes that this process started: those in another pid namespace."""
    ours = str(Path("/proc/self/ns/pid").readlink())
    return [pid for pid in _below(os.getpid()) if _namespace(pid) not in (ours, "")]


def holders(wanted: bytes) -> set[str]:
    """Where `wanted` is found, as `PROGRAM: PLACE`."""
    found = set()
    for pid in confined():
        for place, content in _contents(pid):
            if wanted in content:
                found.add(f"{name_of(pid)}: {place}")
    return found


def files_with(root: Path, wanted: bytes) -> list[Path]:
    """The files below `root` that contain `wanted`."""
    plain = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return [path for path in plain if wanted in path.read_bytes()]


def _contents(pid: int) -> Iterator[tuple[str, bytes]]:
    process = Path("/proc") / str(pid)
    for name in ("environ", "cmdline"):
        try:
            yield name, (process / name).read_bytes()
        except OSError:
            continue
    try:
        yield from _memory(process)
    except OSError:
        return  # it ended meanwhile


def _memory(process: Path) -> Iterator[tuple[str, bytes]]:
    """The pages in memory, in runs that follow one another."""
    maps = (process / "maps").read_text().splitlines()
    with (process / "mem").open("rb", 0) as memory, (process / "pagemap").open("rb", 0) as pages:
        for line in maps:
            area, rights, *_ = line.split()
            first, last = (int(number, 16) for number in area.split("-"))
            if not rights.startswith("rw") or last - first > _MOST_REGION:
                continue
            for start, size in _present(pages, first, last):
                try:
                    memory.seek(start)
                    yield "memory", memory.read(size)
                except (OSError, ValueError):
                    continue


def _present(pages: BinaryIO | FileIO, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The runs of pages that are in memory."""
    step = 1 << 16
    start: int | None = None
    for begin in range(first // PAGE, last // PAGE, step):
        count = min(step, last // PAGE - begin)
        raw = os.pread(pages.fileno(), count * 8, begin * 8)
        if not any(raw[7::8]):
            if start is not None:
                yield start, begin * PAGE - start
                start = None
            continue
        for number in range(len(raw) // 8):
            here = raw[number * 8 + 7] & 0x80
            at = (begin + number) * PAGE
            if here and start is None:
                start = at
            elif not here and start is not None:
                yield start, at - start
                start = None
    if start is not None:
        yield start, last - start


def _below(root: int) -> list[int]:
    """The descendants of a process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
    found, waiting = [], [root]
    while waiting:
        children = [pid for pid, parent in parents.items() if parent == waiting[-1]]
        waiting.pop()
        found += children
        waiting += children
    return found


def _namespace(pid: int) -> str:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:
        return ""


def name_of(pid: int) -> str:
    """The name of a process's program."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return str(pid)
