"""Ends of runs that are to be notified: rows that follow from events, each settled once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from raw_sql import on_postgres, raw_sql
from sample_runs import succeed, take, task

from codepilot.core.decide import Failed, decide, decide_cancel, decide_resume, start
from codepilot.core.events import EventDraft, EventType, RunBlocked, State
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.fork import fork, taken_over
from codepilot.core.notify import NotificationFailed, NotificationSent
from codepilot.store import Home, Store, new_id
from codepilot.telemetry import now_us

SPENT = Failure(kind=FailureKind.BUDGET_EXCEEDED, message="spent", details={"budget": "wall_sec"})
NO_KEY = Failure(kind=FailureKind.MODEL_AUTH, message="there is no key")


def new_run(store: Store, *, notify: bool = True) -> str:
    run_id = new_id("r")
    store.create_run(run_id, start(task().model_copy(update={"notify": notify}), run_id))
    return run_id


def end(store: Store, run_id: str, failure: Failure = SPENT) -> int:
    """Let the run's step fail so; the place of the event that ended the run."""
    claim = take(store, "w-one", run_id)
    return store.commit(claim, lambda run: decide(run, Failed(failure), now=run.updated_at)).events[-1].seq


def sent(of: int) -> EventDraft:
    return EventDraft(type=EventType.NOTIFICATION_SENT, data=NotificationSent(of=of, status=204))


def failed(of: int) -> EventDraft:
    failure = Failure(kind=FailureKind.NOTIFY_FAILED, message="it was \x00 refused")
    return EventDraft(type=EventType.NOTIFICATION_FAILED, data=NotificationFailed(of=of, failure=failure))


def test_an_end_is_owed_from_the_moment_it_is_recorded_and_settled_once(store: Store) -> None:
    run_id, other = new_run(store), new_run(store)
    assert store.outbox.pending() == store.outbox.of(run_id) == []
    store.commit(take(store, "w-one", run_id), succeed)
    assert store.outbox.pending() == [], "a step is no end"
    ended = end(store, run_id)
    (cancelled,) = store.control(other, decide_cancel).events
    first, second = store.outbox.pending()
    assert (first.run_id, first.seq, first.state, first.settled_at) == (run_id, ended, "pending", None)
    assert first.at == store.events(run_id)[-1].at
    assert (second.run_id, second.seq) == (other, cancelled.seq)
    assert store.outbox.pending(limit=1) == [first]
    assert store.outbox.settle(first, sent(ended))
    assert store.outbox.lease(first, 60.0) is None
    assert not store.outbox.settle(first, sent(ended)) and not store.outbox.settle(first, failed(ended))
    assert store.outbox.settle(second, failed(cancelled.seq))
    assert store.outbox.pending() == []
    (reported,), (gave_up,) = store.outbox.of(run_id), store.outbox.of(other)
    assert (reported.state, reported.settled_by, reported.settled_at) == ("sent", "204", store.events(run_id)[-1].at)
    assert (gave_up.state, gave_up.settled_by) == ("failed", "it was \ufffd refused")
    assert [event.type for event in store.events(run_id)][-2:] == [EventType.RUN_FINISHED, EventType.NOTIFICATION_SENT]
    assert store.check_all() == {}


def test_a_run_of_which_nobody_wants_to_know_owes_nothing(place: str, store: Store) -> None:
    run_id = new_run(store, notify=False)
    raw_sql(place, "DROP TABLE notifications")
    ended = end(store, run_id)
    store.control(run_id, decide_resume)
    store.control(run_id, decide_cancel)
    assert store.load(run_id).state is State.ABORTED, "no statement of its end spoke of them"
    assert store.events(run_id)[ended - 1].type is EventType.RUN_FINISHED


def test_a_run_that_goes_on_and_ends_again_is_notified_again(store: Store) -> None:
    run_id = new_run(store)
    first = end(store, run_id)
    store.control(run_id, decide_resume)
    claim = take(store, "w-one", run_id)
    (pending,) = store.outbox.of(run_id)
    assert store.outbox.settle(pending, sent(first)), "while it is at work again"
    known = store.load(run_id)
    second = store.commit(claim, lambda run: decide(run, Failed(SPENT), now=run.updated_at)).events[-1].seq
    assert known.last_seq < second
    assert [(row.seq, row.state) for row in store.outbox.of(run_id)] == [(first, "sent"), (second, "pending")]
    store.check(run_id)


def test_a_run_that_waits_for_a_person_is_notified_and_one_that_is_parked_is_not(store: Store) -> None:
    run_id, parked = new_run(store), new_run(store)
    blocked = end(store, run_id, NO_KEY)
    claim = take(store, "w-one", parked)
    until = RunBlocked(failure=NO_KEY, until=1)
    blocking = EventDraft(type=EventType.RUN_BLOCKED, data=until, step_id=claim.step_id, attempt=claim.attempt)
    store.commit(claim, lambda run: [blocking])
    assert [(row.run_id, row.seq) for row in store.outbox.pending()] == [(run_id, blocked)]
    assert store.check_all() == {}


