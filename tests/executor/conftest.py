"""Executors to test: in this process at each level, and over HTTP in a real service."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from codepilot.executor import CreateWorkspace, Executor, LocalExecutor, RemoteExecutor
from codepilot.sandbox import Sandbox
from codepilot.workspace import Entry, ObjectStore
from levels import level
from ready import Started

NAME = "r-1"
TOKEN = "a-token-for-tests-0123456789"

_STRICT = Path(__file__).with_name("strict_service.py")


@dataclass
class Service:
    """A service in a process of its own."""

    popen: Started
    url: str
    home: Path
    log: Path

    def client(self, token: str | None = TOKEN) -> RemoteExecutor:
        return RemoteExecutor(self.url, token)

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        code = self.popen.wait(60)
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        return code


def begin(arguments: list[str], home: Path, script: Path | None = None) -> Service:
    home.mkdir(parents=True, exist_ok=True)
    log = home.with_suffix(".log")
    environ = {**os.environ, "CODEPILOT_EXECUTOR_TOKEN": TOKEN}
    with log.open("ab") as errors:
        popen = Started(arguments, environ, stderr=errors, script=script)
    assert popen.stdout is not None
    message = popen.stdout.readline()
    if not message:
        popen.wait()
        popen.stdout.close()
        raise AssertionError(log.read_text())
    return Service(popen, json.loads(message)["url"], home, log)


def begin_command(home: Path, *options: str) -> Service:
    """`codepilot executor`, as a user starts it."""
    return begin(["executor", "--listen", "127.0.0.1:0", "--home", str(home), "--json", *options], home)


def begin_strict(home: Path, **fields: object) -> Service:
    """A service with narrow bounds. `slow_snapshots` names a workspace whose snapshots wait for a file next to it."""
    return begin([json.dumps({"home": str(home), "token": TOKEN, **fields})], home, _STRICT)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all tests of this worker; it shows inside whatever a test lays down."""
    home = tmp_path_factory.mktemp("service") / "home"
    running = begin_command(home, "--allow-mount", str(tmp_path_factory.getbasetemp()))
    yield running
    assert running.end() == 0


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return level(request.param)


@pytest.fixture(params=["bubblewrap", "landlock", "http"])
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Executor]:
    """Every executor there is."""
    made: Executor
    if request.param == "http":
        made = request.getfixturevalue("service").client()
    else:
        made = LocalExecutor(tmp_path / "workspaces", level(request.param))
    yield made
    made.delete(NAME)
    made.close()


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
def ready(executor: Executor, request_for: Callable[..., CreateWorkspace]) -> Executor:
    executor.create(request_for())
    return executor


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services with narrow bounds, one after the other in the same home unless asked otherwise."""
    begun: list[Service] = []

    def begin_one(home: str = "home", **fields: object) -> Service:
        begun.append(begin_strict(tmp_path / home, **fields))
        return begun[-1]

    yield begin_one
    for one in begun:
        one.end(signal.SIGKILL)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts `codepilot executor` with options, each in a home of its own."""
    begun: list[Service] = []

    def begin_one(*options: str) -> Service:
        begun.append(begin_command(tmp_path / f"served-{len(begun)}", *options))
        return begun[-1]

    yield begin_one
    for one in begun:
        assert one.end() == 0
