"""Memory: a run that succeeded leaves what it learnt, once; later runs see what is similar, and can do without."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine_kit import (
    APPROVE,
    CHEAP,
    DONE,
    MAP,
    PLAN,
    RIGHT,
    checkout,
    commit,
    drive,
    make_checkout,
    replaced,
    result,
    runtime,
    until,
)
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from codepilot.agents import CodeActAgent
from codepilot.core.contract import canonical_json
from codepilot.core.events import (
    DependencyDegraded,
    Event,
    EventType,
    State,
)
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import MAX_TEXT, FailureMemory, MemoryRecalled, MemoryRecorded, MemorySettings, PatternMemory
from codepilot.core.run import Run
from codepilot.core.task import FollowUp
from codepilot.engine import Request, Runtime, Worker, fork_run, make_task, submit
from codepilot.models import ReplayModel, ScriptedModel, exchanges
from codepilot.store import Store
from configured import configured
from servers import PostgresServer

__all__ = ["checkout", "runtime"]

WELL = (MAP, PLAN, RIGHT, DONE, APPROVE)
PROMPT = "Areas are wrong"


@dataclass(frozen=True)
class First:
    """A run that succeeded where nothing was known, for all tests of what it left; each gets a copy of its home."""

    home: Path
    checkout: Path
    run: Run
    events: list[Event]
    model: ScriptedModel


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> First:
    place, model = tmp_path_factory.mktemp("first"), until(*WELL)
    checkout = make_checkout(place / "shapes")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
        with Runtime.open(configured({"CODEPILOT_HOME": str(place / "home")})) as runtime:
            run, events = drive(runtime, checkout, model, prompt=PROMPT)
    assert run.state is State.DONE
    return First(place / "home", checkout, run, events, model)


@pytest.fixture
def later(first: First, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """A runtime in which the first run is over."""
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    shutil.copytree(first.home, tmp_path / "later")
    with Runtime.open(configured({"CODEPILOT_HOME": str(tmp_path / "later")})) as opened:
        yield opened


def learnt(events: list[Event]) -> list[MemoryRecorded]:
    return [event.data for event in events if isinstance(event.data, MemoryRecorded)]


def test_a_run_that_succeeded_leaves_its_failure_and_its_pattern(first: First, later: Runtime) -> None:
    run, events = first.run, first.events
    failure, pattern = (one.memory for one in learnt(events))
    assert isinstance(failure, FailureMemory)
    assert (failure.error_type, failure.message) == ("AssertionError", "7 != 12")
    assert failure.signature == "AssertionError <number> != <number>"
    assert failure.where.startswith("test_shapes.ShapesTest.test_area\n")
    assert failure.solution == "multiply width and height"
    assert failure.changed == "2 lines in shapes.py"
    assert isinstance(pattern, PatternMemory)
    assert (pattern.task, pattern.touched) == (PROMPT, ("shapes.py",))
    assert pattern.tests == ("test_shapes.ShapesTest.test_area",)
    (row,) = later.store.memories("failure", repo=run.base.lineage if run.base else "", language="python")
    assert (row.run_id, row.memory) == (run.run_id, failure)


def test_a_run_that_failed_leaves_nothing(runtime: Runtime, checkout: Path) -> None:
    run, events = drive(runtime, checkout, until(MAP, PLAN))
    assert run.state is State.FAILED
    assert learnt(events) == []
    assert runtime.store.memories("pattern") == []


@pytest.mark.variants
@pytest.mark.parametrize("fatal", [EventType.MEMORY_RECORDED])
def test_it_is_learnt_once_in_a_run_whatever_becomes_of_the_step(
    runtime: Runtime, checkout: Path, fatal: EventType
) -> None:
    """A step that fails after it has recorded its memories is attempted anew. The same of what it proposes next."""
    with (checkout / "test_shapes.py").open("a") as tests:
        tests.write("\n    def test_volume(self):\n        from shapes import volume\n")
    broken: list[Event] = []

    def listen(event: Event) -> None:
        if event.type is fatal and not broken:
            broken.append(event)
            raise RuntimeError("something broke")

    asked = Request(repo=str(checkout), tests=("test_shapes.ShapesTest.test_area",))
    run = submit(runtime, make_task(asked, CHEAP))
    agent = CodeActAgent(until(*WELL))
    ended = Worker(runtime, listen, agent_for=lambda task: agent).drive(run.run_id)
    assert (ended.state, ended.attempt) == (State.DONE, 2)
    events = runtime.store.events(run.run_id)
    assert [one.memory.kind for one in learnt(events)] == ["failure", "pattern"]
    assert [len(runtime.store.memories(kind)) for kind in ("failure", "pattern")] == [1, 1]  # type: ignore[arg-type]
    proposed = [event.data for event in events if isinstance(event.data, FollowUp)]
    assert proposed and len(set(map(canonical_json, proposed))) == len(proposed)
    runtime.store.check(run.run_id)


def test_a_fork_learns_by_itself(first: First, later: Runtime) -> None:
    forked = fork_run(later, first.run.run_id, None)
    assert learnt(later.store.events(forked.run_id)) == []
    assert Worker(later).drive(forked.run_id).state is State.DONE
    assert len(learnt(later.store.events(forked.run_id))) == len(learnt(first.events)) == 2


def test_what_is_kept_is_short_and_without_secrets(
    runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "very-secret-4711")
    reported = result(rationale=f"as very-secret-4711 and sk-{'a1' * 20} say {'x' * 5_000}", confidence=0.9)
    prompt = f"Areas, with very-secret-4711 {'long ' * 1_000}"
    _, events = drive(runtime, checkout, until(MAP, PLAN, RIGHT, reported, APPROVE), prompt=prompt)
    kept = learnt(events)
    assert len(kept) == 2
    for one in kept:
        text = one.model_dump_json()
        assert "very-secret" not in text
        assert "a1a1" not in text
        assert "[redacted]" in text
        assert len(one.memory.solution) <= MAX_TEXT


# Recalling ------------------------------------------------------------------------------------------

WRONG = replaced("width + height", "width - height")
THINK = result(root_cause="it subtracts", fix_hypothesis="multiply", confidence="high")
SHOWN = "# Similar tasks before"


def recalled(events: list[Event]) -> list[MemoryRecalled]:
    """Where something was found."""
    return [one for one in asked(events) if one.found]


def asked(events: list[Event]) -> list[MemoryRecalled]:
    return [event.data for event in events if isinstance(event.data, MemoryRecalled)]


def reported(model: ScriptedModel, role: str) -> str:
    """What the role was shown when it was asked first."""
    return next(one[1].content for one in model.requests if f"You are the {role}." in one[0].content)


def shown(runtime: Runtime, checkout: Path, memory: MemorySettings | None = None) -> str:
    """What the Planner of a run is shown; the run ends there."""
    model = until(MAP)
    task = make_task(Request(repo=str(checkout), prompt=PROMPT), CHEAP)
    run = submit(runtime, task.model_copy(update={"memory": memory or task.memory}))
    ended = Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(run.run_id)
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.MODEL_REFUSED
    return reported(model, "Planner")


def test_a_planner_is_shown_what_was_done_for_a_similar_task(first: First, later: Runtime) -> None:
    assert SHOWN not in reported(first.model, "Planner")
    assert recalled(first.events) == []
    model = until(MAP, PLAN)
    _, events = drive(later, first.checkout, model, prompt=PROMPT)
    (one,) = recalled(events)
    assert (one.kind, [found.run_id for found in one.found]) == ("pattern", [first.run.run_id])
    planner = reported(model, "Planner")
    assert SHOWN in planner
    assert '"solution": "multiply width and height"' in planner
    assert "Similar" not in reported(model, "Implementer")


def test_a_reflector_is_shown_similar_failures_and_says_which(first: First, later: Runtime) -> None:
    model = until(MAP, PLAN, WRONG, DONE, THINK)
    run, events = drive(later, first.checkout, model, prompt="Something else entirely")
    (one,) = recalled(events)
    assert one.kind == "failure"
    assert "# Similar failures before" in reported(model, "Reflector")
    assert '"message": "7 != 12"' in reported(model, "Reflector")
    assert run.reflection is not None
    assert run.reflection.similar_failures == (
        {"run_id": first.run.run_id, "seq": one.found[0].seq, "similarity": one.found[0].similarity},
    )


@pytest.mark.variants
def test_a_conversation_that_goes_on_reads_as_it_did_whatever_others_have_recorded_since(
    runtime: Runtime, checkout: Path
) -> None:
    """It began without a memory, or with one. The second round records nothing more: one other run is enough."""
    for known in (0, 1):
        seen: list[str] = []

        def reply(messages: object, seen: list[str] = seen) -> str:
            shown = messages[1].content  # type: ignore[index]
            if "You are the Planner." not in messages[0].content:  # type: ignore[index]
                return MAP
            seen.append(shown)
            if len(seen) == 1:
                return "```python\nprint(1)\n```"
            if len(seen) == 2:
                raise SystemExit  # a worker that dies
            raise CodePilotError(FailureKind.MODEL_REFUSED, "enough was seen")

        agent = CodeActAgent(ScriptedModel(reply))
        run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
        with pytest.raises(SystemExit):
            Worker(runtime, agent_for=lambda task, agent=agent: agent).drive(run.run_id)  # type: ignore[misc]
        if not known:
            drive(runtime, checkout, until(*WELL))
        Worker(runtime, agent_for=lambda task, agent=agent: agent).drive(run.run_id)  # type: ignore[misc]
        assert len(seen) == 3
        assert seen[0] == seen[1] == seen[2]
        assert (SHOWN in seen[0]) is bool(known)
        assert len(recalled(runtime.store.events(run.run_id))) == known


@pytest.mark.variants
def test_a_replay_is_shown_what_the_recording_was(runtime: Runtime, checkout: Path) -> None:
    recordings = [drive(runtime, checkout, until(MAP, PLAN))]
    drive(runtime, checkout, until(*WELL))
    recordings.append(drive(runtime, checkout, until(MAP, PLAN)))
    assert [len(recalled(events)) for _, events in recordings] == [0, 1]
    for old, recording in recordings:
        run, events = drive(runtime, checkout, ReplayModel(exchanges(recording)))
        assert run.plan == old.plan is not None
        assert run.failure == old.failure, "it was shown what the recorded run was, up to its end"
        assert recalled(events) == recalled(recording)


# Doing without --------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def either(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Runtime, str]]:
    """A runtime with its store's URL, on either engine."""
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    home = tmp_path / "home"
    place = f"sqlite:///{home / 'codepilot.db'}"
    if request.param == "postgres":
        place = str(request.getfixturevalue("postgres").store())
    with Runtime.open(configured({"CODEPILOT_HOME": str(home)}, store=place)) as opened:
        yield opened, place


