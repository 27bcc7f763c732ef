"""How many steps may be at work: kept by all who use the store, anyone who set it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from raw_sql import raw_sql
from sample_runs import new_run, take

from codepilot.core.failures import CodePilotError
from codepilot.store import Store, meta


@pytest.fixture(autouse=True)
def asked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meta, "FRESH_SEC", 0.0)


def test_anyone_who_was_not_reported_it_keeps_to_it(open_store: Callable[[], Store]) -> None:
    reported, other = open_store(), open_store()
    runs = [new_run(reported) for _ in range(4)]
    assert other.queue.limit.most_running() is None
    reported.queue.limit.set(2)
    assert [other.claim_next("w-other") is not None for _ in range(3)] == [True, True, False]
    assert open_store().claim_next("w-new") is None
    take(other, "w-asked", runs[3])
    assert other.queue.running() == 3, "anyone who names a run does not wait"


def test_what_was_set_last_holds_and_is_logged(
    open_store: Callable[[], Store], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = open_store(), open_store()
    for _ in range(3):
        new_run(one)
    one.queue.limit.set(1)
    assert other.queue.limit.most_running() == 1
    take(other, "w-other")
    assert (one.claim_next("w-one"), other.claim_next("w-other")) == (None, None)
    one.queue.limit.set(2)
    assert "at most 2 running step(s) on the whole store; it was 1" in caplog.text
    caplog.clear()
    take(other, "w-other")
    assert "at most 2 running step(s) on the whole store; it was 1" in caplog.text
    assert one.claim_next("w-one") is None
    other.queue.limit.set(None)
    take(one)
    assert "no limit of running steps; it was 2" in caplog.text


def test_it_is_not_asked_for_each_time(open_store: Callable[[], Store], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = open_store(), open_store()
    assert one.queue.limit.most_running() is None
    monkeypatch.setattr(meta, "FRESH_SEC", 60.0)
    other.queue.limit.set(1)
    assert one.queue.limit.most_running() is None


def test_one_that_is_no_number_is_reported_and_can_be_set_anew(place: str, store: Store) -> None:
    store.queue.limit.set(3)
    raw_sql(place, "UPDATE meta SET value = 'many' WHERE key = 'most_running'")
    with pytest.raises(CodePilotError, match="'many'") as refused:
        store.claim_next("w-one")
    assert "--most-running" in refused.value.failure.next_action
    store.queue.limit.set(3)
    assert store.queue.limit.most_running() == 3
