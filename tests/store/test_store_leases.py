"""Who lives: beats, locks that die with their holder, and workers that come back from where nobody does."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from other_process import end, python, received, tell
from raw_sql import on_postgres, raw_sql
from sample_runs import draft, new_run, succeed, take, turn

from codepilot.core.decide import decide_cancel
from codepilot.core.events import EventDraft, EventType, Requested, State
from codepilot.core.run import Run
from codepilot.store import Home, LostLease, StepStatus, Store, session_locks
from codepilot.store.faults import Interrupted
from codepilot.store.queue import LEASE, Lease
from codepilot.store.writer_lock import WriterLock
from servers import PostgresServer

SHORT = Lease(beat_sec=0.1, stale_sec=0.8)


def test_a_worker_beats_every_30_seconds_and_is_stale_after_90() -> None:
    assert (LEASE.beat_sec, LEASE.stale_sec) == (30.0, 90.0)


def test_a_frozen_worker_loses_its_step_and_comes_back_without_it(
    place: str, home: Home, open_store: Callable[[], Store]
) -> None:
    program = """
store = Store.open(place, locks=home.locks, lease=Lease(beat_sec=0.1, stale_sec=0.8))
claim = take(store, "w-frozen")
def beat():
    while True:
        store.beat("w-frozen")
        time.sleep(0.1)
threading.Thread(target=beat, daemon=True).start()
print(claim.step_id, flush=True)
sys.stdin.readline()
for write in (lambda: store.append(claim, turn(claim, 1)), lambda: store.commit(claim, succeed)):
    try:
        write()
        print("written", flush=True)
    except LostLease:
        print("lost", flush=True)
