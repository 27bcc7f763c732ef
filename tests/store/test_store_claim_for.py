"""Anyone who asks for a run and works on it has its step from the same transaction on: no worker can be quicker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from other_process import end, python, received
from sample_runs import new_run, paused_run, succeed, take, task

from codepilot.core.decide import decide_resume, start
from codepilot.core.events import EventType, State
from codepilot.store import Home, StepStatus, Store, Written, new_id

RUNS = 30


@contextmanager
def takers(stores: list[Store]) -> Iterator[list[str]]:
    """Workers of other processes that take whatever there is; the runs that they got."""
    got: list[str] = []
    over = threading.Event()

    def look(store: Store, name: str) -> None:
        while not over.is_set():
            begun = store.claim_next(name)
            if begun is not None:
                got.append(begun.claim.run_id)

    threads = [threading.Thread(target=look, args=(store, f"w-{n}")) for n, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    try:
        yield got
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_run_is_begun_by_who_creates_it_however_many_look_for_work(open_store: Callable[[], Store]) -> None:
    store = open_store()
    with takers([open_store() for _ in range(4)]) as got:
        for _ in range(RUNS):
            run_id = new_id("r")
            written = store.create_run(run_id, start(task(), run_id), "w-asked")
            events, begun = written.events, written.claimed
            assert begun is not None
            assert store.events(run_id) == [*events, *begun.events]
            assert events == store.events(run_id)[:-1]
            assert begun.run == store.load(run_id)
        left = new_run(store)
        while not got:
            time.sleep(0.01)
    assert got == [left], "only what is left to them is taken by others"


def test_what_was_begun_with_its_run_goes_on_like_any_other(store: Store) -> None:
    run_id = new_id("r")
    begun = store.create_run(run_id, start(task(), run_id), "w-asked").claimed
    assert begun is not None
    (step,) = store.steps(run_id)
    assert (step.status, step.worker, step.fence) == (StepStatus.RUNNING, "w-asked", 1)
    store.check(run_id)
    following = store.commit(begun.claim, succeed, claim_next=True).claimed
    assert following is not None and following.claim.state is State.MAP_REPO
    store.give_back(following.claim)
    assert take(store, "w-other").run_id == run_id
    store.check(run_id)


def test_a_run_that_was_there_before_is_not_begun_by_creating_it_again(store: Store) -> None:
    run_id = new_id("r")
    drafts = start(task(), run_id)
    first = store.create_run(run_id, drafts).events
    assert store.create_run(run_id, drafts, "w-asked") == Written(first)
    assert [step.status for step in store.steps(run_id)] == [StepStatus.PENDING]


def test_anyone_who_resumes_a_run_has_its_step_however_many_look_for_work(open_store: Callable[[], Store]) -> None:
    store = open_store()
    runs = [paused_run(store) for _ in range(RUNS)]
    with takers([open_store() for _ in range(4)]) as got:
        for run_id in runs:
            written = store.control(run_id, decide_resume, "w-asked")
            events, begun = written.events, written.claimed
            assert [event.type for event in events] == [EventType.RUN_RESUMED]
            assert begun is not None and begun.run == store.load(run_id)
            assert begun.events == store.events(run_id)[-1:]
            store.check(run_id)
    assert got == []


def test_anyone_who_resumes_what_another_has_leaves_it_to_them(store: Store) -> None:
    run_id = new_run(store)
    held = take(store, "w-other")
    assert store.control(run_id, decide_resume, "w-asked") == Written([])
    store.give_back(held)
    written = store.control(run_id, decide_resume, "w-asked")
    events, begun = written.events, written.claimed
    assert events == [] and begun is not None, "one whose worker died needs no event"


def test_who_dies_after_the_creation_is_followed_by_another(place: str, home: Home, store: Store) -> None:
    store.reclaim()  # a server that was just started gives its workers time
    program = (
        "from codepilot.core.decide import start\n"
        'run_id = new_id("r")\n'
        'store.create_run(run_id, start(task(), run_id), "w-doomed")\n'
        "print(run_id, flush=True)\nsys.stdin.readline()\n"
    )
    process = python(program, place, home)
    try:
        run_id = received(process)
        assert store.claim_next("w-other") is None
    finally:
        end(process)
    assert len(store.reclaim(run_id, wait=True)) == 1
    assert take(store, "w-other").fence == 3
    store.check(run_id)
