"""What the executor in this process promises beyond the contract."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from codepilot.executor import LocalExecutor, RunCode, RunCommand, StartProcess

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
    workspace = local._place(NAME).workspace
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