time.sleep(0.3)
print(take(store, "w-frozen").run_id, flush=True)
sys.stdin.readline()
"""
    store = Store.open(place, locks=home.locks, lease=SHORT)
    run_id = new_run(store)
    process = python(program, place, home, opened="")
    try:
        step_id = received(process)
        time.sleep(1.0)
        assert store.reclaim() == [], "it beats"
        with WriterLock(
            home.locks / "database.writer", 30.0
        ).hold():  # one frozen within a write would keep all others out
            process.send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        assert store.queue.alive("w-frozen"), "it holds its lock"
        assert store.reclaim() == [step_id]
        successor = take(store, "w-heir")
        before = store.events(run_id)
        other = new_run(store)
        process.send_signal(signal.SIGCONT)
        tell(process, "go on")
        assert [received(process), received(process)] == ["lost", "lost"]
        assert store.events(run_id) == before
        assert received(process) == other, "it is a worker like any other again"
        assert ("w-frozen",) in [tuple(row) for row in raw_sql(place, "SELECT worker FROM leases")]
        store.beat("w-heir")
        assert store.reclaim() == []
        store.commit(successor, succeed)
        store.check(run_id)
    finally:
        end(process)
        store.close()


def test_a_beat_and_a_lock_are_each_judged_by_the_clock_of_the_database(place: str, home: Home) -> None:
    late = Store.open(place, locks=home.locks, clock=lambda: 5_000_000, lease=SHORT)
    new_run(late)
    take(late, "w-late")
    (beat,) = raw_sql(place, "SELECT beat_at FROM leases")[0]
    assert (beat > 10**15) == on_postgres(place)
    late.close()


def test_each_worker_is_judged_by_its_own_lease(place: str, home: Home) -> None:
    """A door, or a worker with other settings, does not take the step of a worker that announced a pause."""
    patient = Store.open(place, locks=home.locks, lease=LEASE)
    strict = Store.open(place, locks=home.locks, lease=SHORT)
    new_run(patient)
    claim = take(patient, "w-patient")
    time.sleep(1.0)
    assert strict.reclaim() == []
    patient.give_back(claim)
    claim = take(strict, "w-strict")
    time.sleep(1.0)
    assert patient.reclaim() == [claim.step_id]
    patient.close()
    strict.close()


def test_a_worker_at_work_without_a_lease_is_given_one_that_can_go_stale(place: str, home: Home) -> None:
    store = Store.open(place, locks=home.locks, lease=SHORT)
    new_run(store)
    claim = take(store)
    raw_sql(place, "DELETE FROM leases")
    assert store.reclaim() == []
    time.sleep(1.0)
    assert store.reclaim() == [claim.step_id]
    assert take(store).fence == claim.fence + 2
    assert len(raw_sql(place, "SELECT worker FROM leases")) == 1, "a claim shows that the worker lives"
    store.close()


def test_a_dead_worker_is_replaced_long_before_its_lease_ends(place: str, home: Home, store: Store) -> None:
    run_id = new_run(store)
    program = 'take(store, "w-doomed")\nprint("ready", flush=True)\nsys.stdin.readline()\n'
    process = python(program, place, home)
    try:
        assert received(process) == "ready"
        store.reclaim(wait=True)
        time.sleep(3.0 if on_postgres(place) else 0.0)  # a server that was just started gives its workers time
    finally:
        end(process)
    began = time.monotonic()
    while not store.reclaim(run_id):
        time.sleep(0.05)
    assert time.monotonic() - began < 20.0


def test_a_server_that_restarts_costs_nobody_a_step(postgres: PostgresServer, home: Home) -> None:
    place = postgres.store()
    store, other = Store.open(place), Store.open(place)
    run_id = new_run(store)
    claim = take(store, "w-lives")
    stop = threading.Event()
    reclaimed: list[str] = []

    def reap() -> None:
        while not stop.is_set():
            with contextlib.suppress(Interrupted):
                reclaimed.extend(other.reclaim())
            time.sleep(0.05)

    reaper = threading.Thread(target=reap)
    reaper.start()
    try:
        postgres.restart()
        time.sleep(5.0)
    finally:
        stop.set()
        reaper.join()
    assert reclaimed == []
    assert other.queue.alive("w-lives"), "the session took its lock again, though its store did nothing"
    store.append(claim, turn(claim, 1))
    store.commit(claim, succeed)
    store.check(run_id)
    store.close()
    other.close()


def test_a_session_that_is_cut_off_takes_its_locks_again(postgres: PostgresServer) -> None:
    place = postgres.store()
    store, other = Store.open(place), Store.open(place)
    store.register_worker("w-cut")
    assert other.queue.alive("w-cut")
    cut = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1668244592"
    raw_sql(place, cut)
    deadline = time.monotonic() + 5
    while not other.queue.alive("w-cut"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    store.close()
    other.close()


def test_who_stops_within_a_transaction_does_not_hold_up_the_run(postgres: PostgresServer) -> None:
    """The server ends a transaction in which nothing happens; its owner tries again and finds what became of it."""
    place = postgres.store()
    store = Store.open(f"{place}&options=-c%20idle_in_transaction_session_timeout%3D300ms")
    other = Store.open(place)
    run_id = new_run(store)
    claim = take(store)
    within, requested, asked = threading.Event(), threading.Event(), []

    def ponder(run: Run) -> list[EventDraft]:
        asked.append(run.last_seq)
        within.set()
        assert requested.wait(60), "anyone who asks waits for nobody's decision"
        return succeed(run)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.commit, claim, ponder)
        assert within.wait(60)
        other.control(run_id, lambda _: [draft(claim, EventType.PAUSE_REQUESTED, Requested())])
        requested.set()
        assert writing.result().events[-1].type is EventType.RUN_PAUSED
    assert asked == [3, 4], "it was decided anew, with the request in sight"
    store.check(run_id)
    store.close()
    other.close()


def test_one_name_is_held_once_and_free_after_its_holder(open_store: Callable[[], Store]) -> None:
    one, two = open_store(), open_store()
    one.register_worker("w-same")
    one.register_worker("w-same")
    with pytest.raises(Exception, match="already at work"):
        two.register_worker("w-same")
    one.release_worker("w-same")
    two.register_worker("w-same")


STRESS = """
import random, contextlib
from codepilot.core.events import EventDraft, RunPaused, RunResumed, State
seconds, seed, runs = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
def ask(run):
    if run.terminal: return []
    if run.state is State.PAUSED: return [EventDraft(type=EventType.RUN_RESUMED, data=RunResumed())]
    return [EventDraft(type=EventType.RUN_PAUSED, data=RunPaused(), step_id=run.step_id, attempt=run.attempt)]
