"""A step as the engine runs it: a git repository, a workspace in the sandbox, and recorded events."""

from __future__ import annotations

import hashlib
import os
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codepilot.agents import StepContext
from codepilot.context import Files, Survey
from codepilot.core.artifacts import ArtifactRef, ArtifactType, TestSummary
from codepilot.core.events import (
    BaselineRecorded,
    BasePinned,
    Event,
    EventDraft,
    EventType,
    State,
    StepStarted,
)
from codepilot.core.memory import MemoryKind
from codepilot.core.policy import Policy
from codepilot.core.project_settings import ProjectSettings
from codepilot.core.run import Run, evolve
from codepilot.core.task import Budget, Goal, TaskSpec
from codepilot.executor import CreateWorkspace, LocalExecutor, MountSpec, RunCommand
from codepilot.project import Project, SuiteRun, detect, run_tests
from codepilot.sandbox import choose
from codepilot.store import MemoryRow
from codepilot.workspace import ObjectStore, pin_base

FILES = {
    "shop/__init__.py": "",
    "shop/price.py": '''\
        """Prices in cents."""


        def total(prices, discount=0):
            """The sum of the prices, less a percentage."""
            amount = 0
            for price in prices:
                amount += price
            return amount - amount * discount // 10


        def cheapest(prices):
            return min(prices) if prices else None
        ''',
    "tests/test_price.py": """\
        from shop.price import cheapest, total


        def test_plain_total():
            assert total([100, 250]) == 350


        def test_discount():
            assert total([1000], discount=20) == 800


        def test_cheapest():
            assert cheapest([3, 1, 2]) == 1
            assert cheapest([]) is None
        """,
}
WORKSPACE = "r-1"
TARGET = "tests/test_price.py::test_discount"


@dataclass
class Harness:
    """One run with its workspace and events. `context()` starts a step as the engine does."""

    executor: LocalExecutor
    request: CreateWorkspace
    workspace: str
    project: Project
    baseline: SuiteRun
    base_tree: str
    clean: str
    run: Run
    events: list[Event] = field(default_factory=list)
    raise_if_stopped: Callable[[], None] = lambda: None
    on_record: Callable[[EventDraft], None] = lambda draft: None
    kept: dict[str, bytes] = field(default_factory=dict)
    survey: Callable[[], Survey] | None = None
    remember: Callable[[MemoryKind, str], Sequence[MemoryRow]] | None = None

    @contextmanager
    def copied(self) -> Iterator[str]:
        name = f"{self.workspace}-copy"
        self.executor.create(self.request.model_copy(update={"workspace": name}))
        taken = self.executor.snapshot(self.workspace).snapshot
        there = self.executor.import_snapshot(name, self.executor.export_snapshot(self.workspace, taken))
        self.executor.restore(name, there.snapshot)
        try:
            yield name
        finally:
            self.executor.delete(name)

    def keep(self, data: bytes) -> ArtifactRef:
        digest = hashlib.sha256(data).hexdigest()
        self.kept[digest] = data
        return ArtifactRef(type=ArtifactType.LOG, sha256=digest, size_bytes=len(data))

    def record(self, draft: EventDraft) -> Event:
        self.on_record(draft)
        seq = len(self.events) + 1
        event = Event(
            type=draft.type,
            data=draft.data,
            artifacts=draft.artifacts,
            step_id=self.run.step_id,
            attempt=self.run.attempt,
            event_id=f"e-{seq}",
            seq=seq,
            run_id=self.run.run_id,
            at=seq,
        )
        self.events.append(event)
        self.run = evolve(self.run, event)
        return event

    def context(self, role: State = State.IMPLEMENT, **budget: float) -> StepContext:
        if budget:
            task = self.run.task.model_copy(update={"budget": Budget(parallel=1, **budget)})  # type: ignore[arg-type]
            self.run = self.run.model_copy(update={"task": task})
        self.run = self.run.model_copy(update={"state": role})
        self.record(EventDraft(type=EventType.STEP_STARTED, data=StepStarted(worker="w", fence=1)))
        return StepContext(
            run=self.run,
            now=lambda: self.run,
            executor=self.executor,
            workspace=self.workspace,
            project=self.project,
            baseline=self.baseline,
            history=tuple(self.events),
            record=self.record,
            raise_if_stopped=lambda: self.raise_if_stopped(),
            seconds_left=lambda: 60.0,
            keep=self.keep,
            fetch=lambda ref: self.kept[ref.sha256],
            copied=self.copied,
            survey=self.survey,
            remember=self.remember,
        )

    def of(self, kind: EventType) -> list[Event]:
        return [event for event in self.events if event.type is kind]

    def text(self, path: str) -> str:
        return self.executor.read_file(self.workspace, path).decode()

    def patch(self) -> str:
        return self.executor.diff(self.workspace, self.base_tree).patch.decode()

    def passes(self, *tests: str) -> bool:
        result = run_tests(self.executor, self.workspace, self.project, tests, 60.0)
        return result.status == "finished" and not result.red

    def edit(self) -> None:
        """Change a file that no test reads: an agent that changes nothing does not end IMPLEMENT."""
        write = "open('shop/__init__.py', 'w').write('# edited')"
        argv = (self.project.interpreter.executable, "-I", "-S", "-c", write)
        assert self.executor.run_command(RunCommand(workspace=self.workspace, argv=argv)).status == "ok"

    def rewind(self) -> None:
        """Put the workspace back, as after a crash before the first turn's snapshot."""
        self.executor.restore(self.workspace, self.clean)


