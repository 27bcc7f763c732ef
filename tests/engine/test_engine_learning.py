"""What a run learns on its way: failures that are reflected on and then solved, quirks, and half-finished programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kit import (
    APPROVE,
    DONE,
    MAP,
    PLAN,
    RIGHT,
    checkout,
    commit,
    drive,
    replaced,
    result,
    runtime,
    until,
)

from codepilot.core.events import Event, State
from codepilot.core.memory import FailureMemory, MemoryRecorded, MemorySolved, PatternMemory, QuirkMemory
from codepilot.core.task import TaskKind
from codepilot.engine import CodePilot, Runtime
from codepilot.models import Message, ScriptedModel

__all__ = ["checkout", "runtime"]

WRONG = replaced("width + height", "width - height")
QUIRK = "tests need TZ=UTC"
THINK = result(root_cause="it subtracts", fix_hypothesis="multiply", confidence="high", quirks=[QUIRK])


def failures(runtime: Runtime) -> list[FailureMemory]:
    return [row.memory for row in runtime.store.memories("failure") if isinstance(row.memory, FailureMemory)]


@pytest.mark.variants
def test_a_failure_is_recorded_when_it_is_reflected_on_and_gets_its_solution_when_it_is_mended(
    runtime: Runtime, checkout: Path
) -> None:
    run, events = drive(runtime, checkout, until(MAP, PLAN, WRONG, DONE, THINK, RIGHT, DONE, APPROVE))
    assert run.state is State.DONE
    first, solved = (_first(events, kind) for kind in (MemoryRecorded, MemorySolved))
    assert isinstance(first.data, MemoryRecorded)
    assert isinstance(first.data.memory, FailureMemory)
    assert (first.data.memory.message, first.data.memory.cause) == ("-1 != 12", "it subtracts")
    assert first.data.memory.solution == ""
    assert isinstance(solved.data, MemorySolved)
    assert solved.data.of == first.seq
    (stored,) = [one for one in failures(runtime) if one.message == "-1 != 12"]
    assert stored.solution == "multiply; multiply width and height"
    assert stored.changed == "shapes.py"
    (quirk,) = runtime.store.memories("quirk")
    assert isinstance(quirk.memory, QuirkMemory)
    assert quirk.memory.text == QUIRK
    runtime.store.check(run.run_id)


def _first(events: list[Event], kind: type[object]) -> Event:
    return next(event for event in events if isinstance(event.data, kind))


@pytest.mark.variants
def test_a_failure_that_was_never_mended_has_no_solution_and_is_not_shown(runtime: Runtime, checkout: Path) -> None:
    run, _ = drive(runtime, checkout, until(MAP, PLAN, WRONG, DONE, THINK))
    assert run.state is State.FAILED
    assert [one.solution for one in failures(runtime)] == [""]
    model = until(MAP, PLAN, WRONG, DONE, THINK)
    drive(runtime, checkout, model)
    assert not [one for one in model.requests if "# Similar failures before" in one[1].content]


class Learner:
    """A model that knows the right change only from a hint in its prompt, and else finds it on the third try."""

    def __init__(self) -> None:
        self._tries = iter(("width - height", "width // height", "width * height"))
        self.shown: list[str] = []

    def __call__(self, messages: object) -> str:
        asked: list[Message] = messages  # type: ignore[assignment]
        role = asked[0].content.partition("You are the ")[2].partition(".")[0]
        if role == "Implementer":
            if len(asked) > 2:
                return DONE
            self.shown.append(asked[1].content)
            known = "use the product" in asked[1].content
            return RIGHT if known else replaced("width + height", next(self._tries))
        if role == "Reflector":
            known = "multiply width and height" in asked[1].content.partition("# Similar failures before")[2]
            idea = "use the product" if known else "think again"
            return result(root_cause="it is not the area", fix_hypothesis=idea, confidence="low")
        return {"RepoMapper": MAP, "Planner": _PLAN, "Reviewer": APPROVE}[role]


_PLAN = result(nodes=[{"id": "one", "title": "mend area"}], root_cause="unknown", approach="look")


def test_a_second_similar_failure_takes_fewer_iterations(runtime: Runtime, checkout: Path) -> None:
    spent = []
    for numbers in ("area(3, 4), 12", "area(5, 6), 30"):
        tests = (checkout / "test_shapes.py").read_text()
        (checkout / "test_shapes.py").write_text(tests.replace("area(3, 4), 12", numbers))
        commit(checkout, numbers)
        run, _ = drive(runtime, checkout, ScriptedModel(Learner()))
        assert run.state is State.DONE, run.failure
        spent.append(run.spent.iterations)
    assert spent == [3, 2]


def test_what_a_person_adds_is_shown_to_the_next_run_and_can_be_forgotten(runtime: Runtime, checkout: Path) -> None:
    pilot = CodePilot(runtime.settings)
    added = pilot.remember(QUIRK, str(checkout), by="ann")
    assert pilot.remember(QUIRK.upper(), str(checkout)).id == added.id
    model = until(MAP, PLAN, RIGHT, DONE, APPROVE)
    run, _ = drive(runtime, checkout, model)
    shown = {one[0].content.partition("You are the ")[2].partition(".")[0] for one in model.requests if _knows(one)}
    assert shown == {"RepoMapper", "Planner", "Implementer"}
    (kept,) = pilot.memories(str(checkout), kind="quirk")
    assert [use.run_id for use in kept.uses] == [run.run_id]
    assert kept.success_rate == 1.0
    pilot.forget(kept.id)
    assert pilot.memories(str(checkout), kind="quirk") == []


def _knows(request: list[Message]) -> bool:
    return f'- "{QUIRK}"' in request[1].content.partition("# Known about this repository\n")[2]


@pytest.mark.variants
def test_a_forgotten_memory_of_a_run_is_emptied(runtime: Runtime, checkout: Path) -> None:
    run, _ = drive(runtime, checkout, until(MAP, PLAN, RIGHT, DONE, APPROVE))
    pilot = CodePilot(runtime.settings)
    (failure,) = pilot.memories(str(checkout), kind="failure")
    pilot.forget(failure.id, by="ann")
    assert [one.memory.kind for one in pilot.memories(str(checkout))] == ["pattern"]
    runtime.store.check(run.run_id)
    runtime.store.rebuild(run.run_id)
    assert runtime.store.memories("failure") == []


@pytest.mark.variants
def test_a_memory_is_found_among_many_newer_ones_by_its_words(runtime: Runtime, checkout: Path) -> None:
    drive(runtime, checkout, until(MAP, PLAN, RIGHT, DONE, APPROVE), prompt="Rhomboid areas are wrong")
    for _ in range(2):
        drive(runtime, checkout, until(MAP, PLAN, RIGHT, DONE, APPROVE), prompt="Something else")
    (found,) = runtime.store.memories("pattern", text="the rhomboid is wrong", limit=1)
    assert isinstance(found.memory, PatternMemory)
    assert found.memory.task == "Rhomboid areas are wrong"
    assert found.memory.task_type == TaskKind.BUGFIX
