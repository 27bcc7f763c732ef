"""Nothing outlives its owner: no process, no control group, no temporary directory, whenever it is killed."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from codepilot.sandbox import CommandResult, Limits, Mount, SandboxSpec
from codepilot.sandbox.limits import cgroup_paths, cleanup, usage
from codepilot.sandbox.limits.cgroup import SWITCH, Group
from codepilot.sandbox.standalone import janitor

OWNER = """
import os, sys, threading
from pathlib import Path
from codepilot.sandbox import Kernel, Limits, Mount, SandboxSpec, choose
tree, mark, when, *levels = sys.argv[1:]
if when == "holding much":
    os.posix_fallocate(os.memfd_create("much"), 0, 256 << 20)
view = SandboxSpec(Mount(Path(tree), Path(tree), True), env={"MARK": mark})
limits = Limits(wall_sec=600)
stay = ["/bin/sh", "-c", "trap '' TERM INT HUP; touch $TMPDIR/mine; (setsid sleep 600 &); sleep 600"]
def forever(sandbox):
    while True:
        sandbox.run(["/bin/sh", "-c", "setsid sleep 600 & true"], view, limits)
for level in levels:
    sandbox = choose(level)
    if when.startswith("holding"):
        Kernel(sandbox, view, limits).run("import subprocess; p = subprocess.Popen(['sleep', '600'])")
        threading.Thread(target=sandbox.run, args=(stay, view, limits), daemon=True).start()
        sandbox.start(stay, view, limits)
    else:
        for _ in range(2):
            threading.Thread(target=forever, args=(sandbox,), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def groups_of(pid: int) -> list[str]:
    """The control groups that a process has made."""
    parents = set(cgroup_paths.find().directory.values())
    return [str(path) for parent in parents for path in Path(parent).glob(f"{cgroup_paths.PREFIX}*-{pid}-*")]


def marked_launchers(pid: int) -> list[int]:
    """The direct children of a process, janitor included."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
        except (OSError, ValueError):
            continue
    return found


def until(gone: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not gone():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


class Owner:
    """A process that runs sandboxes, to be killed."""

    def __init__(self, tree: Path, when: str, levels: list[str], env: dict[str, str]) -> None:
        self.mark = secrets.token_hex(8)
        self._tree = tree
        self._process = subprocess.Popen(
            [sys.executable, "-c", OWNER, os.fspath(tree), self.mark, when, *levels],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"
        self.pid = self._process.pid

    def kill(self) -> list[int]:
        """Kill it, and give what were its children."""
        os.kill(self.pid, signal.SIGSTOP)
        children = marked_launchers(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        self._process.communicate()
        return children

    def gone(self, children: list[int], marked: Callable[[str], list[int]]) -> None:
        """Nothing of it is left, a moment later."""
        assert until(lambda: not marked(self.mark)), marked(self.mark)
        assert until(lambda: not groups_of(self.pid)), groups_of(self.pid)
        assert until(lambda: not self.leftovers()), self.leftovers()
        assert until(lambda: not alive(children)), alive(children)

    def leftovers(self) -> list[str]:
        return [path.name for path in self._tree.parent.iterdir() if path != self._tree]


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if janitor._started(pid)]


@pytest.fixture(params=["best", "off"])
def switch(request: pytest.FixtureRequest) -> dict[str, str]:
    return {SWITCH: request.param}


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
def test_kill_of_a_parent_that_holds_kernels_and_commands(level, request, switch, tree, marked):
    request.getfixturevalue(level)
    owner = Owner(tree, "holding", [level], switch)
    assert until(lambda: len(marked(owner.mark)) >= 6)
    assert bool(groups_of(owner.pid)) == (switch[SWITCH] == "best" and bool(cgroup_paths.find().directory))
    children = owner.kill()
    assert len(children) >= 4
    owner.gone(children, marked)


def test_kill_of_a_parent_in_the_midst_of_starting(bubblewrap, landlock, switch, tree, marked):
    """Threads start and end sandboxes of both levels all the time; the moment of the kill is any."""
    for moment in range(4):
        owner = Owner(tree, "starting", ["bubblewrap", "landlock"], switch)
        time.sleep(moment * 0.013)
        owner.gone(owner.kill(), marked)


def test_mounts_are_none_of_the_hosts(sandbox, view):
    before = Path("/proc/self/mountinfo").read_text()
    process = sandbox.start(["/bin/cat"], view, Limits())
    during = Path("/proc/self/mountinfo").read_text()
    process.kill()
    assert before == during == Path("/proc/self/mountinfo").read_text()


def test_the_janitor_is_deaf_to_signals_and_takes_its_time_to_the_end(tree, landlock, switch, marked):
    owner = Owner(tree, "holding", ["landlock"], switch)
    found = [pid for pid in marked_launchers(owner.pid) if b"janitor.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(found) == 1
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(found[0], number)
    assert os.getsid(found[0]) != os.getsid(owner.pid)
    assert alive(found) == found
    owner.kill()
    assert until(lambda: not owner.leftovers())
    assert until(lambda: not alive(found))


def test_another_janitor_takes_over_from_one_that_was_killed(tmp_path, view, sandbox):
    sandbox.run(["/bin/true"], view, Limits())
    before = tmp_path / "before"
    cleanup.opened(cleanup.DIRECTORY, os.fspath(before))
    lost = cleanup._janitor._pid
    assert lost is not None
    os.kill(lost, signal.SIGKILL)
    assert until(lambda: not alive([lost]))
    assert sandbox.run(["/bin/true"], view, Limits()).status == "ok"
    cleanup.opened(cleanup.DIRECTORY, os.fspath(tmp_path / "after"))
    assert cleanup._janitor._pid not in (None, lost)
    for name in ("before", "after"):
        cleanup.closed(cleanup.DIRECTORY, os.fspath(tmp_path / name))


class TestSweep:
    """What even the janitor could not remove is known by its owner's name."""

    @pytest.fixture
    def dead(self) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from codepilot.sandbox.standalone.janitor import owner; print(owner())"],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def test_only_what_a_dead_owner_left_is_removed(self, tmp_path, dead):
        names = [f"x-{dead}-1", f"x-{janitor.owner()}-1", "x-00000000-1-2-3-4", "x-", "y", f"y-{dead}-1"]
        for name in names:
            (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / names[0] / "inner").chmod(0)
        janitor.sweep_directories(os.fspath(tmp_path), "x-")
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names[1:])

    def test_temporary_directories_of_the_dead_are_removed_when_a_workspace_is_used(self, landlock, tree, dead):
        left = tree.parent / f".codepilot-tmp-{dead}-ab"
        (left / "home").mkdir(parents=True)
        landlock.run(["/bin/true"], SandboxSpec(Mount(tree, tree)), Limits())
        assert not left.exists()

    def test_groups_of_the_dead_are_ended_and_removed(self, dead):
        parents = set(cgroup_paths.find().directory.values())
        for parent in parents:
            Path(parent, f"{cgroup_paths.PREFIX}{dead}-0").mkdir()
        with subprocess.Popen(["/bin/sleep", "600"]) as left:
            for parent in parents:
                cgroup_paths.write(f"{parent}/{cgroup_paths.PREFIX}{dead}-0/cgroup.procs", str(left.pid))
            for parent in parents:
                janitor.sweep_groups(parent, cgroup_paths.PREFIX)
            if not parents:
                left.kill()
            assert left.wait(10) == -signal.SIGKILL
        assert not [parent for parent in parents if Path(parent, f"{cgroup_paths.PREFIX}{dead}-0").exists()]


