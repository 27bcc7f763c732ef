"""How commands run and end, at every level, the unconfined one included."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox import Level, Limits, Mount, Sandbox, SandboxSpec


def test_a_command_gives_its_output_and_its_exit_code(run_any):
    done = run_any("/bin/sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.status, done.exit_code, done.stdout, done.stderr) == ("error", 3, b"out\n", b"err\n")


def test_success_is_ok(run_any):
    done = run_any("/bin/true")
    assert (done.status, done.exit_code, done.limit) == ("ok", 0, None)


def test_death_by_a_signal_is_reported_as_a_shell_tells_it(run_any):
    assert run_any("/bin/sh", "-c", "kill -TERM $$").exit_code == 143


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/usr", 126)])
def test_what_cannot_be_executed_has_the_shells_exit_codes(run_any, program, code):
    assert run_any(program).exit_code == code


def test_input_larger_than_a_pipe_arrives_whole(run_any):
    data = os.urandom(300_000)
    assert run_any("/bin/cat", stdin=data).stdout == data


def test_a_command_that_does_not_read_its_input_still_ends(run_any):
    assert run_any("/bin/true", stdin=b"x" * 1_000_000).status == "ok"


def test_it_begins_in_the_workspace_and_may_write_there(run_any, tree):
    done = run_any("/bin/sh", "-c", "pwd; echo new > made.txt; mkdir -p a/b; ln -s made.txt link")
    assert done.stdout.decode().strip() == str(tree)
    assert (tree / "made.txt").read_text() == "new\n"
    assert (tree / "a/b").is_dir()


def test_paths_with_spaces_and_unicode(any_sandbox: Sandbox, tmp_path: Path):
    tree = tmp_path.resolve() / "ein Platz" / "wörk späce"
    (tree / "süb dir").mkdir(parents=True)
    view = SandboxSpec(Mount(tree, tree), cwd=tree / "süb dir", env={"GREETING": "grüß dich"})
    done = any_sandbox.run(["/bin/sh", "-c", 'pwd; echo "$GREETING"; touch "ö x"'], view, Limits())
    assert done.stdout.decode() == f"{tree}/süb dir\ngrüß dich\n"
    assert (tree / "süb dir" / "ö x").exists()


def test_nothing_of_the_hosts_environment_is_seen(run_any, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    names = {line.split("=")[0] for line in run_any("/usr/bin/env").stdout.decode().splitlines()}
    assert "SECRET_TOKEN" not in names
    assert {"HOME", "PATH", "TMPDIR", "LANG"} <= names


def test_output_beyond_the_limit_keeps_head_and_tail(run_any):
    code = "print('first'); print('x' * 100_000); print('last')"
    done = run_any.python(code, limits=Limits(output_bytes=10_000))
    assert (done.status, done.truncated) == ("ok", True)
    assert done.stdout.startswith(b"first") and done.stdout.endswith(b"last\n")
    assert len(done.stdout) < 11_000


def test_a_flood_of_output_is_ended(run_any):
    done = run_any("/usr/bin/yes", limits=Limits(output_bytes=10_000))
    assert (done.status, done.limit, done.truncated) == ("limit", "output", True)
    assert len(done.stdout) < 11_000


def test_at_the_wall_clock_everything_ends_and_partial_output_stays(any_sandbox, view, marked):
    """A daemon that left its session and ignores every polite signal is ended as well."""
    mark = f"wall-{os.getpid()}-{time.monotonic_ns()}"
    script = (
        "trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM INT HUP; (sleep 600 &) ; sleep 600' & echo begun; sleep 600"
    )
    view = replace(view, env={"MARK": mark})
    done = any_sandbox.run(["/bin/sh", "-c", script], view, Limits(wall_sec=0.7))
    assert (done.status, done.limit, done.exit_code) == ("timeout", "wall", None)
    assert done.stdout == b"begun\n"
    assert marked(mark) == []


def test_what_a_command_leaves_running_ends_with_it(any_sandbox, view, marked):
    mark = f"left-{os.getpid()}-{time.monotonic_ns()}"
    view = replace(view, env={"MARK": mark})
    done = any_sandbox.run(["/bin/sh", "-c", "setsid sleep 600 & echo gone"], view, Limits(wall_sec=60))
    assert (done.status, done.stdout) == ("ok", b"gone\n")
    assert marked(mark) == []


def test_a_memory_bomb_is_ended_and_named(run_any):
    done = run_any.python("x = bytearray(300 << 20); import time; time.sleep(60)", Limits(memory_bytes=200 << 20))
    assert (done.status, done.limit) == ("limit", "memory")


def test_memory_of_many_processes_is_added_up(run):
    code = "import os, time\nfor _ in range(3): os.fork() or None\nx = bytearray(40 << 20)\ntime.sleep(60)"
    done = run.python(code, Limits(memory_bytes=200 << 20))
    assert (done.status, done.limit) == ("limit", "memory")


def test_memory_shared_by_forks_counts_once(run):
    code = "import os, time\nx = bytearray(b'x') * (60 << 20)\nfor _ in range(3): os.fork()\ntime.sleep(0.5)"
    assert run.python(code, Limits(memory_bytes=250 << 20)).status == "ok"


def test_a_fork_bomb_is_ended_and_named(run):
    code = "import os, time\nfor _ in range(10):\n    try: os.fork()\n    except OSError: pass\ntime.sleep(60)"
    done = run.python(code, Limits(processes=50))
    assert (done.status, done.limit) == ("limit", "processes")


def test_too_many_threads_are_refused_or_ended(run):
    code = "import threading\nfor _ in range(700): threading.Thread(target=threading.Event().wait, daemon=True).start()"
    done = run.python(f"{code}\nimport time; time.sleep(60)")
    assert done.limit == "processes" or b"can't start new thread" in done.stderr


def test_filling_the_disk_is_ended_and_named(run, tree):
    code = (
        "import os, time\n"
        "for i in range(40):\n"
        "    with open(f'f{i}', 'wb') as f: f.write(os.urandom(1 << 20)); f.flush(); os.fsync(f.fileno())\n"
        "time.sleep(60)"
    )
    done = run.python(code, Limits(disk_bytes=20 << 20))
    assert (done.status, done.limit) == ("limit", "disk")


def test_one_file_cannot_grow_beyond_its_limit(run, tree):
    done = run("/bin/sh", "-c", "head -c 3000000 /dev/zero > big", limits=Limits(file_bytes=1 << 20))
    assert (done.status, done.limit) == ("limit", "file")
    assert (tree / "big").stat().st_size == 1 << 20


def test_cancel_ends_a_command(any_sandbox, view):
    cancel = threading.Event()
    timer = threading.Timer(0.2, cancel.set)
    timer.start()
    done = any_sandbox.run(["/bin/sh", "-c", "echo begun; sleep 600"], view, Limits(), b"", cancel)
    timer.join()
    assert (done.status, done.limit, done.exit_code) == ("interrupted", None, None)


def test_nothing_is_left_open_or_running(any_sandbox, view, tree):
    any_sandbox.run(["/bin/true"], view, Limits())
    threads = threading.active_count()
    files = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        any_sandbox.run(["/bin/true"], view, Limits())
        process = any_sandbox.start(["/bin/cat"], view, Limits())
        process.kill()
        any_sandbox.run(["no-such-program"], view, Limits())
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    assert [path.name for path in tree.parent.iterdir()] == ["tree"]


def test_a_mount_that_does_not_exist_is_refused(sandbox, view):
    gone = Path("/no/such/path")
    with pytest.raises(CodePilotError) as caught:
        sandbox.run(["/bin/true"], replace(view, mounts=(Mount(gone, gone),)), Limits())
    assert caught.value.kind in (FailureKind.PATH_NOT_FOUND, FailureKind.SANDBOX_UNAVAILABLE)


def test_levels_without_namespaces_refuse_to_remap(landlock, tree):
    with pytest.raises(CodePilotError, match="cannot remap") as caught:
        landlock.run(["/bin/true"], SandboxSpec(Mount(tree, Path("/elsewhere"))), Limits())
    assert caught.value.kind is FailureKind.SANDBOX_UNAVAILABLE
    assert landlock.level is Level.LANDLOCK


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        ([], {}),
        (["/bin/true", "a\0b"], {}),
        (["/bin/true"], {"A": "1\0--bind\0/\0/host"}),
        (["/bin/true"], {"A=B": "1"}),
    ],
)
def test_what_no_command_line_can_hold_is_refused(any_sandbox, view, argv, env):
    with pytest.raises(CodePilotError) as caught:
        any_sandbox.run(argv, replace(view, env=env), Limits())
    assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS


def test_a_working_directory_that_is_not_there_is_reported(any_sandbox, view, tree):
    with pytest.raises(CodePilotError, match="working directory") as caught:
        any_sandbox.run(["/bin/true"], replace(view, cwd=tree / "gone"), Limits())
    assert caught.value.kind is FailureKind.PATH_NOT_FOUND
    assert [path.name for path in tree.parent.iterdir()] == ["tree"]


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        ([], {}),
        ([""], {}),
        (["/bin/echo", "a\0b"], {}),
        (["/bin/echo", "a\ud800b"], {}),
        (["/bin/true"], {"": "x"}),
        (["/bin/true"], {"A=B": "x"}),
        (["/bin/true"], {"A": "\ud800"}),
        (["/bin/true", "x" * (1 << 17)], {}),
        (["/bin/true", *["x" * 1000] * 4000], {}),
    ],
    ids=["nothing", "no name", "NUL", "half a character", "no variable", "=", "half a value", "long", "much"],
)
def test_what_no_command_line_holds_is_refused(any_sandbox, view, argv, env):
    with pytest.raises(CodePilotError) as refused:
        any_sandbox.run(argv, replace(view, env=env), Limits())
    assert refused.value.kind is FailureKind.TOOL_INVALID_ARGS


def test_as_much_as_a_command_line_holds_is_passed_on(run):
    done = run("/bin/sh", "-c", "echo ${#1} $#", "sh", "x" * ((1 << 17) - 1), *["y" * 1000] * 1500)
    assert (done.stdout, done.stderr) == (b"131071 1501\n", b"")
