"""Memories: rows that follow from events, the newest first, and nobody waits for them for long."""

from __future__ import annotations

import time

import pytest
from raw_sql import raw_sql
from sample_runs import draft, new_run, take
from sqlalchemy import create_engine

from codepilot.core.events import EventDraft, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import FailureMemory, Memory, MemoryRecorded, PatternMemory
from codepilot.store import Claim, Store

FAILURE = FailureMemory(
    error_type="KeyError", message="'title' \x00", signature="KeyError <text>", solution="the key is `name`"
)
PATTERN = PatternMemory(task="Mend the prices", touched=("shop/price.py",), solution="divide by 100")


def learnt(claim: Claim, memory: Memory, repo: str = "shop", language: str = "python") -> EventDraft:
    return draft(claim, EventType.MEMORY_RECORDED, MemoryRecorded(repo=repo, language=language, memory=memory))


def test_what_a_run_learnt_is_found_by_kind_repository_and_language(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    recorded = store.append(
        claim,
        [
            learnt(claim, FAILURE),
            learnt(claim, PATTERN),
            learnt(claim, PATTERN, repo="other"),
            learnt(claim, PATTERN, language="java"),
        ],
    )
    (failure,) = store.memories("failure")
    assert (failure.run_id, failure.seq, failure.at) == (run_id, recorded[0].seq, recorded[0].at)
    assert failure.memory == FAILURE
    found = store.memories("pattern")
    assert [(row.seq, row.repo, row.language) for row in found] == [
        (recorded[3].seq, "shop", "java"),
        (recorded[2].seq, "other", "python"),
        (recorded[1].seq, "shop", "python"),
    ]
    assert store.memories("pattern", limit=1) == found[:1]
    assert store.memories("pattern", repo="shop") == [found[0], found[2]]
    assert store.memories("pattern", repo="shop", language="python") == [found[2]]
    assert store.memories("pattern", repo="nobody") == []
    store.check(run_id)


def test_one_that_cannot_be_read_does_not_hide_the_others(place: str, store: Store) -> None:
    new_run(store)
    claim = take(store)
    first, second = store.append(claim, [learnt(claim, PATTERN), learnt(claim, PATTERN)])
    raw_sql(place, f'UPDATE memories SET memory = \'{{"kind":"dream"}}\' WHERE seq = {first.seq}')
    assert [row.seq for row in store.memories("pattern")] == [second.seq]


def test_memories_that_are_gone_are_a_typed_failure_and_come_back_by_a_repair(place: str, store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, [learnt(claim, PATTERN)])
    raw_sql(place, "ALTER TABLE memories RENAME TO lost")
    with pytest.raises(CodePilotError):
        store.memories("pattern")
    raw_sql(place, "ALTER TABLE lost RENAME TO memories")
    raw_sql(place, "DELETE FROM memories")
    assert "memories" in store.check_all()[run_id]
    assert store.repair([run_id]) == {}
    assert [row.memory for row in store.memories("pattern")] == [PATTERN]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_table_that_somebody_has_locked_is_not_waited_for(place: str, store: Store) -> None:
    """Readers of a file wait for nobody."""
    new_run(store)
    claim = take(store)
    store.append(claim, [learnt(claim, PATTERN)])
    engine = create_engine(place)
    with engine.begin() as other:
        other.exec_driver_sql("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        with pytest.raises(CodePilotError) as refused:
            store.memories("pattern", timeout_sec=0.5)
        assert 0.4 < time.monotonic() - began < 15
        assert refused.value.kind is FailureKind.STORE_UNAVAILABLE
        assert store.events(claim.run_id), "the rest of the store is not meant"
    engine.dispose()
    assert len(store.memories("pattern")) == 1
