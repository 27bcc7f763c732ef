"""Independent parts of a plan run side by side as child runs, and join by three-way merge."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_kit import CHEAP, drive
from plans_kit import SHAPES, THREE, edit, make_project, plan_of, planned, reported, rightly

import ready
from codepilot.agents import CodeActAgent
from codepilot.core.events import ChildJoined, ChildStarted, Event, EventType, NodeChanged, PlanRevised, State
from codepilot.core.failures import FailureKind
from codepilot.core.run import Run
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from codepilot.engine.control import cancel, pause, resume
from codepilot.engine.removal import remove_run
from codepilot.engine.worker_pool import WorkerPool

HERE = Path(__file__).parent
TESTS = ("test_parts.py",)


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    return make_project(tmp_path / "parts")


def of(events: Sequence[Event], kind: type) -> list[object]:
    return [event.data for event in events if isinstance(event.data, kind)]


def files_of(run: Run) -> set[str]:
    assert run.proposal is not None
    return set(run.proposal.patch.touched_files)


def test_independent_parts_run_at_the_same_time_and_a_red_gate_reopens_only_the_one_to_blame(
    runtime: Runtime, parts: Path
) -> None:
    together = threading.Barrier(3, timeout=200)
    begun: set[str] = set()
    done: Counter[str] = Counter()

    def work(node: str, turn: int) -> str:
        if node not in begun:
            begun.add(node)
            together.wait()  # passes only if all three are at work at once
        done[node] += turn == 1
        if node == "double" and done[node] == 0:
            return edit("double.py", "return number", "return 3 * number")
        return rightly(node, turn)

    run, events = drive(runtime, parts, planned(work), tests=TESTS)
    assert (run.state, run.failure) == (State.DONE, None)
    assert files_of(run) == {f"{name}.py" for name in SHAPES}
    assert done == {"area": 1, "double": 2, "negate": 1}
    revised = of(events, PlanRevised)
    assert isinstance(revised[0], PlanRevised)
    assert (revised[0].reopened, revised[0].kept) == (("double",), ("area", "negate"))
    joined = [one for one in of(events, ChildJoined) if isinstance(one, ChildJoined)]
    assert [one.outcome for one in joined] == ["merged"] * 3
    children = runtime.store.families.children_of(run.run_id)
    assert set(children.values()) == {State.DONE}
    for child in children:
        runtime.store.check(child)
    assert [row.run_id for row in runtime.store.history()] == [run.run_id], "children are shown with their parent"
    assert run.spent.turns == len([e for e in events if e.type is EventType.TURN_STARTED]) + sum(
        one.usage.turns for one in joined
    )
    assert remove_run(runtime, run.run_id).existed
    assert not runtime.store.families.children_of(run.run_id)


THINKS_SEC = 6.0
IN_A_ROW = plan_of(
    {"id": "area", "title": "mend area"},
    {"id": "double", "title": "mend double", "depends_on": ["area"]},
    {"id": "negate", "title": "mend negate", "depends_on": ["double"]},
)


@pytest.mark.builds
def test_three_independent_parts_take_clearly_less_time_than_in_a_row(runtime: Runtime, tmp_path: Path) -> None:
    def slowly(node: str, turn: int) -> str:
        time.sleep(THINKS_SEC)
        return rightly(node, turn)

    took = {}
    for name, plan in (("at once", THREE), ("in a row", IN_A_ROW)):
        began = time.monotonic()
        run, events = drive(runtime, make_project(tmp_path / name), planned(slowly, plan), tests=TESTS)
        took[name] = time.monotonic() - began
        assert (run.state, run.failure) == (State.DONE, None)
        assert len(of(events, ChildStarted)) == (3 if plan == THREE else 0)
    assert took["at once"] < took["in a row"] - 2 * THINKS_SEC, took


SAME_LINE = plan_of({"id": "area", "title": "mend area"}, {"id": "rename", "title": "name the result"})


def test_a_conflict_is_resolved_by_doing_the_later_part_again_on_the_merged_tree(runtime: Runtime, parts: Path) -> None:
    begun: Counter[str] = Counter()

    def work(node: str, turn: int) -> str:
        begun[node] += turn == 0
        if turn == 0 and node == "area":
            return edit("area.py", "width + height", "width * height")
        if turn == 0:
            old = "width + height" if begun[node] == 1 else "width * height"
            return edit("area.py", f"return {old}", f"result = {old}\n    return result")
        return reported(node)

    run, events = drive(runtime, parts, planned(work, SAME_LINE), tests=("test_parts.PartsTest.test_area",))
    assert (run.state, run.failure) == (State.DONE, None)
    joined = [one for one in of(events, ChildJoined) if isinstance(one, ChildJoined)]
    assert sorted(one.outcome for one in joined) == ["conflict", "merged"]
    lost = next(one for one in joined if one.outcome == "conflict")
    assert lost.conflicts == ("area.py",)
    assert begun[lost.node] == 2
    assert run.proposal is not None
    assert "+    result = width * height" in run.proposal.patch.diff


@pytest.mark.variants
@pytest.mark.parametrize("how", ["pause", "cancel"])
def test_a_pool_with_one_slot_works_on_children_and_requests_reach_them(
    runtime: Runtime, parts: Path, how: str
) -> None:
    run_id = submit(runtime, make_task(Request(repo=str(parts), tests=TESTS), CHEAP)).run_id
    asked = threading.Event()

    def work(node: str, turn: int) -> str:
        if not asked.is_set():
            asked.set()
            (pause if how == "pause" else cancel)(runtime, run_id)
        return rightly(node, turn)

    agent = CodeActAgent(planned(work))

    def until_idle() -> Run:
        worker = Worker(runtime, agent_for=lambda task: agent)
        WorkerPool(runtime, worker, concurrency=1, until_idle=True).run()
        return runtime.store.load(run_id)

    run = until_idle()
    states = set(runtime.store.families.children_of(run_id).values())
    if how == "cancel":
        assert (run.state, states) == (State.ABORTED, {State.ABORTED})
        assert run.failure is not None
        assert run.failure.kind is FailureKind.CANCELLED
        assert not [path for path in runtime.home.workspaces.iterdir() if path.name.startswith(run_id)]
        return
    assert (run.state, states) == (State.PAUSED, {State.PAUSED})
    resume(runtime, run_id)
    run = until_idle()
    assert (run.state, run.failure) == (State.DONE, None)
    assert files_of(run) == {f"{name}.py" for name in SHAPES}


@pytest.mark.slow
def test_a_run_that_is_killed_amid_its_children_repeats_nothing(runtime: Runtime, parts: Path, tmp_path: Path) -> None:
    graves = tmp_path / "graves"
    graves.mkdir()
    run = submit(runtime, make_task(Request(repo=str(parts), tests=TESTS), CHEAP))
    home = str(tmp_path / "home")
    environment = {**os.environ, "CODEPILOT_HOME": home}
    while True:
        code, _, err = ready.run([home, run.run_id, str(graves)], environment, script=HERE / "dying_parent.py")
        if code != -signal.SIGKILL:
            break
    assert code == 0, err
    assert {path.name for path in graves.iterdir()} == {"child_started", "turn", "child_done", "child_joined"}
    ended = runtime.store.load(run.run_id)
    assert (ended.state, ended.failure) == (State.DONE, None)
    assert files_of(ended) == {f"{name}.py" for name in SHAPES}
    events = runtime.store.events(run.run_id)
    for kind in (ChildStarted, ChildJoined):
        nodes = [one.node for one in of(events, kind)]  # type: ignore[attr-defined]
        assert sorted(nodes) == sorted(SHAPES), "each is begun and joined once"
    done = [e.data.node for e in events if e.type is EventType.NODE_SUCCEEDED and isinstance(e.data, NodeChanged)]
    assert sorted(done) == sorted(SHAPES)
    for child in runtime.store.families.children_of(run.run_id):
        runtime.store.check(child)
        proposed = [e for e in runtime.store.events(child) if e.type is EventType.PATCH_PROPOSED]
        assert len(proposed) == 1
