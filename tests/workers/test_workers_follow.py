"""Commands that drive a run next to workers: who does the work makes no difference to who asked for it."""

from __future__ import annotations

import json
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from workers_kit import (
    SLOW,
    Deployment,
    at_work,
    ended,
    has,
    left_in,
    make_repo,
    starters,
    wait_for,
)

from codepilot.core.events import Event, EventType, State
from codepilot.engine import Request, Runtime, Worker, begin, cancel, fetch_bundle, make_task, pause, report_run, resume
from configured import configured

ENDLESS = {"test_slow.py": SLOW.format(seconds=60)}
EMPTY = {"README": "nothing to test\n"}


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """For those who work in this process."""
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")


def reported(text: str) -> list[str]:
    """The progress lines of a command: what happened to which step."""
    return re.findall(r"^[✓✗-] [A-Z_]+", text, re.MULTILINE)


def report(runtime: Runtime, run_id: str) -> dict[str, Any]:
    """What a command prints with --json."""
    run, events = runtime.store.load(run_id), runtime.store.events(run_id)
    fetch_bundle(run, events, runtime)
    found: dict[str, Any] = json.loads(report_run(run, events, runtime.home).model_dump_json())
    return found


@pytest.mark.variants
def test_a_repair_next_to_idle_workers_is_done_by_who_asked_for_it(team: Deployment, shop: Path) -> None:
    with team.pool("two") as other, team.runtime("one") as runtime:
        code, out, err = team.start("fix", str(shop), "--json", "--apply", home="one").end()
        found = json.loads(out)
        assert (code, found["status"], found["verdict"]) == (0, "DONE", "confirmed"), out + err
        assert all(Path(found[name]).is_relative_to(team.root / "one") for name in ("patch", "bundle", "log"))
        assert all(Path(found[name]).exists() for name in ("patch", "bundle", "log"))
        assert found["workspace"] is None
        assert found == report(runtime, found["run_id"])
        assert "amount >= limit" in (shop / "shop.py").read_text()
        _, events = ended(runtime, found["run_id"])
        assert len(set(starters(events)) - {other}) == 1
        assert other not in starters(events)
    assert left_in(team.root / "one") == left_in(team.root / "two") == []


def test_runs_that_are_begun_here_are_worked_on_here(team: Deployment, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "empty", EMPTY)
    with team.pool("one"), team.pool(team.elsewhere), team.runtime("one") as runtime:
        task = make_task(Request(repo=str(repo)), configured(team.environ("one")))
        for _ in range(5):
            received: list[Event] = []
            begun = begin(runtime, task)
            Worker(runtime, received.append, begun=begun).drive(begun.run.run_id)
            _, events = ended(runtime, begun.run.run_id)
            assert set(starters(events)) == {begun.worker}
            assert received == events[begun.run.last_seq :]


@pytest.mark.variants
def test_a_run_that_is_at_work_is_followed_by_who_resumes_it(team: Deployment, shop: Path) -> None:
    run_id = team.submit(shop, "one")
    with team.held(run_id, team.elsewhere) as let_go, team.runtime("one") as runtime:
        follower = team.start("resume", run_id, home="one")
        wait_for(follower.sees_to_a_run)
        let_go.set()
        code, out, err = follower.end()
        assert code == 0, out + err
        run, events = ended(runtime, run_id)
        assert reported(err)[-1] == "✓ FINALIZE"
        skipped = {event.step_id for event in events if event.type is EventType.STEP_SKIPPED}
        assert len(reported(err)) == len({event.step_id for event in events} - {None} - skipped)
        bundle = runtime.home.bundles / run_id
        assert f"bundle   {bundle}" in out
        assert {"patch.diff", "report.json", "transcript.jsonl"} <= {path.name for path in bundle.iterdir()}
        assert (run.state, len(set(starters(events)))) == (State.DONE, 1)
        assert EventType.RUN_RESUMED not in {event.type for event in events}, "nothing was asked of it"
    _shows_a_bundle_only_where_it_is(team, run_id)


def _shows_a_bundle_only_where_it_is(deployment: Deployment, run_id: str) -> None:
    """The machine that worked is away, and a third one asks."""
    (deployment.root / "two").rename(deployment.root / "away")
    brings = f"codepilot show {run_id} --json"
    shown = deployment.run("show", run_id, home="three")
    assert brings in shown and str(deployment.root / "two") not in shown
    brought = json.loads(deployment.run("show", run_id, "--json", home="three"))["bundle"]
    assert Path(brought) == deployment.root / "three" / "bundles" / run_id and Path(brought).is_dir()
    shown = deployment.run("show", run_id, home="three")
    assert f"bundle   {brought}" in shown and brings not in shown
    _, _, err = deployment.start("verify", run_id, "--repo", str(deployment.root), home="four").end()
    assert "There is no bundle" not in err and (deployment.root / "four" / "bundles" / run_id).is_dir(), err


