"""Commits of several threads as one: fewer transactions, and nobody suffers for another."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from sample_runs import draft, new_run, succeed, take, turn
from sqlalchemy import Connection

from codepilot.core.decide import Paused, Succeeded, decide
from codepilot.core.events import EventType, Requested
from codepilot.core.failures import FailureKind
from codepilot.store import ClaimedStep, LostLease, StepStatus, Store, convoy, tries
from codepilot.store.convoy import Convoy
from codepilot.store.faults import Interrupted
from codepilot.store.statements import SERVER_NOW

AWAY = Interrupted(FailureKind.STORE_UNAVAILABLE, "The server is away.")


@dataclass
class Road:
    """A database whose transactions are lists; the first one stays open until the others have queued up."""

    convoy: Convoy = field(init=False)
    committed: list[list[str]] = field(default_factory=list)
    rang: list[bool] = field(default_factory=list)
    durable: list[bool] = field(default_factory=list)
    free: threading.Event = field(default_factory=threading.Event)
    """Whether it is anybody's turn."""
    opened: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    fails: Callable[[list[str]], BaseException | None] = lambda said: None

    def __post_init__(self) -> None:
        self.convoy = Convoy(self)
        self.free.set()

    @contextmanager
    def turn(self) -> Iterator[None]:
        assert self.free.wait(10)
        yield

    @contextmanager
    def write_in_turn(self, *, durable: bool, rings: bool) -> Iterator[Connection]:
        said: list[str] = []
        yield cast(Connection, said)
        self.opened.set()
        assert self.go_on.wait(10)
        if (failure := self.fails(said)) is not None:
            raise failure
        self.committed.append(said)
        self.rang.append(rings)
        self.durable.append(durable)

    def send(self, pool: ThreadPoolExecutor, *names: str) -> list[Future[str]]:
        """The first goes, the others come while it is under way."""
        sent = [pool.submit(self.say, names[0])]
        assert self.opened.wait(10)
        for place, name in enumerate(names[1:], start=1):
            sent.append(pool.submit(self.say, name))
            while len(self.convoy._waiting) < place:
                threading.Event().wait(0.001)
        self.go_on.set()
        return sent

    def say(self, name: str) -> str:
        def work(connection: Connection) -> str:
            cast(Any, connection).append(name)
            if name == "defect":
                raise ValueError(name)
            return name.upper()

        return self.convoy.go(name, work, durable=not name.startswith("note"), rings=name == "bell")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def test_those_who_come_meanwhile_go_together_in_order(pool: ThreadPoolExecutor) -> None:
    road = Road()
    sent = road.send(pool, "first", "d", "bell", "c")
    assert [one.result(10) for one in sent] == ["FIRST", "D", "BELL", "C"]
    assert road.committed == [["first"], ["bell", "c", "d"]]
    assert road.rang == [False, True]
    assert road.say("later") == "LATER"


def test_one_that_fails_fails_alone(pool: ThreadPoolExecutor) -> None:
    road = Road()
    first, good, bad, fine = road.send(pool, "first", "a", "defect", "z")
    assert [first.result(10), good.result(10), fine.result(10)] == ["FIRST", "A", "Z"]
    with pytest.raises(ValueError, match="defect"):
        bad.result(10)
    assert sorted(road.committed) == [["a"], ["first"], ["z"]]


def test_what_they_meet_together_each_meets_alone_and_at_once(pool: ThreadPoolExecutor) -> None:
    """A run that is locked for long holds up nobody but itself."""
    locked = threading.Event()

    def fails(said: list[str]) -> BaseException | None:
        if len(said) > 1:
            return AWAY
        assert said != ["locked"] or locked.wait(10)
        return None

    first, a, slow, z = (road := Road(fails=fails)).send(pool, "first", "a", "locked", "z")
    assert [first.result(10), a.result(10), z.result(10), road.say("later")] == ["FIRST", "A", "Z", "LATER"]
    assert not slow.done()
    locked.set()
    assert slow.result(10) == "LOCKED"


def test_those_who_come_before_it_is_their_turn_go_along(pool: ThreadPoolExecutor) -> None:
    road = Road()
    road.go_on.set()
    road.free.clear()
    sent = [pool.submit(road.say, name) for name in ("b", "a", "c")]
    while len(road.convoy._waiting) < 2:
        threading.Event().wait(0.001)
    road.free.set()
    assert [one.result(10) for one in sent] == ["B", "A", "C"]
    assert road.committed == [["a", "b", "c"]]


