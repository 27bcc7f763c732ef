"""A workspace that stands still: by each of the kernel's means, at each level, and over HTTP."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codepilot.executor import CreateWorkspace, Executor, LocalExecutor, RunCommand, StartProcess
from codepilot.sandbox import FreezeMethod, Limits, Process, enforcement
from codepilot.sandbox.limits import cgroup, cgroup_paths
from levels import lacking, level

NAME = "r-1"
COUNTING = "i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.005; done"
FORKING = 'i=0; while :; do i=$((i+1)); sh -c "echo $i > count" & wait; done'
DAEMON = f"(setsid sh -c '{COUNTING}' </dev/null >/dev/null 2>&1 &); sleep 60"
WAKING = """
import os, signal, time
group = [os.getpid()]
for _ in range(3):
    if (child := os.fork()) == 0:
        break
    group.append(child)
number = 0
while True:
    for pid in group:
        if pid != os.getpid():
            os.kill(pid, signal.SIGCONT)
    number += 1
    if len(group) == 4:
        open("count", "w").write(str(number))
"""
"""Processes that let each other go on."""


TIMED = """
import ctypes, fcntl, os, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
event = ctypes.create_string_buffer(struct.pack("QiiI", 0, signal.SIGCONT, 0, 0) + bytes(48))
timer = ctypes.c_void_p()
if libc.timer_create(1, event, ctypes.byref(timer)) == 0:
    libc.timer_settime(timer, 0, struct.pack("qqqq", 0, 30_000_000, 0, 30_000_000), None)
watch = libc.inotify_init1(0)
libc.inotify_add_watch(watch, b".", 0xFFF)
fcntl.fcntl(watch, fcntl.F_SETOWN, os.getpid())
try:
    fcntl.fcntl(watch, fcntl.F_SETSIG, signal.SIGCONT)
    fcntl.fcntl(watch, fcntl.F_SETFL, os.O_ASYNC)
except OSError:
    pass
number = 0
while True:
    number += 1
    open("count", "w").write(str(number))
"""
"""A process that the kernel is to let go on, at a time or when a file changes."""


@pytest.fixture(params=["cgroup2", "freezer", "sigstop"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FreezeMethod]:
    """Each means of the kernel that works on this machine."""
    wanted: FreezeMethod = request.param
    if wanted == "sigstop":
        monkeypatch.setenv(cgroup.SWITCH, "off")
    if wanted == "freezer":
        monkeypatch.setattr(cgroup_paths, "_freezing_v2", lambda *_: "")
    cgroup_paths._find.cache_clear()
    if enforcement().freeze != wanted:
        lacking(f"control groups cannot freeze by {wanted} on this machine")
    yield wanted
    monkeypatch.undo()
    cgroup_paths._find.cache_clear()


@pytest.fixture(params=["bubblewrap", "landlock"])
def frozen_by(
    request: pytest.FixtureRequest, method: FreezeMethod, request_for: Callable[..., CreateWorkspace], tmp_path: Path
) -> Iterator[Executor]:
    made = LocalExecutor(tmp_path / "workspaces", level(request.param))
    made.create(request_for())
    yield made
    made.delete(NAME)
    made.close()


def started(executor: Executor, *argv: str, limits: Limits | None = None) -> Process:
    """A process that counts in a file, once it does."""
    process = executor.start_process(StartProcess(workspace=NAME, argv=argv, limits=limits))
    until(lambda: count(executor) > 2)
    return process


def count(executor: Executor) -> int:
    with contextlib.suppress(Exception):
        return int(executor.read_file(NAME, "count") or b"0")
    return 0


def goes_on(executor: Executor, before: int) -> None:
    until(lambda: count(executor) > before)


def until(there: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    "argv",
    [
        ("sh", "-c", COUNTING),
        ("sh", "-c", FORKING),
        ("sh", "-c", DAEMON),
        ("/usr/bin/python3", "-Ic", WAKING),
        ("/usr/bin/python3", "-Ic", TIMED),
    ],
    ids=["a loop", "forks", "a daemon", "wake each other", "the kernel wakes it"],
)
def test_nothing_runs_while_it_is_frozen(frozen_by: Executor, method: FreezeMethod, argv: tuple[str, ...]) -> None:
    argv = ("/bin/sh", *argv[1:]) if argv[0] == "sh" else argv
    process = started(frozen_by, *argv)
    for _ in range(3):
        done = frozen_by.freeze(NAME)
        assert (done.by, done.already) == (method, False)
        assert done.processes > 0
        before = count(frozen_by)
        time.sleep(0.05)
        assert count(frozen_by) == before
        assert frozen_by.freeze(NAME).already
        assert frozen_by.session(NAME).frozen
        frozen_by.thaw(NAME)
        goes_on(frozen_by, before)
    frozen_by.freeze(NAME)
    process.kill()
    assert not process.running


def test_files_are_put_back_and_processes_go_on(ready: Executor) -> None:
    process = started(ready, "/bin/sh", "-c", COUNTING)
    taken = ready.snapshot(NAME)
    ready.freeze(NAME)
    ready.restore(NAME, taken.snapshot)
    assert ready.snapshot(NAME).tree == taken.tree
    ready.thaw(NAME)
    goes_on(ready, count(ready))
    assert process.running
    process.kill()


def test_clocks_stand_still_and_what_starts_waits(ready: Executor) -> None:
    process = started(ready, "/bin/sh", "-c", COUNTING, limits=Limits(wall_sec=1.5))
    ready.freeze(NAME)
    ended: list[object] = []
    command = RunCommand(workspace=NAME, argv=("/bin/sh", "-c", "echo ran > ran"))
    waiting = threading.Thread(target=lambda: ended.append(ready.run_command(command)))
    waiting.start()
    time.sleep(1.6)
    assert ended == []
    ready.thaw(NAME)
    waiting.join(20)
    assert ready.read_file(NAME, "ran") == b"ran\n"
    assert process.running, "frozen time is free"
    until(lambda: not process.running)
    assert process.limit == "wall"


def test_a_workspace_that_is_frozen_can_be_deleted(
    ready: Executor, request_for: Callable[..., CreateWorkspace]
) -> None:
    process = started(ready, "/bin/sh", "-c", COUNTING)
    ready.freeze(NAME)
    ready.delete(NAME)
    until(lambda: not process.running)
    ready.create(request_for())
    assert ready.session(NAME).frozen is False
