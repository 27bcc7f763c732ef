"""Control groups: where they may be made, what they limit, and how their lack is reported."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox import Enforcement, Limits, choose, enforcement, probe
from codepilot.sandbox.limits import cgroup_paths
from codepilot.sandbox.limits.cgroup import SWITCH, Group

LIMITS = Limits(cpus=0.5, memory_bytes=64 << 20)


@pytest.fixture
def group():
    group = Group(LIMITS)
    yield group
    group.close()


def inside(group: Group) -> dict[str, Path]:
    """The directories of a group by controller."""
    doors = {str(Path(entry).parent.parent): Path(entry).parent for entry in group.entries}
    paths = cgroup_paths.find().directory
    return {name: doors[parent] for name in cgroup_paths.CONTROLLERS if (parent := paths.get(name)) in doors}


def test_every_controller_found_limits_a_group(group):
    assert group.controllers == set(enforcement().controllers) == set(inside(group))
    for name, file, value in (
        ("memory", ("memory.limit_in_bytes", "memory.max"), str(64 << 20)),
        ("pids", ("pids.max", "pids.max"), "500"),
        ("cpu", ("cpu.cfs_quota_us", "cpu.max"), "50000"),
    ):
        if name in group.controllers:
            version = cgroup_paths.find().version[name]
            assert (inside(group)[name] / file[version - 1]).read_text().split()[0] == value


def test_a_process_that_a_thread_starts_is_born_inside_and_the_thread_is_not_left_there(group):
    def members(directory: Path) -> list[str]:
        return (directory / "cgroup.procs").read_text().split()

    first = [at for name, at in inside(group).items() if cgroup_paths.find().version[name] == 1]
    with group.around(), subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as cat:
        assert all(str(cat.pid) in members(directory) for directory in first)
        group.end()
        if not first:
            cat.kill()
        assert cat.wait(10) == -9
    assert all(members(directory) == [] for directory in first)


def test_groups_are_gone_when_closed_and_may_be_closed_again():
    group = Group(LIMITS)
    made = [Path(entry).parent for entry in group.entries]
    assert all(directory.is_dir() for directory in made)
    group.close()
    group.close()
    assert not [directory for directory in made if directory.exists()]
    assert group.breach() is None


def test_a_group_lost_meanwhile_is_no_trouble(group):
    for directory in inside(group).values():
        if directory.exists():
            directory.rmdir()
    assert group.breach() is None
    group.end()
    group.close()


def test_many_threads_make_groups_of_their_own():
    begin = threading.Barrier(8)

    def make(_: int) -> tuple[str, ...]:
        begin.wait()
        groups = [Group(LIMITS) for _ in range(5)]
        entries = tuple(entry for group in groups for entry in group.entries)
        for group in groups:
            group.close()
        return entries

    with ThreadPoolExecutor(8) as pool:
        entries = [entry for found in pool.map(make, range(8)) for entry in found]
    assert len(entries) == len(set(entries)) == 40 * len(set(cgroup_paths.find().directory.values()))


def test_switched_off_there_is_no_group_and_the_tree_is_pinned(monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    group = Group(LIMITS)
    assert (group.entries, group.controllers, group.breach()) == ([], frozenset(), None)
    allowed = os.sched_getaffinity(0)
    assert group.cpus is None if len(allowed) == 1 else (len(group.cpus or ()) == 1 and group.cpus <= allowed)
    assert Group(Limits(cpus=len(allowed))).cpus is None
    assert str(enforcement()) == f"watchdog every 25 ms; control groups are not usable ({SWITCH}=off)"


def test_pinned_trees_take_turns(monkeypatch):
    monkeypatch.setenv(SWITCH, "off")
    allowed = os.sched_getaffinity(0)
    taken = [Group(Limits(cpus=0.1)).cpus or frozenset(allowed) for _ in range(len(allowed))]
    assert frozenset().union(*taken) == allowed


def test_a_program_that_pins_itself_is_refused_where_pinning_is_the_limit(sandbox, view, monkeypatch):
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("there is nothing to choose among")
    monkeypatch.setenv(SWITCH, "off")
    code = "import os\nprint(len(os.sched_getaffinity(0)))\nos.sched_setaffinity(0, range(os.cpu_count()))"
    done = sandbox.run(["/usr/bin/python3", "-I", "-c", code], view, Limits(cpus=1))
    assert (done.stdout, b"PermissionError" in done.stderr) == (b"1\n", True)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Enforcement((1,), ("pids", "memory")), "cgroup v1: pids, memory; watchdog every 25 ms for the rest"),
        (
            Enforcement((1, 2), ("pids",), "cpu: Read-only file system"),
            "cgroup v1 and v2: pids; watchdog every 25 ms for the rest (cpu: Read-only file system)",
        ),
        (Enforcement((), (), "why"), "watchdog every 25 ms; control groups are not usable (why)"),
    ],
)
def test_how_limits_are_enforced_is_reported(found, message):
    assert str(found) == message


@pytest.mark.parametrize(
    ("root", "point", "path", "found"),
    [
        ("/", "/sys/fs/cgroup", "/", "/sys/fs/cgroup"),
        ("/", "/sys/fs/cgroup", "/a/b", "/sys/fs/cgroup/a/b"),
        ("/docker/1", "/sys/fs/cgroup/pids", "/docker/1/x", "/sys/fs/cgroup/pids/x"),
        ("/docker/1", "/sys/fs/cgroup/pids", "/docker/1", "/sys/fs/cgroup/pids"),
        ("/docker/1", "/sys/fs/cgroup/pids", "/docker/12", ""),
        ("/", "/sys/fs/cgroup", "/../x", ""),
        ("/", "/sys/fs/cgroup", "", ""),
    ],
)
def test_where_a_group_lies_in_a_mount(root, point, path, found):
    assert cgroup_paths._inside(cgroup_paths._Mount("cgroup", root, point, frozenset()), path) == found


class TestLeast:
    """A policy's weakest level is refused below, whatever asks."""

    @pytest.mark.parametrize(
        ("wanted", "least"), [("none", "landlock"), ("none", "bubblewrap"), ("landlock", "bubblewrap")]
    )
    def test_a_weaker_level_is_refused_even_by_name(self, wanted, least):
        with pytest.raises(CodePilotError, match=f"the policy demands at least the sandbox level {least}") as caught:
            choose(wanted, least)
        assert caught.value.kind is FailureKind.SANDBOX_UNAVAILABLE
        assert "`best`" in caught.value.failure.next_action

    def test_what_is_as_strong_is_given(self, bubblewrap, landlock):
        assert [choose("best", "landlock").level, choose("landlock", "landlock").level] == ["bubblewrap", "landlock"]
        assert choose("bubblewrap", "bubblewrap").level == bubblewrap.level

    def test_where_only_weaker_ones_work_it_is_refused_with_what_to_install(self, tmp_path, landlock):
        bwrap = tmp_path / "bwrap"
        bwrap.write_text(
            '#!/bin/sh\n[ "$1" = --help ] && echo "    --size BYTES" && exit\necho "bwrap: no" >&2\nexit 1\n'
        )
        bwrap.chmod(0o755)
        code = "from codepilot.sandbox import choose\ntry: choose('best', 'bubblewrap')\n"
        code += "except Exception as error: print(error.kind, error, error.failure.next_action, sep='|')"
        message = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert message.startswith("sandbox_unavailable|the policy demands at least the sandbox level bubblewrap")
        assert "the strongest that works here is landlock" in message
        assert "apt install bubblewrap" in message
        assert "--unsafe-no-sandbox" not in message


def test_probing_leaves_no_group():
    probe()
    parents = set(cgroup_paths.find().directory.values())
    mine = f"-{os.getpid()}-"
    assert not [
        path for parent in parents for path in Path(parent).glob(f"{cgroup_paths.PREFIX}*") if mine in path.name
    ]
