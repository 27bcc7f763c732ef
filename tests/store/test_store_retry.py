"""Two tries: what was lost on the way is done once, whichever end of the wire knew of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cutting_proxy import CuttingProxy, Moment
from sample_runs import draft, new_run, paused_run, succeed, take, task, turn

from codepilot.core.decide import decide_resume, start
from codepilot.core.events import EventType, Requested, State
from codepilot.core.failures import FailureKind
from codepilot.store import LostLease, StepStatus, Store, database, new_id
from codepilot.store.faults import Interrupted
from servers import PostgresServer


@pytest.fixture
def proxy(tmp_path: Path, postgres: PostgresServer) -> Iterator[CuttingProxy]:
    made = CuttingProxy(tmp_path, postgres.directory)
    yield made
    made.close()


@pytest.fixture
def store(tmp_path: Path, postgres: PostgresServer, proxy: CuttingProxy) -> Iterator[Store]:
    """A store that is reached through the proxy."""
    opened = Store.open(postgres.store().replace(str(postgres.directory), str(tmp_path)))
    opened.register_worker("w-one")
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "RETRY_SEC", 0.05)


both = pytest.mark.parametrize("moment", ["before", "after"])


@both
def test_a_run_is_created_once(store: Store, proxy: CuttingProxy, moment: Moment) -> None:
    run_id = new_id("r")
    proxy.cut(moment)
    added = store.create_run(run_id, start(task(), run_id)).events
    assert proxy.cuts == 1
    assert store.events(run_id) == added
    assert len(added) == 2
    store.check(run_id)


@both
def test_a_run_is_created_and_begun_once(store: Store, proxy: CuttingProxy, moment: Moment) -> None:
    run_id = new_id("r")
    proxy.cut(moment)
    written = store.create_run(run_id, start(task(), run_id), "w-one")
    added, begun = written.events, written.claimed
    assert proxy.cuts == 1
    assert begun is not None
    assert store.events(run_id) == [*added, *begun.events]
    assert begun.run == store.load(run_id) and len(added) == 2
    store.commit(begun.claim, succeed)
    store.check(run_id)


@both
@pytest.mark.parametrize("paused", [True, False])
def test_a_run_is_resumed_and_begun_once(store: Store, proxy: CuttingProxy, moment: Moment, paused: bool) -> None:
    run_id = paused_run(store) if paused else new_run(store)
    before = store.events(run_id)
    proxy.cut(moment)
    written = store.control(run_id, decide_resume, "w-one")
    added, begun = written.events, written.claimed
    assert proxy.cuts == 1
    assert begun is not None
    assert store.events(run_id) == [*before, *added, *begun.events]
    assert [event.type for event in added] == [EventType.RUN_RESUMED] * paused
    assert begun.run == store.load(run_id)
    store.commit(begun.claim, succeed)
    store.check(run_id)


@both
def test_a_step_is_claimed_once(store: Store, proxy: CuttingProxy, moment: Moment) -> None:
    runs = {new_run(store), new_run(store)}
    proxy.cut(moment)
    begun = store.claim_next("w-one")
    assert proxy.cuts == 1
    assert begun is not None
    assert {begun.claim.run_id, take(store).run_id} == runs
    assert store.claim_next("w-one") is None


@both
def test_events_are_appended_once(store: Store, proxy: CuttingProxy, moment: Moment) -> None:
    run_id = new_run(store)
    claim = take(store)
    proxy.cut(moment)
    added = store.append(claim, turn(claim, 1))
    assert proxy.cuts == 1
    assert store.events(run_id, after=3) == added
    assert [event.seq for event in store.append(claim, turn(claim, 1))] == [6, 7], "the same again is meant"
    store.check(run_id)


@both
def test_a_step_ends_once(store: Store, proxy: CuttingProxy, moment: Moment) -> None:
    run_id = new_run(store)
    claim = take(store)
    proxy.cut(moment)
    added = store.commit(claim, succeed).events
    assert proxy.cuts == 1
    assert store.events(run_id, after=3) == added
    assert [step.status for step in store.steps(run_id)] == [StepStatus.SUCCEEDED, StepStatus.PENDING]
    with pytest.raises(LostLease):
        store.commit(claim, succeed)
    store.check(run_id)


@both
def test_a_step_ends_and_the_next_is_held(store: Store, proxy: CuttingProxy, moment: Moment) -> None:
    run_id = new_run(store)
    begun = store.claim_next("w-one")
    assert begun is not None
    proxy.cut(moment)
    written = store.commit(begun.claim, succeed, claim_next=True)
    added, following = written.events, written.claimed
    assert proxy.cuts == 1
    assert following is not None
    assert store.events(run_id, after=3) == [*added, *following.events]
    assert following.run == store.load(run_id)
    store.commit(following.claim, succeed)
    assert store.load(run_id).state is State.PLAN
    store.check(run_id)


@both
def test_a_request_is_recorded_once(store: Store, proxy: CuttingProxy, moment: Moment) -> None:
    run_id = new_run(store)
    claim = take(store)
    proxy.cut(moment)
    store.control(run_id, lambda _: [draft(claim, EventType.PAUSE_REQUESTED, Requested())])
    assert proxy.cuts == 1
    assert [event.type for event in store.events(run_id, after=3)] == [EventType.PAUSE_REQUESTED]


@both
def test_a_step_is_given_back_and_a_worker_seen(store: Store, proxy: CuttingProxy, moment: Moment) -> None:
    new_run(store)
    claim = take(store)
    proxy.cut(moment)
    store.give_back(claim)
    proxy.cut(moment)
    store.beat("w-one")
    assert proxy.cuts == 2
    assert take(store).fence == 3


def test_what_is_lost_twice_is_reported_and_may_be_asked_again(store: Store, proxy: CuttingProxy) -> None:
    run_id = new_run(store)
    claim = take(store)
    proxy.cut("before", "before")
    with pytest.raises(Interrupted) as lost:
        store.commit(claim, succeed)
    assert lost.value.kind is FailureKind.STORE_UNAVAILABLE
    assert lost.value.failure.advice
    assert len(store.events(run_id)) == 3
    store.commit(claim, succeed)
    store.check(run_id)


def test_every_reading_survives_a_restart(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "RETRY_SEC", 1.0)
    store = Store.open(postgres.store())
    run_id = new_run(store)
    claim = take(store)
    asked: list[Callable[[], object]] = [
        lambda: store.append(claim, turn(claim, 1)),
        lambda: store.load(run_id).last_seq == 5,
        lambda: store.events(run_id),
        lambda: store.history(),
        lambda: store.find("last"),
        lambda: store.steps(run_id),
        lambda: store.queue.held_claims("w-one"),
        lambda: store.queue.running(),
        lambda: store.queue.alive("w-one"),
    ]
    for ask in asked[1:]:
        ask()
    postgres.restart()
    began = time.monotonic()
    assert asked[0]()
    assert 0.9 < time.monotonic() - began < 10
    for ask in asked[1:]:
        assert ask()
    store.check(run_id)
    store.close()