def test_a_failure_is_reported_and_recorded_alike_however_often(alone: Deployment, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "empty", EMPTY)

    def fails(runtime: Runtime) -> dict[str, Any]:
        run_id = alone.submit(repo, "one")
        Worker(runtime).drive(run_id)
        found = report(runtime, run_id)
        record = Path(found["bundle"])
        assert {path.name for path in record.iterdir()} == {"report.json", "timeline.json", "transcript.jsonl"}
        assert Path(found["log"]).is_relative_to(alone.root / "one")
        own = {"run_id", "bundle", "log", "duration_sec", "iterations_detail"}
        return {name: value for name, value in found.items() if name not in own}

    with alone.runtime("one") as runtime:
        first = fails(runtime)
        assert first["status"] == "FAILED"
        with alone.pool(alone.elsewhere):
            for _ in range(4):
                assert fails(runtime) == first


def test_who_follows_goes_on_where_the_worker_died(team: Deployment, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "slow", ENDLESS)
    worker = team.worker(home=team.elsewhere)
    received: list[Event] = []
    with team.runtime("one") as runtime:
        run_id = team.submit(repo, "one")
        wait_for(has(runtime, run_id, EventType.SNAPSHOT_TAKEN))
        follower = Worker(runtime, received.append)
        thread = threading.Thread(target=follower.drive, args=(run_id, 0))
        thread.start()
        wait_for(lambda: received)
        assert set(starters(runtime.store.events(run_id))) == {worker.name}
        worker.kill()
        wait_for(lambda: starters(runtime.store.events(run_id))[-1] == follower.name)
        cancel(runtime, run_id)
        thread.join(90)
        run, events = ended(runtime, run_id)
        assert (run.state, starters(events)) == (State.ABORTED, [worker.name, follower.name])
        assert received == events


def test_who_interrupts_what_is_followed_pauses_the_run(alone: Deployment, tmp_path: Path) -> None:
    with alone.pool() as worker, alone.runtime() as runtime:
        run_id = alone.submit(make_repo(tmp_path / "slow", ENDLESS))
        wait_for(has(runtime, run_id, EventType.SNAPSHOT_TAKEN))
        follower = alone.start("resume", run_id, "--json")
        wait_for(follower.sees_to_a_run)
        follower.signal(signal.SIGINT)
        code, out, err = follower.end(60)
        assert (code, json.loads(out)["status"]) == (130, "PAUSED"), out + err
        assert runtime.store.load(run_id).state is State.PAUSED

        resume(runtime, run_id)
        wait_for(lambda: at_work(runtime, run_id))
        follower = alone.start("resume", run_id)
        wait_for(follower.sees_to_a_run)
        follower.signal(signal.SIGQUIT)
        code, _, err = follower.end(60)
        assert (code, f"codepilot resume {run_id}" in err) == (131, True)
        assert set(starters(runtime.store.events(run_id))) == {worker}, "anyone who follows takes nothing from them"
        cancel(runtime, run_id)
        ended(runtime, run_id)


def test_what_is_resumed_may_be_left_to_workers(alone: Deployment, tmp_path: Path) -> None:
    run_id = alone.submit(make_repo(tmp_path / "empty", EMPTY))
    with alone.runtime() as runtime:
        pause(runtime, run_id)
        with alone.pool() as worker:
            assert alone.run("resume", run_id, "--detach") == run_id
            run, events = ended(runtime, run_id)
    assert (run.state, set(starters(events))) == (State.FAILED, {worker})
    _, out, _ = alone.start("resume", run_id, "--detach", "--json").end()
    assert json.loads(out)["status"] == "FAILED", "what has ended is shown"


def test_what_is_resumed_here_is_worked_on_here(alone: Deployment, tmp_path: Path) -> None:
    run_id = alone.submit(make_repo(tmp_path / "empty", EMPTY))
    with alone.runtime() as runtime:
        pause(runtime, run_id)
        with alone.pool() as worker:
            _, out, _ = alone.start("resume", run_id, "--json").end()
            _, events = ended(runtime, run_id)
    assert json.loads(out)["status"] == "FAILED"
    assert worker not in starters(events)


def test_a_pause_that_is_withdrawn_lets_the_worker_go_on(alone: Deployment, tmp_path: Path) -> None:
    """The worker is frozen while both are asked for: it sees neither before the other."""
    repo = make_repo(tmp_path / "slow", {"test_slow.py": SLOW.format(seconds=1)})
    worker = alone.worker()
    with alone.runtime() as runtime:
        run_id = alone.submit(repo)
        wait_for(has(runtime, run_id, EventType.SNAPSHOT_TAKEN))
        worker.signal(signal.SIGSTOP)
        assert not pause(runtime, run_id).terminal
        resume(runtime, run_id)
        assert not runtime.store.load(run_id).pause_requested
        worker.signal(signal.SIGCONT)
        wait_for(has(runtime, run_id, EventType.BASELINE_RECORDED))
        kinds = [event.type for event in runtime.store.events(run_id)]
        assert EventType.RUN_PAUSED not in kinds
        cancel(runtime, run_id)
        ended(runtime, run_id)
