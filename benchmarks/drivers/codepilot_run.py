"""CodePilot: the bare kernel, a fresh process per action, the executor with its skills, here or over HTTP."""

from __future__ import annotations

import atexit
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

from benchmarks.drivers.loop import ACTIONS, Measured, base_python, serve

_started = time.perf_counter()

import codepilot.sandbox as sandbox  # noqa: E402  (the import is measured)

_KERNEL_MS = (time.perf_counter() - _started) * 1000

from codepilot.executor import (  # noqa: E402
    CreateWorkspace,
    Executor,
    LocalExecutor,
    RemoteExecutor,
    RunCode,
)
from codepilot.skills import inside_prelude  # noqa: E402
from codepilot.workspace import Entry, ObjectStore  # noqa: E402

_ALL_MS = (time.perf_counter() - _started) * 1000
_TOKEN = "CODEPILOT_EXECUTOR_TOKEN"


class WarmKernel:
    def __init__(self, level: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="codepilot-bench-")
        tree = Path(self._directory.name).resolve() / "tree"
        tree.mkdir()
        spec = sandbox.SandboxSpec(sandbox.Mount(tree, tree, writable=True))
        self._kernel = sandbox.Kernel(_choose(level), spec, sandbox.Limits())

    def act(self, name: str) -> str:
        result = self._kernel.run(ACTIONS[name])
        return result.error.type if result.error is not None else result.stdout

    def stop(self) -> None:
        self._kernel.stop()
        self._directory.cleanup()


class FreshProcess:
    """`Sandbox.run` with a Python per action: what a command costs, supervision included."""

    def __init__(self, level: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="codepilot-bench-")
        tree = Path(self._directory.name).resolve() / "tree"
        tree.mkdir()
        prefix = Path(sys.base_prefix)
        self._spec = sandbox.SandboxSpec(sandbox.Mount(tree, tree, writable=True), (sandbox.Mount(prefix, prefix),))
        self._sandbox = _choose(level)

    def act(self, name: str) -> str:
        done = self._sandbox.run([*base_python(), "-c", ACTIONS[name]], self._spec, sandbox.Limits())
        return (done.stdout + done.stderr).decode()

    def stop(self) -> None:
        self._directory.cleanup()


class WholeExecutor:
    """`Executor.run_code` in a new workspace with a base, skills defined; the executor itself is there, as in use."""

    made = 0

    def __init__(self, executor: Executor, home: Path) -> None:
        self._executor = executor
        WholeExecutor.made += 1
        self._name = f"bench-{self.made}"
        self._executor.create(CreateWorkspace(workspace=self._name, objects=str(home / "objects"), tree=_base(home)))

    def act(self, name: str) -> str:
        result = self._executor.run_code(RunCode(workspace=self._name, code=ACTIONS[name]))
        return result.error.type if result.error is not None else result.stdout

    def stop(self) -> None:
        self._executor.delete(self._name)


@cache
def _base(home: Path) -> str:
    with ObjectStore.open(home / "objects", durable=False) as store:
        return store.write_tree({"README": Entry("100644", store.write_blob(b"hello\n"))})


@cache
def _home() -> Path:
    directory = tempfile.TemporaryDirectory(prefix="codepilot-bench-")
    atexit.register(directory.cleanup)
    return Path(directory.name).resolve()


@cache
def _local(level: str) -> LocalExecutor:
    executor = LocalExecutor(_home() / "workspaces", _choose(level), prelude=inside_prelude())
    atexit.register(executor.close)
    return executor


@cache
def _remote(level: str) -> RemoteExecutor:
    """`codepilot executor` in a process of its own, and a client of it."""
    token = secrets.token_hex(16)
    options = ("--listen", "127.0.0.1:0", "--home", str(_home() / "service"), "--level", level, "--json")
    service = subprocess.Popen(
        [sys.executable, "-m", "codepilot", "executor", *options],
        stdout=subprocess.PIPE,
        env={**os.environ, _TOKEN: token},
    )

    def end() -> None:
        service.terminate()
        service.wait()

    atexit.register(end)
    assert service.stdout is not None
    return RemoteExecutor(json.loads(service.stdout.readline())["url"], token)


def _choose(level: str) -> sandbox.Sandbox:
    return sandbox.choose(level)  # type: ignore[arg-type]


_KINDS: dict[str, tuple[Callable[[str], Measured], float]] = {
    "kernel": (WarmKernel, _KERNEL_MS),
    "fresh": (FreshProcess, _KERNEL_MS),
    "executor": (lambda level: WholeExecutor(_local(level), _home()), _ALL_MS),
    "http": (lambda level: WholeExecutor(_remote(level), _home()), _ALL_MS),
}


def main() -> None:
    what, level = sys.argv[1:3]
    kind, imported_ms = _KINDS[what]
    sandbox.probe()  # Once per process, before any run: it is no part of a start.
    serve(lambda: kind(level), imported_ms, "")


if __name__ == "__main__":
    main()