store = Store.open(place, locks=home.locks, lease=Lease(beat_sec=0.01, stale_sec=0.05))
def work(name):
    chance = random.Random(f"{seed} {name}")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(3):
            store.control(chance.choice(runs), ask)
        store.queue.limit.set(chance.choice([None, 3]))
        start = store.claim_next(name)
        if start is None:
            store.reclaim()
            continue
        try:
            while start is not None:
                claim = start.claim
                store.append(claim, turn(claim, 1))
                if chance.random() < 0.2:
                    store.give_back(claim)
                    break
                if chance.random() < 0.2:
                    store.control(claim.run_id, lambda run: [draft(claim, EventType.PAUSE_REQUESTED, Requested())])
                start = store.commit(claim, succeed, claim_next=True).claimed
        except LostLease:
            pass
threads = [threading.Thread(target=work, args=(f"w-{seed}-{n}",)) for n in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done", flush=True)
"""


def test_claims_commits_requests_and_reclaims_at_once_never_wait_in_a_circle(
    place: str, home: Home, store: Store
) -> None:
    """Leases so short that steps are taken away all the time, from three processes with three threads each."""
    runs = [new_run(store) for _ in range(20)]
    processes = [python(STRESS, place, home, 1.0, seed, ",".join(runs), opened="") for seed in range(3)]
    try:
        assert [received(process) for process in processes] == ["done"] * 3
        assert [process.wait(30) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            end(process)
    if on_postgres(place):
        ((deadlocks,),) = raw_sql(place, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert deadlocks == 0
    states = {store.load(run_id).state for run_id in runs}
    assert states != {State.INIT}
    for run_id in runs:
        store.check(run_id)
        endings = [e for e in store.events(run_id) if e.type is EventType.STEP_SUCCEEDED]
        assert len({(e.step_id, e.attempt) for e in endings}) == len(endings), "a step ends once"


def test_a_cancelled_run_is_claimed_by_nobody(open_store: Callable[[], Store]) -> None:
    """Cancelling races with claiming: either the claim is lost, or there was none."""
    store, other = open_store(), open_store()
    runs = [new_run(store) for _ in range(20)]
    with ThreadPoolExecutor(4) as pool:
        starts = pool.map(lambda run_id: other.claim_next("w-one", run_id), runs)
        list(pool.map(lambda run_id: store.control(run_id, decide_cancel), runs))
        for begun in starts:
            if begun is not None:
                with pytest.raises(LostLease):
                    other.commit(begun.claim, succeed)
    for run_id in runs:
        assert [step.status for step in store.steps(run_id)] == [StepStatus.CANCELLED]
        store.check(run_id)


def test_no_more_than_the_most_are_at_work(open_store: Callable[[], Store]) -> None:
    stores = [open_store() for _ in range(3)]
    for _ in range(12):
        new_run(stores[0])
    stores[0].queue.limit.set(5)
    order = list(range(12))
    random.Random(7).shuffle(order)
    with ThreadPoolExecutor(6) as pool:
        starts = list(pool.map(lambda n: stores[n % 3].claim_next(f"w-{n}"), order))
    given = [start.claim for start in starts if start is not None]
    assert len(given) == 5
    assert stores[0].queue.running() == 5
    assert stores[0].queue.depth() == 7
    stores[0].control(given[0].run_id, lambda _: [draft(given[0], EventType.PAUSE_REQUESTED, Requested())])


def test_a_suspect_that_others_have_buried_is_not_waited_for(
    open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor of another worker cannot keep a claim alive: it does not know that worker any more."""
    store, other = open_store(), open_store()
    other.register_worker("w-dying")
    looks: list[set[str]] = []

    def judge(workers: Iterable[str]) -> tuple[set[str], set[str]]:
        looks.append(set(workers))
        assert len(looks) < 20, "it is waited for"
        if len(looks) == 2:
            other.release_worker("w-dying")
        return set(), looks[-1]

    monkeypatch.setattr(store.queue._liveness, "judge", judge)
    assert store.reclaim(wait=True) == []
    assert looks == [{"w-dying"}, {"w-dying"}, set()]


def test_a_name_whose_session_the_server_has_not_missed_yet_is_waited_for(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = postgres.store()
    monkeypatch.setattr(session_locks, "MISSED_SEC", 60.0)
    cut_off, back = Store.open(place), Store.open(place)
    cut_off.register_worker("w-back")
    with ThreadPoolExecutor() as pool:
        registered = pool.submit(back.register_worker, "w-back")
        with pytest.raises(TimeoutError):
            registered.result(0.3)
        cut_off.close()
        registered.result(60)
    assert back.queue.alive("w-back")
    back.close()
