"""A workspace's disk limit is one for all that runs in it, from its making to its end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from codepilot.executor import LocalExecutor, RunCode, RunCommand
from codepilot.sandbox import Limits
from codepilot.workspace import Entry, ObjectStore

NAME = "r-1"
LIMITS = Limits(disk_bytes=32 << 20)
WRITE = "head -c 25000000 /dev/urandom > {name}"


@pytest.fixture
def local(tmp_path, sandbox, request_for):
    executor = LocalExecutor(tmp_path / "workspaces", sandbox, LIMITS)
    executor.create(request_for())
    yield executor
    executor.close()


def run(executor: LocalExecutor, script: str, **fields: object) -> tuple[str, str | None]:
    done = executor.run_command(RunCommand(workspace=NAME, argv=("/bin/sh", "-c", script), **fields))
    return done.status, done.limit


def act(executor: LocalExecutor, code: str) -> tuple[str, str | None]:
    done = executor.run_code(RunCode(workspace=NAME, code=code, timeout_sec=20))
    return done.status, done.limit


def test_commands_share_one_limit(local):
    assert run(local, WRITE.format(name="one")) == ("ok", None)
    assert run(local, WRITE.format(name="two")) == ("limit", "disk")
    assert run(local, WRITE.format(name="three")) == ("limit", "disk")


def test_commands_with_limits_of_their_own_share_it_too(tmp_path, sandbox, request_for):
    executor = LocalExecutor(tmp_path / "workspaces", sandbox)
    executor.create(request_for())
    try:
        assert run(executor, WRITE.format(name="one"), limits=LIMITS) == ("ok", None)
        assert run(executor, WRITE.format(name="two"), limits=LIMITS) == ("limit", "disk")
    finally:
        executor.close()


def test_actions_and_commands_share_it(local):
    """A kernel that is idle has nothing to fear from what a command does; anyone who adds to it next is informed."""
    write = "import os, time\nopen('{name}', 'wb').write(os.urandom(20_000_000))\ntime.sleep({rest})"
    assert act(local, write.format(name="one", rest=0.6)) == ("ok", None)
    assert run(local, WRITE.format(name="two")) == ("limit", "disk")
    assert act(local, "time.sleep(1.2); sorted(os.listdir())") == ("ok", None)
    assert act(local, write.format(name="three", rest=15)) == ("limit", "disk")


def test_a_full_workspace_can_be_read_and_emptied(local):
    assert run(local, WRITE.format(name="one")) == ("ok", None)
    assert run(local, WRITE.format(name="two")) == ("limit", "disk")
    assert run(local, "cat one two > /dev/null; ls") == ("ok", None)
    assert run(local, "head -c 2000000 /dev/urandom > small") == ("limit", "disk")
    assert run(local, "rm small one two") == ("ok", None)
    assert run(local, WRITE.format(name="one")) == ("ok", None)


def test_what_is_written_over_and_over_counts_once(local):
    for _ in range(5):
        assert run(local, WRITE.format(name="same")) == ("ok", None)


def test_a_restore_makes_room(local):
    empty = local.snapshot(NAME).snapshot
    assert run(local, WRITE.format(name="one")) == ("ok", None)
    local.restore(NAME, empty)
    assert run(local, WRITE.format(name="two")) == ("ok", None)
    assert run(local, WRITE.format(name="three")) == ("limit", "disk")


def test_what_it_was_made_with_does_not_count(tmp_path, sandbox, base, request_for):
    with ObjectStore.open(base[0]) as store:
        large = store.write_blob(bytes(range(256)) * 160_000)
        tree = store.write_tree({"large": Entry("100644", large)})
    executor = LocalExecutor(tmp_path / "workspaces", sandbox, LIMITS)
    executor.create(request_for().model_copy(update={"tree": tree}))
    try:
        assert run(executor, WRITE.format(name="one")) == ("ok", None)
        assert run(executor, WRITE.format(name="two")) == ("limit", "disk")
    finally:
        executor.close()


def test_an_executor_that_was_started_again_knows_it(tmp_path, sandbox, request_for):
    home = tmp_path / "workspaces"
    first = LocalExecutor(home, sandbox, LIMITS, durable=True)
    first.create(request_for())
    assert run(first, WRITE.format(name="one")) == ("ok", None)
    first.close()
    second = LocalExecutor(home, sandbox, LIMITS, durable=True)
    try:
        assert run(second, WRITE.format(name="two")) == ("limit", "disk")
    finally:
        second.close()


def test_who_writes_where_there_is_no_room_is_soon_ended(local, tmp_path):
    assert run(local, "head -c 48000000 /dev/urandom > one") == ("limit", "disk")
    before = used(tmp_path)
    slow = "for i in 1 2 3 4 5 6 7 8 9; do head -c 3000000 /dev/urandom > f$i; sync f$i; sleep 0.1; done"
    assert run(local, slow) == ("limit", "disk")
    assert used(tmp_path) - before <= 12_000_000


def test_workspaces_do_not_pay_for_one_another(tmp_path, sandbox, request_for):
    executor = LocalExecutor(tmp_path / "workspaces", sandbox, LIMITS)
    try:
        for number in range(3):
            executor.create(request_for(f"r-{number}"))
            assert run_in(executor, f"r-{number}", WRITE.format(name="one")) == "ok"
        assert run_in(executor, "r-0", "echo x > small") == "ok"
    finally:
        executor.close()


def run_in(executor: LocalExecutor, workspace: str, script: str) -> str:
    return executor.run_command(RunCommand(workspace=workspace, argv=("/bin/sh", "-c", script))).status


def used(tmp_path: Path) -> int:
    time.sleep(0.1)
    tree = tmp_path / "workspaces" / NAME / "tree"
    return sum(file.stat().st_size for file in tree.iterdir() if file.is_file())
