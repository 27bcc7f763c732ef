"""A run that cannot be read, damaged or written by a newer version, is named and keeps nobody from the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from raw_sql import on_postgres, raw_sql
from sample_runs import new_run, succeed, take

from codepilot.core.events import State
from codepilot.core.failures import FailureKind
from codepilot.store import StepStatus, Store, Unreadable, queue


def spoil(place: str, run_id: str, damage: str = "type = 'from_another_time'") -> None:
    """Its first event says what nobody here understands, and its view cannot stand in for it."""
    trigger = "events_no_change ON events" if on_postgres(place) else "events_no_update"
    raw_sql(
        place,
        f"DROP TRIGGER {'IF EXISTS ' + trigger}",
        f"UPDATE events SET {damage} WHERE run_id = '{run_id}' AND seq = 1",
        f"UPDATE views SET shape = 'another' WHERE run_id = '{run_id}'",
    )


DAMAGES = ["type = 'from_another_time'", "type = 'step_started'", "data = '{}'", "data = 'no json'", "artifacts = '{'"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_others_are_taken_and_it_waits_as_it_was(place: str, store: Store, damage: str) -> None:
    spoilt, sound = new_run(store), new_run(store)
    spoil(place, spoilt, damage)
    claim = take(store)
    assert claim.run_id == sound
    assert store.start("w-one") is None
    waiting = store.steps(spoilt)[0]
    assert (waiting.status, waiting.fence, waiting.worker) == (StepStatus.PENDING, 0, None)
    assert not store.queue.idle()
    store.give_back(claim)
    with pytest.raises(Unreadable, match=f"Run {spoilt} cannot be read: event 1: ") as refused:
        store.start("w-one", spoilt)
    assert "codepilot fsck" in refused.value.failure.next_action


def test_whoever_works_until_nothing_is_left_does_not_wait_for_it(place: str, store: Store) -> None:
    spoil(place, new_run(store))
    assert not store.queue.idle()
    assert store.start("w-one") is None
    assert store.queue.idle() and store.queue.depth() == 1


def test_it_is_tried_again_after_a_while(place: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = new_run(store)
    spoil(place, run_id)
    assert store.start("w-one") is None
    raw_sql(place, f"UPDATE events SET type = 'task_spec_recorded' WHERE run_id = '{run_id}' AND seq = 1")
    assert store.start("w-one") is None
    monkeypatch.setattr(queue, "PASSED_OVER_SEC", 0.0)
    store.commit(take(store), succeed)
    store.check(run_id)


def test_those_who_take_steps_in_company_are_not_kept_either(place: str, store: Store) -> None:
    spoilt = [new_run(store) for _ in range(3)]
    sound = {new_run(store) for _ in range(9)}
    for run_id in spoilt:
        spoil(place, run_id)
    with ThreadPoolExecutor(6) as pool:
        starts = list(pool.map(lambda number: store.start(f"w-{number % 2}"), range(12)))
    assert sorted(start.claim.run_id for start in starts if start is not None) == sorted(sound)


def test_a_step_of_a_state_that_is_not_known_here_is_passed_over_too(place: str, store: Store) -> None:
    spoilt, sound = new_run(store), new_run(store)
    raw_sql(place, f"UPDATE steps SET state = 'DREAM' WHERE run_id = '{spoilt}'")
    begun = store.start("w-one")
    assert begun is not None and (begun.claim.run_id, begun.claim.state) == (sound, State.INIT)


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
