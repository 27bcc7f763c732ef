"""A wakeup ends waits, in this process and in others, and costs nothing but time when it breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from other_process import end, python, received
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
wakeup = store.wakeup()
wakeup.wait(0)
print("waits", flush=True)
wakeup.wait(30)
print("woken", flush=True)
"""
    process = python(program, place, home)
    try:
        assert received(process) == "waits"
        began = time.monotonic()
        new_run(store)
        assert received(process) == "woken"
        assert time.monotonic() - began < 25
    finally:
        end(process)


def test_the_first_wait_returns_at_once_and_later_ones_when_there_is_a_run(store: Store) -> None:
    wakeup = store.wakeup()
    assert waited(lambda: wakeup.wait(30)) < 25, "a run from before the first wait was not noticed"
    assert waited(lambda: wakeup.wait(0.2)) >= 0.2
    new_run(store)
    new_run(store)
    time.sleep(0.2)
    assert waited(lambda: wakeup.wait(30)) < 25
    assert waited(lambda: wakeup.wait(0.2)) >= 0.2, "two wakeups ended two waits"
    threading.Timer(0.1, wakeup.poke).start()
    assert waited(lambda: wakeup.wait(30)) < 25
    wakeup.close()
    wakeup.poke()


def test_a_dead_waiter_is_swept_away(place: str, home: Home, store: Store) -> None:
    process = python(
        "wakeup = store.wakeup()\nwakeup.wait(0)\nprint('waits', flush=True)\nwakeup.wait(60)\n", place, home
    )
    assert received(process) == "waits"
    end(process)
    new_run(store)
    assert not list(home.locks.glob("*.wakeup"))


def test_a_wakeup_whose_session_was_cut_opens_another(postgres: PostgresServer) -> None:
    place = postgres.store()
    store = Store.open(place)
    wakeup = store.wakeup()
    wakeup.wait(0)
    raw_sql(place, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%'")
    wakeup.wait(1)
    assert waited(lambda: wakeup.wait(30)) < 25, "it did not listen again"
    new_run(store)
    assert waited(lambda: wakeup.wait(30)) < 25
    wakeup.close()
    store.close()


def test_a_wakeup_next_to_a_server_that_is_away_only_waits(postgres: PostgresServer) -> None:
    store = Store.open(postgres.store())
    wakeup = store.wakeup()
    wakeup.wait(0)
    postgres.stop()
    try:
        wakeup.wait(1)
        assert waited(lambda: wakeup.wait(0.3)) >= 0.3
        wakeup.poke()
        assert waited(lambda: wakeup.wait(30)) < 25
    finally:
        postgres.start()
    assert waited(lambda: wakeup.wait(30)) < 25
    wakeup.close()
    store.close()
