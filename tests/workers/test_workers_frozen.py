"""A worker that was frozen for longer than its lease: another goes on, and nothing that it left behind disturbs it."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from workers_kit import (
    ONCE,
    SLOW,
    Deployment,
    at_work,
    ended,
    has,
    left_in,
    make_repo,
    processes_of,
    starters,
    wait_for,
)

from codepilot.core.events import EventType, State
from codepilot.engine import cancel

QUICK = ("--stale-after", "2")
ENDLESS = {"test_slow.py": SLOW.format(seconds=60)}


def test_a_frozen_workers_run_is_finished_by_another(team: Deployment, shop: Path) -> None:
    frozen = team.worker(*QUICK, home="one")
    with team.runtime("one") as runtime:
        run_id = team.submit(shop, "one")
        wait_for(has(runtime, run_id, EventType.SEARCH_PROGRESSED))
        frozen.signal(signal.SIGSTOP)
        other = team.worker(*QUICK, home=team.elsewhere)
        since = time.time()
        wait_for(lambda: other.name in starters(runtime.store.events(run_id)))
        taken = next(event for event in runtime.store.events(run_id) if other.name in starters([event]))
        assert taken.at / 1e6 - since < 30.0
        run, events = ended(runtime, run_id)
        assert (run.state, run.verdict) == (State.DONE, "confirmed")
        kinds = [event.type for event in events]
        assert [kinds.count(once) for once in ONCE] == [1] * len(ONCE)

        frozen.signal(signal.SIGCONT)
        wait_for(lambda: "no longer holds" in frozen.logged(), 60)
        assert runtime.store.events(run_id) == events, "it wrote nothing"
        lost = json.loads(next(line for line in frozen.logged().splitlines() if "no longer holds" in line))
        step = next(step for step in runtime.store.steps(run_id) if step.step_id == lost["stepId"])
        assert lost["level"] == "WARNING"
        assert (lost["runId"], lost["role"], lost["attempt"]) == (run_id, step.state, step.attempt)
        assert step.step_id in lost["message"]
        wait_for(lambda: not left_in(frozen.home), 60)
        other.signal(signal.SIGTERM)
        assert other.wait() == 0
        _, following = ended(runtime, team.submit(make_repo(shop.parent / "empty", {"README": "nothing\n"}), "one"))
        assert set(starters(following)) == {frozen.name}, "and it works on as before"
    frozen.signal(signal.SIGTERM)
    assert frozen.wait() == 0
    assert processes_of(str(team.root)) == []
    assert left_in(frozen.home) == left_in(other.home) == []


def test_two_workers_of_a_home_never_share_a_tree(alone: Deployment, tmp_path: Path) -> None:
    frozen = alone.worker(*QUICK)
    with alone.runtime() as runtime:
        run_id = alone.submit(make_repo(tmp_path / "slow", ENDLESS))
        first, second = (str(runtime.home.workspaces / name / "tree") for name in (run_id, f"{run_id}.2"))
        wait_for(lambda: processes_of(f"{first} "))
        frozen.signal(signal.SIGSTOP)
        other = alone.worker(*QUICK)
        wait_for(lambda: processes_of(f"{second} "))
        assert processes_of(f"{first} "), "what the frozen one started still runs, in a tree of its own"
        frozen.signal(signal.SIGCONT)
        wait_for(lambda: not processes_of(f"{first} "), 60)
        assert at_work(runtime, run_id)
        assert processes_of(f"{second} ")
        assert starters(runtime.store.events(run_id)) == [frozen.name, other.name]
        cancel(runtime, run_id)
        ended(runtime, run_id)
        wait_for(lambda: not left_in(other.home), 60)
        assert processes_of(f"{other.home}/workspaces") == []