def test_who_waits_too_long_for_a_convoy_that_is_stuck_goes_alone(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convoy, "PATIENCE_SEC", 0.05)
    stuck = threading.Event()

    def fails(said: list[str]) -> BaseException | None:
        assert said != ["stuck"] or stuck.wait(10)
        return None

    road = Road(fails=fails)
    road.go_on.set()
    first = pool.submit(road.say, "stuck")
    assert road.opened.wait(10)
    others = [pool.submit(road.say, name) for name in ("a", "b")]
    assert sorted(one.result(10) for one in others) == ["A", "B"]
    assert not first.done()
    stuck.set()
    assert (first.result(10), road.say("later")) == ("STUCK", "LATER")
    assert sorted(road.committed) == [["a"], ["b"], ["later"], ["stuck"]]


def test_a_convoy_is_durable_if_one_of_those_in_it_must_be(pool: ThreadPoolExecutor) -> None:
    sent = (road := Road()).send(pool, "note", "note 1", "x", "note 2")
    assert [one.result(10) for one in sent] == ["NOTE", "NOTE 1", "X", "NOTE 2"]
    assert road.durable == [False, True]


def test_one_who_cannot_have_a_turn_fails_alone(pool: ThreadPoolExecutor) -> None:
    class Shut(Road):
        turns = 0

        @contextmanager
        def turn(self) -> Iterator[None]:
            assert self.free.wait(10)
            self.turns += 1
            if self.turns == 1:
                raise AWAY
            yield

    road = Shut()
    road.go_on.set()
    road.free.clear()
    first = pool.submit(road.say, "first")
    while not road.convoy._under_way:
        threading.Event().wait(0.001)
    other = pool.submit(road.say, "other")
    while not road.convoy._waiting:
        threading.Event().wait(0.001)
    road.free.set()
    assert isinstance(first.exception(10), type(AWAY))
    assert other.result(10) == "OTHER"


def test_one_who_no_longer_waits_is_not_waited_for(pool: ThreadPoolExecutor) -> None:
    class Impatience:
        def acquire(self, timeout: float) -> bool:
            raise KeyboardInterrupt

    road = Road()
    first = pool.submit(road.say, "first")
    assert road.opened.wait(10)
    mine = convoy._Passenger("x", lambda connection: "X", durable=True, rings=False, called=Impatience())  # type: ignore[arg-type]
    road.convoy._waiting.append(mine)
    with pytest.raises(KeyboardInterrupt):
        road.convoy._await(mine)
    road.go_on.set()
    assert (first.result(10), road.say("next")) == ("FIRST", "NEXT")
    assert road.committed == [["first"], ["next"]]


def test_whoever_drives_may_be_interrupted_and_the_others_still_arrive(pool: ThreadPoolExecutor) -> None:
    interruptions = iter([None, KeyboardInterrupt()])
    road = Road(fails=lambda said: next(interruptions, None))
    first, driver, other = road.send(pool, "first", "b", "c")
    assert [first.result(10), other.result(10)] == ["FIRST", "C"]
    with pytest.raises(KeyboardInterrupt):
        driver.result(10)
    assert road.committed == [["first"], ["c"]]


def test_steps_end_together_and_a_lost_claim_among_them_is_refused_alone(store: Store) -> None:
    claims = [take(store, run_id=new_run(store)) for _ in range(12)]
    lost = replace(claims[5], fence=9)
    asked = [lost if claim is claims[5] else claim for claim in claims]
    ready = threading.Barrier(len(asked))

    def end(n: int) -> object:
        ready.wait(10)
        try:
            return store.commit(asked[n], succeed, claim_next=True).claimed
        except LostLease as error:
            return error

    with ThreadPoolExecutor(len(asked)) as pool:
        ended = list(pool.map(end, range(len(asked))))
    assert [n for n, one in enumerate(ended) if isinstance(one, LostLease)] == [5]
    for claim in claims:
        store.check(claim.run_id)
        ended_here = [StepStatus.SUCCEEDED] if claim is not claims[5] else []
        assert [step.status for step in store.steps(claim.run_id)] == [*ended_here, StepStatus.RUNNING]


