"""Small projects in real workspaces, run by the real executor in the best sandbox that this machine gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from codepilot.core.contract import JsonObject
from codepilot.executor import CreateWorkspace, LocalExecutor, MountSpec
from codepilot.project import Project, SuiteRun, detect, run_tests
from codepilot.repair import Progress, SearchRequest, SearchResult, search
from codepilot.repair.heap import Proposal
from codepilot.repair.rank import Plausible
from codepilot.repair.source import Edit, Source
from codepilot.repair.worker import Evidence
from codepilot.sandbox import choose
from codepilot.workspace import Entry, ObjectStore


@dataclass
class Bench:
    """One project in one workspace, with its baseline."""

    executor: LocalExecutor
    project: Project
    baseline: SuiteRun
    files: Mapping[str, bytes]
    tree: str
    workspace: str = "w"
    seen: list[Progress] = field(default_factory=list)

    def request(
        self,
        seconds: float = 30.0,
        on_progress: Callable[[Progress], None] | None = None,
        state: JsonObject | None = None,
        refused: tuple[bytes, ...] = (),
        targets: tuple[str, ...] = (),
    ) -> SearchRequest:
        return SearchRequest(
            executor=self.executor,
            workspace=self.workspace,
            project=self.project,
            targets=targets or self.baseline.red,
            baseline=self.baseline,
            seconds=seconds,
            on_progress=on_progress or self.seen.append,
            refused=refused,
            state=state or {},
        )

    def search(self, **options: object) -> SearchResult:
        return search(self.request(**options))  # type: ignore[arg-type]

    def unchanged(self) -> bool:
        return not self.executor.diff(self.workspace, self.tree).changes


def open_bench(folder: Path, files: Mapping[str, str | bytes]) -> Bench:
    contents = {name: data.encode() if isinstance(data, str) else data for name, data in files.items()}
    checkout = folder / "checkout"
    for name, data in contents.items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    objects = folder / "objects"
    with ObjectStore.open(objects) as store:
        tree = store.write_tree({name: Entry("100644", store.write_blob(data)) for name, data in contents.items()})
    sandbox = choose("best")
    inside = str(checkout) if sandbox.remaps else str(folder / "home" / "w" / "tree")
    project = detect(checkout, python=sys.executable, environ={}, inside=inside)
    executor = LocalExecutor(folder / "home", sandbox)
    executor.create(
        CreateWorkspace(
            workspace="w",
            objects=str(objects),
            tree=tree,
            at=inside if sandbox.remaps else None,
            mounts=tuple(MountSpec(source=source, target=target) for source, target in project.mounts),
        )
    )
    baseline = run_tests(executor, "w", project, timeout_sec=100.0)
    assert baseline.status == "finished", baseline.message + baseline.log_tail
    return Bench(executor, project, baseline, contents, tree)


def plausible_of(position: int, evidence: Evidence, score: float = 0.5, witnesses: int = 3) -> Plausible:
    """A candidate that passed, made up: only its evidence matters."""
    source = Source.read("m.py", b"def f(a, b):\n    c = a + b\n    return c < 100\n")
    edit = Edit(21, 26, f"a - b{' ' * position}", "operator.binary")
    patched = source.apply(edit)
    assert patched is not None
    return Plausible(Proposal(position, source, source.units[0], edit, score, 2), patched, witnesses, 0, evidence)
