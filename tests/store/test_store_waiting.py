"""Those who wait for each other at a run's lock see all that was written before them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from raw_sql import raw_sql
from sample_runs import new_run, succeed, take, turn

from codepilot.core.events import EventDraft, EventType, Requested, State
from codepilot.core.run import Run
from codepilot.store import LostLease, Store
from codepilot.store.log import VIEW_LAG


def test_a_commit_that_waited_for_a_request_knows_the_whole_log(
    store: Store, open_store: Callable[[], Store], place: str
) -> None:
    """The request may have written the run's view anew while the commit waited for it."""
    other = open_store()
    run_id = new_run(store)
    claim = take(store, run_id=run_id)
    for number in range(VIEW_LAG - 1 - store.load(run_id).last_seq):
        store.append(claim, turn(claim, number + 1)[:1])
    viewed = f"SELECT seq FROM views WHERE run_id = '{run_id}'"
    assert raw_sql(place, viewed) == [(2,)]
    asking, waiting = threading.Event(), threading.Event()

    def ask(run: Run) -> list[EventDraft]:
        asking.set()
        waiting.wait(5)
        time.sleep(0.3)
        return [EventDraft(type=EventType.PAUSE_REQUESTED, data=Requested(), step_id=run.step_id)]

    asked = threading.Thread(target=other.control, args=(run_id, ask))
    asked.start()
    assert asking.wait(5)
    seen: list[Run] = []
    written: list[object] = []

    def decide(run: Run) -> list[EventDraft]:
        seen.append(run)
        written.extend(raw_sql(place, viewed))
        return succeed(run)

    waiting.set()
    store.commit(claim, decide)
    asked.join()
    assert written == [(VIEW_LAG,)]
    assert seen[0].pause_requested
    assert seen[0].spent.turns == store.load(run_id).spent.turns
    store.check(run_id)


def test_what_is_known_of_a_run_is_not_believed_once_others_have_added_to_it(
    store: Store, open_store: Callable[[], Store]
) -> None:
    run_id = new_run(store)
    begun = store.claim_next("w-one", run_id)
    assert begun is not None
    request = EventDraft(type=EventType.PAUSE_REQUESTED, data=Requested(), step_id=begun.claim.step_id)
    open_store().control(run_id, lambda _: [request])
    written = store.commit(begun.claim, succeed, claim_next=True)
    added, following = written.events, written.claimed
    assert [event.seq for event in added] == [5, 6, 7]
    assert following is None
    assert store.load(run_id).state is State.PAUSED
    store.check(run_id)


def test_who_lost_a_step_cannot_end_it_by_what_it_knows(store: Store) -> None:
    run_id = new_run(store)
    begun = store.claim_next("w-one", run_id)
    assert begun is not None
    store.give_back(begun.claim)
    with pytest.raises(LostLease):
        store.commit(begun.claim, succeed)
    assert store.load(run_id) == begun.run
    taken = take(store)
    with pytest.raises(LostLease):
        store.commit(begun.claim, succeed, claim_next=True)
    store.commit(taken, succeed)
    store.check(run_id)