def sql(place: str, statement: str) -> None:
    engine = create_engine(place, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)


def worked(runtime: Runtime, checkout: Path, memory: MemorySettings | None = None) -> tuple[ScriptedModel, list[Event]]:
    """A run that goes well whatever becomes of the memory."""
    model = until(*WELL)
    agent = CodeActAgent(model)
    task = make_task(Request(repo=str(checkout), prompt=PROMPT), CHEAP)
    run = submit(runtime, task.model_copy(update={"memory": memory or task.memory}))
    ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    assert ended.state is State.DONE, ended.failure
    assert ended.attempt == 1
    return model, runtime.store.events(run.run_id)


def degraded(events: list[Event]) -> list[DependencyDegraded]:
    return [event.data for event in events if isinstance(event.data, DependencyDegraded)]


@pytest.mark.variants
def test_a_run_goes_on_without_a_memory_that_is_gone(either: tuple[Runtime, str], checkout: Path) -> None:
    runtime, place = either
    sql(place, "ALTER TABLE memories RENAME TO lost")
    model, events = worked(runtime, checkout)
    assert [one.dependency for one in degraded(events)] == ["memory", "memory"]
    assert [one.consequence for one in degraded(events)] == [
        "the RepoMapper is shown nothing of earlier runs",
        "later runs learn nothing from this one",
    ]
    assert SHOWN not in reported(model, "Planner")
    assert learnt(events) == []
    sql(place, "ALTER TABLE lost RENAME TO memories")
    assert runtime.store.check_all() == {}


