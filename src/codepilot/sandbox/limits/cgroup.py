"""The control group of one sandbox: the kernel limits memory, tasks and processor time.

Each available controller is used. The watchdog enforces the rest, and pinning bounds processor time. With version 1
the thread that starts the tree enters the group first, so that no running process has to be moved.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from codepilot.sandbox.limits import cgroup_paths, cleanup
from codepilot.sandbox.limits.cgroup_paths import CONTROLLERS, FREEZER, PREFIX, CgroupPaths, write
from codepilot.sandbox.limits.freezer import FreezeMethod
from codepilot.sandbox.limits.stopping import ByGroup, Listed
from codepilot.sandbox.spec import Limits
from codepilot.sandbox.standalone import janitor

SWITCH = "CODEPILOT_CGROUPS"
"""Set to `off`, control groups are not used."""

_PERIOD = 100_000
_LEAST_QUOTA = 1_000
_PATIENCE = 5.0

_numbers = itertools.count()
_turn = itertools.count(os.getpid())


@dataclass(frozen=True)
class Enforcement:
    """How limits are enforced here: by control groups for `controllers`, by the watchdog for all the rest."""

    versions: tuple[int, ...]
    controllers: tuple[str, ...]
    reason: str = ""
    freeze: FreezeMethod = "sigstop"

    def __str__(self) -> str:
        watchdog = "watchdog every 25 ms"
        if not self.controllers:
            return f"{watchdog}; control groups are not usable ({self.reason})"
        versions = " and ".join(f"v{version}" for version in self.versions)
        rest = f"; {watchdog} for the rest" + (f" ({self.reason})" if self.reason else "")
        return f"cgroup {versions}: {', '.join(self.controllers)}{rest}"


def enforcement() -> Enforcement:
    paths = _paths()
    controllers = tuple(name for name in CONTROLLERS if name in paths.directory)
    versions = tuple(sorted({paths.version[name] for name in controllers}))
    method: FreezeMethod = "cgroup2" if paths.version.get(FREEZER) == 2 else "freezer"
    return Enforcement(versions, controllers, paths.reason, method if FREEZER in paths.version else "sigstop")


def _paths() -> CgroupPaths:
    if os.environ.get(SWITCH, "").lower() == "off":
        return CgroupPaths(reason=f"{SWITCH}=off")
    return cgroup_paths.find()


class Group:
    """The groups of one sandbox, one for each hierarchy. Without a hierarchy every method does nothing."""

    def __init__(self, limits: Limits) -> None:
        self._paths = _paths()
        self._made: dict[str, str] = {}
        self._limits = limits
        self.controllers: frozenset[str] = frozenset()
        self._broken: str | None = None
        self._judged = False
        name = f"{PREFIX}{janitor.owner()}-{next(_numbers)}" if self._paths.directory else ""
        for parent in dict.fromkeys(self._paths.directory.values()):
            self._make(parent, f"{parent}/{name}")

    def _make(self, parent: str, directory: str) -> None:
        """Make one group and set its limits. The hierarchy may have vanished; then there is none."""
        cleanup.opened(cleanup.GROUP, directory)
        with contextlib.suppress(OSError):
            Path(directory).mkdir()
            self._made[parent] = directory
        limited = set()
        for controller in (name for name, at in self._paths.directory.items() if at == parent and self._made):
            with contextlib.suppress(OSError):
                self._limit(controller, directory)
                limited.add(controller)
        self.controllers |= limited - {FREEZER}
        if not limited:
            self._remove(parent, directory, time.monotonic())

    def _limit(self, controller: str, directory: str) -> None:
        if controller == FREEZER:
            return
        if controller == "pids":
            write(f"{directory}/pids.max", str(self._limits.tasks))
        elif controller == "cpu":
            self._limit_time(directory)
        elif self._paths.version[controller] == 1:
            most = str(self._limits.memory_bytes)
            write(f"{directory}/memory.limit_in_bytes", most)
            if not _written(f"{directory}/memory.memsw.limit_in_bytes", most):
                _written(f"{directory}/memory.swappiness", "0")
        else:
            write(f"{directory}/memory.max", str(self._limits.memory_bytes))
            _written(f"{directory}/memory.swap.max", "0")
            _written(f"{directory}/memory.oom.group", "1")

    def _limit_time(self, directory: str) -> None:
        quota = max(_LEAST_QUOTA, int(self._limits.cpus * _PERIOD))
        if self._paths.version["cpu"] == 2:
            write(f"{directory}/cpu.max", f"{quota} {_PERIOD}")
            return
        write(f"{directory}/cpu.cfs_period_us", str(_PERIOD))
        try:
            write(f"{directory}/cpu.cfs_quota_us", str(quota))
        except OSError as error:
            if error.errno != errno.EINVAL:  # more than the group above has: that one limits us then
                raise

    @property
    def cpus(self) -> frozenset[int] | None:
        """The processors to keep the tree on, where its time cannot be limited."""
        if "cpu" in self.controllers or not hasattr(os, "sched_getaffinity"):
            return None
        allowed = sorted(os.sched_getaffinity(0))
        count = math.ceil(self._limits.cpus)
        if count >= len(allowed):
            return None
        first = next(_turn)
        return frozenset(allowed[(first + number) % len(allowed)] for number in range(count))

    @property
    def entries(self) -> list[str]:
        """The files to which a process with one thread writes `0` to enter."""
        return [f"{directory}/{self._door(parent)}" for parent, directory in self._made.items()]

    def _door(self, parent: str) -> str:
        return "tasks" if self._version(parent) == 1 else "cgroup.procs"

    def _version(self, parent: str) -> int:
        return next(self._paths.version[name] for name, at in self._paths.directory.items() if at == parent)

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Processes that the calling thread starts in this block are born in the groups of version 1."""
        parents = [parent for parent in self._made if self._version(parent) == 1]
        try:
            for parent in parents:
                write(f"{self._made[parent]}/tasks", "0")
            yield
        finally:
            for parent in parents:
                write(f"{parent}/tasks", "0")

    def adopt(self, pid: int) -> None:
        """Move a process that has not begun into the groups of version 2."""
        for parent, directory in self._made.items():
            if self._version(parent) == 2:
                write(f"{directory}/cgroup.procs", str(pid))

    def stopping(self, processes: Listed) -> ByGroup | None:
        """How what is inside can be frozen; None without the means."""
        directory = self._made.get(self._paths.directory.get(FREEZER, ""))
        return None if directory is None else ByGroup(directory, self._paths.version[FREEZER], processes)

    def tasks(self) -> int | None:
        """How many processes and threads are inside; None where they are not counted."""
        if "pids" not in self.controllers:
            return None
        directory = self._made.get(self._paths.directory["pids"])
        with contextlib.suppress(OSError, ValueError):
            return int(Path(f"{directory}/pids.current").read_bytes())
        return None

    def breach(self) -> str | None:
        """The limit that the kernel enforced, if any."""
        if self._judged:
            return self._broken
        for parent, directory in list(self._made.items()):  # another thread may be about to end it
            version = self._version(parent)
            events = "memory.oom_control" if version == 1 else "memory.events"
            if "memory" in self.controllers and _count(f"{directory}/{events}", "oom_kill"):
                return "memory"
            if "pids" in self.controllers and _count(f"{directory}/pids.events", "max"):
                return "processes"
        return None

    def _judge(self) -> None:
        """Record a breach before ending the tree causes refusals of its own."""
        if not self._judged:
            self._judged, self._broken = True, self.breach()

    def end(self) -> None:
        """Kill every process inside. The processor limit is lifted first, so that they end at once."""
        self._judge()
        for directory in self._made.values() if "cpu" in self.controllers else ():
            _written(f"{directory}/cpu.max", "max") or _written(f"{directory}/cpu.cfs_quota_us", "-1")
        for directory in self._made.values():
            janitor.end_group(directory)

    def close(self) -> None:
        """End the processes left inside and remove the groups. The janitor removes those that stay."""
        self._judge()
        deadline = time.monotonic() + _PATIENCE
        for parent, directory in list(self._made.items()):
            self._remove(parent, directory, deadline)

    def _remove(self, parent: str, directory: str, deadline: float) -> None:
        while not (gone := janitor.remove_group(directory)) and time.monotonic() < deadline:
            time.sleep(0.0005)
        if gone:
            cleanup.closed(cleanup.GROUP, directory)
        self._made.pop(parent, None)


def _written(path: str, text: str) -> bool:
    try:
        write(path, text)
    except OSError:
        return False
    return True


def _count(path: str, name: str) -> int:
    """A counter among a control file's lines; nothing where this hierarchy has no such file."""
    try:
        lines = _lines(path)
    except OSError:
        return 0
    return next((int(value) for key, value in lines if key == name), 0)


def _lines(path: str) -> Sequence[tuple[str, str]]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(fd, 4096).decode()
    finally:
        os.close(fd)
    return [(key, value) for key, _, value in (line.partition(" ") for line in text.splitlines())]
