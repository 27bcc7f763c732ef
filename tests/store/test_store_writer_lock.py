"""The gate before the database, threads around it, and what is reported when it stays closed."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sample_runs import draft, new_run, take, turn

from codepilot.core.events import EventType, Requested
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import Store
from codepilot.store.faults import database_failure
from codepilot.store.writer_lock import WriterLock


def test_one_at_a_time_among_threads_and_gates(tmp_path: Path) -> None:
    gates = [WriterLock(tmp_path / "gate") for _ in range(3)]
    inside: list[int] = []
    most: list[int] = []

    def pass_through(n: int) -> None:
        with gates[n % 3].hold():
            inside.append(n)
            most.append(len(inside))
            inside.remove(n)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(pass_through, range(120)))
    assert most == [1] * 120


def test_a_gate_that_stays_closed_is_reported_and_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "gate"
    held = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    gate = WriterLock(path, timeout_sec=0.05)
    for _ in range(3):
        with pytest.raises(CodePilotError, match="another process") as closed, gate.hold():
            pass
        assert closed.value.kind is FailureKind.STORE_UNAVAILABLE
        assert str(path) in closed.value.failure.message
    os.close(held)
    for thread in threading.enumerate():
        if thread.name == "writer-lock":
            thread.join(10)
    with WriterLock(path).hold():
        pass


def test_a_decision_that_uses_the_store_does_not_hang_for_ever(tmp_path: Path) -> None:
    gate = WriterLock(tmp_path / "gate", timeout_sec=0.05)
    with pytest.raises(CodePilotError, match="a thread of this process"), gate.hold(), gate.hold():
        pass
    with gate.hold():
        pass


def test_a_locked_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    one, two = sqlite3.connect(file, isolation_level=None), sqlite3.connect(file, timeout=0)
    one.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError) as busy:
        two.execute("CREATE TABLE t (x)")
    failure = database_failure(busy.value, str(file))
    one.close()
    two.close()
    assert failure.kind is FailureKind.STORE_UNAVAILABLE
    assert "locked by another process" in failure.failure.message
    assert str(file) in failure.failure.message


def test_a_server_that_is_not_there_is_named_and_its_password_is_not_reported() -> None:
    with pytest.raises(CodePilotError, match=r"127\.0\.0\.1:1/x cannot be used") as unreachable:
        Store.open("postgresql://me:hidden@127.0.0.1:1/x")
    assert unreachable.value.kind is FailureKind.STORE_UNAVAILABLE
    with pytest.raises(CodePilotError) as nonsense:
        Store.open("nosuch://me:hidden@db/x")
    assert "hidden" not in f"{unreachable.value} {nonsense.value}"


def test_a_worker_a_watcher_and_a_reader_share_a_store(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    done = threading.Event()

    def work() -> None:
        for number in range(60):
            store.append(claim, turn(claim, number))
        done.set()

    def watch() -> int:
        seen = 0
        while not done.is_set():
            store.queue.held_claims(claim.worker)
            seen = max(seen, store.load(run_id).last_seq)
            events = store.events(run_id)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
        return seen

    def ask() -> None:
        for _ in range(10):
            store.control(run_id, lambda run: [draft(claim, EventType.PAUSE_REQUESTED, Requested())])
            store.beat(claim.worker)

    with ThreadPoolExecutor(4) as pool:
        watching = pool.submit(watch)
        for job in (pool.submit(work), pool.submit(ask)):
            job.result()
        assert watching.result() > 0
    assert len(store.events(run_id)) == 3 + 120 + 10
    store.check(run_id)
