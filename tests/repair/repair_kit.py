"""Small projects in real workspaces, run by the real executor in the best sandbox that this machine gives."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codepilot.core.contract import JsonObject
from codepilot.core.project_settings import ProjectSettings
from codepilot.executor import CreateWorkspace, LocalExecutor, MountSpec
from codepilot.project import Project, SuiteRun, detect, run_tests
from codepilot.repair import Progress, SearchRequest, SearchResult, search
from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.messages import Evidence, Job, Selection, TrialResult
from codepilot.repair.python.backend import PythonBackend
from codepilot.repair.python.source import PythonSource
from codepilot.repair.rank import Plausible
from codepilot.repair.trial import Trial
from codepilot.sandbox import choose
from codepilot.workspace import Entry, ObjectStore

BACKEND = PythonBackend()


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
        seconds: float = 240.0,
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


def open_bench(folder: Path, files: Mapping[str, str | bytes], part: str = "") -> Bench:
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
    settings = ProjectSettings(env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    project = detect(checkout, python=sys.executable, environ={}, inside=inside, settings=settings, folder=part)
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


def trial_of(project: Bench, places: int = 2, seconds: float = 100.0) -> Trial:
    """All tests of the project, ready to judge changes of it."""
    deadline = time.monotonic() + seconds
    return Trial(
        BACKEND,
        project.executor,
        "w",
        project.project,
        project.baseline.collected,
        deadline,
        lambda: None,
        places=places,
    )


def job_of(project: Bench, path: str, old: str, new: str, selection: Selection, number: int = 0) -> Job:
    """A change of the first place where the old text stands."""
    source = PythonSource.read(path, project.files[path])
    at = source.text.index(old)
    edit, unit = Edit(at, at + len(old), new, "test"), source.unit_at(at)
    return Job(number, source, edit, selection, unit if unit and unit.holds(edit) else None)


def results(project: Bench, path: str, changes: Sequence[tuple[str, str]], places: int = 2) -> list[TrialResult]:
    """How the targets judge each change of the file."""
    targets = project.baseline.red
    jobs = [job_of(project, path, *change, Selection(targets), number) for number, change in enumerate(changes)]
    with trial_of(project, places) as trial:
        trial.start()
        trial.trace(project.baseline.collected, alone=targets)
        found = trial.judge(jobs)
    assert project.unchanged()
    return [found[number] for number in range(len(jobs))]


def plausible_of(position: int, evidence: Evidence, score: float = 0.5, tests: int = 3) -> Plausible:
    """A candidate that passed, made up: only its evidence matters."""
    source = PythonSource.read("m.py", b"def f(a, b):\n    c = a + b\n    return c < 100\n")
    edit = Edit(21, 26, f"a - b{' ' * position}", "operator.binary")
    patched = source.apply(edit)
    assert patched is not None
    return Plausible(Proposal(position, source, source.units[0], edit, score, 2), patched, tests, 0, evidence)
