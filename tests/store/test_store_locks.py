"""Named locks: one holder, a token that only grows, and an end to those that are forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from raw_sql import raw_sql

from codepilot.store import Store
from codepilot.store.locks import LOCK_SEC


def test_a_lock_has_one_holder_until_it_is_freed(open_store: Callable[[], Store]) -> None:
    one, two = open_store(), open_store()
    assert LOCK_SEC == 300.0
    first = one.lock("openapi", "feature-1")
    assert first is not None
    assert first.token == 1
    assert 290 < (first.expires_at - time.time() * 1e6) / 1e6 < 310
    assert two.lock("openapi", "feature-2") is None
    other = two.lock("events", "feature-2")
    assert other is not None
    assert one.lock("openapi", "feature-1", 400) == one.renew(first, 400) or one.locked(first)
    assert one.unlock(first)
    assert not one.unlock(first)
    assert not one.locked(first)
    second = two.lock("openapi", "feature-2")
    assert second is not None
    assert second.token == 2


def test_an_expired_lock_is_taken_and_its_old_token_does_nothing(open_store: Callable[[], Store]) -> None:
    one, two = open_store(), open_store()
    late = one.lock("db", "feature-1", seconds=0.2)
    assert late is not None
    renewed = one.renew(late, seconds=0.4)
    assert renewed is not None
    assert renewed.token == late.token
    assert two.lock("db", "feature-2") is None
    time.sleep(0.5)
    assert not one.locked(late)
    assert one.renew(late) is None, "what has expired is not renewed, even while nobody else has it"
    heir = two.lock("db", "feature-2")
    assert heir is not None
    assert heir.token == late.token + 1
    assert one.renew(late) is None
    assert not one.unlock(late)
    assert two.locked(heir)


def test_the_holder_who_comes_again_has_it_still_but_not_after_it_expired(place: str, store: Store) -> None:
    first = store.lock("db", "feature-1")
    again = store.lock("db", "feature-1")
    assert first is not None
    assert again is not None
    assert again.token == first.token
    raw_sql(place, "UPDATE locks SET expires_at = 1")
    late = store.lock("db", "feature-1")
    assert late is not None
    assert late.token == first.token + 1
    assert not store.locked(first)


def test_raced_by_threads_and_stores_it_is_given_once_at_a_time(open_store: Callable[[], Store]) -> None:
    stores = [open_store() for _ in range(3)]
    inside: list[str] = []
    most: list[int] = []
    tokens: list[int] = []

    def work(n: int) -> None:
        for _ in range(200):
            lock = stores[n % 3].lock("one", f"h-{n}")
            if lock is None:
                time.sleep(0.002)
                continue
            inside.append(lock.holder)
            most.append(len(inside))
            tokens.append(lock.token)
            inside.remove(lock.holder)
            stores[n % 3].unlock(lock)
            return

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(18)))
    assert most == [1] * len(most)
    assert sorted(tokens) == tokens
    assert len(set(tokens)) == len(tokens) >= 10


def test_an_expired_lock_raced_for_is_given_to_one(open_store: Callable[[], Store]) -> None:
    stores = [open_store() for _ in range(3)]
    stores[0].lock("one", "gone", seconds=0.0)
    with ThreadPoolExecutor(9) as pool:
        got = list(pool.map(lambda n: stores[n % 3].lock("one", f"h-{n}"), range(9)))
    assert [lock.token for lock in got if lock is not None] == [2]
