"""What a session needs: processes with a terminal, a HOME and endpoints, and a workspace that stands still."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import (
    CreateWorkspace,
    Executor,
    HomeFile,
    LocalExecutor,
    MountSpec,
    RunCommand,
    StartProcess,
)
from codepilot.sandbox import Limits, Process, Terminal

NAME = "r-1"
COUNTING = "i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.005; done"
FETCH = """
import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
link.sendall(b"asked\\n"); link.shutdown(socket.SHUT_WR)
print(link.makefile().read())
"""


@pytest.fixture(params=["bubblewrap", "http"])
def remapping(request: pytest.FixtureRequest, executor_of: Callable[[str], Executor]) -> Executor:
    return executor_of(request.param)


@pytest.fixture
def bubblewrapped(executor_of: Callable[[str], Executor]) -> Executor:
    return executor_of("bubblewrap")


@pytest.fixture
def executor_of(request: pytest.FixtureRequest, request_for: Callable[..., CreateWorkspace], tmp_path: Path) -> ...:
    from levels import level

    with contextlib.ExitStack() as opened:

        def make(kind: str) -> Executor:
            made: Executor
            if kind == "http":
                made = request.getfixturevalue("service").client()
            else:
                made = LocalExecutor(tmp_path / "workspaces", level(kind))
            opened.callback(made.close)
            opened.callback(made.delete, NAME)
            made.create(request_for())
            return made

        yield make


def start(executor: Executor, *argv: str, **fields: object) -> Process:
    return executor.start_process(StartProcess(workspace=NAME, argv=argv, **fields))


def sh(executor: Executor, script: str, **fields: object) -> Process:
    return start(executor, "/bin/sh", "-c", script, **fields)


def output(process: Process) -> str:
    seen = process.stdout.read().decode()
    process.wait(20)
    return seen


def count(executor: Executor) -> int:
    try:
        return int(executor.read_file(NAME, "count") or b"0")
    except CodePilotError:
        return 0


def counting(executor: Executor) -> Process:
    process = sh(executor, COUNTING)
    until(lambda: count(executor) > 2)
    return process


def until(there: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Starts services on Unix sockets that answer every line with their name."""
    with contextlib.ExitStack() as opened:

        def serve(name: str) -> str:
            listener = opened.enter_context(socket.socket(socket.AF_UNIX))
            path = str(tmp_path / f"{name}.sock")
            listener.bind(path)
            listener.listen()

            def answer() -> None:
                with contextlib.suppress(OSError):
                    while True:
                        with listener.accept()[0] as link:
                            link.sendall(f"{name} was ".encode() + link.makefile("rb").readline())

            threading.Thread(target=answer, daemon=True).start()
            return path

        yield serve


# Processes -------------------------------------------------------------------------------------------


def test_a_process_has_the_directory_environment_and_mounts_it_asks_for(ready: Executor, tmp_path: Path) -> None:
    extra = tmp_path.resolve() / "extra"
    extra.mkdir()
    (extra / "data").write_text("seen")
    script = f"pwd; echo $A; cat '{extra}/data'; touch '{extra}/new' 2>/dev/null || echo ' read-only'"
    mount = MountSpec(source=str(extra), target=str(extra))
    where, rest = output(sh(ready, script, cwd="pkg", env={"A": "b"}, mounts=(mount,))).split("\n", 1)
    assert where.endswith("/pkg")
    assert rest == "b\nseen read-only\n"
    assert "seen" not in output(sh(ready, f"cat '{extra}/data' 2>&1"))


def test_a_process_has_the_limits_it_asks_for(ready: Executor) -> None:
    limits = Limits(open_files=77, file_bytes=4096, processes=5, memory_bytes=64 << 20)
    assert output(sh(ready, "ulimit -n; ulimit -f", limits=limits)) == "77\n8\n"
    many = sh(ready, "for i in 1 2 3 4 5 6 7 8; do sleep 30 & done; sleep 30", limits=limits)
    assert many.wait(20) is None
    assert many.limit == "processes"
    large = start(ready, "/usr/bin/python3", "-Ic", "x = b'x' * (1 << 28); input()", limits=limits)
    large.wait(20)
    assert large.limit == "memory" or b"MemoryError" in large.stderr()


