"""What workers do together: every queued run is worked on, by one at a time, in order."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import time
from pathlib import Path

import pytest
from workers_kit import (
    CODE,
    ONCE,
    SLOW,
    TESTS,
    Deployment,
    WorkerProcess,
    at_work,
    ended,
    has,
    left_in,
    make_repo,
    processes_of,
    starters,
    wait_for,
    waited,
)

from codepilot.core.decide import decide_resume
from codepilot.core.events import EventType, State
from codepilot.engine import Runtime, cancel, pause
from codepilot.store import StepStatus
from servers import PostgresServer, free_ports

ENDLESS = {"test_slow.py": SLOW.format(seconds=60)}


def test_a_killed_workers_step_is_taken_over_long_before_its_lease_ends(alone: Deployment, shop: Path) -> None:
    first = alone.worker(home="one")
    with alone.runtime("one") as runtime:
        run_id = alone.run("submit", str(shop), home="one")
        wait_for(has(runtime, run_id, EventType.SEARCH_PROGRESSED))
        first.signal(signal.SIGSTOP)  # it shall not have finished before the other is there
        second = alone.worker(home=alone.elsewhere)
        first.kill()
        killed = time.time()
        wait_for(lambda: second.name in starters(runtime.store.events(run_id)))
        taken = next(event for event in runtime.store.events(run_id) if second.name in starters([event]))
        assert taken.at / 1e6 - killed < 20.0
        run, events = ended(runtime, run_id)
        assert (run.state, run.verdict) == (State.DONE, "confirmed")
        kinds = [event.type for event in events]
        assert [kinds.count(once) for once in ONCE] == [1] * len(ONCE)
        assert set(starters(events)) == {first.name, second.name}
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    assert processes_of(str(alone.root)) == []
    assert left_in(second.home) == []
    alone.run("apply", run_id, home="one")
    alone.run("apply", run_id, home="one")
    assert "amount >= limit" in (shop / "shop.py").read_text()
    with alone.runtime("one") as runtime:
        assert [event.type for event in runtime.store.events(run_id)].count(EventType.PATCH_APPLIED) == 1


def test_the_first_signal_drains_for_a_while_and_the_second_gives_back(team: Deployment, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "slow", {"test_slow.py": SLOW.format(seconds=1)})
    first = team.worker(home="one")
    with team.runtime("one") as runtime:
        run_id = team.submit(repo, "one")
        wait_for(has(runtime, run_id, EventType.SNAPSHOT_TAKEN))
        first.signal(signal.SIGTERM)
        assert first.wait() == 0
        done = [event.type for event in runtime.store.events(run_id)]
        assert done.count(EventType.BASELINE_RECORDED) == 1, "it finishes the step in hand"
        assert done[-1] is EventType.STEP_QUEUED, "and takes no other"
        assert [step.status for step in runtime.store.steps(run_id)] == [StepStatus.SUCCEEDED, StepStatus.PENDING]
        cancel(runtime, run_id)

        run_id = team.submit(make_repo(tmp_path / "endless", ENDLESS), "one")
        second = team.worker(home="two")
        wait_for(has(runtime, run_id, EventType.SNAPSHOT_TAKEN))
        second.signal(signal.SIGTERM)
        wait_for(lambda: '"draining": true' in second.get("/healthz")[1])
        second.signal(signal.SIGTERM)
        asked = time.monotonic()
        assert second.wait() == 0
        assert time.monotonic() - asked < 30.0
        assert runtime.store.steps(run_id)[0].status is StepStatus.PENDING
        assert processes_of(str(team.root)) == []
        third = team.worker("--drain", "1", home="three")
        wait_for(lambda: third.name in starters(runtime.store.events(run_id)))
        third.signal(signal.SIGTERM)
        assert third.wait() == 0
        assert runtime.store.steps(run_id)[0].status is StepStatus.PENDING, "it drains for no longer than it may"
        cancel(runtime, run_id)
        ended(runtime, run_id)


def test_the_important_come_first_then_the_oldest(alone: Deployment, tmp_path: Path) -> None:
    """A repository without tests is refused at once, which is all that is needed here."""
    repo = make_repo(tmp_path / "empty", {"README": "nothing to test\n"})
    submitted = [alone.submit(repo, priority=priority) for priority in (0, 5, -5, 5, 0)]
    assert alone.worker("--until-idle").wait(90) == 0
    with alone.runtime() as runtime:
        began = {run_id: runtime.store.steps(run_id)[0].claimed_at or 0 for run_id in submitted}
    wanted = [submitted[place] for place in (1, 3, 0, 4, 2)]
    assert sorted(submitted, key=lambda run_id: began[run_id]) == wanted


@pytest.mark.variants
def test_the_urgent_do_not_wait_for_the_rest_of_another_run(alone: Deployment, tmp_path: Path) -> None:
    """All hands are busy: a less urgent run is left after the step at hand, and gone on with afterwards."""
    slow = "import time, unittest\n\nclass Slow(unittest.TestCase):\n    def test_it(self):\n        time.sleep(5)\n"
    files = {"shop.py": CODE, "test_shop.py": TESTS, "test_slow.py": slow}
    repo, empty = make_repo(tmp_path / "slow", files), make_repo(tmp_path / "empty", {"README": "nothing to test\n"})
    with alone.runtime("one") as runtime:
        patient = alone.submit(repo, "one", priority=-10)
        alone.worker(home="one")
        wait_for(lambda: runtime.store.queue.running() == 1)
        urgent = alone.submit(empty, "one", priority=10)
        wait_for(lambda: runtime.store.load(urgent).terminal)
        wait_for(lambda: len([step for step in runtime.store.steps(patient) if step.claimed_at]) > 1)
        begun = [step.claimed_at or 0 for step in runtime.store.steps(patient)]
        assert begun[0] < (runtime.store.steps(urgent)[0].claimed_at or 0) < begun[1]
        cancel(runtime, patient)
        ended(runtime, patient)


def test_a_run_that_cannot_be_read_is_named_and_keeps_nobody_from_the_others(alone: Deployment, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "empty", {"README": "nothing to test\n"})
    spoilt, sound = alone.submit(repo), alone.submit(repo)
    with alone.runtime() as runtime:
        database = runtime.home.database
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("DROP TRIGGER events_no_update")
        connection.execute("UPDATE events SET type = 'from_another_time' WHERE run_id = ? AND seq = 2", [spoilt])
        connection.execute("UPDATE views SET schema_digest = 'another' WHERE run_id = ?", [spoilt])
    worker = alone.worker("--until-idle")
    assert worker.wait() == 0
    assert f"Run {spoilt} cannot be read: event 2" in worker.logged()
    with alone.runtime() as runtime:
        assert runtime.store.load(sound).terminal
        assert runtime.store.steps(spoilt)[0].status is StepStatus.PENDING


@pytest.mark.variants
def test_no_more_are_at_work_than_may_be_though_not_all_were_reported(
    team: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    repo = make_repo(tmp_path / "slow", ENDLESS)
    runs = [team.submit(repo, "one") for _ in range(4)]
    worker = team.worker("--concurrency", "2", "--most-running", "3", home="one")
    with team.runtime("one") as runtime, team.pool(team.elsewhere):
        wait_for(lambda: runtime.store.queue.running() == 3)
        time.sleep(2.2)
        assert runtime.store.queue.running() == 3
        holders = [step.worker for run_id in runs for step in runtime.store.steps(run_id) if step.worker]
        assert sorted(map(holders.count, set(holders))) == [1, 2], "no worker has more than its own limit"
        cancel(runtime, runs[0])
        wait_for(lambda: at_work(runtime, runs[3]))
        for run_id in runs[1:]:
            cancel(runtime, run_id)
        wait_for(lambda: all(runtime.store.load(run_id).state is State.ABORTED for run_id in runs))
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.variants
def test_artifacts_that_only_one_home_would_have_are_spoken_of(tmp_path: Path, postgres: PostgresServer) -> None:
    repo = make_repo(tmp_path / "empty", {"README": "nothing to test\n"})
    store = {"CODEPILOT_STORE": postgres.store()}
    for name, environ, times in (("own", {}, 1), ("named", {"CODEPILOT_ARTIFACTS": str(tmp_path / "shared")}, 0)):
        with contextlib.closing(Deployment(tmp_path / name, {**store, **environ})) as deployment:
            code, out, err = deployment.start("submit", str(repo)).end()
            assert (code, out.startswith("r-"), len(out.split())) == (0, True, 1)
            assert (len(err.splitlines()), err.count("s3://BUCKET")) == (times + 1, times), err
            assert "no worker is running" in err
            worker = deployment.worker("--until-idle")
            assert worker.wait(90) == 0
            assert worker.logged().count("s3://BUCKET") == times


def test_a_worker_that_waits_for_its_store_says_so_once(alone: Deployment) -> None:
    worker = alone.worker("--store", f"postgresql://nobody@127.0.0.1:{free_ports(1)[0]}/none", ready=False)
    wait_for(lambda: "for the store" in worker.logged())
    time.sleep(2.5)
    assert worker.logged().count("for the store") == 1


def test_a_worker_says_which_limit_holds(alone: Deployment) -> None:
    for flags, holds in ((["--most-running", "3"], 3), ([], 3), (["--most-running", "0"], None)):
        worker = alone.worker("--until-idle", *flags, ready=False)
        logged, _ = worker.process.communicate(timeout=90)
        assert json.loads(logged)["most_running"] == holds
    assert "no limit of running steps; it was 3" in worker.logged()


def test_requests_are_noticed_at_once_and_leave_nothing_behind(alone: Deployment, tmp_path: Path) -> None:
    worker = alone.worker(home="one")
    with alone.runtime("one") as runtime:
        _is_small_and_starts_at_once(alone, worker, runtime, make_repo(tmp_path / "empty", {"README": "nothing\n"}))
        run_id = alone.submit(make_repo(tmp_path / "slow", ENDLESS), "one")
        wait_for(has(runtime, run_id, EventType.SNAPSHOT_TAKEN))
        wait_for(lambda: processes_of(str(worker.home)))
        pause(runtime, run_id)
        wait_for(lambda: runtime.store.load(run_id).state is State.PAUSED)
        assert waited(runtime.store.events(run_id), EventType.PAUSE_REQUESTED, EventType.RUN_PAUSED) < 10.0
        wait_for(lambda: not processes_of(f"{worker.home}/workspaces"), 60)
        assert runtime.store.queue.idle() and runtime.store.queue.depth() == 0
        assert alone.worker("--until-idle", home="one").wait() == 0, "nobody waits for a paused run"

        runtime.store.control(run_id, decide_resume)
        wait_for(lambda: processes_of(f"{worker.home}/workspaces"))
        cancel(runtime, run_id)
        run, events = ended(runtime, run_id)
        assert run.state is State.ABORTED
        assert waited(events, EventType.CANCEL_REQUESTED, EventType.RUN_FINISHED) < 10.0
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert processes_of(str(alone.root)) == []
    assert left_in(alone.root / "one") == []


@pytest.mark.variants
def test_the_wall_clock_goes_on_where_a_dead_worker_left_it(alone: Deployment, tmp_path: Path) -> None:
    run_id = alone.submit(make_repo(tmp_path / "slow", ENDLESS), budget={"wall_sec": 8.0})
    with alone.runtime() as runtime:
        worker = alone.worker()
        wait_for(has(runtime, run_id, EventType.SNAPSHOT_TAKEN))
        time.sleep(1.0)
        pause(runtime, run_id)
        wait_for(lambda: runtime.store.load(run_id).state is State.PAUSED)
        worker.kill()
        runtime.store.control(run_id, decide_resume)
        before = runtime.store.load(run_id).spent.wall_us / 1e6
        assert 1.0 < before < 8.0
        worker = alone.worker()
        run, events = ended(runtime, run_id)
        assert run.failure is not None
        assert (run.state, run.failure.kind.value) == (State.ABORTED, "budget_exceeded")
        assert 8.0 <= run.spent.wall_us / 1e6 < 20.0
        second = [event.at for event in events if event.type is EventType.STEP_STARTED][-1]
        assert (events[-1].at - second) / 1e6 < 8.0, "what was spent before counts"


def _is_small_and_starts_at_once(deployment: Deployment, idle: WorkerProcess, runtime: Runtime, repo: Path) -> None:
    began, used = time.monotonic(), _cpu_sec(idle)
    time.sleep(1.0)
    assert _cpu_sec(idle) - used < (time.monotonic() - began) / 4, "it rests where there is nothing to do"
    status = Path(f"/proc/{idle.pid}/status").read_text()
    assert int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024 < 120
    _, events = ended(runtime, deployment.submit(repo, "one"))
    assert waited(events, EventType.STEP_QUEUED, EventType.STEP_STARTED) < 10.0


def _cpu_sec(worker: WorkerProcess) -> float:
    """What it has used of a processor, in its own name and in the system's."""
    after_name = Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, after_name[11:13])) / os.sysconf("SC_CLK_TCK")
