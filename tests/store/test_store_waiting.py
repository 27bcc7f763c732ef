"""Those who wait for each other at a run's lock see all that was written before them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from raw_sql import raw_sql
from sample_runs import new_run, succeed, take, turn

from codepilot.core.events import EventDraft, EventType, Requested
from codepilot.core.run import Run
from codepilot.store import Store
from codepilot.store.log import VIEW_LAG


def test_a_commit_that_waited_for_a_request_knows_the_whole_log(
    store: Store, open_store: Callable[[], Store], place: str
) -> None:
    """The request may have written the run's view anew while the commit waited for it."""
    other = open_store()
    run_id = new_run(store)
    claim = take(store, run_id=run_id)
    viewed = raw_sql(place, f"SELECT seq FROM views WHERE run_id = '{run_id}'")[0][0]
    for number in range(viewed + VIEW_LAG - store.load(run_id).last_seq):
        store.append(claim, turn(claim, number + 1)[:1])
    asking, waiting = threading.Event(), threading.Event()

    def ask(run: Run) -> list[EventDraft]:
        asking.set()
        waiting.wait(5)
        time.sleep(0.3)
        return [EventDraft(type=EventType.PAUSE_REQUESTED, data=Requested(), step_id=run.step_id)]

    asked = threading.Thread(target=other.control, args=(run_id, ask))
    asked.start()
    assert asking.wait(5)
    seen: list[Run] = []

    def decide(run: Run) -> list[EventDraft]:
        seen.append(run)
        return succeed(run)

    waiting.set()
    store.commit(claim, decide)
    asked.join()
    assert seen[0].pause_requested
    assert seen[0].spent.turns == store.load(run_id).spent.turns
    store.check(run_id)
