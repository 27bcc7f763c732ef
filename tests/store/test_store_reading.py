"""Reading: lists, lookups and the check that finds a lie."""

from __future__ import annotations

import pytest
from raw_sql import on_postgres, raw_sql
from sample_runs import draft, new_run, succeed, take, task, turn

from codepilot.core.decide import start
from codepilot.core.events import EventType, SkillCall, State, TurnFinished
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import MemoryRecalled
from codepilot.store import Store
from codepilot.store.listing import Tally


def test_an_unknown_run_says_where_to_look(store: Store) -> None:
    for read in (store.load, store.check, store.find):
        with pytest.raises(CodePilotError, match="r-none") as refused:
            read("r-none")
        assert refused.value.kind is FailureKind.INVALID_SPEC
        assert "codepilot history" in refused.value.failure.advice
    with pytest.raises(CodePilotError, match="r-none"):
        store.control("r-none", lambda _: [])


def test_a_run_is_found_by_what_names_it_alone(store: Store) -> None:
    for run_id in ("r-abc1", "r-abc2", "r-abc", "r-x_y", "r-xay"):
        store.create_run(run_id, start(task(), run_id))
    assert store.find("r-abc1") == "r-abc1"
    assert store.find("ABC2") == "r-abc2"
    assert store.find("abc") == "r-abc", "a whole id wins over longer ones"
    assert store.find("x_") == "r-x_y"
    assert store.find("last") == "r-xay"
    with pytest.raises(CodePilotError, match=r"several runs: .*r-abc2"):
        store.find("ab")
    for nothing in ("", "r-abc3", "%", "zz"):
        with pytest.raises(CodePilotError):
            store.find(nothing)


def test_the_newest_run_comes_first(store: Store) -> None:
    runs = [new_run(store, f"goal {n}") for n in range(5)]
    rows = store.history(3)
    assert [row.run_id for row in rows] == runs[:1:-1]
    assert rows[0].goal == "goal 4"
    assert rows[0].state is State.INIT
    assert rows[0].created_at <= rows[0].updated_at


def test_events_are_paged_and_chosen_by_step(store: Store) -> None:
    run_id = new_run(store)
    first = take(store)
    store.append(first, turn(first, 1))
    store.commit(first, succeed)
    second = take(store)
    store.append(second, turn(second, 1))
    every = store.events(run_id)
    assert [event.seq for event in every] == list(range(1, 11))
    assert store.events(run_id, after=3, limit=2) == every[3:5]
    assert store.events(run_id, step_id=second.step_id) == [e for e in every if e.step_id == second.step_id]
    assert store.events(run_id, after=7, step_id=second.step_id) == every[7:]
    assert store.events(run_id, step_id="s-none") == []
    assert store.events("r-none") == []
    assert [step.state for step in store.steps(run_id)] == [State.INIT, State.MAP_REPO]


@pytest.mark.parametrize(
    ("lie", "reported"),
    [
        ("UPDATE runs SET state = 'DONE'", "state is 'DONE'"),
        ("UPDATE runs SET last_seq = 7", "last_seq"),
        ("UPDATE views SET view = replace(view, '\"attempt\":1', '\"attempt\":2')", "attempt"),
        ("UPDATE views SET seq = 99", "view is of event 99"),
        ("UPDATE steps SET status = 'SUCCEEDED'", "steps"),
        ("DELETE FROM steps", "steps"),
        ("DROP TRIGGER events_no_delete; DELETE FROM events WHERE seq = 3", "event 3 is missing"),
    ],
)
def test_the_check_finds_a_lie(place: str, store: Store, lie: str, reported: str) -> None:
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    store.check(run_id)
    if on_postgres(place):
        lie = lie.replace("TRIGGER events_no_delete", "TRIGGER events_no_change ON events")
    raw_sql(place, *lie.split("; "))
    with pytest.raises(CodePilotError, match=reported) as found:
        store.check(run_id)
    assert found.value.kind is FailureKind.INTERNAL


def test_many_events_leave_reading_cheap(place: str, store: Store) -> None:
    """`load` looks at a bounded part of the log, however long it is."""
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, [item for number in range(1_200) for item in turn(claim, number)])
    for number in range(40):
        store.append(claim, turn(claim, number))
    run = store.load(run_id)
    assert run.spent.turns == 1_240
    ((view_seq,),) = raw_sql(place, "SELECT seq FROM views")
    assert run.last_seq - view_seq <= 64
    assert store.events(run_id, limit=1)[0].type is EventType.TASK_SPEC_RECORDED


def test_the_calls_and_memories_of_a_run_are_counted(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store, run_id=run_id)
    calls = tuple(SkillCall(skill="read_file", status=status) for status in ("success", "success", "error"))
    store.append(claim, turn(claim, 1))
    store.append(claim, [turn(claim, 2)[0], draft(claim, EventType.TURN_FINISHED, finished(2, calls))])
    store.append(claim, [draft(claim, EventType.MEMORY_RECALLED, MemoryRecalled(kind="failure", found=()))])
    assert store.listing.tally(run_id) == Tally({("read_file", "success"): 2, ("read_file", "error"): 1}, 1, 0)
    assert store.listing.tally(new_run(store)) == Tally({}, 0, 0)


def finished(number: int, calls: tuple[SkillCall, ...]) -> TurnFinished:
    return TurnFinished(turn=number, observation={}, calls=calls)
