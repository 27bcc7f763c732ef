"""A workspace of a checkout in the sandbox that a run would use, for the search alone and for the judge."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codepilot.core.policy import Policy
from codepilot.engine import Settings, open_executor
from codepilot.executor import CreateWorkspace, Executor, MountSpec
from codepilot.project import Project, detect
from codepilot.store import Home
from codepilot.workspace import Entry, ObjectStore

_WORKSPACE = "bench"


@dataclass(frozen=True)
class BenchWorkspace:
    executor: Executor
    project: Project
    workspace: str = _WORKSPACE

    def close(self) -> None:
        self.executor.delete(self.workspace)
        self.executor.close()


def open_workspace(
    checkout: Path,
    home: Path,
    python: str | None,
    files: Mapping[str, bytes] | None = None,
    over: Mapping[str, bytes] | None = None,
) -> BenchWorkspace:
    """The checkout's own files, or those given instead, with others laid over; the environment is the checkout's."""
    runtime = Home(home).ensure()
    objects = runtime.path / "bench.git"
    contents = _files(checkout) if files is None else {name: ("100644", data) for name, data in files.items()}
    contents |= {name: ("100644", data) for name, data in (over or {}).items()}
    with ObjectStore.open(objects) as store:
        tree = store.write_tree({name: Entry(mode, store.write_blob(data)) for name, (mode, data) in contents.items()})
    executor = open_executor(Settings.load(flags={"home": home}), "best", Policy())
    inside = str(checkout) if executor.remaps else str(runtime.workspaces / _WORKSPACE / "tree")
    project = detect(checkout, python=python or sys.executable, environ={}, inside=inside)
    executor.delete(_WORKSPACE)
    executor.create(
        CreateWorkspace(
            workspace=_WORKSPACE,
            objects=str(objects),
            tree=tree,
            at=inside if executor.remaps else None,
            mounts=tuple(MountSpec(source=source, target=target) for source, target in project.mounts),
        )
    )
    return BenchWorkspace(executor, project)


def _files(checkout: Path) -> dict[str, tuple[str, bytes]]:
    found = {}
    for file in sorted(checkout.rglob("*")):
        name = file.relative_to(checkout)
        if file.is_file() and not file.is_symlink() and name.parts[0] != ".git":
            found[str(name)] = ("100755" if file.stat().st_mode & 0o100 else "100644", file.read_bytes())
    return found
