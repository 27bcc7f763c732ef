"""What code inside must not be able to do, at each level that confines."""

from __future__ import annotations

import os
import platform
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox import Limits, Mount, SandboxSpec


def test_the_hosts_home_cannot_be_read(run, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    done = run(
        "/bin/sh", "-c", f"cat '{secret}' '{Path.home()}/.ssh/id_rsa' /etc/shadow /etc/hostname; ls '{Path.home()}'"
    )
    assert done.status == "error"
    assert done.stdout == b""


def test_nothing_outside_the_workspace_can_be_written(run, tmp_path, tree):
    target = tmp_path / "outside.txt"
    target.write_text("untouched")
    script = f"""
        for path in /usr/x /etc/x /root/x /x /var/x /run/x /proc/sys/kernel/core_pattern /sys/x
        do echo bad > "$path" && echo "$path"; done
        echo bad > '{target}'; rm -f '{target}'; echo bad > '{tree.parent}/neighbour'; mv '{tree}' '{tree}-moved'
    """
    done = run("/bin/sh", "-c", script)
    assert done.stdout == b""
    assert target.read_text() == "untouched"
    assert [path.name for path in tree.parent.iterdir()] == ["tree"]


def test_a_link_in_the_workspace_leads_nowhere(run, tmp_path, tree):
    (tmp_path / "secret").write_text("hunter2")
    (tree / "link").symlink_to(tmp_path / "secret")
    done = run("/bin/sh", "-c", "cat link; echo bad > link")
    assert b"hunter2" not in done.stdout
    assert (tmp_path / "secret").read_text() == "hunter2"


def test_the_environment_of_the_launcher_is_not_seen(run, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    done = run("/bin/sh", "-c", f"cat /proc/1/environ /proc/{os.getpid()}/environ /proc/$PPID/environ; true")
    assert b"hunter2" not in done.stdout


def test_no_open_file_is_inherited(run, tmp_path):
    with (tmp_path / "held").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        done = run.python(
            "import os\nfor fd in range(3, 300):\n    try: os.fstat(fd); print(fd)\n    except OSError: pass"
        )
    assert done.stdout == b""


def test_the_network_is_off(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = run.python(f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)")
        assert done.status == "error"
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_the_network_can_be_given(sandbox, view):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        done = sandbox.run(["/usr/bin/python3", "-I", "-c", code], replace(view, network=True), Limits())
        assert done.status == "ok", done.stderr
        server.accept()[0].close()


def test_a_named_unix_socket_of_the_host_cannot_be_reached(run, tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))
        server.listen()
        done = run.python(f"import socket; socket.socket(socket.AF_UNIX).connect({os.fspath(path)!r})")
    assert done.status == "error"


def test_an_abstract_unix_socket_of_the_host_cannot_be_reached(run):
    name = f"\0codepilot-{os.getpid()}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        done = run.python(f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})")
    assert done.status == "error"


def test_datagram_pairs_do_not_reach_named_sockets(run, tmp_path):
    path = tmp_path / "d"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(os.fspath(path))
        server.setblocking(False)
        run.python(
            "import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            f"a.sendto(b'out', {os.fspath(path)!r})"
        )
        with pytest.raises(BlockingIOError):
            server.recv(10)


def test_other_processes_cannot_be_signalled(run):
    """The kill reaches only its own kind, so the sleeper, the test and the machine all live on."""
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        done = run("/bin/sh", "-c", f"kill -9 {sleeper.pid} {os.getpid()} && echo killed")
        assert done.stdout == b""
        assert sleeper.poll() is None
        sleeper.kill()


CALLS = {
    "ptrace": (101, "0, 0, 0, 0"),
    "unshare a user namespace": (272, "0x10000000"),
    "mount": (165, "b'none', b'/tmp', b'tmpfs', 0, None"),
    "bpf": (321, "0, None, 0"),
    "perf_event_open": (298, "None, 0, -1, -1, 0"),
    "userfaultfd": (323, "0"),
    "io_uring_setup": (425, "1, None"),
    "keyctl": (250, "0, 0, 0"),
    "shmget": (29, "0, 4096, 0o1600"),
    "process_vm_readv": (310, "1, None, 0, None, 0, 0"),
    "memfd_create": (319, "b'x', 0"),
    "clone with a new user namespace": (56, "0x10000011, 0, 0, 0, 0"),
    "TIOCSTI": (16, "0, 0x5412, b'x'"),
    "vsock": (41, "40, 1, 0"),
    "packet socket": (41, "17, 3, 0"),
    "chroot": (161, "b'/tmp'"),
    "open_by_handle_at": (304, "-1, None, 0"),
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
def test_dangerous_system_calls_are_refused(run):
    """EPERM, EACCES, ENOSYS or EAFNOSUPPORT: refused before the kernel looked at the arguments."""
    lines = "\n".join(
        f"ctypes.set_errno(0); print({name!r}, libc.syscall({number}, {arguments}), ctypes.get_errno(), sep='|')"
        for name, (number, arguments) in CALLS.items()
    )
    done = run.python(f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n{lines}")
    answers = [line.split("|") for line in done.stdout.decode().splitlines()]
    assert [name for name, _, _ in answers] == list(CALLS)
    assert [name for name, result, error in answers if result != "-1" or error not in ("1", "13", "38", "97")] == []


def test_threads_forks_and_pipes_work_nonetheless(run):
    code = """
        import asyncio, subprocess, threading, multiprocessing, tempfile, os
        threading.Thread(target=print, args=("thread",)).start()
        print(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout, end="", flush=True)
        async def go():
            return (await (await asyncio.create_subprocess_exec("true")).wait())
        print("async", asyncio.run(go()))
        with tempfile.NamedTemporaryFile() as f: f.write(b"x")
        a, b = multiprocessing.Pipe(); a.send(1); print("pipe", b.recv())
    """
    done = run.python(textwrap.dedent(code))
    assert done.stdout.decode().split() == ["thread", "child", "async", "0", "pipe", "1"], done.stderr


def test_mounts_are_read_only_and_links_in_them_hold(sandbox, view, tmp_path):
    real = tmp_path.resolve() / "real"
    real.mkdir()
    (real / "tool").write_text("#!/bin/sh\necho ran\n")
    (real / "tool").chmod(0o755)
    link = tmp_path.resolve() / "link"
    link.symlink_to(real)
    view = replace(view, mounts=(Mount(real, real), Mount(link, link)))
    script = f"'{real}/tool'; '{link}/tool'; echo bad > '{real}/new'; rm -f '{real}/tool'"
    done = sandbox.run(["/bin/sh", "-c", script], view, Limits())
    assert done.stdout == b"ran\nran\n"
    assert sorted(path.name for path in real.iterdir()) == ["tool"]


def test_an_interpreter_under_a_hidden_home_runs(sandbox, view):
    prefix = Path(sys.base_prefix)
    view = replace(view, mounts=tuple(Mount(path, path) for path in {prefix, prefix.resolve()}))
    python = prefix / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    done = sandbox.run([os.fspath(python), "-I", "-c", "import json, ssl, sqlite3; print('ok')"], view, Limits())
    assert done.stdout == b"ok\n", done.stderr


def test_the_tree_dies_when_we_are_killed(sandbox, tree, marked):
    """SIGKILL of the process that holds the sandbox leaves nothing, daemons included."""
    mark = f"orphan-{os.getpid()}-{time.monotonic_ns()}"
    code = f"""
        import sys; from pathlib import Path
        from codepilot.sandbox import Limits, Mount, SandboxSpec, choose
        view = SandboxSpec(Mount(Path({str(tree)!r}), Path({str(tree)!r})), env={{"MARK": {mark!r}}})
        command = ["/bin/sh", "-c", "trap '' TERM; setsid sleep 600 & sleep 600"]
        process = choose({str(sandbox.level)!r}).start(command, view, Limits())
        print("started", flush=True); sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout is not None and host.stdin is not None
        assert host.stdout.readline() == b"started\n"
        while len(marked(mark)) < 3:
            time.sleep(0.02)
        host.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert marked(mark) == []


def test_a_process_outlives_the_thread_that_started_it(sandbox, view):
    started = []
    thread = threading.Thread(target=lambda: started.append(sandbox.start(["/bin/cat"], view, Limits())))
    thread.start()
    thread.join()
    process = started[0]
    time.sleep(0.1)
    process.stdin.write(b"still here\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"still here\n"
    process.kill()
    assert not process.running


class TestBubblewrapOnly:
    def test_the_workspace_can_lie_elsewhere(self, bubblewrap, tree):
        view = SandboxSpec(Mount(tree, Path("/home/some one/projekt ü")))
        done = bubblewrap.run(["/bin/sh", "-c", "pwd; ls -A /home; touch here"], view, Limits())
        assert done.stdout.decode() == "/home/some one/projekt ü\nsome one\n"
        assert (tree / "here").exists()

    def test_the_command_line_of_the_launcher_names_no_host_path(self, bubblewrap, tree):
        view = SandboxSpec(Mount(tree, Path("/w")))
        done = bubblewrap.run(["/bin/cat", "/proc/1/cmdline", "/proc/1/environ"], view, Limits())
        assert str(tree).encode() not in done.stdout

    def test_it_is_nobody_in_particular(self, bubblewrap, view):
        done = bubblewrap.run(["/bin/sh", "-c", "id -u; id -un; hostname; echo ~; touch ~/x"], view, Limits())
        assert (done.stdout, done.status) == (b"1000\ncodepilot\ncodepilot\n/tmp/home\n", "ok")

    def test_nothing_of_proc_can_be_written(self, bubblewrap, view):
        code = "import os\nfor n in ('sys/kernel/core_pattern', 'sys/kernel/hostname', 'sysrq-trigger'):\n"
        code += "    try: os.open('/proc/' + n, os.O_WRONLY); print(n)\n    except OSError: pass"
        assert bubblewrap.run(["/usr/bin/python3", "-I", "-c", code], view, Limits()).stdout == b""

    def test_temporary_memory_is_bounded(self, bubblewrap, view):
        done = bubblewrap.run(["/bin/sh", "-c", "head -c 70000000 /dev/zero > /dev/shm/x"], view, Limits())
        assert (done.status, b"No space left" in done.stderr) == ("error", True)

    def test_something_mounted_inside_the_workspace_is_seen_and_read_only(self, bubblewrap, tree, tmp_path):
        (tmp_path / "env").mkdir()
        (tmp_path / "env" / "lib").write_text("content")
        view = SandboxSpec(Mount(tree, Path("/w")), mounts=(Mount(tmp_path / "env", Path("/w/sub/.venv")),))
        done = bubblewrap.run(["/bin/sh", "-c", "cat sub/.venv/lib; echo x > sub/.venv/new"], view, Limits())
        assert (done.stdout, done.status) == (b"content", "error")
        assert list((tree / "sub/.venv").iterdir()) == []

    def test_a_planted_link_is_not_followed_to_make_a_mount_point(self, bubblewrap, tree, tmp_path):
        (tmp_path / "env").mkdir()
        (tree / "sub").symlink_to(tmp_path)
        view = SandboxSpec(Mount(tree, Path("/w")), mounts=(Mount(tmp_path / "env", Path("/w/sub/.venv")),))
        with pytest.raises(CodePilotError) as caught:
            bubblewrap.run(["/bin/true"], view, Limits())
        assert caught.value.kind is FailureKind.POLICY_VIOLATION
        assert not (tmp_path / ".venv").exists()

    def test_nothing_is_shown_over_the_system(self, bubblewrap, tree):
        with pytest.raises(CodePilotError, match="nothing can be shown"):
            bubblewrap.run(["/bin/true"], SandboxSpec(Mount(tree, Path("/usr"))), Limits())


@pytest.mark.parametrize(
    "call", ["libc.chmod(ctypes.c_void_p(-1), 0o600)", "libc.syscall(235, b'f', struct.pack('4q', 1, 1 << 62, 1, 1))"]
)
def test_no_argument_ends_the_notifier(landlock, view, call):
    if "235" in call and platform.machine() != "x86_64":
        pytest.skip("only there is it the number of utimes")
    code = "import ctypes, os, struct\nlibc = ctypes.CDLL(None, use_errno=True)\nopen('f', 'w').close()\n"
    code += f"print({call}); os.chmod('f', 0o600); print(oct(os.stat('f').st_mode))"
    done = landlock.run(["/usr/bin/python3", "-I", "-c", code], view, Limits(wall_sec=60))
    assert done.stdout.split() == [b"-1", b"0o100600"], done.stderr


def test_a_command_sees_closed_pipes_as_anywhere_else(run):
    done = run("/bin/bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == (b"y\n141\n", b"")