def test_a_try_that_came_to_nothing_leaves_no_mark_on_the_answer_of_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try begins the next step and is undone with its company; the second pauses, and its answer is lost."""
    monkeypatch.setattr(tries, "PAUSE_SEC", 0.01)
    claim = take(store, run_id=new_run(store))
    write, opened = store._database.write_in_turn, itertools.count(1)

    @contextmanager
    def faulty(*, durable: bool, rings: bool) -> Iterator[Connection]:
        number = next(opened)
        with write(durable=durable, rings=rings) as connection:
            yield connection
            if number == 1:
                raise ValueError("a companion fails")
        if number == 2:
            raise AWAY

    monkeypatch.setattr(store._database, "write_in_turn", faulty)
    outcomes = iter([Succeeded(), Paused("asked"), Paused("asked")])
    store._progress._convoy._waiting.append(convoy._Passenger("r-companion", lambda connection: None, True, False))
    written = store.commit(claim, lambda run: decide(run, next(outcomes), now=1), claim_next=True)
    told, following = written.events, written.claimed
    assert [event.type for event in told] == [EventType.RUN_PAUSED]
    assert following is None
    assert store.events(claim.run_id)[-1] == told[0]


def test_steps_taken_together_are_taken_once_each(store: Store) -> None:
    runs = [new_run(store) for _ in range(12)]
    store.register_worker("w-1")
    ready = threading.Barrier(16)

    def start(_: int) -> ClaimedStep | None:
        ready.wait(10)
        return store.claim_next("w-1")

    with ThreadPoolExecutor(16) as pool:
        started = [one for one in pool.map(start, range(16)) if one is not None]
    assert sorted(one.claim.run_id for one in started) == sorted(runs)
    for run_id in runs:
        store.check(run_id)


@pytest.mark.parametrize("lost", [1, 2])
def test_no_claim_is_given_twice_although_the_transaction_it_was_first_given_in_came_to_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    runs = [new_run(store) for _ in range(6)]
    store.register_worker("w-1")
    write, opened, ready = store._database.write_in_turn, itertools.count(1), threading.Barrier(6)

    @contextmanager
    def faulty(*, durable: bool, rings: bool) -> Iterator[Connection]:
        with write(durable=durable, rings=rings) as connection:
            yield connection
            if next(opened) <= lost:
                raise AWAY

    def start(_: int) -> ClaimedStep | None:
        ready.wait(10)
        with suppress(Interrupted):  # both of its tries may be among those that are lost
            return store.claim_next("w-1")
        return None

    monkeypatch.setattr(tries, "PAUSE_SEC", 0.01)
    monkeypatch.setattr(store._database, "write_in_turn", faulty)
    with ThreadPoolExecutor(6) as pool:
        given = [one.claim.run_id for one in pool.map(start, range(6)) if one is not None]
    while (left := store.claim_next("w-1")) is not None:  # what one had locked while another looked
        given.append(left.claim.run_id)
    assert sorted(given) == sorted(runs)
    for run_id in runs:
        store.check(run_id)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_start_whose_commit_is_still_under_way_is_waited_for(store: Store) -> None:
    new_run(store)
    store.register_worker("w-1")
    progress = store._progress

    def ours(begun: ClaimedStep) -> bool:
        with store._database.write(durable=False) as connection:
            return progress._is_ours(connection, begun)

    with ThreadPoolExecutor(1) as pool:
        with store._database.write(durable=True) as connection:
            taken = store.queue.take(connection, "w-1", None, None)
            assert taken is not None
            begun = progress._log.start(connection, *taken)
            SERVER_NOW.row(connection, {})
            asked = pool.submit(ours, begun)
            threading.Event().wait(0.1)
        assert asked.result(10)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_whoever_waits_to_count_what_is_at_work_keeps_nobody_else_waiting(store: Store) -> None:
    claim = take(store, run_id=new_run(store))
    new_run(store)
    store.queue.limit.set(5)
    counting = threading.Event()
    with ThreadPoolExecutor(1) as pool, store._database.write(durable=False) as elsewhere:
        store._database.exclude(elsewhere)
        SERVER_NOW.row(elsewhere, {})
        waits = pool.submit(lambda: (counting.set(), store.claim_next("w-one"))[1])
        assert counting.wait(10)
        threading.Event().wait(0.1)
        store.append(claim, turn(claim, 1))
        assert not waits.done()
    assert waits.result(10) is not None


def test_what_was_asked_of_a_run_since_it_was_known_is_not_overwritten(store: Store) -> None:
    claim = take(store, run_id=new_run(store))
    known = store.load(claim.run_id)
    store.control(claim.run_id, lambda _: [draft(claim, EventType.PAUSE_REQUESTED, Requested())])
    added = store.append(claim, turn(claim, 1))
    assert [event.seq for event in added] == [known.last_seq + 2, known.last_seq + 3]
    store.check(claim.run_id)


def test_a_lost_claim_adds_nothing_however_well_its_run_is_known(store: Store) -> None:
    claim = take(store, run_id=new_run(store))
    known = store.load(claim.run_id)
    with pytest.raises(LostLease):
        store.append(replace(claim, fence=9), turn(claim, 1))
    assert store.load(claim.run_id) == known
