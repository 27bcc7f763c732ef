"""Finds where control groups can be made, by making one and entering it, for each controller.

Version 1 has one tree for each controller, version 2 one for all. Groups are made below the group of this process, so
that its limits apply to them. Version 2 allows no processes in a group that has limited groups. If it holds only our
processes (a service with a delegated group), they move to a group within. Otherwise the nearest group above that has
its controllers enabled and lies below every limit is taken. Processes of others are never moved.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from codepilot.sandbox.limits import usage
from codepilot.sandbox.limits.cleanup import GROUP, closed, opened
from codepilot.sandbox.standalone import janitor

CONTROLLERS = ("pids", "memory", "cpu")
FREEZER = "freezer"
"""No limit, and no controller in version 2, where every group can be frozen."""
PREFIX = "codepilot-box-"
MAIN = "codepilot-main"
"""The group within a delegated group that our own processes move to."""


@dataclass(frozen=True)
class CgroupPaths:
    """The parent directory of our groups for each usable controller, and why the others are not usable."""

    version: Mapping[str, int] = field(default_factory=dict)
    directory: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class _Mount:
    kind: str
    root: str
    point: str
    options: frozenset[str]


_finding = threading.Lock()


def find() -> CgroupPaths:
    """The paths for this process, looked up once."""
    with _finding:
        return _find()


@cache
def _find() -> CgroupPaths:
    try:
        mounts, own = _mounts(), _own()
    except OSError as error:
        return CgroupPaths(reason=f"control groups cannot be looked at: {error.strerror}")
    version: dict[str, int] = {}
    directory: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name in CONTROLLERS:
        for mount in mounts:
            if mount.kind == "cgroup" and name in mount.options and (here := _inside(mount, own.get(name, ""))):
                if reason := _try_v1(here, name):
                    reasons[name] = reason
                else:
                    version[name], directory[name] = 1, here
    lacking = [name for name in CONTROLLERS if name not in directory]
    unified = next((mount for mount in mounts if mount.kind == "cgroup2"), None)
    if lacking and unified is not None and (here := _inside(unified, own.get("", ""))):
        place, given, reason = _try_v2(here, unified.point, lacking)
        version.update(dict.fromkeys(given, 2))
        directory.update(dict.fromkeys(given, place))
        reasons = {name: reasons.get(name, reason) for name in lacking if name not in given}
    elif lacking and not reasons:
        reasons = {"": "no hierarchy with them is mounted"}
    if new := _freezing_v2(unified, own, version, directory):
        version[FREEZER], directory[FREEZER] = 2, new
    elif old := _freezing_v1(mounts, own):
        version[FREEZER], directory[FREEZER] = 1, old
    for parent in set(directory.values()):
        janitor.sweep_groups(parent, PREFIX)
    return CgroupPaths(version, directory, "; ".join(dict.fromkeys(reasons.values())))


def _mounts() -> list[_Mount]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        before, _, after = line.partition(" - ")
        root, point = before.split()[3:5]
        kind, _, *options = after.split()
        if kind in ("cgroup", "cgroup2"):
            found.append(_Mount(kind, _plain(root), _plain(point), frozenset(options[0].split(",") if options else ())))
    return found


def _plain(text: str) -> str:
    """Undo the octal escapes of mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _own() -> dict[str, str]:
    """The group of this process by controller; the unified hierarchy has the empty name."""
    found = {}
    for line in Path("/proc/self/cgroup").read_text(errors="surrogateescape").splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            found[name] = path
    return found


def _inside(mount: _Mount, path: str) -> str:
    """The path of a group in the file system; empty if this mount does not show it."""
    root = mount.root.rstrip("/")
    if not path.startswith("/") or ".." in path or not (path == root or path.startswith(f"{root}/")):
        return ""
    return (mount.point + path[len(root) :]).rstrip("/")


def _freezing_v2(
    unified: _Mount | None, own: Mapping[str, str], version: Mapping[str, int], directory: Mapping[str, str]
) -> str:
    """Where groups of version 2 can be frozen: among the limited ones if they are of that version."""
    limited = next((directory[name] for name, number in version.items() if number == 2), None)
    here = limited or (_inside(unified, own.get("", "")) if unified is not None else "")
    if not here or (limited is None and _enter_v2(here)):
        return ""
    try:
        with _made(trial := _trial(here)):
            return here if Path(trial, "cgroup.freeze").exists() else ""  # since Linux 5.2
    except OSError:
        return ""


