"""Commands that drive a run beside workers: who does the work makes no difference to who asked for it."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

from crew_kit import (
    CODE,
    ONCE,
    SLOW,
    TESTS,
    Site,
    at_work,
    ended,
    has,
    left_in,
    make_repo,
    starters,
    wait_for,
)

from codepilot.core.events import EventType, State
from codepilot.engine import House, cancel

ENDLESS = {"test_slow.py": SLOW.format(seconds=60)}
SLOWER = TESTS.replace("import unittest", "import time, unittest").replace("self.", "time.sleep(0.03); self.")


def followers(house: House) -> int:
    """How many workers the store knows, those included that only follow."""
    return len(house.store.queue._look(None)[1])


def told(text: str) -> list[str]:
    """The progress lines of a command: what happened to which step."""
    return re.findall(r"^[✓✗-] [A-Z_]+", text, re.MULTILINE)


def test_a_repair_beside_an_idle_worker_ends_as_it_does_alone(site: Site, shop: Path) -> None:
    _, alone, _ = site.start("fix", str(shop), home="one").end()
    worker = site.worker(home=site.elsewhere)
    code, out, err = site.start("fix", str(shop), home="one").end()
    assert code == 0, out + err
    assert told(out) == told(alone) != []
    with site.house("one") as house:
        newest = house.store.history(1)[0].run_id
        bundle = house.home.bundles / newest
    assert f"bundle   {bundle}" in out
    assert {"patch.diff", "report.json", "transcript.jsonl"} <= {path.name for path in bundle.iterdir()}

    code, out, err = site.start("fix", str(shop), "--json", "--apply", home="one").end()
    report = json.loads(out)
    assert (code, report["status"], report["verdict"]) == (0, "DONE", "confirmed"), out + err
    assert all(Path(report[name]).is_relative_to(site.root / "one") for name in ("patch", "bundle", "log"))
    assert all(Path(report[name]).exists() for name in ("patch", "bundle", "log"))
    assert report["workspace"] is None
    assert report == json.loads(site.run("show", report["run_id"], "--json", home="one"))
    assert "amount >= limit" in (shop / "shop.py").read_text()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert left_in(site.root / "one") == left_in(worker.home) == []


def test_a_run_that_is_at_work_is_followed_by_who_resumes_it(site: Site, shop: Path) -> None:
    worker = site.worker(home=site.elsewhere)
    with site.house("one") as house:
        run_id = site.submit(shop, "one")
        wait_for(has(house, run_id, EventType.STEP_STARTED))
        code, out, err = site.start("resume", run_id, "--json", home="one").end()
        report = json.loads(out)
        assert (code, report["run_id"], report["status"]) == (0, run_id, "DONE"), out + err
        _, events = ended(house, run_id)
        assert set(starters(events)) == {worker.name}
        assert EventType.RUN_RESUMED not in {event.type for event in events}, "nothing was asked of it"


def test_a_failure_is_told_and_recorded_alike_however_often(site: Site, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "empty", {"README": "nothing to test\n"})

    def fails() -> dict[str, Any]:
        code, out, err = site.start("fix", str(repo), "--json", home="one").end()
        assert code == expected, out + err
        found: dict[str, Any] = json.loads(out)
        record = Path(found["bundle"])
        assert {path.name for path in record.iterdir()} == {"report.json", "timeline.json", "transcript.jsonl"}
        assert Path(found["log"]).is_relative_to(site.root / "one")
        own = {"run_id", "bundle", "log", "duration_sec", "iterations_detail"}
        return {name: value for name, value in found.items() if name not in own}

    expected = site.start("fix", str(repo), "--json", home="one").end()[0]
    assert expected in (1, 2)
    alone = fails()
    worker = site.worker(home=site.elsewhere)
    for _ in range(4):
        assert fails() == alone
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "left to others" not in worker.said()


def test_who_follows_goes_on_where_the_worker_died(site: Site, tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "slower", {"shop.py": CODE, "test_shop.py": SLOWER})
    worker = site.worker(home=site.elsewhere)
    with site.house("one") as house:
        run_id = site.submit(repo, "one")
        wait_for(has(house, run_id, EventType.STEP_STARTED))
        worker.signal(signal.SIGSTOP)
        assert at_work(house, run_id)
        follower = site.start("resume", run_id, home="one")
        wait_for(lambda: followers(house) == 2)
        worker.signal(signal.SIGCONT)
        follower.line("✓ INIT")
        worker.kill()
        assert not house.store.load(run_id).terminal
        code, out, err = follower.end()
        assert code == 0, out + err
        assert told(out)[-1] == "✓ FINALIZE"
        run, events = ended(house, run_id)
        assert (run.state, run.verdict) == (State.DONE, "confirmed")
        kinds = [event.type for event in events]
        assert [kinds.count(once) for once in ONCE] == [1] * len(ONCE)
        assert len(set(starters(events))) == 2


def test_who_interrupts_what_is_followed_pauses_the_run(alone: Site, tmp_path: Path) -> None:
    worker = alone.worker()
    with alone.house() as house:
        run_id = alone.submit(make_repo(tmp_path / "slow", ENDLESS))
        wait_for(has(house, run_id, EventType.SNAPSHOT_TAKEN))
        follower = alone.start("resume", run_id, "--json")
        wait_for(lambda: followers(house) == 2)
        follower.signal(signal.SIGINT)
        code, out, err = follower.end(30)
        assert (code, json.loads(out)["status"]) == (130, "PAUSED"), out + err
        assert house.store.load(run_id).state is State.PAUSED
        assert worker.process.poll() is None

        follower = alone.start("resume", run_id)
        wait_for(lambda: at_work(house, run_id))
        wait_for(lambda: followers(house) == 2)
        follower.signal(signal.SIGQUIT)
        code, _, err = follower.end(30)
        assert (code, f"codepilot resume {run_id}" in err) == (131, True)
        cancel(house, run_id)
        ended(house, run_id)


def test_what_is_resumed_may_be_left_to_workers(alone: Site, shop: Path) -> None:
    run_id = alone.submit(shop)
    assert alone.run("pause", run_id) == f"{run_id} is PAUSED."
    worker = alone.worker()
    assert alone.run("resume", run_id, "--detach") == run_id
    with alone.house() as house:
        run, events = ended(house, run_id)
    assert (run.state, set(starters(events))) == (State.DONE, {worker.name})
    assert "confirmed" in alone.run("resume", run_id, "--detach"), "what has ended is shown"


def test_a_pause_that_is_withdrawn_lets_the_worker_go_on(alone: Site, tmp_path: Path) -> None:
    """The worker is frozen while both are asked for: it sees neither before the other."""
    repo = make_repo(tmp_path / "slow", {"test_slow.py": SLOW.format(seconds=2)})
    worker = alone.worker()
    with alone.house() as house:
        run_id = alone.submit(repo)
        wait_for(has(house, run_id, EventType.SNAPSHOT_TAKEN))
        worker.signal(signal.SIGSTOP)
        assert "pauses after the action in hand" in alone.run("pause", run_id)
        assert alone.run("resume", run_id, "--detach") == run_id
        assert not house.store.load(run_id).pause_requested
        worker.signal(signal.SIGCONT)
        wait_for(has(house, run_id, EventType.BASELINE_RECORDED))
        kinds = [event.type for event in house.store.events(run_id)]
        assert EventType.RUN_PAUSED not in kinds
        cancel(house, run_id)
        ended(house, run_id)