def make_repository(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    environment = {"PATH": os.environ["PATH"], "HOME": str(root.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "base"]):
        subprocess.run(["git", *command], cwd=root, env=environment, check=True)


@dataclass(frozen=True)
class Checkout:
    """A user's repository, its pinned base, and the results of its tests before any change."""

    root: Path
    objects: Path
    tree: str
    project: Project
    baseline: SuiteRun


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    folder = tmp_path_factory.mktemp("checkout")
    root = folder / "shop repo"
    root.mkdir()
    make_repository(root, FILES)
    with ObjectStore.open(folder / "objects.git") as objects:
        tree = pin_base(root, objects).tree
    project = _detect(root, folder / "home")
    executor, _ = _create(root, folder / "objects.git", tree, project, folder / "home")
    try:
        baseline = run_tests(executor, WORKSPACE, project, (), 60.0)
    finally:
        executor.close()
    return Checkout(root, folder / "objects.git", tree, project, baseline)


@pytest.fixture(scope="session")
def survey(checkout: Checkout) -> Survey:
    with ObjectStore.open(checkout.objects) as objects:
        files = Files.of_tree(objects, checkout.tree)
        sources = {path: files.read(path) for path in files.hashes}
    return Survey.of(Files(files.hashes, sources.get))


@pytest.fixture
def harness(checkout: Checkout, tmp_path: Path) -> Iterator[Harness]:
    project = checkout.project if choose("best").remaps else _detect(checkout.root, tmp_path)
    executor, request = _create(checkout.root, checkout.objects, checkout.tree, project, tmp_path)
    try:
        task = TaskSpec(
            task_id="t-1",
            goal=Goal(natural="The discount is wrong."),
            repo="shop",
            tests=(TARGET,),
            policy=Policy(regression_test=False),
        )
        recorded = BaselineRecorded(targets=(TARGET,), signature="s", before=TestSummary(), suite="full")
        base = BasePinned(repo_id="shop", commit="c", commit_tree=checkout.tree, tree=checkout.tree)
        run = Run(run_id="r-1", task=task, state=State.IMPLEMENT, step_id="s-1", base=base, baseline=recorded)
        clean = executor.snapshot(WORKSPACE).snapshot
        yield Harness(executor, request, WORKSPACE, project, checkout.baseline, checkout.tree, clean, run)
    finally:
        executor.close()


def _detect(root: Path, home: Path) -> Project:
    inside = str(root) if choose("best").remaps else str(home / WORKSPACE / "tree")
    settings = ProjectSettings(env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    return detect(root, python=None, environ={}, inside=inside, settings=settings)


def _create(
    root: Path, objects: Path, tree: str, project: Project, home: Path
) -> tuple[LocalExecutor, CreateWorkspace]:
    sandbox = choose("best")
    executor = LocalExecutor(home, sandbox)
    request = CreateWorkspace(
        workspace=WORKSPACE,
        objects=str(objects),
        tree=tree,
        at=str(root) if sandbox.remaps else None,
        mounts=tuple(MountSpec(source=source, target=target) for source, target in project.mounts),
        env=project.env,
        kernel_python=project.interpreter.executable,
    )
    executor.create(request)
    return executor, request
