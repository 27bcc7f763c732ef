"""The network of a workspace and of one command: there while it is asked for, and gone without a trace."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CreateWorkspace, LocalExecutor, RunCode, RunCommand, StartProcess
from codepilot.sandbox import Credential
from codepilot.workspace import ObjectStore
from levels import level

NAME = "r-1"
THROUGH = {"NO_PROXY": "", "no_proxy": ""}
Request = Callable[..., CreateWorkspace]


class Web(http.server.ThreadingHTTPServer):
    daemon_threads = True
    tokens: list[str | None] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        Web.tokens.append(self.headers.get("X-Key"))
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """A server on the host's loopback, as a rule names it."""
    with Web(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"localhost:{server.server_port}"
        server.shutdown()


@pytest.fixture
def request_for(tmp_path: Path) -> Request:
    with ObjectStore.open(tmp_path / "objects") as store:
        tree = store.write_tree({})

    def make(*hosts: str) -> CreateWorkspace:
        return CreateWorkspace(workspace=NAME, objects=str(tmp_path / "objects"), tree=tree, env=THROUGH, hosts=hosts)

    return make


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "workspaces"


@pytest.fixture
def executor(home: Path) -> Iterator[LocalExecutor]:
    executor = LocalExecutor(home, level("bubblewrap"))
    yield executor
    executor.close()


def fetch(host: str) -> str:
    return f"import urllib.request\nprint(urllib.request.urlopen('http://{host}/', timeout=20).read().decode())"


def command(host: str, *hosts: str) -> RunCommand:
    return RunCommand(workspace=NAME, argv=("/usr/bin/python3", "-I", "-c", fetch(host)), hosts=hosts, timeout_sec=60)


def proxies() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("codepilot-prox")]


def test_all_that_runs_in_a_workspace_reaches_its_hosts(
    executor: LocalExecutor, request_for: Request, host: str
) -> None:
    executor.create(request_for(host))
    assert executor.run_command(command(host)).stdout == b"hello\n"
    assert executor.run_code(RunCode(workspace=NAME, code=fetch(host))).stdout == "hello\n"
    process = executor.start_process(StartProcess(workspace=NAME, argv=("/usr/bin/python3", "-I", "-c", fetch(host))))
    assert process.stdout.read() == b"hello\n"
    refused = executor.run_command(command("example.org"))
    assert f"example.org is not among the hosts this run may reach: {host}" in refused.stderr.decode()


def test_a_host_of_one_command_is_that_commands_alone(
    executor: LocalExecutor, request_for: Request, host: str, home: Path
) -> None:
    executor.create(request_for())
    assert executor.run_command(command(host)).exit_code == 1
    assert executor.run_command(command(host, host)).stdout == b"hello\n"
    assert not (home / NAME / "network").exists()
    assert executor.run_command(command(host)).exit_code == 1
    assert executor.run_code(RunCode(workspace=NAME, code=fetch(host))).status == "error"


def test_a_command_has_the_workspaces_hosts_and_its_own(
    executor: LocalExecutor, request_for: Request, host: str, home: Path
) -> None:
    executor.create(request_for(host))
    assert executor.run_command(command(host, "example.org")).stdout == b"hello\n"
    assert executor.run_command(command("example.com", "example.org")).stderr.decode().count(f"{host}, example.org")
    assert [path.name for path in (home / NAME / "network").iterdir()] == ["workspace"]


def test_nothing_is_left_after_a_workspace(
    executor: LocalExecutor, request_for: Request, host: str, home: Path
) -> None:
    before = proxies()
    executor.create(request_for(host))
    executor.run_code(RunCode(workspace=NAME, code=fetch(host)))
    assert len(proxies()) > len(before)
    assert (home / NAME / "network").stat().st_mode & 0o777 == 0o700
    executor.delete(NAME)
    assert not (home / NAME).exists() and proxies() == before
    executor.create(request_for(host))
    executor.run_code(RunCode(workspace=NAME, code=fetch(host)))
    executor.close()
    assert not (home / NAME / "network").exists() and proxies() == before


def test_hosts_asked_for_anew_replace_the_old_ones(executor: LocalExecutor, request_for: Request, host: str) -> None:
    action = RunCode(workspace=NAME, code=fetch(host))
    executor.create(request_for())
    assert executor.run_code(action).status == "error"
    executor.create(request_for(host))
    granted = executor.run_code(action)
    assert granted.stdout == "hello\n" and granted.kernel_restarted
    executor.create(request_for("example.org"))
    assert executor.run_code(action).status == "error"
    assert "is not among the hosts" in executor.run_command(command(host)).stderr.decode()
    executor.create(request_for())
    assert executor.run_command(command(host)).exit_code == 1 and executor.run_code(action).status == "error"


def test_a_restore_leaves_the_way_open(executor: LocalExecutor, request_for: Request, host: str) -> None:
    executor.create(request_for(host))
    taken = executor.snapshot(NAME)
    executor.run_code(RunCode(workspace=NAME, code=fetch(host)))
    executor.restore(NAME, taken.snapshot)
    assert executor.run_code(RunCode(workspace=NAME, code=fetch(host))).stdout == "hello\n"