def test_standard_error_is_there_whole(ready: Executor) -> None:
    process = sh(ready, "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; echo line $i of many many words >&2; done")
    assert len(output(process).splitlines()) == 3000
    lines = process.stderr().decode().splitlines()
    assert lines == [f"line {number + 1} of many many words" for number in range(3000)]
    assert len(process.stderr_tail()) == 1 << 16
    flood = sh(ready, "yes error | head -c 3000000 >&2", limits=Limits(output_bytes=10_000))
    flood.wait(20)
    assert b"bytes left out" in flood.stderr() and len(flood.stderr()) < 11_000


def test_a_home_is_private_and_stays(ready: Executor, request_for: Callable[..., CreateWorkspace]) -> None:
    files = (HomeFile(path=".agent/config", content=b"key\n"), HomeFile(path="run", content=b"#!", mode=0o755))
    first = output(
        sh(ready, "cat ~/.agent/config; stat -c %a ~/run ~/.agent/config; echo kept > ~/own", home_files=files)
    )
    assert first == "key\n755\n600\n"
    inside = ready.session(NAME).home
    again = output(sh(ready, "echo $HOME; cat ~/own ~/.agent/config", home=True, home_files=files[1:]))
    assert again == f"{inside}\nkept\nkey\n"
    assert output(sh(ready, "cat ~/own 2>&1; echo $HOME")).count("kept") == 0
    taken = ready.snapshot(NAME)
    assert (taken.violations, ready.diff(NAME, taken.tree).changes) == ((), ())
    ready.restore(NAME, taken.snapshot)
    assert output(sh(ready, "cat ~/own", home=True)) == "kept\n"
    ready.delete(NAME)
    ready.create(request_for())
    assert output(sh(ready, "ls -A ~", home=True)) == ""


def test_a_secret_file_is_gone_with_its_process(ready: Executor) -> None:
    login = (HomeFile(path=".agent/login", content=b"token\n", secret=True),)
    assert output(sh(ready, "cat ~/.agent/login; echo kept > ~/.agent/own", home_files=login)) == "token\n"
    deadline = time.monotonic() + 20
    while (left := output(sh(ready, "ls -A ~/.agent", home=True))) != "own\n" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == "own\n"


