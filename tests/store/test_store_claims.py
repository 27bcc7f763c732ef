"""Claims: one holder a step, and a stale one can write nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from raw_sql import on_postgres, raw_sql
from sample_runs import draft, new_run, succeed, take, turn

from codepilot.core.decide import Failed, Paused, decide, decide_cancel, decide_resume
from codepilot.core.events import EventType, Requested, State
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run
from codepilot.store import Claim, LostLease, Requests, StepStatus, Store


def test_a_pending_step_has_one_claimer(store: Store) -> None:
    run_id = new_run(store)
    first = take(store, "w-one")
    assert (first.run_id, first.state, first.fence, first.attempt) == (run_id, State.INIT, 1, 1)
    assert store.claim_next("w-two") is None
    assert store.steps(run_id)[0].worker == "w-one"


def test_an_early_event_that_cannot_be_read_does_not_keep_the_step_from_being_begun(store: Store, place: str) -> None:
    run_id = new_run(store)
    trigger = "events_no_change ON events" if on_postgres(place) else "events_no_update"
    damage = f"UPDATE events SET type = 'from_another_time' WHERE run_id = '{run_id}' AND seq = 1"
    raw_sql(place, f"DROP TRIGGER {trigger}", damage)
    begun = store.claim_next("w-one")
    assert begun is not None and begun.claim.run_id == run_id


def test_claims_raced_by_threads_and_stores_are_given_once_each(open_store: Callable[[], Store]) -> None:
    store, other = open_store(), open_store()
    runs = {new_run(store) for _ in range(12)}
    with ThreadPoolExecutor(4) as pool:
        starts = list(pool.map(lambda n: (store, other)[n % 2].claim_next(f"w-{n % 4}"), range(16)))
    given = [start.claim.run_id for start in starts if start is not None]
    assert sorted(given) == sorted(runs)


def test_the_step_that_waits_longest_comes_first_among_those_as_urgent_and_a_run_can_be_named(store: Store) -> None:
    old, new = new_run(store), new_run(store)
    urgent, later = new_run(store, priority=1), new_run(store, priority=1)
    for run_id in (old, urgent):
        store.commit(take(store, run_id=run_id), succeed)  # the run is older, and its next step is not
    assert [take(store).run_id for _ in range(4)] == [later, urgent, new, old]
    assert store.claim_next("w-one", "r-none") is None


@pytest.mark.parametrize("change", ["fence", "worker", "attempt", "step_id"])
def test_a_claim_that_does_not_fit_writes_nothing(store: Store, change: str) -> None:
    run_id = new_run(store)
    held = take(store)
    wrong = {"fence": 7, "worker": "w-two", "attempt": 2, "step_id": "s-other"}
    stale = Claim(**{**vars(held), change: wrong[change]})
    before = store.events(run_id)
    asked: list[Run] = []

    def decision(run: Run) -> list[object]:
        asked.append(run)
        return []

    for write in (lambda: store.append(stale, turn(stale, 1)), lambda: store.commit(stale, decision)):
        with pytest.raises(LostLease) as lost:
            write()
        assert lost.value.kind is FailureKind.WORKER_LOST
    assert asked == []
    assert store.events(run_id) == before
    store.check(run_id)


def test_a_lost_claim_is_reported_even_if_it_has_nothing_to_add(store: Store) -> None:
    new_run(store)
    held = take(store)
    store.give_back(held)
    with pytest.raises(LostLease):
        store.commit(held, lambda run: [])


def test_a_step_is_finished_once(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    store.commit(claim, succeed)
    with pytest.raises(LostLease):
        store.commit(claim, succeed)
    assert [step.status for step in store.steps(run_id)] == [StepStatus.SUCCEEDED, StepStatus.PENDING]
    store.check(run_id)


def test_pausing_gives_the_step_back_and_outdates_the_claim(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    store.commit(claim, lambda run: decide(run, Paused("asked"), now=run.updated_at))
    assert store.load(run_id).state is State.PAUSED
    assert store.claim_next("w-two") is None, "a run that waits has nothing to do"
    assert store.queue.idle() and store.queue.depth() == 0, "and waits for no worker"
    with pytest.raises(LostLease):
        store.append(claim, turn(claim, 1))
    store.control(run_id, decide_resume)
    again = take(store, "w-two")
    assert (again.step_id, again.attempt) == (claim.step_id, claim.attempt)
    assert again.fence > claim.fence + 1
    store.check(run_id)


def test_a_blocked_run_tries_its_step_again_after_resume(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    no_key = Failure(kind=FailureKind.MODEL_AUTH, message="no key")
    store.commit(claim, lambda run: decide(run, Failed(no_key), now=run.updated_at))
    assert store.load(run_id).state is State.BLOCKED
    assert store.claim_next("w-one") is None
    assert store.history()[0].failure_kind is FailureKind.MODEL_AUTH
    store.control(run_id, decide_resume)
    assert take(store).step_id == claim.step_id
    assert store.history()[0].failure_kind is None
    store.check(run_id)


def test_requests_from_outside_are_seen_and_cancelling_closes_the_step(open_store: Callable[[], Store]) -> None:
    store, outside = open_store(), open_store()
    run_id = new_run(store)
    claim = take(store)
    assert store.queue.held_claims("w-one") == {claim: Requests(pause=False, cancel=False)}
    outside.control(run_id, lambda _: [draft(claim, EventType.PAUSE_REQUESTED, Requested())])
    assert store.queue.held_claims("w-one") == {claim: Requests(pause=True, cancel=False)}
    outside.control(run_id, lambda _: [draft(claim, EventType.CANCEL_REQUESTED, Requested())])
    assert store.queue.held_claims("w-one") == {claim: Requests(pause=True, cancel=True)}
    outside.control(run_id, decide_cancel)
    assert [step.status for step in store.steps(run_id)] == [StepStatus.CANCELLED]
    with pytest.raises(LostLease):
        store.commit(claim, succeed)
    assert store.queue.held_claims("w-one") == {}
    store.check(run_id)


def test_an_event_about_a_step_that_is_not_open_is_refused(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    done = store.commit(claim, succeed).events
    with pytest.raises(CodePilotError, match="not open") as refused:
        store.control(run_id, lambda _: [draft(claim, done[0].type, done[0].data)])
    assert refused.value.kind is FailureKind.INTERNAL
    with pytest.raises(CodePilotError) as twice:
        store.control(run_id, lambda _: [draft(claim, done[1].type, done[1].data)])
    assert twice.value.kind is FailureKind.INTERNAL
    store.check(run_id)