def test_what_is_not_owed_cannot_be_settled_past_the_outbox(store: Store) -> None:
    run_id = new_run(store)
    ended = end(store, run_id)
    for wrong in (ended - 1, ended + 1):
        with pytest.raises(CodePilotError, match="no pending notification"):
            store.control(run_id, lambda _, wrong=wrong: [sent(wrong)])
    assert store.load(run_id).last_seq == ended
    store.check(run_id)


def test_of_many_who_settle_at_once_one_is_received(open_store: Callable[[], Store]) -> None:
    stores = [open_store() for _ in range(4)]
    run_id = new_run(stores[0])
    ended = end(stores[0], run_id)
    (pending,) = stores[0].outbox.of(run_id)
    with ThreadPoolExecutor(4) as pool:
        received = list(pool.map(lambda store: store.outbox.settle(pending, sent(ended)), stores))
    assert received.count(True) == 1
    assert sum(event.type is EventType.NOTIFICATION_SENT for event in stores[0].events(run_id)) == 1
    stores[0].check(run_id)


def test_what_was_tried_in_vain_rests_for_all_who_share_the_store(place: str, open_store: Callable[[], Store]) -> None:
    one, other = open_store(), open_store()
    run_id, sound = new_run(one), new_run(one)
    first = end(one, run_id)
    one.control(run_id, decide_resume)
    end(one, run_id)
    end(one, sound)
    (pending, later, _) = one.outbox.pending()
    leased = one.outbox.lease(pending, 60.0)
    assert leased is not None and leased.not_before is not None
    assert (leased.seq, leased.tries) == (first, 1) and 50e6 < leased.not_before - one.load(run_id).updated_at < 120e6
    assert other.outbox.lease(pending, 60.0) is other.outbox.lease(leased, 60.0) is None
    assert [row.run_id for row in other.outbox.pending()] == [sound], "ends of a run are sent in order"
    one.outbox.put_off(leased, 600.0)
    (now, later_now) = other.outbox.of(run_id)
    assert now.not_before is not None and 590e6 < now.not_before - one.load(run_id).updated_at < 660e6
    assert now.tries == 1 and later_now == later
    assert one.check_all() == {}, "of tries no log tells"
    raw_sql(place, "UPDATE notifications SET not_before = 1 WHERE not_before IS NOT NULL")
    assert len(other.outbox.pending()) == 3
    assert one.outbox.settle(pending, sent(first))
    one.outbox.put_off(leased, 600.0)
    settled = one.outbox.of(run_id)[0]
    assert (settled.state, settled.not_before) == ("sent", 1), "what is settled is not put off"


def test_when_it_is_tried_again_is_judged_by_the_clock_that_all_share(place: str, home: Home) -> None:
    """One machine's clock is ten minutes ahead; without a server they are all on one machine."""
    ahead = Store.open(place, locks=home.locks, clock=lambda: now_us() + 600_000_000)
    right = ahead if not on_postgres(place) else Store.open(place, locks=home.locks)
    run_id = new_run(right)
    end(right, run_id)
    (pending,) = right.outbox.pending()
    assert ahead.outbox.lease(pending, 60.0)
    assert ahead.outbox.pending() == right.outbox.pending() == []
    raw_sql(place, "UPDATE notifications SET not_before = not_before - 61000000")
    assert len(right.outbox.pending()) == len(ahead.outbox.pending()) == 1
    ahead.close()
    right.close()


def test_a_fork_owes_only_its_own_ends(store: Store) -> None:
    run_id = new_run(store)
    first = end(store, run_id)
    store.outbox.settle(store.outbox.of(run_id)[0], sent(first))
    store.control(run_id, decide_resume)
    forked = new_id("r")
    events = store.events(run_id)
    store.create_run(forked, fork(taken_over(events, len(events)), forked))
    assert store.outbox.of(forked) == [] and store.check_all() == {}
    ended = end(store, forked)
    assert [row.seq for row in store.outbox.of(forked)] == [ended]
    assert store.check_all() == {}


@pytest.mark.parametrize(
    "lie",
    [
        "DELETE FROM notifications",
        "UPDATE notifications SET state = 'sent', settled_at = 5, settled_by = '200' WHERE state = 'pending'",
        "UPDATE notifications SET state = 'pending', settled_at = NULL, settled_by = NULL",
    ],
)
def test_a_lie_is_found_and_written_anew_from_the_log(place: str, store: Store, lie: str) -> None:
    run_id = new_run(store)
    first = end(store, run_id)
    store.outbox.settle(store.outbox.of(run_id)[0], sent(first))
    store.control(run_id, decide_resume)
    end(store, run_id)
    before = store.outbox.of(run_id)
    raw_sql(place, lie)
    assert "notifications" in store.check_all()[run_id]
    assert store.repair([run_id]) == store.check_all() == {}
    assert store.outbox.of(run_id) == before and [row.state for row in before] == ["sent", "pending"]