def test_a_copy_of_us_does_not_keep_our_janitor_waiting():
    """A fork holds no end of its parent's pipe, and what it opens is its own."""
    Group(Limits()).close()
    cleanup.mark()
    pipe = cleanup._janitor._pipe
    pid = os.fork()
    if pid == 0:
        try:
            os.fstat(pipe)
        except OSError:
            os._exit(0 if cleanup._janitor._pipe is None else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_subreaper_tidies_up_where_the_janitor_was_killed_as_well(landlock, switch, tree, marked):
    """The kernel ends of itself when the owner's pipes close: with much to give back, long before the owner is gone."""
    owner = Owner(tree, "holding much", ["landlock"], switch)
    assert until(lambda: len(marked(owner.mark)) >= 8)
    assert owner.leftovers()
    os.kill(owner.pid, signal.SIGSTOP)
    for pid in marked_launchers(owner.pid):
        if b"janitor" in command(pid):
            os.kill(pid, signal.SIGKILL)
    owner.gone(owner.kill(), marked)


def test_a_subreaper_that_is_killed_takes_its_tree_with_it(landlock, view, marked, monkeypatch):
    """Without groups: what has left the command's session has nobody else to end it."""
    monkeypatch.setenv(SWITCH, "off")
    mark = secrets.token_hex(8)
    stay = ["/bin/sh", "-c", "echo begun; for i in 1 2 3; do (setsid sleep 600 &); done; sleep 600"]
    process = landlock.start(stay, replace(view, env={"MARK": mark}), Limits(wall_sec=600))
    assert process.stdout.readline() == b"begun\n"
    assert until(lambda: len(marked(mark)) >= 5)
    os.kill(process._tree.popen.pid, signal.SIGKILL)
    assert until(lambda: not marked(mark)), marked(mark)
    process.kill()


def test_a_launcher_that_is_killed_is_reported_as_such(sandbox, view):
    message: list[CommandResult] = []
    mark = f"600.{secrets.randbelow(10**9):09}"
    stay = ["/bin/sh", "-c", f"echo begun; exec sleep {mark}"]

    def launchers() -> list[int]:
        sleep = b"sleep\0%s\0" % mark.encode()
        mine = marked_launchers(os.getpid())
        return [pid for pid in mine if any(command(below) == sleep for below in usage.descendants(pid))]

    runner = threading.Thread(target=lambda: message.append(sandbox.run(stay, view, Limits(wall_sec=600))))
    runner.start()
    assert until(lambda: len(launchers()) == 1, 60)
    os.kill(launchers()[0], signal.SIGKILL)
    runner.join(30)
    assert [(done.status, done.exit_code, done.stdout) for done in message] == [("error", 137, b"begun\n")]


def test_a_probe_that_is_killed_leaves_no_directory(tmp_path):
    """At any moment; the janitor is a process of its own and takes a moment."""
    code = "from codepilot.sandbox import probe; print(flush=True); probe(); probe.cache_clear(); probe()"
    for moment in range(4):
        env = {**os.environ, "TMPDIR": str(tmp_path)}
        process = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        until(lambda: any(tmp_path.iterdir()), 5)
        time.sleep(moment * 0.01)
        process.kill()
        process.communicate()
        assert until(lambda: not list(tmp_path.iterdir())), list(tmp_path.iterdir())


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
