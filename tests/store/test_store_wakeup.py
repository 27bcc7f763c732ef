"""The bell wakes who waits, in this process and in others, and loses nothing but time when it breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from other_process import end, heard, python
from raw_sql import raw_sql
from sample_runs import new_run

from codepilot.store import Home, Store
from servers import PostgresServer


def waited(wait: Callable[[], None]) -> float:
    began = time.monotonic()
    wait()
    return time.monotonic() - began


def test_a_new_run_wakes_who_waits_elsewhere(place: str, home: Home, store: Store) -> None:
    program = """
bell = store.wakeup()
bell.wait(0)
print("waits", flush=True)
bell.wait(30)
print("woken", flush=True)
"""
    process = python(program, place, home)
    try:
        assert heard(process) == "waits"
        began = time.monotonic()
        new_run(store)
        assert heard(process) == "woken"
        assert time.monotonic() - began < 25
    finally:
        end(process)


def test_the_first_wait_returns_at_once_and_later_ones_when_someone_rings(store: Store) -> None:
    bell = store.wakeup()
    assert waited(lambda: bell.wait(30)) < 25, "what was rung before it hung was not heard"
    assert waited(lambda: bell.wait(0.2)) >= 0.2
    new_run(store)
    new_run(store)
    time.sleep(0.2)
    assert waited(lambda: bell.wait(30)) < 25
    assert waited(lambda: bell.wait(0.2)) >= 0.2, "rings are not counted"
    threading.Timer(0.1, bell.poke).start()
    assert waited(lambda: bell.wait(30)) < 25
    bell.close()
    bell.poke()


def test_a_dead_waiter_is_swept_away(place: str, home: Home, store: Store) -> None:
    process = python("bell = store.wakeup()\nbell.wait(0)\nprint('waits', flush=True)\nbell.wait(60)\n", place, home)
    assert heard(process) == "waits"
    end(process)
    new_run(store)
    assert not list(home.locks.glob("*.wakeup"))


def test_a_bell_whose_session_was_cut_hangs_itself_again(postgres: PostgresServer) -> None:
    place = postgres.database()
    store = Store.open(place)
    bell = store.wakeup()
    bell.wait(0)
    raw_sql(place, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'")
    bell.wait(1)
    assert waited(lambda: bell.wait(30)) < 25, "hung anew"
    new_run(store)
    assert waited(lambda: bell.wait(30)) < 25
    bell.close()
    store.close()


def test_a_bell_beside_a_server_that_is_away_only_waits(postgres: PostgresServer) -> None:
    store = Store.open(postgres.database())
    bell = store.wakeup()
    bell.wait(0)
    postgres.stop()
    try:
        bell.wait(1)
        assert waited(lambda: bell.wait(0.3)) >= 0.3
        bell.poke()
        assert waited(lambda: bell.wait(30)) < 25
    finally:
        postgres.start()
    assert waited(lambda: bell.wait(30)) < 25
    bell.close()
    store.close()
