"""Two ways to stop a tree of processes: its control group's freezer, or a signal to each of its processes."""

# Runs while everything waits; plain calls cost a fraction of Path objects.
# ruff: noqa: PTH123
from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Protocol

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.limits.cgroup_paths import write
from codepilot.sandbox.limits.freezer import FreezeMethod

_LEAST_PAUSE, _MOST_PAUSE = 0.0002, 0.01
_ASK_AGAIN_SEC = 0.2
_CALM_ROUNDS = 3
"""How often the processes must be the same and all stopped: one may have forked while they were listed."""
_BURST = 50
"""How often in a row all processes get the signal to stop: one that still runs may wake those that have stopped."""
_VFORK = ("vfork", "kernel_clone", "do_fork")
"""Where the kernel lets a parent wait for the child that it made with vfork, by its own names."""

Listed = Callable[[], list[int]]


class Stopping(Protocol):
    method: FreezeMethod

    def begin(self) -> None: ...

    def finish(self, deadline: float) -> int | None:
        """Wait until nothing runs. Returns the number of processes; None at the deadline."""

    def undo(self) -> None: ...


class ByGroup:
    """The kernel stops the group, including new forks. Nothing inside can notice or undo it."""

    def __init__(self, directory: str, version: int, processes: Listed) -> None:
        self._directory = directory
        self._processes = processes
        self.method: FreezeMethod = "cgroup2" if version == 2 else "freezer"
        self._order = ("cgroup.freeze", "1", "0") if version == 2 else ("freezer.state", "FROZEN", "THAWED")
        self._answer = ("cgroup.events", "frozen 1") if version == 2 else ("freezer.state", "FROZEN")

    def begin(self) -> None:
        file, stop, _ = self._order
        write(f"{self._directory}/{file}", stop)

    def finish(self, deadline: float) -> int | None:
        file, wanted = self._answer
        pause, ask_again = _LEAST_PAUSE, time.monotonic() + _ASK_AGAIN_SEC
        while True:
            with open(f"{self._directory}/{file}", encoding="ascii") as answer:
                if wanted in answer.read().splitlines():
                    return len(self._processes())
            now = time.monotonic()
            if now >= deadline:
                return None
            if now >= ask_again:  # a task of the version 1 freezer can miss the first request
                self.begin()
                ask_again = now + _ASK_AGAIN_SEC
            time.sleep(pause)
            pause = min(2 * pause, _MOST_PAUSE)

    def undo(self) -> None:
        file, _, go_on = self._order
        with contextlib.suppress(OSError):
            write(f"{self._directory}/{file}", go_on)


class BySignal:
    """SIGSTOP to each process until none is left that runs. Those that were stopped already stay stopped later."""

    method: FreezeMethod = "sigstop"

    def __init__(self, processes: Listed) -> None:
        if sys.platform != "linux":
            raise CodePilotError(
                FailureKind.SANDBOX_UNAVAILABLE,
                f"processes cannot be frozen on {sys.platform}",
                "Run CodePilot on Linux, for example in a virtual machine.",
            )
        self._processes = processes
        self._seen: dict[int, str] = {}
        """When each process started, which with its pid names it."""
        self._ours: set[int] = set()

    def begin(self) -> None:
        self._round()

    def finish(self, deadline: float) -> int | None:
        pause, calm = _LEAST_PAUSE, 0
        while calm < _CALM_ROUNDS:
            if time.monotonic() >= deadline:
                return None
            calm = calm + 1 if self._round() else 0
            if not calm:
                time.sleep(pause)
            pause = pause if calm else min(2 * pause, _MOST_PAUSE)
        return len(self._seen)

    def undo(self) -> None:
        for pid in self._ours:
            if _status(pid)[1] == self._seen[pid]:
                _send(pid, signal.SIGCONT)

    def _round(self) -> bool:
        """Stop every process that runs: a new one, or one that another woke. True if there was none."""
        pids = self._processes()
        calm, running = True, False
        for pid in pids:
            state, started = _status(pid)
            new = self._seen.get(pid) != started
            if new:
                self._seen[pid] = started
                self._ours.discard(pid)
            if state not in (("", "T") if new else ("", "T", "t")):
                _send(pid, signal.SIGSTOP)
                self._ours.add(pid)
                running = True
            calm = calm and not new
        if running:
            ours = self._ours.intersection(pids)
            for _ in range(_BURST):
                for pid in ours:
                    _send(pid, signal.SIGSTOP)
        return calm and all(_stands_still(pid) for pid in pids)


def _stands_still(pid: int) -> bool:
    """True if it is stopped or dead, or waits for a stopped child that it made with vfork."""
    state = _status(pid)[0]
    return state in ("", "T", "t") or (state == "D" and _waits_for_stopped_child(pid))


def _waits_for_stopped_child(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            children = list(map(int, file.read().split()))
        with open(f"/proc/{pid}/wchan", encoding="ascii") as file:
            place = file.read()
    except OSError:
        return False
    return any(name in place for name in _VFORK) and any(_status(child)[0] == "T" for child in children)


def _status(pid: int) -> tuple[str, str]:
    """A process's state and when it started; empty once it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return ("", "") if fields[0] in "ZX" else (fields[0], fields[19])


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
