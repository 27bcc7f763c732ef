"""Which workspace of this home a run is worked on in: one that no other process of this machine has in use.

A worker that was frozen for longer than its lease has lost its step, but processes that it started may still write
into its workspace. The next worker here takes another one, and removes nothing that is in use. A lock file names each
workspace; the kernel frees the lock when its process dies, and its sandbox dies with it.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import Home

MOST = 9
_SUFFIX = ".workspace-lease"


class WorkspaceLease:
    """A workspace's name, taken until `close`."""

    def __init__(self, name: str, path: Path, lock: int) -> None:
        self.name = name
        self._path = path
        self._lock = lock

    @classmethod
    def take(cls, home: Home, run_id: str) -> WorkspaceLease:
        """The first workspace of the run that is free."""
        for number in range(1, MOST + 1):
            name = run_id if number == 1 else f"{run_id}.{number}"
            if (taken := cls._try(home, name)) is not None:
                return taken
        raise CodePilotError(
            FailureKind.EXECUTOR_LOST,
            f"{MOST} processes that lost {run_id} still have its workspaces.",
            next_action="Look for stopped codepilot processes (`ps`), continue or end them.",
        )

    @classmethod
    def _try(cls, home: Home, name: str) -> WorkspaceLease | None:
        path = home.locks / f"{name}{_SUFFIX}"
        while True:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_ino == path.stat().st_ino:
                    return cls(name, path, lock)
            except BlockingIOError:
                os.close(lock)
                return None
            except FileNotFoundError:
                pass
            os.close(lock)  # it was removed between the two: make it anew

    def close(self) -> None:
        """Let others have it; its files stay."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove(self) -> None:
        """Forget the name as well: the workspace is gone."""
        self._path.unlink(missing_ok=True)
        self.close()


def leased_workspaces(home: Home, run_id: str) -> list[str]:
    """The run's workspaces in this home, in use or not."""
    made = {path.name.removesuffix(_SUFFIX) for path in home.locks.iterdir() if path.name.startswith(run_id)}
    if any((home.workspaces / workspace).exists() for workspace in _parts(run_id)):
        made.add(run_id)
    return sorted(name for name in made if run_of(name) == run_id)


def remove_leased_workspaces(
    home: Home, run_id: str, remove: Callable[[str], None], *, elsewhere: bool = False
) -> None:
    """Remove the run's workspaces by `remove`, but for those in use: their process removes them, or the next sweep.

    Those that are `elsewhere` may have been made from a home that is gone.
    """
    for name in sorted({*leased_workspaces(home, run_id), *([run_id] if elsewhere else [])}):
        place = WorkspaceLease._try(home, name)
        if place is not None:
            for workspace in _parts(name):
                remove(workspace)
            place.remove()


def _parts(name: str) -> tuple[str, ...]:
    """What a workspace consists of."""
    return name, f"{name}-base", f"{name}-proof", f"{name}-copy"


def run_of(workspace: str) -> str:
    """The run whose workspace it is."""
    return re.sub(r"(\.\d+)?(-base|-proof|-copy)?$", "", workspace, count=1)


def lock_files(home: Home) -> list[str]:
    """The names of all workspaces that were taken here and not removed since."""
    return [path.name.removesuffix(_SUFFIX) for path in home.locks.glob(f"*{_SUFFIX}")]
