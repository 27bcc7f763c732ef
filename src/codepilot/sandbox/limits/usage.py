"""Measures what a process tree uses now, from /proc."""

# Read many times a second; plain calls cost a fraction of Path objects.
# ruff: noqa: PTH116, PTH123, PTH208
from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codepilot.sandbox.standalone.subreaper import children_by_parent

PAGE = os.sysconf("SC_PAGE_SIZE")
_HAS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
_MAPPED_BYTES = 4 << 30
"""Page tables are a 512th of what is mapped, at most; below this they do not count."""
_BYTES_PER_FILE_IN_MEMORY = 1024
_SHARED = re.compile(rb"^\S+ .w.s \S+ \S+ ([1-9]\d*)", re.MULTILINE)
"""The inode of a shared, writable mapping of a file."""


@dataclass(frozen=True)
class Usage:
    processes: int
    threads: int
    memory_bytes: int


def children(pid: int) -> list[int]:
    """The direct children of `pid`; none if it is gone."""
    if not _HAS_CHILDREN:
        return children_by_parent().get(pid, [])
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            found.extend(map(int, read(f"/proc/{pid}/task/{task}/children").split()))
    except OSError:
        return found
    return found


def descendants(root: int, most: int | None = None) -> list[int]:
    """The processes below `root`, parents first. The search stops after `most`."""
    parents = None if _HAS_CHILDREN else children_by_parent()
    found: list[int] = []
    queue = [root]
    while queue and (most is None or len(found) <= most):
        pid = queue.pop()
        below = children(pid) if parents is None else parents.get(pid, [])
        found.extend(below)
        queue.extend(below)
    return found


def mapped_for_writing(pids: Iterable[int]) -> set[int]:
    """The inodes of the files that processes can write through their memory."""
    found: set[int] = set()
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/maps", "rb") as maps:
            found.update(map(int, _SHARED.findall(maps.read())))
    return found


def measure(root: int, memory_limit: int, most: int) -> Usage:
    """The usage of everything below `root`. Memory is not measured for more than `most` processes.

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


def read(path: str) -> str:
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
        mapped, resident, *_ = map(int, read(f"/proc/{pid}/statm").split())
    except (OSError, ValueError):
        return 0
    return resident * PAGE + (_tables(pid) if mapped * PAGE > _MAPPED_BYTES else 0)


def _tables(pid: int) -> int:
    return _kibibytes(f"/proc/{pid}/status", "VmPTE:") or 0


def _proportional(pid: int) -> int:
    found = _kibibytes(f"/proc/{pid}/smaps_rollup", "Pss:")
    return _resident(pid) if found is None else found


def _kibibytes(path: str, field: str) -> int | None:
    """A field of a file in /proc, in bytes; None if the file cannot be read."""
    try:
        for line in read(path).splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    except OSError:
        return None
    return 0
