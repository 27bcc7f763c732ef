"""What a measured process does: it waits for requests, times actions inside itself, and tells the times.

Standard library only: peers' interpreters import it. Requests and replies are JSON lines over the standard pipes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

ACTIONS = {
    "assign": "x = 1",
    "loop": "total = 0\nfor i in range(100_000):\n    total += i",
    "print": 'for line in range(100):\n    print("x" * 99)',
    "raise": 'raise ValueError("no")',
}
_SHOWN = {"print": 100 * 99, "raise": 1}
_WARM_UP = 20
_STEADY = ("assign", "print", "raise")


class Measured(Protocol):
    """One way of running actions. `act` gives what the action printed, or the error it raised."""

    def act(self, name: str) -> str: ...

    def stop(self) -> None: ...


def base_python() -> list[str]:
    """The interpreter that every contestant who starts one starts: ours, without its packages."""
    return [getattr(sys, "_base_executable", "") or sys.executable, "-I", "-S"]


def serve(make: Callable[[], Measured], imported_ms: float, version: str) -> None:
    """Answer until the pipe closes. `make` gives a started one; its first answer ends the start."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What a library prints is no reply.
    running: Measured | None = None

    def say(**reply: Any) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    say(imported_ms=imported_ms, version=version)
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if request["do"] == "start":
                if running is not None:
                    running.stop()
                started = time.perf_counter()
                running = make()
                _act(running, "assign")
                say(times=[_since(started)])
            elif running is None:
                raise RuntimeError("nothing was started")
            elif request["do"] == "time":
                say(times=_times(running, request["action"], request["count"], request["seconds"]))
            else:
                say(memory=_memory(running, request["count"]))
    finally:
        if running is not None:
            running.stop()


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _act(running: Measured, name: str) -> None:
    message = running.act(name)
    letters = message.count("x") if name == "print" else message.count("ValueError")
    if letters < _SHOWN.get(name, 0):
        raise RuntimeError(f"the action {name} gave {message[-300:]!r}")


def _times(running: Measured, name: str, count: int, seconds: float) -> list[float]:
    """At most `count` times, fewer when they would take longer than `seconds`; the first action is not counted."""
    _act(running, name)
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < count and (not times or time.perf_counter() < until):
        started = time.perf_counter()
        message = running.act(name)
        times.append(_since(started))
        if name in _SHOWN and not message:
            raise RuntimeError(f"the action {name} gave nothing")
    return times


def _memory(running: Measured, count: int) -> dict[str, int]:
    """Resident KiB of this process and of those below it, before and after `count` actions."""
    for turn in range(_WARM_UP):
        _act(running, _STEADY[turn % len(_STEADY)])
    before = _resident()
    for turn in range(count):
        _act(running, _STEADY[turn % len(_STEADY)])
    after = _resident()
    return {
        "own_before": before[0],
        "own_after": after[0],
        "workers_before": before[1],
        "workers_after": after[1],
    }


def _resident() -> tuple[int, int]:
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
    below = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return _kib(os.getpid()), sum(_kib(pid) for pid in below - {os.getpid()})


def _kib(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                return int(line.split()[1])
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024