def _freezing_v1(mounts: list[_Mount], own: Mapping[str, str]) -> str:
    for mount in mounts:
        if mount.kind == "cgroup" and FREEZER in mount.options and (here := _inside(mount, own.get(FREEZER, ""))):
            return "" if _try_v1(here, FREEZER) else here
    return ""


def _trial(parent: str) -> str:
    return f"{parent}/{PREFIX}{janitor.owner()}-trial{threading.get_ident()}"


@contextlib.contextmanager
def _made(directory: str) -> Iterator[None]:
    opened(GROUP, directory)
    Path(directory).mkdir()
    try:
        yield
    finally:
        for _ in range(1000):
            if janitor.remove_group(directory):
                closed(GROUP, directory)
                break
            time.sleep(0.001)


def _try_v1(parent: str, name: str) -> str:
    """Let a thread enter a limited group and end there. Returns the reason if that fails."""
    limit, value = {
        "pids": ("pids.max", str(1 << 20)),
        "memory": ("memory.limit_in_bytes", str(1 << 20)),
        "cpu": ("cpu.cfs_quota_us", str(1 << 20)),
        FREEZER: ("freezer.state", "THAWED"),
    }[name]
    failures: list[OSError] = []

    def enter(directory: str) -> None:
        try:
            write(f"{directory}/tasks", "0")
        except OSError as error:
            failures.append(error)

    try:
        with _made(directory := _trial(parent)):
            write(f"{directory}/{limit}", value)
            thread = threading.Thread(target=enter, args=(directory,))
            thread.start()
            thread.join()
    except OSError as error:
        failures.append(error)
    return f"{name}: {failures[0].strerror}" if failures else ""


def _try_v2(own: str, top: str, wanted: list[str]) -> tuple[str, list[str], str]:
    """A parent for groups, the requested controllers that it offers, and why there are no more."""
    available = _words(f"{own}/cgroup.controllers") | _words(f"{own}/cgroup.subtree_control")
    offered = [name for name in wanted if name in available]
    if not offered:
        return "", [], f"the unified hierarchy at {top} does not offer {', '.join(wanted)}"
    reason = f"{own} is not writable"
    for parent in _candidates(own, top, offered):
        if given := [name for name in offered if name in _words(f"{parent}/cgroup.subtree_control")]:
            if failure := _enter_v2(parent):
                reason = f"{parent}: {failure}"
            else:
                return parent, given, f"{parent} does not offer all"
    return "", [], reason


def _candidates(own: str, top: str, wanted: list[str]) -> Iterator[str]:
    """Our own group if it can hold limited groups, then the groups above up to the first with a limit."""
    if Path(own).name == MAIN:
        own = os.fspath(Path(own).parent)
    if _share(own, wanted):
        yield own
    while own != top.rstrip("/") and not _limited(own):
        own = os.fspath(Path(own).parent)
        yield own


def _limited(group: str) -> bool:
    names = ("memory.max", "memory.high", "pids.max", "cpu.max")
    return any(words and "max" not in words for name in names if (words := _words(f"{group}/{name}")))


def _share(group: str, wanted: list[str]) -> bool:
    """Move our processes to a group within, then enable the controllers. Only for a group that is ours alone."""
    try:
        inside = _pids(group)
        if inside - {os.getpid(), *usage.descendants(os.getpid())}:
            return False
        main = Path(group, MAIN)
        if inside:
            main.mkdir(exist_ok=True)
        for pid in inside:
            with contextlib.suppress(ProcessLookupError):
                write(f"{main}/cgroup.procs", str(pid))
        for name in wanted:
            write(f"{group}/cgroup.subtree_control", f"+{name}")
    except OSError:
        return False
    return True


def _enter_v2(parent: str) -> str:
    """Move a process into a group below `parent`. Returns the reason if that fails."""
    try:
        with (
            _made(directory := _trial(parent)),
            subprocess.Popen(["/bin/sh", "-c", "read wait"], stdin=subprocess.PIPE) as trial,
        ):
            write(f"{directory}/cgroup.procs", str(trial.pid))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _pids(group: str) -> set[int]:
    return set(map(int, Path(group, "cgroup.procs").read_text().split()))


def _words(path: str) -> set[str]:
    try:
        return set(Path(path).read_text().split())
    except OSError:
        return set()


def write(path: str, text: str) -> None:
    """Write a control file in one call."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