def test_files_are_not_laid_through_links_that_code_inside_made(ready: Executor, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("safe")
    output(sh(ready, f"ln -s '{victim}' ~/dir; ln -s '{victim}/file' ~/file", home=True))
    assert output(sh(ready, "cat ~/file", home_files=(HomeFile(path="file", content=b"laid"),))) == "laid"
    with pytest.raises(CodePilotError) as caught:
        sh(ready, "true", home_files=(HomeFile(path="dir/file", content=b"laid"),))
    assert caught.value.kind is FailureKind.POLICY_VIOLATION
    assert (victim / "file").read_text() == "safe"


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a//b", ".", "a/.."])
def test_a_file_of_a_home_lies_below_it(path: str) -> None:
    with pytest.raises(ValueError):
        HomeFile(path=path, content=b"")


# Terminals -------------------------------------------------------------------------------------------


MAPPED = """
import mmap
file = open("mapped", "w+b"); file.truncate(4)
memory = mmap.mmap(file.fileno(), 4)
while word := input():
    memory[:] = word.encode(); print(word, flush=True)
"""


def test_what_a_process_writes_through_its_memory_is_in_the_next_snapshot(bubblewrapped: Executor) -> None:
    """Only the first such write moves the file's times."""
    process = start(bubblewrapped, "python3", "-c", MAPPED)
    trees = []
    for word in (b"good\n", b"evil\n"):
        process.stdin.write(word)
        process.stdin.flush()
        assert process.stdout.readline() == word
        time.sleep(0.05)  # now the file's status counts as settled
        bubblewrapped.snapshot(NAME)
        trees.append(bubblewrapped.snapshot(NAME).tree)
    [changed] = bubblewrapped.compare(NAME, *trees, patch=False).changes
    assert changed.path == "mapped"


def test_a_terminal_is_one_and_can_be_resized(remapping: Executor) -> None:
    script = "tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all; read line; stty size; echo got $line >&2; exit 7"
    process = sh(remapping, script, tty=Terminal(rows=30, columns=100))
    seen = b""
    while b"all" not in seen:
        seen += process.stdout.readline()
    assert b"/dev/pts/0\r\n30 100\r\n" in seen
    process.resize(Terminal(rows=50, columns=132))
    time.sleep(0.1)
    process.stdin.write(b"hello\n")
    process.stdin.flush()
    rest = process.stdout.read()
    assert b"50 132\r\n" in rest and b"got hello\r\n" in rest
    assert process.wait(20) == 7


def test_a_terminals_interrupt_goes_to_the_foreground(remapping: Executor) -> None:
    process = sh(remapping, "trap 'echo caught; exit 3' INT; echo ready; sleep 600 & wait", tty=Terminal())
    assert process.stdout.readline() == b"ready\r\n"
    process.interrupt()
    assert process.stdout.read().endswith(b"caught\r\n")
    assert process.wait(20) == 3
    other = sh(remapping, "echo ready; cat", tty=Terminal())
    assert other.stdout.readline() == b"ready\r\n"
    other.stdin.write(b"hello\n")
    other.stdin.flush()
    assert [other.stdout.readline() for _ in range(2)] == [b"hello\r\n"] * 2  # the terminal's echo, and cat's
    other.stdin.write(b"\x03")
    other.stdin.flush()
    assert other.wait(20) == 130


def test_without_a_terminal_there_is_none_to_resize(ready: Executor) -> None:
    process = sh(ready, "sleep 60")
    with pytest.raises(CodePilotError) as caught:
        process.resize(Terminal())
    assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS
    process.kill()


def test_what_is_written_last_to_a_terminal_arrives(remapping: Executor) -> None:
    process = sh(remapping, "(sleep 600 &) ; head -c 300000 /dev/zero | tr '\\0' x; echo end", tty=Terminal())
    seen = process.stdout.read()
    assert (seen.count(b"x"), seen[-5:]) == (300_000, b"end\r\n")
    assert process.wait(20) == 0


# Endpoints -------------------------------------------------------------------------------------------


def test_processes_reach_two_services_and_commands_none(remapping: Executor, echo: Callable[[str], str]) -> None:
    one, two = (remapping.endpoint(NAME, name, echo(name)) for name in ("one", "two"))
    assert one.url == f"http://127.0.0.1:{one.port}" and one.port != two.port
    for endpoint in (one, two, one):
        asked = start(remapping, "/usr/bin/python3", "-Ic", FETCH, str(endpoint.port))
        assert output(asked) == f"{endpoint.name} was asked\n\n", asked.stderr()
    command = RunCommand(workspace=NAME, argv=("/usr/bin/python3", "-Ic", FETCH, str(one.port)))
    assert b"ConnectionRefusedError" in remapping.run_command(command).stderr
    assert "HTTP_PROXY" not in output(sh(remapping, "env"))


def test_a_service_may_move(remapping: Executor, echo: Callable[[str], str]) -> None:
    first = remapping.endpoint(NAME, "model", echo("old"))
    second = remapping.endpoint(NAME, "model", echo("new"))
    assert first == second
    assert output(start(remapping, "/usr/bin/python3", "-Ic", FETCH, str(first.port))) == "new was asked\n\n"


MAPPING = """
import mmap, sys
with open("mapped", "wb+") as file:
    file.write(b"good")
    file.flush()
    mapped = mmap.mmap(file.fileno(), 0)
    mapped[0:4] = b"good"
    for line in sys.stdin:
        mapped[0:4] = line.strip().encode()
        print(line.strip(), flush=True)
"""


def test_writes_through_a_mapping_are_in_the_last_snapshot_and_put_back_by_a_restore(bubblewrapped: Executor) -> None:
    process = start(bubblewrapped, "python3", "-c", MAPPING)
    process.stdin.write(b"good\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"good\n"
    time.sleep(0.1)
    good = bubblewrapped.snapshot(NAME)
    process.stdin.write(b"evil\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"evil\n"
    bubblewrapped.freeze(NAME)
    bubblewrapped.restore(NAME, good.snapshot)
    assert bubblewrapped.read_file(NAME, "mapped") == b"good"
    bubblewrapped.thaw(NAME)
    process.kill()
    process = start(bubblewrapped, "python3", "-c", MAPPING)
    for word in (b"good\n", b"evil\n"):
        process.stdin.write(word)
        process.stdin.flush()
        assert process.stdout.readline() == word
        time.sleep(0.1)
        bubblewrapped.snapshot(NAME)
    process.kill()
    assert bubblewrapped.snapshot(NAME).tree != good.tree