def test_what_a_killed_executor_left_is_taken_over_and_removed(
    home: Path, request_for: Request, host: str, tmp_path: Path
) -> None:
    wanted = request_for(host)
    (tmp_path / "wanted.json").write_text(wanted.model_dump_json())
    script = """
import os, signal, sys, threading
from pathlib import Path
from codepilot.executor import CreateWorkspace, LocalExecutor, RunCode, RunCommand
from codepilot.sandbox import choose
wanted = CreateWorkspace.model_validate_json(Path(sys.argv[2]).read_bytes())
executor = LocalExecutor(Path(sys.argv[1]), choose("bubblewrap"))
executor.create(wanted)
executor.run_code(RunCode(workspace=wanted.workspace, code="1"))
slow = RunCommand(workspace=wanted.workspace, argv=("/bin/sh", "-c", "touch begun; sleep 60"), hosts=("example.org",))
threading.Thread(target=executor.run_command, args=(slow,), daemon=True).start()
while not (Path(sys.argv[1]) / wanted.workspace / "tree" / "begun").exists():
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    level("bubblewrap")
    argv = [sys.executable, "-c", script, os.fspath(home), os.fspath(tmp_path / "wanted.json")]
    assert subprocess.run(argv, check=False, timeout=300).returncode == -signal.SIGKILL
    assert len(list((home / NAME / "network").iterdir())) == 2
    executor = LocalExecutor(home, level("bubblewrap"))
    executor.create(wanted)
    assert executor.run_command(command(host)).stdout == b"hello\n"
    assert [path.name for path in (home / NAME / "network").iterdir()] == ["workspace"]
    executor.delete(NAME)
    executor.close()
    assert not (home / NAME).exists()


def test_a_home_deeper_than_a_socket_may_lie(tmp_path: Path, request_for: Request, host: str) -> None:
    executor = LocalExecutor(tmp_path / ("d" * 120) / ("e" * 120), level("bubblewrap"))
    try:
        executor.create(request_for(host))
        assert executor.run_command(command(host)).stdout == b"hello\n"
    finally:
        executor.close()


def test_credentials_are_added_and_requests_reported(
    home: Path, request_for: Request, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[object, ...]] = []
    executor = LocalExecutor(
        home,
        level("bubblewrap"),
        credentials=(
            Credential(host, "X-Key", environment="TEST_KEY", tls=False, environ={"TEST_KEY": "hidden-value"}),
        ),
        seen=lambda *one: reported.append(one),
    )
    try:
        executor.create(request_for(host))
        script = fetch(host) + "\nimport os\nprint('hidden-' + 'value' in str(os.environ))"
        assert executor.run_code(RunCode(workspace=NAME, code=script)).stdout == "hello\nFalse\n"
        assert Web.tokens[-1] == "hidden-value"
        port = int(host.partition(":")[2])
        assert reported == [(NAME, "localhost", port, "GET", True, "")]
    finally:
        executor.close()


def test_a_service_adds_the_credentials_of_its_own_configuration(
    tmp_path: Path, request_for: Request, host: str, monkeypatch: pytest.MonkeyPatch, served: Any
) -> None:
    level("bubblewrap")
    config = tmp_path / "config" / "codepilot" / "codepilot.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[[network.credentials]]\nhost = "{host}"\nheader = "X-Key"\nenvironment = "TEST_KEY"\ntls = false\n'
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(config.parent.parent))
    monkeypatch.setenv("TEST_KEY", "hidden-from-code")
    service = served("--allow-host", host)
    client = service.client()
    client.create(request_for(host))
    script = fetch(host) + "\nimport os\nprint('hidden-' + 'from-code' in str(os.environ), 'TEST_KEY' in os.environ)"
    assert client.run_code(RunCode(workspace=NAME, code=script)).stdout == "hello\nFalse False\n"
    assert Web.tokens[-1] == "hidden-from-code"
    assert "hidden-from-code" not in service.log.read_text()
    client.delete(NAME)
    client.close()


@pytest.mark.parametrize("name", ["landlock", "none"])
def test_hosts_are_refused_where_a_proxy_could_be_walked_around(
    name: str, home: Path, request_for: Request, host: str
) -> None:
    executor = LocalExecutor(home, level(name))
    try:
        with pytest.raises(CodePilotError, match="cannot make a proxy the only way out") as caught:
            executor.create(request_for(host))
        assert caught.value.kind is FailureKind.SANDBOX_UNAVAILABLE and not (home / NAME).exists()
        executor.create(request_for())
        with pytest.raises(CodePilotError) as caught:
            executor.run_command(command(host, host))
        assert caught.value.kind is FailureKind.SANDBOX_UNAVAILABLE
    finally:
        executor.close()


def test_what_is_no_host_is_refused(executor: LocalExecutor, request_for: Request) -> None:
    with pytest.raises(CodePilotError) as caught:
        executor.create(request_for("example.org:99999"))
    assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS
