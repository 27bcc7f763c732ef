"""Commands that drive a run beside workers: who does the work makes no difference to who asked for it."""

from __future__ import annotations

import json
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from crew_kit import (
    SLOW,
    Site,
    at_work,
    ended,
    has,
    left_in,
    make_repo,
    starters,
    wait_for,
)

from codepilot.core.events import Event, EventType, State
from codepilot.engine import House, Request, Worker, begin, cancel, fetch_bundle, make_task, pause, report_run, resume

ENDLESS = {"test_slow.py": SLOW.format(seconds=60)}
EMPTY = {"README": "nothing to test\n"}


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """For those who work in this process."""
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")


def told(text: str) -> list[str]:
    """The progress lines of a command: what happened to which step."""
    return re.findall(r"^[✓✗-] [A-Z_]+", text, re.MULTILINE)


def report(house: House, run_id: str) -> dict[str, Any]:
    """What a command prints with --json."""
    run, events = house.store.load(run_id), house.store.events(run_id)
    fetch_bundle(run, events, house)
    found: dict[str, Any] = json.loads(report_run(run, events, house.home).model_dump_json())
    return found


def test_a_repair_beside_idle_workers_is_done_by_who_asked_for_it(team: Site, shop: Path) -> None:
    with team.crew("two") as other, team.house("one") as house:
        code, out, err = team.start("fix", str(shop), "--json", "--apply", home="one").end()
        found = json.loads(out)
        assert (code, found["status"], found["verdict"]) == (0, "DONE", "confirmed"), out + err
        assert all(Path(found[name]).is_relative_to(team.root / "one") for name in ("patch", "bundle", "log"))
        assert all(Path(found[name]).exists() for name in ("patch", "bundle", "log"))
        assert found["workspace"] is None
        assert found == report(house, found["run_id"])
        assert "amount >= limit" in (shop / "shop.py").read_text()
        _, events = ended(house, found["run_id"])
        assert len(set(starters(events)) - {other}) == 1
        assert other not in starters(events)
    assert left_in(team.root / "one") == left_in(team.root / "two") == []


def test_runs_that_are_begun_here_are_worked_on_here(site: Site, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "empty", EMPTY)
    with site.crew("one"), site.crew(site.elsewhere), site.house("one") as house:
        task = make_task(Request(repo=str(repo)), site.environ("one"))
        for _ in range(5):
            heard: list[Event] = []
            begun = begin(house, task)
            Worker(house, heard.append, begun=begun).drive(begun.run.run_id)
            _, events = ended(house, begun.run.run_id)
            assert set(starters(events)) == {begun.worker}
            assert heard == events[begun.run.last_seq :]


def test_a_run_that_is_at_work_is_followed_by_who_resumes_it(site: Site, shop: Path) -> None:
    run_id = site.submit(shop, "one")
    with site.held(run_id, site.elsewhere) as let_go, site.house("one") as house:
        follower = site.start("resume", run_id, home="one")
        wait_for(follower.sees_to_a_run)
        let_go.set()
        code, out, err = follower.end()
        assert code == 0, out + err
        run, events = ended(house, run_id)
        assert told(out)[-1] == "✓ FINALIZE"
        assert len(told(out)) == len({event.step_id for event in events} - {None})
        bundle = house.home.bundles / run_id
        assert f"bundle   {bundle}" in out
        assert {"patch.diff", "report.json", "transcript.jsonl"} <= {path.name for path in bundle.iterdir()}
        assert (run.state, len(set(starters(events)))) == (State.DONE, 1)
        assert EventType.RUN_RESUMED not in {event.type for event in events}, "nothing was asked of it"
    if site.elsewhere == "two":
        _shows_a_bundle_only_where_it_is(site, run_id)


def _shows_a_bundle_only_where_it_is(site: Site, run_id: str) -> None:
    """The machine that worked is away, and a third one asks."""
    (site.root / "two").rename(site.root / "away")
    brings = f"codepilot show {run_id} --json"
    shown = site.run("show", run_id, home="three")
    assert brings in shown and str(site.root / "two") not in shown
    brought = json.loads(site.run("show", run_id, "--json", home="three"))["bundle"]
    assert Path(brought) == site.root / "three" / "bundles" / run_id and Path(brought).is_dir()
    shown = site.run("show", run_id, home="three")
    assert f"bundle   {brought}" in shown and brings not in shown


def test_a_failure_is_told_and_recorded_alike_however_often(site: Site, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "empty", EMPTY)

    def fails(house: House) -> dict[str, Any]:
        run_id = site.submit(repo, "one")
        Worker(house).drive(run_id)
        found = report(house, run_id)
        record = Path(found["bundle"])
        assert {path.name for path in record.iterdir()} == {"report.json", "timeline.json", "transcript.jsonl"}
        assert Path(found["log"]).is_relative_to(site.root / "one")
        own = {"run_id", "bundle", "log", "duration_sec", "iterations_detail"}
        return {name: value for name, value in found.items() if name not in own}

    with site.house("one") as house:
        alone = fails(house)
        assert alone["status"] == "FAILED"
        with site.crew(site.elsewhere):
            for _ in range(4):
                assert fails(house) == alone


def test_who_follows_goes_on_where_the_worker_died(site: Site, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "slow", ENDLESS)
    worker = site.worker(home=site.elsewhere)
    heard: list[Event] = []
    with site.house("one") as house:
        run_id = site.submit(repo, "one")
        wait_for(has(house, run_id, EventType.SNAPSHOT_TAKEN))
        follower = Worker(house, heard.append)
        thread = threading.Thread(target=follower.drive, args=(run_id, 0))
        thread.start()
        wait_for(lambda: heard)
        assert set(starters(house.store.events(run_id))) == {worker.name}
        worker.kill()
        wait_for(lambda: starters(house.store.events(run_id))[-1] == follower.name)
        cancel(house, run_id)
        thread.join(90)
        run, events = ended(house, run_id)
        assert (run.state, starters(events)) == (State.ABORTED, [worker.name, follower.name])
        assert heard == events


def test_who_interrupts_what_is_followed_pauses_the_run(alone: Site, tmp_path: Path) -> None:
    with alone.crew() as worker, alone.house() as house:
        run_id = alone.submit(make_repo(tmp_path / "slow", ENDLESS))
        wait_for(has(house, run_id, EventType.SNAPSHOT_TAKEN))
        follower = alone.start("resume", run_id, "--json")
        wait_for(follower.sees_to_a_run)
        follower.signal(signal.SIGINT)
        code, out, err = follower.end(60)
        assert (code, json.loads(out)["status"]) == (130, "PAUSED"), out + err
        assert house.store.load(run_id).state is State.PAUSED

        resume(house, run_id)
        wait_for(lambda: at_work(house, run_id))
        follower = alone.start("resume", run_id)
        wait_for(follower.sees_to_a_run)
        follower.signal(signal.SIGQUIT)
        code, _, err = follower.end(60)
        assert (code, f"codepilot resume {run_id}" in err) == (131, True)
        assert set(starters(house.store.events(run_id))) == {worker}, "whoever follows takes nothing from them"
        cancel(house, run_id)
        ended(house, run_id)


def test_what_is_resumed_may_be_left_to_workers(alone: Site, tmp_path: Path) -> None:
    run_id = alone.submit(make_repo(tmp_path / "empty", EMPTY))
    with alone.house() as house:
        pause(house, run_id)
        with alone.crew() as worker:
            assert alone.run("resume", run_id, "--detach") == run_id
            run, events = ended(house, run_id)
    assert (run.state, set(starters(events))) == (State.FAILED, {worker})
    _, out, _ = alone.start("resume", run_id, "--detach", "--json").end()
    assert json.loads(out)["status"] == "FAILED", "what has ended is shown"


def test_what_is_resumed_here_is_worked_on_here(alone: Site, tmp_path: Path) -> None:
    run_id = alone.submit(make_repo(tmp_path / "empty", EMPTY))
    with alone.house() as house:
        pause(house, run_id)
        with alone.crew() as worker:
            _, out, _ = alone.start("resume", run_id, "--json").end()
            _, events = ended(house, run_id)
    assert json.loads(out)["status"] == "FAILED"
    assert worker not in starters(events)


def test_a_pause_that_is_withdrawn_lets_the_worker_go_on(alone: Site, tmp_path: Path) -> None:
    """The worker is frozen while both are asked for: it sees neither before the other."""
    repo = make_repo(tmp_path / "slow", {"test_slow.py": SLOW.format(seconds=1)})
    worker = alone.worker()
    with alone.house() as house:
        run_id = alone.submit(repo)
        wait_for(has(house, run_id, EventType.SNAPSHOT_TAKEN))
        worker.signal(signal.SIGSTOP)
        assert not pause(house, run_id).terminal
        resume(house, run_id)
        assert not house.store.load(run_id).pause_requested
        worker.signal(signal.SIGCONT)
        wait_for(has(house, run_id, EventType.BASELINE_RECORDED))
        kinds = [event.type for event in house.store.events(run_id)]
        assert EventType.RUN_PAUSED not in kinds
        cancel(house, run_id)
        ended(house, run_id)
