"""CodePilot: the bare kernel, the executor with its skills, or a fresh process per action."""

from __future__ import annotations

import atexit
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from benchmarks.drivers.loop import ACTIONS, Measured, base_python, serve

_started = time.perf_counter()

import codepilot.sandbox as sandbox  # noqa: E402  (the import is measured)

_KERNEL_MS = (time.perf_counter() - _started) * 1000

import codepilot.executor as executor  # noqa: E402
from codepilot.skills import inside_prelude  # noqa: E402
from codepilot.workspace import Entry, ObjectStore  # noqa: E402

_ALL_MS = (time.perf_counter() - _started) * 1000


class WarmKernel:
    def __init__(self, level: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="codepilot-bench-")
        tree = Path(self._directory.name).resolve() / "tree"
        tree.mkdir()
        view = sandbox.View(sandbox.Mount(tree, tree, writable=True))
        self._kernel = sandbox.Kernel(_choose(level), view, sandbox.Limits())

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
        self._view = sandbox.View(sandbox.Mount(tree, tree, writable=True), (sandbox.Mount(prefix, prefix),))
        self._sandbox = _choose(level)

    def act(self, name: str) -> str:
        done = self._sandbox.run([*base_python(), "-c", ACTIONS[name]], self._view, sandbox.Limits())
        return (done.stdout + done.stderr).decode()

    def stop(self) -> None:
        self._directory.cleanup()


class WholeExecutor:
    """`Executor.run_code` in a new workspace with a base, skills defined; the executor itself is there, as in use."""

    made = 0

    def __init__(self, level: str) -> None:
        self._executor, objects, tree = _executor(level)
        WholeExecutor.made += 1
        self._name = f"bench-{self.made}"
        self._executor.create(executor.CreateWorkspace(workspace=self._name, objects=objects, tree=tree))

    def act(self, name: str) -> str:
        result = self._executor.run_code(executor.RunCode(workspace=self._name, code=ACTIONS[name]))
        return result.error.type if result.error is not None else result.stdout

    def stop(self) -> None:
        self._executor.delete(self._name)


@cache
def _executor(level: str) -> tuple[executor.LocalExecutor, str, str]:
    """This process's executor, and an object store with a tree in it."""
    directory = tempfile.TemporaryDirectory(prefix="codepilot-bench-")
    home = Path(directory.name).resolve()
    with ObjectStore.open(home / "objects", durable=False) as store:
        tree = store.write_tree({"README": Entry("100644", store.write_blob(b"hello\n"))})
    made = executor.LocalExecutor(home / "workspaces", _choose(level), prelude=inside_prelude())
    atexit.register(directory.cleanup)
    atexit.register(made.close)
    return made, str(home / "objects"), tree


def _choose(level: str) -> sandbox.Sandbox:
    return sandbox.choose(level)  # type: ignore[arg-type]


def main() -> None:
    what, level = sys.argv[1:3]
    kinds: dict[str, tuple[type[WarmKernel] | type[FreshProcess] | type[WholeExecutor], float]] = {
        "kernel": (WarmKernel, _KERNEL_MS),
        "fresh": (FreshProcess, _KERNEL_MS),
        "executor": (WholeExecutor, _ALL_MS),
    }
    kind, imported_ms = kinds[what]
    sandbox.probe()  # Once per process, before any run: it is no part of a start.

    def make() -> Measured:
        return kind(level)

    serve(make, imported_ms, "")


if __name__ == "__main__":
    main()
