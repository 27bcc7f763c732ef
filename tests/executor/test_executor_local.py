"""The executor's contract, in-process, at each level that confines."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import (
    CreateWorkspace,
    Executor,
    LocalExecutor,
    MountSpec,
    RunCode,
    RunCommand,
    StartProcess,
)
from codepilot.sandbox import Level, Limits, Sandbox, choose, probe
from codepilot.workspace import Entry, ObjectStore

NAME = "r-1"
SKILLS = "def shout(text):\n    return text.upper()\n"


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    report = next(report for report in probe() if report.level == request.param)
    if not report.available:
        message = f"{request.param} does not work here: {report.reason}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return choose(request.param)


@pytest.fixture
def base(tmp_path: Path) -> tuple[Path, str]:
    """An object store and a tree of two files in it."""
    path = tmp_path / "objects"
    with ObjectStore.open(path) as store:
        readme = store.write_blob(b"hello\n")
        code = store.write_blob(b"ANSWER = 41\n")
        tree = store.write_tree({"README": Entry("100644", readme), "pkg/mod.py": Entry("100644", code)})
    return path, tree


@pytest.fixture
def request_for(base: tuple[Path, str]) -> Callable[..., CreateWorkspace]:
    def make(workspace: str = NAME, **fields: object) -> CreateWorkspace:
        return CreateWorkspace(workspace=workspace, objects=str(base[0]), tree=base[1], **fields)

    return make


@pytest.fixture
def executor(tmp_path: Path, sandbox: Sandbox) -> Iterator[LocalExecutor]:
    executor = LocalExecutor(tmp_path / "workspaces", sandbox, prelude=SKILLS)
    yield executor
    executor.close()


@pytest.fixture
def ready(executor: LocalExecutor, request_for: Callable[..., CreateWorkspace]) -> LocalExecutor:
    executor.create(request_for())
    return executor


def shell(script: str, **fields: object) -> RunCommand:
    return RunCommand(workspace=NAME, argv=("/bin/sh", "-c", script), **fields)


def code(source: str, **fields: object) -> RunCode:
    return RunCode(workspace=NAME, code=source, **fields)


def test_it_is_an_executor(executor: LocalExecutor, sandbox: Sandbox):
    contract: Executor = executor
    assert contract.level == sandbox.level


def test_create_lays_the_tree_down_once(executor, request_for):
    first, second = executor.create(request_for()), executor.create(request_for())
    assert (first.created, second.created) == (True, False)
    assert first.path == second.path
    assert (Path(first.path) / "pkg/mod.py").read_bytes() == b"ANSWER = 41\n"
    assert executor.read_file(NAME, "README") == b"hello\n"


def test_after_a_restart_create_attaches_to_what_is_there(tmp_path, sandbox, executor, request_for):
    executor.create(request_for())
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


def test_two_threads_that_create_make_one_workspace(executor, request_for):
    made: list[bool] = []
    threads = [threading.Thread(target=lambda: made.append(executor.create(request_for()).created)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False, False, False, True]


def test_code_inside_sees_the_tree_at_the_path_asked_for(executor, request_for):
    info = executor.create(request_for(at="/srv/some project"))
    expected = "/srv/some project" if executor.level is Level.BUBBLEWRAP else info.path
    assert info.inside == expected
    assert executor.run_command(shell("pwd")).stdout.decode().strip() == expected
    assert executor.run_code(code("import os; os.getcwd()")).value == repr(expected)


def test_mounts_and_environment_hold_for_every_later_call(executor, request_for, tmp_path):
    extra = tmp_path.resolve() / "extra"
    extra.mkdir()
    (extra / "data").write_text("seen")
    mount = MountSpec(source=str(extra), target=str(extra))
    executor.create(request_for(mounts=(mount,), env={"A": "1", "B": "2"}))
    done = executor.run_command(shell(f"cat '{extra}/data'; echo $A$B", env={"B": "3"}))
    assert done.stdout == b"seen13\n"
    seen = executor.run_code(code(f"import os; open({str(extra / 'data')!r}).read(), os.environ['A']"))
    assert seen.value == "('seen', '1')"


def test_commands_have_stdin_a_directory_and_a_timeout(ready):
    assert ready.run_command(shell("pwd; cat", stdin=b"in", cwd="pkg")).stdout.endswith(b"/pkg\nin")
    slow = ready.run_command(shell("echo begun; sleep 600", timeout_sec=0.5))
    assert (slow.status, slow.limit, slow.stdout) == ("timeout", "wall", b"begun\n")
    greedy = ready.run_command(shell("yes", limits=Limits(output_bytes=1000)))
    assert (greedy.status, greedy.limit) == ("limit", "output")


@pytest.mark.parametrize("cwd", ["..", "/etc", "pkg/../../x"])
def test_a_working_directory_outside_is_refused(ready, cwd):
    with pytest.raises(CodePilotError) as caught:
        ready.run_command(shell("pwd", cwd=cwd))
    assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS


def test_code_actions_share_variables_and_skills(ready):
    assert ready.run_code(code("x = shout('hi')")).status == "ok"
    result = ready.run_code(
        code("print(x)\nimport sys; sys.path.insert(0, '.')\nfrom pkg.mod import ANSWER\nANSWER + 1")
    )
    assert (result.stdout, result.value, result.kernel_restarted) == ("HI\n", "42", False)
    failed = ready.run_code(code("y = 1\n1 / 0"))
    assert (failed.status, failed.error.type, failed.error.line) == ("error", "ZeroDivisionError", 2)


def test_the_same_key_is_carried_out_once(ready):
    first = ready.run_command(shell("echo x >> log; wc -l < log", idempotency_key="k"))
    assert ready.run_command(shell("echo x >> log; wc -l < log", idempotency_key="k")) == first
    assert ready.run_code(code("n = globals().get('n', 0) + 1; n", idempotency_key="c")).value == "1"
    assert ready.run_code(code("n = globals().get('n', 0) + 1; n", idempotency_key="c")).value == "1"
    assert ready.run_code(code("n")).value == "1"


def test_snapshot_diff_and_restore(ready, base):
    clean = ready.snapshot(NAME)
    assert (clean.tree, clean.violations) == (base[1], ())
    ready.run_code(code("open('pkg/mod.py', 'w').write('ANSWER = 42\\n'); open('new.txt', 'w').write('n\\n'); x = 1"))
    diff = ready.diff(NAME, base[1])
    assert {(change.path, change.change) for change in diff.changes} == {
        ("pkg/mod.py", "modified"),
        ("new.txt", "added"),
    }
    assert b"+ANSWER = 42" in diff.patch
    assert diff.lines == 3
    ready.restore(NAME, clean.snapshot, ("pkg/mod.py",))
    assert ready.read_file(NAME, "pkg/mod.py") == b"ANSWER = 41\n"
    assert ready.read_file(NAME, "new.txt") == b"n\n"
    ready.restore(NAME, clean.snapshot)
    assert ready.diff(NAME, base[1]).patch == b""
    after = ready.run_code(code("'x' in globals()"))
    assert (after.value, after.kernel_restarted) == ("False", True)


FOREVER = "touch {name}; while :; do echo {name} > README; done"


def test_restore_first_ends_whatever_could_still_write(ready):
    clean = ready.snapshot(NAME).snapshot
    tree = Path(ready.create(ready._place(NAME).request).path)
    process = ready.start_process(StartProcess(workspace=NAME, argv=("/bin/sh", "-c", FOREVER.format(name="process"))))
    ended: list[str] = []
    sleep = "open('action', 'w')\nimport time\nwhile True:\n    time.sleep(600)"
    calls = (
        lambda: ended.append(ready.run_command(shell(FOREVER.format(name="command"))).status),
        lambda: ended.append(ready.run_code(code(sleep)).status),
        lambda: ended.append(ready.run_code(code(sleep)).status),
    )
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    while not all((tree / name).exists() for name in ("process", "command", "action")):
        time.sleep(0.01)
    ready.restore(NAME, clean)
    assert not process.running
    for thread in threads:
        thread.join()
    assert ended.count("interrupted") >= 1 and "ok" not in ended
    assert ready.read_file(NAME, "README") == b"hello\n"
    assert sorted(path.name for path in tree.iterdir()) == ["README", "pkg"]


def test_nothing_starts_while_files_are_put_back(ready, monkeypatch):
    clean = ready.snapshot(NAME).snapshot
    workspace = ready._place(NAME).workspace
    tree, put_back = workspace.tree_path, workspace.restore
    seen: list[set[str]] = []
    calls = (
        lambda: ready.run_command(shell("touch command")),
        lambda: ready.run_code(code("open('action', 'w')")),
        lambda: ready.start_process(StartProcess(workspace=NAME, argv=("/bin/touch", "process"))).wait(),
    )
    threads = [threading.Thread(target=call) for call in calls]

    def restore(snapshot: str, paths: tuple[str, ...] = ()) -> None:
        for thread in threads:
            thread.start()
        threads[0].join(0.5)
        seen.append({path.name for path in tree.iterdir()})
        put_back(snapshot, paths)

    monkeypatch.setattr(workspace, "restore", restore)
    ready.restore(NAME, clean)
    for thread in threads:
        thread.join()
    assert seen == [{"README", "pkg"}]
    assert {"command", "action", "process"} < {path.name for path in tree.iterdir()}


def test_reading_does_not_follow_links_out(ready, tmp_path):
    (tmp_path / "secret").write_text("hunter2")
    ready.run_command(shell(f"ln -s '{tmp_path}/secret' link"))
    with pytest.raises(CodePilotError):
        ready.read_file(NAME, "link")


def test_a_process_is_spoken_to_and_ends_with_its_workspace(ready):
    process = ready.start_process(StartProcess(workspace=NAME, argv=("/bin/cat",)))
    process.stdin.write(b"ping\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"ping\n"
    ready.delete(NAME)
    assert not process.running


def test_interrupt_stops_commands_and_actions_and_keeps_variables(ready):
    ready.run_code(code("x = 5"))
    results: dict[str, str] = {}
    command = threading.Thread(
        target=lambda: results.update(command=ready.run_command(shell("touch go; sleep 600")).status)
    )
    action = threading.Thread(
        target=lambda: results.update(
            action=ready.run_code(code("open('gone', 'w')\nimport time; time.sleep(600)")).status
        )
    )
    command.start()
    action.start()
    tree = Path(ready.create(ready._place(NAME).request).path)
    while not ((tree / "go").exists() and (tree / "gone").exists()):
        time.sleep(0.01)
    ready.interrupt(NAME)
    command.join()
    action.join()
    assert results == {"command": "interrupted", "action": "interrupted"}
    assert ready.run_code(code("x")).value == "5"


def test_commands_run_side_by_side(ready):
    """Each waits for a file that the other makes."""
    results: list[str] = []

    def run(mine: str, other: str) -> None:
        script = f"touch {mine}; while [ ! -e {other} ]; do sleep 0.01; done"
        results.append(ready.run_command(shell(script, timeout_sec=60)).status)

    threads = [threading.Thread(target=run, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["ok", "ok"]


def test_delete_ends_what_runs_and_may_be_repeated(ready, tmp_path):
    thread = threading.Thread(target=lambda: ready.run_command(shell("touch go; sleep 600")))
    thread.start()
    while not (tmp_path / "workspaces" / NAME / "tree" / "go").exists():
        time.sleep(0.01)
    ready.delete(NAME)
    thread.join()
    assert list((tmp_path / "workspaces").iterdir()) == []
    ready.delete(NAME)


def test_a_workspace_of_an_earlier_process_can_be_deleted(tmp_path, sandbox, ready):
    ready.close()
    LocalExecutor(tmp_path / "workspaces", sandbox).delete(NAME)
    assert list((tmp_path / "workspaces").iterdir()) == []


def test_an_unknown_workspace_is_said(executor):
    with pytest.raises(CodePilotError) as caught:
        executor.run_command(shell("true"))
    assert caught.value.kind is FailureKind.EXECUTOR_LOST


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden", "x\n"])
def test_a_name_that_is_a_path_is_refused(executor, request_for, name):
    for call in (lambda: executor.create(request_for(name)), lambda: executor.delete(name)):
        with pytest.raises(CodePilotError) as caught:
            call()
        assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS


def test_the_agents_repository_is_its_own(ready, base):
    assert ready.init_git(NAME).status == "ok"
    assert ready.run_command(shell("git log --oneline | wc -l; git status --porcelain")).stdout.strip() == b"1"
    assert ready.diff(NAME, base[1]).patch == b""


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
