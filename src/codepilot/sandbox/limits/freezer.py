"""Stops and continues everything that runs in one workspace, and stops its clock for that time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from codepilot.core.failures import CodePilotError, FailureKind

FreezeMethod = Literal["cgroup2", "freezer", "sigstop"]
"""By the kernel's control group of version 2 or 1; or, weaker, by SIGSTOP to each process, which parents can see."""

PATIENCE_SEC = 10.0
"""How long a process may take to stop. One that waits for a device does not stop before it has its answer."""


class Freezable(Protocol):
    """A tree of processes. Its methods do nothing once it is being ended."""

    def begin_freeze(self) -> FreezeMethod | None:
        """Ask the kernel to stop it; None if there is nothing left to stop."""

    def end_freeze(self, deadline: float) -> int | None:
        """Wait until all of it stands still. Returns how many processes that is; None at the deadline."""

    def thaw(self) -> None: ...

    def mapped_files(self) -> set[int]:
        """The inodes of the files that it can write through its memory."""


@dataclass(frozen=True)
class Freeze:
    """What a freeze did. `already`: everything was frozen before; the one who froze it thaws it."""

    by: FreezeMethod
    processes: int
    duration_ms: float
    already: bool = False


class Freezer:
    """Trees are started within `starting`, which waits while everything is frozen."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._changed = threading.Condition()
        self._trees: dict[Freezable, None] = {}
        self._starting = 0
        self._closed = False
        self._since: float | None = None
        self._stood_sec = 0.0
        self._last: Freeze | None = None

    @property
    def frozen(self) -> bool:
        return self._last is not None

    def now(self) -> float:
        """The monotonic clock without the time that was spent frozen."""
        with self._changed:
            return (time.monotonic() if self._since is None else self._since) - self._stood_sec

    @contextmanager
    def starting(self) -> Iterator[None]:
        """A tree starts in this block, and is added in it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._starting += 1
        try:
            yield
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def add(self, tree: Freezable) -> None:
        with self._changed:
            self._trees[tree] = None

    def remove(self, tree: Freezable) -> None:
        with self._changed:
            self._trees.pop(tree, None)

    def freeze(self, default: FreezeMethod = "sigstop") -> Freeze:
        """Stop everything; nothing of the workspace runs when this returns. `default` is named if nothing runs."""
        with self._turn:
            if self._last is not None:
                return Freeze(self._last.by, self._last.processes, 0.0, already=True)
            begun = time.monotonic()
            with self._changed:
                self._closed, self._since = True, begun
                self._changed.wait_for(lambda: not self._starting)
                trees = list(self._trees)
            try:
                methods = {tree.begin_freeze() for tree in trees} - {None}
                counts = [tree.end_freeze(begun + PATIENCE_SEC) for tree in trees]
                if None in counts:
                    raise CodePilotError(
                        FailureKind.TOOL_TIMEOUT,
                        f"a process in the workspace did not stop within {PATIENCE_SEC:.0f} s",
                        "It waits for a device. Try again, or end what runs in the workspace.",
                    )
            except BaseException:
                self._continue(trees)
                raise
            by = next((method for method in ("sigstop", "freezer", "cgroup2") if method in methods), default)
            duration = (time.monotonic() - begun) * 1000
            self._last = Freeze(by, sum(count or 0 for count in counts), duration)
            return self._last

    def thaw(self) -> None:
        """Let everything go on. What is not frozen is left alone."""
        with self._turn:
            if self._last is not None:
                with self._changed:
                    trees = list(self._trees)
                self._continue(trees)

    def mapped_files(self) -> set[int]:
        """The inodes of the files that what runs here can write through its memory."""
        with self._changed:
            trees = list(self._trees)
        return {inode for tree in trees for inode in tree.mapped_files()}

    @contextmanager
    def held(self) -> Iterator[bool]:
        """True if everything is frozen, and stays so until the block ends."""
        with self._turn:
            yield self._last is not None

    def _continue(self, trees: list[Freezable]) -> None:
        for tree in trees:
            tree.thaw()
        with self._changed:
            if self._since is not None:
                self._stood_sec += time.monotonic() - self._since
            self._since, self._closed, self._last = None, False, None
            self._changed.notify_all()