@pytest.mark.variants
def test_a_memory_that_somebody_has_locked_is_waited_for_for_seconds_only(
    tmp_path: Path, checkout: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    monkeypatch.setitem(Store.memories.__kwdefaults__, "timeout_sec", 1.0)
    place = postgres.store()
    with Runtime.open(configured({"CODEPILOT_HOME": str(tmp_path / "home")}, store=place)) as runtime:
        engine = create_engine(place, poolclass=NullPool)
        with engine.begin() as other:
            other.exec_driver_sql("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
            model, events = worked(runtime, checkout)
        assert [one.dependency for one in degraded(events)] == ["memory", "memory"]
        assert all(one.failure.kind is FailureKind.STORE_UNAVAILABLE for one in degraded(events))
        assert SHOWN not in reported(model, "Planner")
        for event in events:
            if isinstance(event.data, DependencyDegraded):
                waited = event.at - events[event.seq - 2].at
                assert 900_000 < waited < 25_000_000, "the lock alone would have been waited for for a minute"
        assert runtime.store.check_all() == {}


@pytest.mark.variants
def test_memory_can_be_turned_off(first: First, later: Runtime) -> None:
    assert SHOWN in shown(later, first.checkout)
    model, events = worked(later, first.checkout, MemorySettings(enabled=False))
    assert learnt(events) == []
    assert SHOWN not in reported(model, "Planner")
    assert len(later.store.memories("pattern")) == 1


@pytest.mark.variants
def test_other_repositories_are_recalled_only_where_that_is_wanted(later: Runtime, tmp_path: Path) -> None:
    other = make_checkout(tmp_path / "elsewhere", first="another first")
    assert SHOWN not in shown(later, other)
    another = make_checkout(tmp_path / "nowhere", first="yet another first")
    assert SHOWN in shown(later, another, MemorySettings(across_repositories=True))


def test_a_repository_is_known_by_its_history_wherever_it_lies(first: First, later: Runtime, tmp_path: Path) -> None:
    """Machines that share a store may have different projects at the same path, and one project at several."""
    moved = first.checkout.rename(tmp_path / "moved")
    try:
        make_checkout(first.checkout, first="another first")
        assert SHOWN not in shown(later, first.checkout)
        shutil.copytree(moved, tmp_path / "copy")
        commit(tmp_path / "copy", "second")
        assert SHOWN in shown(later, tmp_path / "copy")
    finally:
        shutil.rmtree(first.checkout, ignore_errors=True)
        moved.rename(first.checkout)


@pytest.mark.variants
def test_of_a_shallow_clone_only_its_own_checkout_is_remembered(
    runtime: Runtime, checkout: Path, tmp_path: Path
) -> None:
    commit(checkout, "second")
    for name in ("one", "two"):
        origin = checkout.as_uri()
        subprocess.run(["git", "clone", "-q", "--depth", "1", origin, str(tmp_path / name)], check=True)
    _, events = worked(runtime, tmp_path / "one")
    assert {one.repo.partition("@")[2] for one in learnt(events)} == {socket.gethostname()}
    assert SHOWN not in shown(runtime, tmp_path / "two")
    assert SHOWN in shown(runtime, tmp_path / "one")
