"""Killed, paused, cancelled: nothing is lost and nothing is done twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_kit import Command, Repo

from codepilot.cli.drive import early_interrupts
from codepilot.core.events import EventType
from ready import Started


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
    reported = capsys.readouterr().err
    assert ("codepilot resume r-x" in reported) is recorded
    assert ("Nothing was begun" in reported) is not recorded


IGNORING = """
import os, signal, subprocess
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
from codepilot.cli import app

def command():
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        os.kill(os.getpid(), number)
    subprocess.run(["grep", "SigIgn", "/proc/self/status"], check=True)

app.app = command
app.run()
"""


def test_what_a_background_shell_has_us_ignore_is_not_ignored_by_what_we_start() -> None:
    done = subprocess.run([sys.executable, "-c", IGNORING], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, "nor are we ended by it"
    assert int(done.stdout.split()[1], 16) & 0b111 == 0


@pytest.mark.slow
def test_a_run_killed_again_and_again_is_resumed_to_the_same_end(codepilot: Command, shop: Path) -> None:
    command = ("fix", str(shop))
    for delay in (0.0, 0.6, 1.2, 1.2):
        process = _at_work(codepilot, *command, "--json")
        time.sleep(delay)
        process.kill()
        process.communicate()
        run_id = codepilot.newest()
        assert run_id is not None
        command = ("resume", run_id)
    ended = codepilot("resume", run_id, "--json")
    assert ended.code == 0, ended.out + ended.err
    assert ended.json["verdict"] == "confirmed"
    with codepilot.runtime() as runtime:
        runtime.store.check(run_id)
        run, reported = runtime.store.load(run_id), [event.type for event in runtime.store.events(run_id)]
    assert run.proposal is not None
    assert "+    if amount >= limit:" in run.proposal.patch.diff
    for once in ONCE:
        assert reported.count(once) == 1, once
    logged = [json.loads(line)["event"] for line in (codepilot.home / "logs" / f"{run_id}.jsonl").open()]
    assert logged == reported, "the log file tells the same, no line lost or twice"
    assert survivors(str(codepilot.home)) == []


@pytest.mark.variants
def test_a_run_that_is_quit_and_then_paused_goes_on(codepilot: Command, shop: Path) -> None:
    process = _at_work(codepilot, "fix", str(shop))
    process.send_signal(signal.SIGQUIT)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, "codepilot resume" in err) == (131, True)
    run_id = codepilot.newest()
    assert run_id is not None
    process = _at_work(codepilot, "resume", run_id)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode in (130, 0), out + err
    if process.returncode == 130:
        assert f"codepilot resume {run_id}" in out
        assert codepilot("show", run_id, "--json").json["status"] == "PAUSED"
        assert codepilot("resume", run_id, "--json").json["status"] == "DONE"


def _at_work(codepilot: Command, *arguments: str) -> Started:
    """A command that was started and has logged something, or has ended."""

    def logged() -> int:
        return sum(path.stat().st_size for path in (codepilot.home / "logs").glob("*.jsonl"))

    before, process, deadline = logged(), codepilot.start(*arguments), time.monotonic() + 60
    while logged() == before and process.poll() is None:
        assert time.monotonic() < deadline, "nothing was logged"
        time.sleep(0.05)
    return process


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
    out, err = process.communicate(timeout=300)
    report = json.loads(out)
    assert report["status"] == state, out + err
    assert survivors(str(codepilot.home)) == []
    if how == "cancel":
        assert (report["failure"]["kind"], process.returncode) == ("cancelled", 1)
        assert list((codepilot.home / "workspaces").iterdir()) == []


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
