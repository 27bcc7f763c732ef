"""Contract locks: one run at a time, all or nothing, fenced, and never kept by a run that is gone."""

from __future__ import annotations

from sample_runs import new_run, take, task

from codepilot.core.decide import decide_cancel, start
from codepilot.store import Store

LEASE = 300_000_000


def names(rows: object) -> list[tuple[str, str, int]]:
    return [(row.name, row.run_id, row.fence) for row in rows]  # type: ignore[attr-defined]


def test_a_lock_is_held_by_one_run_of_a_repository_and_taken_all_or_none(store: Store) -> None:
    one, two = new_run(store), new_run(store)
    taken, held = store.locks.take("shop", ["api", "schema"], one, LEASE)
    assert (names(taken), held) == ([("api", one, 1), ("schema", one, 1)], [])
    assert store.locks.take("shop", ["api"], one, LEASE) == ([], []), "it has it already"
    taken, held = store.locks.take("shop", ["schema", "docs"], two, LEASE)
    assert (taken, names(held)) == ([], [("schema", one, 1)])
    assert names(store.locks.take("other", ["schema"], two, LEASE)[0]) == [("schema", two, 1)]
    assert store.locks.release(one) == ("api", "schema")
    assert store.locks.release(one) == ()
    assert names(store.locks.take("shop", ["schema"], two, LEASE)[0]) == [("schema", two, 2)], "a higher fence"
    assert [(row.repo, row.name) for row in store.locks.rows()] == [("other", "schema"), ("shop", "schema")]


def test_a_run_that_rests_longer_than_the_lease_or_ended_loses_its_locks(store: Store) -> None:
    resting, ended, waiting = new_run(store), new_run(store), new_run(store)
    store.locks.take("shop", ["api"], resting, LEASE)
    assert store.locks.take("shop", ["api"], waiting, LEASE)[1]
    claim = take(store, "w-one", resting)
    assert store.locks.take("shop", ["api"], waiting, 0)[1], "a worker has it"
    store.give_back(claim)
    assert names(store.locks.take("shop", ["api"], waiting, 0)[0]) == [("api", waiting, 2)]
    store.locks.take("shop", ["schema"], ended, LEASE)
    store.control(ended, decide_cancel)
    assert names(store.locks.take("shop", ["schema"], waiting, LEASE)[0]) == [("schema", waiting, 2)]


def test_a_run_keeps_its_locks_while_a_part_of_its_plan_is_worked_on(store: Store) -> None:
    parent, waiting, part = new_run(store), new_run(store), "r-part"
    store.locks.take("shop", ["api"], parent, LEASE)
    store.create_run(part, start(task().model_copy(update={"parent_run_id": parent, "node_id": "a"}), part))
    claim = take(store, "w-one", part)
    assert names(store.locks.take("shop", ["api"], waiting, 0)[1]) == [("api", parent, 1)]
    store.give_back(claim)
    assert names(store.locks.take("shop", ["api"], waiting, 0)[0]) == [("api", waiting, 2)]
