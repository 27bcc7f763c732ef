"""Killed, paused, cancelled: nothing is lost and nothing is done twice."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from cli_kit import Command, Repo

from codepilot.cli.signals import early_interrupts
from codepilot.core.events import EventType


def survivors(marker: str) -> list[str]:
    """Processes whose command line or environment mentions the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if marker in line:
                found.append(line)
    return found


ONCE = (
    EventType.BASELINE_RECORDED,
    EventType.PATCH_PROPOSED,
    EventType.TESTS_JUDGED,
    EventType.REVIEW_RECORDED,
    EventType.PROOF_RECORDED,
    EventType.BUNDLE_WRITTEN,
    EventType.RUN_FINISHED,
)


@pytest.mark.parametrize("recorded", [False, True])
def test_an_interrupt_before_the_work_begins_says_what_is(recorded: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, early_interrupts("r-x") as known:
        if recorded:
            known.set()
        raise KeyboardInterrupt
    assert ended.value.code == 130
    told = capsys.readouterr().err
    assert ("codepilot resume r-x" in told) is recorded
    assert ("Nothing was begun" in told) is not recorded


@pytest.mark.parametrize("delay", [0.9, 2.0, 3.5, 5.5])
def test_a_killed_run_is_resumed_to_the_same_end(codepilot: Command, shop: Path, delay: float) -> None:
    process = codepilot.start("fix", str(shop), "--json")
    time.sleep(delay)
    process.kill()
    process.communicate()
    run_id = codepilot.newest()
    if run_id is None:
        assert codepilot("fix", str(shop), "--json").code == 0
        return
    ended = codepilot("resume", run_id, "--json")
    assert ended.code == 0, ended.out + ended.err
    assert ended.json["verdict"] == "confirmed"
    with codepilot.house() as house:
        house.store.check(run_id)
        run, told = house.store.load(run_id), [event.type for event in house.store.events(run_id)]
    assert run.proposal is not None
    assert "+    if amount >= limit:" in run.proposal.patch.diff
    for once in ONCE:
        assert told.count(once) == 1, once
    logged = [json.loads(line)["event"] for line in (codepilot.home / "logs" / f"{run_id}.jsonl").open()]
    assert logged == told, "the log file tells the same, no line lost or twice"
    assert survivors(str(codepilot.home)) == []


def test_ctrl_c_pauses_and_resume_goes_on(codepilot: Command, shop: Path) -> None:
    process = codepilot.start("fix", str(shop))
    deadline = time.monotonic() + 60
    while not list((codepilot.home / "logs").glob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (130, 0), out + err
    if process.returncode == 130:
        run_id = codepilot.newest()
        assert run_id is not None
        assert f"codepilot resume {run_id}" in out
        assert codepilot("show", run_id, "--json").json["status"] == "PAUSED"
        assert codepilot("resume", run_id, "--json").json["status"] == "DONE"


def test_cancel_from_another_process_ends_a_run_and_cleans_up(codepilot: Command, shop: Path) -> None:
    process = codepilot.start("fix", str(shop), "--json")
    deadline = time.monotonic() + 60
    while (run_id := codepilot.newest()) is None and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run_id is not None, process.communicate() if process.poll() is not None else "it still runs"
    assert codepilot("cancel", run_id).code == 0
    process.communicate(timeout=60)
    report = codepilot("show", run_id, "--json").json
    if report["status"] == "DONE":
        return
    assert (report["status"], report["failure"]["kind"], process.returncode) == ("ABORTED", "cancelled", 1)
    assert list((codepilot.home / "workspaces").iterdir()) == []


SLOW = "import time, unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        time.sleep(60)\n"


@pytest.mark.parametrize(("how", "state"), [("cancel", "ABORTED"), ("pause", "PAUSED")])
def test_a_slow_suite_is_not_waited_for(codepilot: Command, repo: Repo, how: str, state: str) -> None:
    process = codepilot.start("fix", str(repo({"test_slow.py": SLOW})), "--json")
    log = codepilot.home / "logs"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if any(b"workspace_created" in path.read_bytes() for path in log.glob("*.jsonl")):
            break
        time.sleep(0.05)
    if how == "cancel":
        assert codepilot("cancel", "last").code == 0
    else:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert json.loads(out)["status"] == state, out + err
    assert survivors(str(codepilot.home)) == []


def test_a_paused_run_is_cancelled_without_a_worker(codepilot: Command, shop: Path) -> None:
    process = codepilot.start("fix", str(shop), "--json")
    time.sleep(1.0)
    process.kill()
    process.communicate()
    run_id = codepilot.newest()
    if run_id is not None:
        assert codepilot("cancel", run_id).code == 0
        assert codepilot("show", run_id, "--json").json["status"] == "ABORTED"
        assert list((codepilot.home / "workspaces").iterdir()) == []


def test_gc_removes_what_has_rested(codepilot: Command, shop: Path) -> None:
    ended = codepilot("fix", str(shop), "--budget", "wall_sec=0.5", "--json")
    assert (ended.code, ended.json["failure"]["kind"]) == (1, "budget_exceeded")
    kept = list((codepilot.home / "workspaces").iterdir())
    assert codepilot("gc").code == 0
    assert list((codepilot.home / "workspaces").iterdir()) == kept
    assert codepilot("gc", "--days", "0").code == 0
    assert list((codepilot.home / "workspaces").iterdir()) == []


def test_quit_at_once_loses_nothing(codepilot: Command, shop: Path) -> None:
    process = codepilot.start("fix", str(shop))
    deadline = time.monotonic() + 60
    while not list((codepilot.home / "logs").glob("*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGQUIT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, "codepilot resume" in err) == (131, True)
    run_id = codepilot.newest()
    assert run_id is not None
    assert codepilot("resume", run_id, "--json").json["status"] == "DONE"
