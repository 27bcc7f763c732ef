"""A run that cannot be read, damaged or written by a newer version, is named and keeps nobody from the others."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from raw_sql import on_postgres, raw_sql
from sample_runs import new_run, succeed, take
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from codepilot.core.decide import Failed, decide
from codepilot.core.events import State
from codepilot.core.failures import Failure, FailureKind
from codepilot.engine.monitor import StepMonitor
from codepilot.store import StepStatus, Store, Unreadable, queue


def spoil(place: str, run_id: str, damage: str = "type = 'from_another_time'") -> None:
    """Its first event says what nobody here understands, and its view cannot stand in for it."""
    trigger = "events_no_change ON events" if on_postgres(place) else "events_no_update"
    raw_sql(
        place,
        f"DROP TRIGGER {'IF EXISTS ' + trigger}",
        f"UPDATE events SET {damage} WHERE run_id = '{run_id}' AND seq = 1",
        f"UPDATE views SET schema_digest = 'another' WHERE run_id = '{run_id}'",
    )


DAMAGES = ["type = 'from_another_time'", "type = 'step_started'", "data = '{}'", "data = 'no json'", "artifacts = '{'"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_others_are_taken_and_it_waits_as_it_was(place: str, store: Store, damage: str) -> None:
    spoilt, sound = new_run(store), new_run(store)
    spoil(place, spoilt, damage)
    claim = take(store)
    assert claim.run_id == sound
    assert store.claim_next("w-one") is None
    waiting = store.steps(spoilt)[0]
    assert (waiting.status, waiting.fence, waiting.worker) == (StepStatus.PENDING, 0, None)
    assert not store.queue.idle()
    store.give_back(claim)
    with pytest.raises(Unreadable, match=f"Run {spoilt} cannot be read: event 1: ") as refused:
        store.claim_next("w-one", spoilt)
    assert "codepilot fsck" in refused.value.failure.next_action


def test_anyone_who_works_until_nothing_is_left_does_not_wait_for_it(place: str, store: Store) -> None:
    spoil(place, new_run(store))
    assert not store.queue.idle()
    assert store.claim_next("w-one") is None
    assert store.queue.idle() and store.queue.depth() == 1


def test_it_is_tried_again_after_a_while(place: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = new_run(store)
    spoil(place, run_id)
    assert store.claim_next("w-one") is None
    raw_sql(place, f"UPDATE events SET type = 'task_spec_recorded' WHERE run_id = '{run_id}' AND seq = 1")
    assert store.claim_next("w-one") is None
    monkeypatch.setattr(queue, "QUARANTINE_SEC", 0.0)
    store.commit(take(store), succeed)
    store.check(run_id)


def test_those_who_take_steps_in_company_are_not_kept_either(place: str, store: Store) -> None:
    spoilt = [new_run(store) for _ in range(3)]
    sound = {new_run(store) for _ in range(9)}
    for run_id in spoilt:
        spoil(place, run_id)
    with ThreadPoolExecutor(6) as pool:
        starts = list(pool.map(lambda number: store.claim_next(f"w-{number % 2}"), range(12)))
    assert sorted(start.claim.run_id for start in starts if start is not None) == sorted(sound)


def test_a_step_of_a_state_that_is_not_known_here_is_passed_over_too(place: str, store: Store) -> None:
    spoilt, sound = new_run(store), new_run(store)
    raw_sql(place, f"UPDATE steps SET state = 'DREAM' WHERE run_id = '{spoilt}'")
    begun = store.claim_next("w-one")
    assert begun is not None and (begun.claim.run_id, begun.claim.state) == (sound, State.INIT)


def test_many_are_passed_over_a_few_at_a_time_and_none_is_tried_again_meanwhile(
    place: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_QUARANTINED", 2)
    now = [1000.0]
    monkeypatch.setattr(queue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    spoilt = [new_run(store) for _ in range(5)]
    sound = new_run(store)
    for run_id in spoilt:
        spoil(place, run_id)
    for _ in range(2):
        assert store.claim_next("w-one") is None, "anyone who asks may look whether it is to stop"
        now[0] += 40.0
    begun = store.claim_next("w-one")
    assert begun is not None and begun.claim.run_id == sound, "the first would be tried again after 60 seconds"


def test_a_step_at_work_of_a_state_that_is_not_known_here_keeps_no_other_from_being_returned(
    place: str, store: Store
) -> None:
    spoilt, sound, own = (new_run(store) for _ in range(3))
    dead = [take(store, "w-dead", run_id).step_id for run_id in (spoilt, sound)]
    mine = take(store, "w-one", own)
    raw_sql(place, f"UPDATE steps SET state = 'DREAM' WHERE run_id = '{spoilt}'")
    assert list(store.queue.held_claims("w-one")) == [mine]
    assert [claim.run_id for claim in store.queue.held_claims("w-dead")] == [sound]
    store.release_worker("w-dead")
    assert sorted(store.reclaim(wait=True)) == sorted(dead)


def test_a_run_whose_log_is_gone_is_passed_over_too(place: str, store: Store) -> None:
    spoilt, sound = new_run(store), new_run(store)
    spoil(place, spoilt)
    triggers = "SELECT tgname FROM pg_trigger WHERE tgrelid = 'events'::regclass AND NOT tgisinternal"
    names = triggers if on_postgres(place) else "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    on = " ON events" if on_postgres(place) else ""
    drops = [f"DROP TRIGGER {row[0]}{on}" for row in raw_sql(place, names)]
    raw_sql(place, *drops, *(f"DELETE FROM {of} WHERE run_id = '{spoilt}'" for of in ("artifacts", "events")))
    begun = store.claim_next("w-one")
    assert begun is not None and begun.claim.run_id == sound
    with pytest.raises(Unreadable, match="its log: it is empty"):
        store.load(spoilt)


def test_a_list_of_runs_shows_what_it_does_not_know(place: str, store: Store) -> None:
    spoilt, sound = new_run(store), new_run(store)
    raw_sql(place, f"UPDATE runs SET state = 'DREAM', failure_kind = 'bored' WHERE run_id = '{spoilt}'")
    shown = [(row.run_id, row.state, row.failure_kind) for row in store.history()]
    assert shown == [(sound, State.INIT, None), (spoilt, "DREAM", "bored")]


@pytest.mark.parametrize("damage", ["state = 'DREAM'", "status = 'DOZING'"])
def test_a_list_of_steps_shows_what_it_does_not_know(place: str, store: Store, damage: str) -> None:
    run_id = new_run(store)
    raw_sql(place, f"UPDATE steps SET {damage} WHERE run_id = '{run_id}'")
    (step,) = store.steps(run_id)
    assert {step.state, step.status} in ({"DREAM", StepStatus.PENDING}, {State.INIT, "DOZING"})


def test_whether_a_run_is_at_work_is_not_guessed(place: str, store: Store) -> None:
    run_id = new_run(store)
    assert not store.queue.at_work(run_id)
    take(store)
    raw_sql(place, "UPDATE steps SET state = 'DREAM'")
    assert store.queue.at_work(run_id)
    raw_sql(place, "UPDATE steps SET status = 'DOZING'")
    with pytest.raises(Unreadable, match=f"Run {run_id} cannot be read: step s-.*: .*'DOZING'") as refused:
        store.queue.at_work(run_id)
    assert "codepilot fsck" in refused.value.failure.next_action


def test_parked_ones_do_not_keep_the_others_parked(place: str, store: Store) -> None:
    spoilt = [new_run(store) for _ in range(25)]
    away = Failure(kind=FailureKind.ARTIFACT_STORE_UNAVAILABLE, message="away", details={"passing": True})
    sound = new_run(store)
    store.commit(take(store, run_id=sound), lambda run: decide(run, Failed(away), now=1))
    assert store.load(sound).parked_until is not None
    raw_sql(place, f"UPDATE runs SET parked_until = 1 WHERE run_id <> '{sound}'")
    for run_id in spoilt:
        spoil(place, run_id)
    until = time.monotonic() + 60
    with StepMonitor(store, "w-monitor"):
        while store.load(sound).parked_until is not None:
            assert time.monotonic() < until, "20 are looked at, and none of them can be read"
            time.sleep(0.1)


def test_a_decision_that_nobody_asked_for_keeps_no_other_run_from_being_looked_at(place: str, store: Store) -> None:
    spoilt, other = new_run(store), new_run(store)
    decided = '{"approval_id": "never", "decision": "once", "by": "someone"}'
    raw_sql(
        place,
        "INSERT INTO events (run_id, seq, at, type, step_id, attempt, data, artifacts) "
        f"SELECT run_id, seq + 1, at, 'approval_decided', step_id, attempt, '{decided}', '[]' FROM events "
        f"WHERE run_id = '{spoilt}' ORDER BY seq DESC LIMIT 1",
        f"UPDATE runs SET goal = 'another' WHERE run_id = '{other}'",
    )
    found = store.check_all()
    assert found.keys() == {spoilt, other} and "Approval never" in found[spoilt]
    assert store.repair(found).keys() == {spoilt} == store.check_all().keys()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("fence", ["'many'", "x'00'"])
def test_a_fence_that_is_no_number_is_written_anew(place: str, store: Store, fence: str) -> None:
    """A server keeps only numbers there."""
    run_id = new_run(store)
    store.commit(take(store), succeed)
    raw_sql(place, f"UPDATE steps SET fence = {fence}")
    assert store.check_all().keys() == {run_id}
    assert store.repair([run_id]) == store.check_all() == {}


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_step_that_is_returned_while_its_run_is_written_anew_stays_returned(place: str, store: Store) -> None:
    """On SQLite one writes at a time."""
    run_id = new_run(store)
    claim = take(store)
    engine = create_engine(place, poolclass=NullPool)
    with ThreadPoolExecutor(1) as pool:
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE steps SET status = 'PENDING', fence = fence + 1, worker = NULL")
            rebuilt = pool.submit(store.rebuild, run_id)
            until = time.monotonic() + 60
            while not raw_sql(place, "SELECT 1 FROM pg_locks WHERE NOT granted"):
                assert time.monotonic() < until and not rebuilt.done()
                time.sleep(0.05)
        assert rebuilt.result()
    (step,) = store.steps(run_id)
    assert (step.status, step.fence, step.worker) == (StepStatus.PENDING, claim.fence + 1, None)


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_question_says_which_run_it_is(place: str, store: Store, damage: str) -> None:
    spoilt, sound = new_run(store), new_run(store)
    spoil(place, spoilt, damage)
    with pytest.raises(Unreadable) as refused:
        store.load(spoilt)
    assert refused.value.kind is FailureKind.INTERNAL and refused.value.run_id == spoilt
    assert len(str(refused.value)) < 500
    assert list(store.check_all()) == [spoilt] == list(store.repair([spoilt]))
    assert [row.run_id for row in store.history()] == [sound, spoilt]
