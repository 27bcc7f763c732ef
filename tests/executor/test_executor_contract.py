"""The executor's contract: the same in this process, at each level that confines, and over HTTP."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CreateWorkspace, Executor, MountSpec, RunCode, RunCommand, StartProcess
from codepilot.sandbox import Level, Limits
from codepilot.workspace import Entry, ObjectStore

NAME = "r-1"


def shell(script: str, **fields: object) -> RunCommand:
    return RunCommand(workspace=NAME, argv=("/bin/sh", "-c", script), **fields)


def code(source: str, **fields: object) -> RunCode:
    return RunCode(workspace=NAME, code=source, **fields)


def wait_for(*files: Path) -> None:
    while not all(file.exists() for file in files):
        time.sleep(0.01)


def refused(call) -> CodePilotError:
    with pytest.raises(CodePilotError) as caught:
        call()
    return caught.value


def test_it_says_how_it_confines(executor: Executor):
    assert executor.level in (Level.BUBBLEWRAP, Level.LANDLOCK)
    assert executor.remaps == (executor.level is Level.BUBBLEWRAP)


def test_create_lays_the_tree_down_once(executor, request_for):
    first, second = executor.create(request_for()), executor.create(request_for())
    assert (first.created, second.created) == (True, False)
    assert first.path == second.path
    assert (Path(first.path) / "pkg/mod.py").read_bytes() == b"ANSWER = 41\n"
    assert executor.read_file(NAME, "README") == b"hello\n"


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
    expected = "/srv/some project" if executor.remaps else info.path
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
    shorter = ready.run_command(shell("sleep 600", limits=Limits(wall_sec=0.5)))
    assert (shorter.status, shorter.limit) == ("timeout", "wall")
    greedy = ready.run_command(shell("yes", limits=Limits(output_bytes=1000)))
    assert (greedy.status, greedy.limit) == ("limit", "output")


@pytest.mark.parametrize("cwd", ["..", "/etc", "pkg/../../x"])
def test_a_working_directory_outside_is_refused(ready, cwd):
    with pytest.raises(CodePilotError) as caught:
        ready.run_command(shell("pwd", cwd=cwd))
    assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS


def test_code_actions_share_variables(ready):
    assert ready.run_code(code("x = 'HI'")).status == "ok"
    result = ready.run_code(
        code("print(x)\nimport sys; sys.path.insert(0, '.')\nfrom pkg.mod import ANSWER\nANSWER + 1")
    )
    assert (result.stdout, result.value, result.kernel_restarted) == ("HI\n", "42", False)
    failed = ready.run_code(code("y = 1\n1 / 0"))
    assert (failed.status, failed.error.type, failed.error.line) == ("error", "ZeroDivisionError", 2)


def test_what_is_not_text_arrives_all_the_same(ready):
    odd = ready.run_code(code("print('\\udc80\\x00')\n'\\ud800'"))
    assert (odd.status, odd.value) == ("ok", r"'\ud800'")
    every = bytes(range(256)) * 40
    assert ready.run_command(shell("cat", stdin=every)).stdout == every


def test_the_same_key_is_carried_out_once(ready):
    first = ready.run_command(shell("echo x >> log; wc -l < log", idempotency_key="k"))
    assert ready.run_command(shell("echo x >> log; wc -l < log", idempotency_key="k")) == first
    assert ready.run_code(code("n = globals().get('n', 0) + 1; n", idempotency_key="c")).value == "1"
    assert ready.run_code(code("n = globals().get('n', 0) + 1; n", idempotency_key="c")).value == "1"
    assert ready.run_code(code("n")).value == "1"


def test_a_key_stands_for_one_request(ready):
    ready.run_command(shell("true", idempotency_key="k"))
    assert refused(lambda: ready.run_command(shell("false", idempotency_key="k"))).kind is FailureKind.TOOL_INVALID_ARGS
    results: list[str | None] = []
    ask = code("import time; time.sleep(0.3); n = globals().get('n', 0) + 1; n", idempotency_key="slow")
    threads = [threading.Thread(target=lambda: results.append(ready.run_code(ask).value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["1"] * 4


def test_carried_files_are_there_and_no_part_of_the_tree(executor, request_for, base, tmp_path):
    made = tmp_path / "made"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "tool").write_bytes(b"#!/bin/sh\necho built\n")
    (made / "deep" / "tool").chmod(0o755)
    (made / "up").symlink_to("../README")
    one = tmp_path / "one.txt"
    one.write_text("1")
    carried = (MountSpec(source=str(made), target="gen/made"), MountSpec(source=str(one), target="pkg/one.txt"))
    executor.create(request_for(carried=carried))
    assert executor.run_command(shell("gen/made/deep/tool; cat pkg/one.txt; readlink gen/made/up")).stdout == (
        b"built\n1../README\n"
    )
    assert executor.diff(NAME, base[1]).patch == b""
    absent = MountSpec(source=str(tmp_path / "absent"), target="x")
    error = refused(lambda: executor.create(request_for("r-2", carried=(absent,))))
    assert error.kind is FailureKind.PATH_NOT_FOUND
    executor.delete("r-2")


@pytest.mark.parametrize(
    "path",
    [".git/config", "sub/.GIT/config", ".git ", "git~1/config", ".g\u200cit/config", "a/.git::$DATA", "a/../b", "/x"],
)
def test_nothing_of_a_git_directory_is_copied_in(executor, request_for, tmp_path, path):
    file = tmp_path / "plain"
    file.write_text("x")
    error = refused(lambda: executor.create(request_for(carried=(MountSpec(source=str(file), target=path),))))
    assert error.kind is FailureKind.TOOL_INVALID_ARGS
    if path[0] != "/":
        assert ("git directory" in str(error)) == ("git" in path.replace("\u200c", "").lower())


def test_a_copy_never_comes_from_a_git_directory(executor, request_for, tmp_path):
    (tmp_path / "repo/.git").mkdir(parents=True)
    (tmp_path / "repo/.git/config").write_text("url = https://user:secret@host/")
    (tmp_path / "repo/link").symlink_to(".git")
    for source in ("repo/.git/config", "repo/link/config"):
        spec = MountSpec(source=str(tmp_path / source), target="conf")
        with pytest.raises(CodePilotError, match="git directory"):
            executor.create(request_for(carried=(spec,)))


@pytest.mark.parametrize("target", ["link/x", "README/x", "n" * 300, "pkg", "link"])
def test_a_copy_that_has_no_place_is_refused_with_a_reason(executor, base, tmp_path, target):
    with ObjectStore.open(base[0]) as store:
        tree = store.write_tree(
            {
                **store.read_tree(base[1]),
                "link": Entry("120000", store.write_blob(b"pkg")),
                "pkg/x": Entry("100644", store.write_blob(b"y")),
            }
        )
    file = tmp_path / "plain"
    file.write_text("x")
    asked = CreateWorkspace(
        workspace=NAME, objects=str(base[0]), tree=tree, carried=(MountSpec(source=str(file), target=target),)
    )
    if target in ("pkg", "link"):  # What the tree holds stays.
        executor.create(asked)
        assert executor.read_file(NAME, "pkg/x") == b"y"
        return
    error = refused(lambda: executor.create(asked))
    assert error.kind is FailureKind.TOOL_INVALID_ARGS and "cannot be copied" in str(error)


def test_a_snapshot_moves_to_another_workspace(ready, request_for):
    ready.run_command(shell("echo changed > README; mkdir empty; printf x > new"))
    taken = ready.snapshot(NAME)
    stream = b"".join(ready.export_snapshot(NAME, taken.snapshot))
    ready.create(request_for("r-2"))
    try:
        there = ready.import_snapshot("r-2", [stream[:100], stream[100:]])
        assert (there.snapshot, there.tree) == (taken.snapshot, taken.tree)
        ready.restore("r-2", there.snapshot)
        assert ready.read_file("r-2", "README") == b"changed\n"
        assert ready.run_command(RunCommand(workspace="r-2", argv=("/bin/ls",))).stdout.split() == [
            b"README",
            b"empty",
            b"new",
            b"pkg",
        ]
        assert refused(lambda: ready.import_snapshot("r-2", [stream[:-1]])).kind is FailureKind.TOOL_INVALID_ARGS
    finally:
        ready.delete("r-2")


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


def test_restore_first_ends_whatever_could_still_write(executor, request_for):
    ready, tree = executor, Path(executor.create(request_for()).path)
    clean = ready.snapshot(NAME).snapshot
    process = ready.start_process(StartProcess(workspace=NAME, argv=("/bin/sh", "-c", FOREVER.format(name="process"))))
    ended: list[str] = []
    sleep = "open('action', 'w')\nimport time\nwhile True:\n    time.sleep(600)"
    calls = (
        lambda: ended.append(ready.run_command(shell(FOREVER.format(name="command"))).status),
        lambda: ended.append(ready.run_code(code(sleep)).status),
    )
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    wait_for(tree / "process", tree / "command", tree / "action")
    ready.restore(NAME, clean)
    assert not process.running
    for thread in threads:
        thread.join()
    assert ended == ["interrupted", "interrupted"]
    assert ready.read_file(NAME, "README") == b"hello\n"
    assert sorted(path.name for path in tree.iterdir()) == ["README", "pkg"]


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
    assert (process.running, process.wait(0)) == (True, None)
    ready.delete(NAME)
    assert not process.running


def test_a_process_says_how_it_ended(ready):
    script = 'read line; echo "got $line"; echo oops >&2; exit 3'
    process = ready.start_process(StartProcess(workspace=NAME, argv=("/bin/sh", "-c", script)))
    process.stdin.write(b"it\n")
    process.stdin.close()
    assert process.stdout.read() == b"got it\n"
    assert (process.wait(), process.running, process.limit) == (3, False, None)
    assert process.stderr_tail() == b"oops\n"
    process.kill()


def test_a_process_reads_much_and_writes_much(ready):
    process = ready.start_process(StartProcess(workspace=NAME, argv=("/bin/cat",)))
    much = b"0123456789abcdef" * (3 << 16) + b"\n"
    writer = threading.Thread(target=lambda: (process.stdin.write(much), process.stdin.close()))
    writer.start()
    assert process.stdout.read() == much
    writer.join()
    assert process.wait() == 0


def test_a_process_is_interrupted_limited_and_killed(ready):
    def start(script: str, **fields: object):
        return ready.start_process(StartProcess(workspace=NAME, argv=("/bin/sh", "-c", script), **fields))

    interrupted = start("trap 'echo heard; exit 5' INT; echo set; while :; do sleep 0.05; done")
    assert interrupted.stdout.readline() == b"set\n"
    interrupted.interrupt()
    assert interrupted.stdout.read() == b"heard\n"
    assert interrupted.wait() == 5
    interrupted.interrupt()

    slow = start("sleep 600", limits=Limits(wall_sec=0.2))
    assert (slow.wait(), slow.limit) == (None, "wall")
    with pytest.raises(OSError):
        slow.stdin.write(b"x" * (1 << 20))
        slow.stdin.flush()

    endless = start("sleep 600")
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(endless.stdout.readline()))
    reader.start()
    endless.kill()
    reader.join()
    assert (received, endless.running, endless.wait()) == ([b""], False, None)


@pytest.mark.parametrize("every", [False, True])
def test_interrupt_stops_commands_and_actions_and_keeps_variables(executor, request_for, every):
    ready, tree = executor, Path(executor.create(request_for()).path)
    ready.run_code(code("x = 5"))
    results: dict[str, str] = {}
    sleep = "open('gone', 'w')\nimport time; time.sleep(600)"
    calls = (
        lambda: results.update(command=ready.run_command(shell("touch go; sleep 600")).status),
        lambda: results.update(action=ready.run_code(code(sleep)).status),
    )
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    wait_for(tree / "go", tree / "gone")
    ready.interrupt_all() if every else ready.interrupt(NAME)
    for thread in threads:
        thread.join()
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


def test_delete_ends_what_runs_and_may_be_repeated(executor, request_for):
    tree = Path(executor.create(request_for()).path)
    thread = threading.Thread(target=lambda: executor.run_command(shell("touch go; sleep 600")))
    thread.start()
    wait_for(tree / "go")
    executor.delete(NAME)
    thread.join()
    assert not tree.parent.exists()
    executor.delete(NAME)


def test_close_ends_what_runs_and_keeps_files(executor, request_for):
    tree = Path(executor.create(request_for()).path)
    process = executor.start_process(StartProcess(workspace=NAME, argv=("/bin/sh", "-c", "touch here; sleep 600")))
    wait_for(tree / "here")
    executor.close()
    assert not process.running
    assert not executor.create(request_for()).created
    assert executor.read_file(NAME, "here") == b""


def test_an_unknown_workspace_is_reported(executor):
    calls = (
        lambda: executor.run_command(shell("true")),
        lambda: executor.run_code(code("1")),
        lambda: executor.start_process(StartProcess(workspace=NAME, argv=("/bin/true",))),
        lambda: executor.snapshot(NAME),
        lambda: executor.diff(NAME, "0" * 64),
        lambda: executor.read_file(NAME, "README"),
        lambda: executor.interrupt(NAME),
    )
    assert {refused(call).kind for call in calls} == {FailureKind.EXECUTOR_LOST}


def test_failures_are_the_same_everywhere(ready):
    failures = [
        refused(lambda: ready.read_file(NAME, "no such file")),
        refused(lambda: ready.restore(NAME, "0" * 64)),
        refused(lambda: ready.diff(NAME, "0" * 64)),
        refused(lambda: ready.snapshot("a/b")),
    ]
    kinds = [error.kind for error in failures]
    missing, invalid = FailureKind.PATH_NOT_FOUND, FailureKind.TOOL_INVALID_ARGS
    assert kinds == [missing, missing, missing, invalid]
    assert "no such file" in failures[0].failure.message


@pytest.mark.parametrize("name", ["..", "a/b", "", ".hidden", "x\n"])
def test_a_name_that_is_a_path_is_refused(executor, request_for, name):
    for call in (lambda: executor.create(request_for(name)), lambda: executor.delete(name)):
        with pytest.raises(CodePilotError) as caught:
            call()
        assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS


def test_the_agents_repository_is_its_own(ready, base):
    assert ready.init_git(NAME).status == "ok"
    assert ready.run_command(shell("git log --oneline | wc -l; git status --porcelain")).stdout.strip() == b"1"
    ready.run_command(shell("git commit -q --allow-empty -m mine"))
    assert ready.init_git(NAME).status == "ok"
    assert ready.run_command(shell("git log --oneline | wc -l")).stdout.strip() == b"2"
    ready.run_command(shell("rm -rf .git/objects; touch .git/codepilot-unfinished"))
    assert ready.init_git(NAME).status == "ok"
    assert ready.run_command(shell("git log --oneline | wc -l; git status --porcelain")).stdout.strip() == b"1"
    assert ready.diff(NAME, base[1]).patch == b""


def test_the_agents_repository_leaves_installed_packages_out(ready):
    make = "mkdir -p node_modules/x .venv built; touch node_modules/x/a .venv/b built/c kept.log ./-odd.log"
    ready.run_command(shell(f"{make}; printf '*.log\\nbuilt\\n' > .gitignore"))
    assert ready.init_git(NAME).exit_code == 0
    listed = ready.run_command(shell("git ls-files")).stdout.decode().split()
    assert {"kept.log", "-odd.log", ".gitignore"} <= set(listed)
    assert not [path for path in listed if path.startswith(("node_modules", ".venv", "built"))]
    assert ready.run_command(shell("git status --porcelain")).stdout == b""


ASKING = "import codepilot_kernel as kernel\nkernel.ask('double', {'n': n})"


def double(function: str, arguments: dict) -> object:
    if arguments["n"] < 0:
        raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, "less than nothing")
    return [function, 2 * arguments["n"]]


def test_an_action_waits_for_what_its_caller_answers(ready):
    asking = "import codepilot_kernel as kernel\nfor n in (1, 2, -1):\n    print(kernel.ask('double', {'n': n}))\nn"
    done = ready.run_code(code(asking, host_calls=("double",)), double)
    assert (done.status, done.value) == ("ok", "-1")
    first, second, third = done.stdout.splitlines()
    assert "['double', 2]" in first and "['double', 4]" in second
    assert "tool_invalid_args" in third and "less than nothing" in third
    assert ready.run_code(code("n")).value == "-1", "the variables are kept"


def test_only_what_the_caller_named_is_its_to_answer(ready):
    asked: list[str] = []
    done = ready.run_code(code(ASKING.replace("n}", "1}"), host_calls=("other",)), lambda *call: asked.append(call[0]))
    assert "error" in (done.value or "") and not asked


def test_an_action_does_not_wait_longer_than_it_may(ready):
    answered = threading.Event()

    def slow(function: str, arguments: dict) -> object:
        answered.wait(1.5)
        return 1

    done = ready.run_code(code(ASKING.replace("n}", "1}"), host_calls=("double",), timeout_sec=0.5), slow)
    assert "tool_timeout" in f"{done.value}{done.error}" or done.status == "timeout"
    assert ready.run_code(code("1 + 1")).value == "2"


def test_a_call_can_be_answered_again_and_is_answered_once(ready):
    request = code("n = 3\n" + ASKING, host_calls=("double",), idempotency_key="same")
    answers = [ready.run_code(request, double) for _ in range(2)]
    assert answers[0].value == answers[1].value and "6" in answers[0].value
