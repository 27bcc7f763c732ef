"""The level for machines without user namespaces: Landlock, a stricter system call filter, limits and a subreaper.

Weaker than bubblewrap: paths cannot be remapped, and metadata of files outside can be read, though not changed. There
is no private network, so that not even loopback is left when the network is off, and no proxy can be made the only
way out: hosts are refused. Of /dev/shm nothing is seen, so named semaphores (multiprocessing's locks) are refused.
Root keeps its uid and loses every capability.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.levels import host, seccomp
from codepilot.sandbox.levels.subreaper import SubreaperLevel
from codepilot.sandbox.spec import Level, SandboxSpec
from codepilot.sandbox.standalone.subreaper import landlock_abi

MINIMUM_ABI = 6
"""The first that keeps signals and abstract sockets inside (Linux 6.12)."""

_READABLE_PROC = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "sys", "uptime", "version")
_READABLE = ("/sys/devices/system/cpu", "/dev/random", "/dev/urandom")
_WRITABLE = ("/dev/null", "/dev/zero", "/dev/full")


class Landlock(SubreaperLevel):
    level = Level.LANDLOCK

    def confinement(self, spec: SandboxSpec, temp: Path, pinned: bool) -> dict[str, Any]:
        abi = landlock_abi()
        if abi < MINIMUM_ABI:
            raise CodePilotError(
                FailureKind.SANDBOX_UNAVAILABLE,
                "this kernel has no Landlock"
                if abi <= 0
                else f"this kernel's Landlock (version {abi}) cannot keep signals inside; version {MINIMUM_ABI} can",
            )
        extras = [mount for mount in spec.mounts if not mount.writable]
        writable = [mount.source for mount in (spec.workspace, *spec.mounts) if mount not in extras]
        writable += [spec.home] if spec.home is not None else []
        sockets = seccomp.SHARED_ONLINE if spec.network else seccomp.SHARED_OFFLINE
        return {
            "abi": abi,
            "network": spec.network,
            "read": [*_system_paths(spec.network), *(os.path.realpath(mount.source) for mount in extras)],
            "write": [*_existing(_WRITABLE), *map(os.fspath, writable), os.fspath(temp)],
            "seccomp": seccomp.build(sockets, pinned=pinned).hex(),
            "notify": seccomp.notify_filter().hex(),
            "calls": {str(number): name for number, name in seccomp.notified_calls().items()},
        }


@cache
def _system_paths(network: bool) -> tuple[str, ...]:
    roots = ["/usr", *(f"/{name}" for name in host.ROOT_LINKS)]
    etc = map(os.fspath, host.etc_paths(network))
    proc = (f"/proc/{name}" for name in _READABLE_PROC)
    return tuple(dict.fromkeys(os.path.realpath(path) for path in _existing((*roots, *etc, *proc, *_READABLE))))


def _existing(paths: tuple[str, ...]) -> list[str]:
    return [path for path in paths if Path(path).exists()]
