"""What the executor in this process promises beyond the contract."""

from __future__ import annotations

import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from weakref import WeakSet

import pytest

from codepilot.executor import LocalExecutor, RunCode, RunCommand, StartProcess
from codepilot.sandbox import Kernel
from codepilot.workspace import ObjectStore

NAME = "r-1"
SKILLS = "def shout(text):\n    return text.upper()\n"


@pytest.fixture
def local(tmp_path, sandbox, request_for):
    executor = LocalExecutor(tmp_path / "workspaces", sandbox, prelude=SKILLS)
    executor.create(request_for())
    yield executor
    executor.close()


def shell(script: str, **fields: object) -> RunCommand:
    return RunCommand(workspace=NAME, argv=("/bin/sh", "-c", script), **fields)


def code(source: str, **fields: object) -> RunCode:
    return RunCode(workspace=NAME, code=source, **fields)


def test_after_a_restart_create_attaches_to_what_is_there(tmp_path, sandbox, local, request_for):
    executor = local
    executor.run_command(shell("echo changed > README"))
    taken = executor.snapshot(NAME)
    executor.close()
    again = LocalExecutor(tmp_path / "workspaces", sandbox)
    assert not again.create(request_for()).created
    assert again.read_file(NAME, "README") == b"changed\n"
    again.run_command(shell("rm README"))
    again.restore(NAME, taken.snapshot)
    assert again.read_file(NAME, "README") == b"changed\n"
    again.close()


def test_skills_are_there_without_an_import(local):
    assert local.run_code(code("shout('hi')")).value == "'HI'"


def test_nothing_starts_while_files_are_put_back(local, monkeypatch):
    clean = local.snapshot(NAME).snapshot
    workspace = local._session(NAME).workspace
    tree, put_back = workspace.tree_path, workspace.restore
    seen: list[set[str]] = []
    calls = (
        lambda: local.run_command(shell("touch command")),
        lambda: local.run_code(code("open('action', 'w')")),
        lambda: local.start_process(StartProcess(workspace=NAME, argv=("/bin/touch", "process"))).wait(),
    )
    threads = [threading.Thread(target=call) for call in calls]

    def restore(snapshot: str, paths: tuple[str, ...] = ()) -> None:
        for thread in threads:
            thread.start()
        threads[0].join(0.5)
        seen.append({path.name for path in tree.iterdir()})
        put_back(snapshot, paths)

    monkeypatch.setattr(workspace, "restore", restore)
    local.restore(NAME, clean)
    for thread in threads:
        thread.join()
    assert seen == [{"README", "pkg"}]
    assert {"command", "action", "process"} < {path.name for path in tree.iterdir()}


def test_a_workspace_of_an_earlier_process_can_be_deleted(tmp_path, sandbox, local):
    local.close()
    LocalExecutor(tmp_path / "workspaces", sandbox).delete(NAME)
    assert list((tmp_path / "workspaces").iterdir()) == []


def test_close_leaves_no_thread_and_no_file(tmp_path, sandbox, request_for):
    first = LocalExecutor(tmp_path / "w", sandbox)
    first.create(request_for())
    first.run_code(code("1"))
    first.close()
    threads, files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    second = LocalExecutor(tmp_path / "w", sandbox)
    second.create(request_for())
    second.run_code(code("1"))
    second.start_process(StartProcess(workspace=NAME, argv=("/bin/cat",)))
    second.snapshot(NAME)
    second.close()
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) == files


def test_it_works_in_a_process_with_very_many_open_files(local):
    """`select` takes no descriptor above 1023."""
    many = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        assert local.run_command(shell("cat; echo out", stdin=b"in ")).stdout == b"in out\n"
        assert local.run_code(code("6 * 7")).value == "42"
        process = local.start_process(StartProcess(workspace=NAME, argv=("/bin/cat",)))
        process.stdin.write(b"ping\n")
        process.stdin.close()
        assert (process.stdout.read(), process.wait()) == (b"ping\n", 0)
        local.interrupt(NAME)
        local.delete(NAME)
    finally:
        for fd in many:
            os.close(fd)


def test_workspaces_share_the_files_of_their_base(tmp_path, sandbox, request_for, base):
    """Descriptors grow with the packs of the base or with the workspaces, never with their product."""
    packs = 12
    with ObjectStore.open(base[0]) as store:
        for number in range(packs):
            store.write_blobs(f"{number} {one}".encode() for one in range(40))
    executor = LocalExecutor(tmp_path / "w", sandbox)
    counts = []
    for number in range(6):
        executor.create(request_for(f"r-{number}"))
        executor.snapshot(f"r-{number}")
        counts.append(len(list(Path("/proc/self/fd").iterdir())))
    executor.close()
    assert counts[-1] - counts[1] < 2 * packs


def test_who_is_interrupted_by_a_delete_is_informed(tmp_path, sandbox, request_for):
    """Also where answers are kept next to the workspace, which is gone by then."""
    executor = LocalExecutor(tmp_path / "w", sandbox, durable=True)
    for number in range(8):
        name = f"r-{number}"
        tree = Path(executor.create(request_for(name)).path)
        command = RunCommand(workspace=name, argv=("/bin/sh", "-c", "touch go; sleep 600"), idempotency_key="k")
        with ThreadPoolExecutor(1) as caller:
            reported = caller.submit(executor.run_command, command)
            while not (tree / "go").exists():
                time.sleep(0.005)
            executor.delete(name)
            assert reported.result().status == "interrupted"
        assert not tree.parent.exists()
    executor.close()


def test_kernels_that_were_replaced_are_let_go(local, request_for):
    session = local._session(NAME)
    known: WeakSet[Kernel] = WeakSet()
    for number in range(4):
        local.create(request_for(env={"N": str(number)}))
        assert local.run_code(code("import os; os.environ['N']")).value == repr(str(number))
        known.add(session.kernel())
    gc.collect()
    assert len(known) == 1


def test_an_action_that_waited_for_a_replaced_kernel_leaves_none_running(local, request_for):
    session = local._session(NAME)
    held = session.kernel()
    local.create(request_for(env={"N": "1"}))
    assert held is not session.kernel()
    held.run("1")
    assert held.running
    session.used(held)
    assert not held.running
    local.run_code(code("1"))
    assert session.kernel().running


def test_a_skill_on_this_side_knows_whose_call_it_is(tmp_path, sandbox, request_for):
    asked = []
    executor = LocalExecutor(tmp_path / "w", sandbox, answer=lambda *call: asked.append(call))
    executor.create(request_for())
    try:
        assert executor.run_code(code("import codepilot_kernel\ncodepilot_kernel.ask('x', {'a': 1})")).status == "ok"
    finally:
        executor.close()
    assert asked == [("x", {"a": 1}, NAME)]
