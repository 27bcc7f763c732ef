"""`pause`, `resume`, `fork` and `gc --artifacts` as people type them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_kit import Command, Repo, kinds, started

from codepilot.core.decide import ask_cancel
from codepilot.core.events import EventType, State
from codepilot.core.run import Run
from codepilot.engine import pause
from codepilot.store import open_artifacts

EMPTY = {"README": "nothing to test\n"}
SLOW = "import time, unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        time.sleep(60)\n"


def load(codepilot: Command, run_id: str) -> Run:
    with codepilot.runtime() as runtime:
        return runtime.store.load(run_id)


# pause and resume -----------------------------------------------------------------------------------


@pytest.mark.variants
def test_a_queued_run_pauses_at_once_and_the_first_resume_goes_on(codepilot: Command, shop: Path) -> None:
    run_id = codepilot("submit", str(shop)).out.strip()
    paused = codepilot("pause", run_id)
    assert (paused.code, paused.out) == (0, f"{run_id} is PAUSED.\n")
    assert codepilot("show", run_id, "--json").json["status"] == "PAUSED"
    assert codepilot("pause", "last").out == f"{run_id} is PAUSED.\n"
    ended = codepilot("resume", run_id, "--json")
    assert (ended.code, ended.json["status"]) == (0, "DONE"), ended.out + ended.err
    for command in ("pause", "cancel"):
        too_late = codepilot(command, run_id)
        assert (too_late.code, too_late.out) == (0, f"{run_id} is DONE already: there is nothing to {command}.\n")
    assert kinds(codepilot, run_id).count(EventType.RUN_PAUSED) == 1


def test_what_became_of_a_request_is_reported_as_json_too(codepilot: Command, shop: Path) -> None:
    run_id = codepilot("submit", str(shop)).out.strip()
    for command, status in (("pause", "PAUSED"), ("cancel", "ABORTED")):
        asked = codepilot(command, run_id, "--json")
        reported = {"schema_version": 1, "run_id": run_id, "status": status, "message": f"{run_id} is {status}."}
        assert (asked.code, asked.json) == (0, reported), asked.err
    late = codepilot("pause", run_id, "--json").json
    assert (late["status"], late["message"]) == ("ABORTED", f"{run_id} is ABORTED already: there is nothing to pause.")
    refused = codepilot("cancel", "r-nothing", "--json")
    assert (refused.code, refused.json["failure"]["kind"]) == (2, "invalid_spec")


@pytest.mark.variants
def test_a_run_whose_process_was_killed_pauses_where_it_stood(codepilot: Command, shop: Path) -> None:
    process, run_id = started(codepilot, EventType.SEARCH_PROGRESSED, "fix", str(shop))
    process.kill()
    process.communicate()
    assert codepilot("pause", run_id).out == f"{run_id} is PAUSED.\n"
    assert load(codepilot, run_id).resume_state is State.IMPLEMENT
    ended = codepilot("resume", "--json")
    assert (ended.code, ended.json["status"]) == (0, "DONE"), ended.out + ended.err
    assert kinds(codepilot, run_id).count(EventType.BASELINE_RECORDED) == 1


def test_a_run_at_work_pauses_at_its_next_safe_point(codepilot: Command, repo: Repo) -> None:
    process, run_id = started(
        codepilot, EventType.WORKSPACE_CREATED, "fix", str(repo({"test_slow.py": SLOW})), "--json"
    )
    assert codepilot("pause", "last").out in (
        f"{run_id} pauses after the current action.\n",
        f"{run_id} is PAUSED.\n",
    )
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, out + err
    process, _ = started(codepilot, EventType.STEP_STARTED, "resume", run_id, times=2)
    log, deadline = codepilot.home / "logs" / f"{run_id}.jsonl", time.monotonic() + 60
    while log.read_text().count('"step_started"') < 2:  # a step is begun before its worker is there to be interrupted
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130, out + err
    assert codepilot("cancel", run_id).out == f"{run_id} is ABORTED.\n"
    assert codepilot("cancel", run_id).out == f"{run_id} is ABORTED already: there is nothing to cancel.\n"
    again = codepilot("resume", run_id, "--json")
    assert (again.code, again.json["failure"]["kind"]) == (1, "cancelled")


@pytest.mark.variants
def test_what_is_asked_next_to_a_worker(codepilot: Command, repo: Repo) -> None:
    """One run is at work, another one waits for it."""
    checkout = str(repo({"test_slow.py": SLOW}))
    worker = codepilot.start("worker")
    try:
        busy, waiting = (codepilot("submit", checkout).out.strip() for _ in range(2))
        _until(lambda: EventType.WORKSPACE_CREATED in kinds(codepilot, busy))
        for _ in range(2):
            assert codepilot("pause", waiting).out == f"{waiting} is PAUSED.\n"
        detached = codepilot("resume", busy, "--detach")
        assert (detached.code, detached.out) == (0, f"{busy}\n")
        assert load(codepilot, busy).state is State.INIT, "it was at work, and is"
        with codepilot.runtime() as runtime:
            for _ in range(2):
                runtime.store.control(busy, ask_cancel)
            pause(runtime, busy)
        _until(lambda: load(codepilot, busy).terminal)
        assert codepilot("pause", busy).out == f"{busy} is ABORTED already: there is nothing to pause.\n"
        reported = kinds(codepilot, busy)
        assert EventType.PAUSE_REQUESTED not in reported and reported.count(EventType.CANCEL_REQUESTED) == 1
        assert codepilot("cancel", waiting).out == f"{waiting} is ABORTED.\n"
    finally:
        worker.terminate()
        worker.communicate(timeout=90)


def _until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.variants
def test_a_paused_run_is_left_alone_even_if_it_would_fail_at_once(codepilot: Command, repo: Repo) -> None:
    run_id = codepilot("submit", str(repo(EMPTY))).out.strip()
    codepilot("pause", run_id)
    worked = codepilot("worker", "--until-idle")
    assert (worked.code, run_id in worked.out) == (0, False), worked.out
    assert load(codepilot, run_id).state is State.PAUSED
    ended = codepilot("resume", run_id, "--json")
    assert (ended.json["status"], ended.json["run_id"]) == ("FAILED", run_id)


def test_a_worker_tells_how_runs_ended(codepilot: Command, repo: Repo) -> None:
    run_id = codepilot("submit", str(repo(EMPTY))).out.strip()
    reported = codepilot("worker", "--until-idle").out.splitlines()
    assert [line.split("  ")[1:] for line in reported[1:]] == [[run_id, reported[1].split("  ")[2]]]
    assert reported[1].split("  ")[2].startswith("FAILED: ")


@pytest.mark.parametrize("command", ["pause", "resume", "fork"])
def test_a_run_that_there_is_not_is_refused_kindly(codepilot: Command, command: str) -> None:
    refused = codepilot(command, "r-nothing")
    assert refused.code == 2
    assert "r-nothing" in refused.err and "codepilot history" in refused.err


# fork -----------------------------------------------------------------------------------------------


@pytest.mark.variants
def test_a_fork_begins_where_it_is_asked_and_is_gone_on_with(codepilot: Command, finished: str) -> None:
    first = finished
    with codepilot.runtime() as runtime:
        judged = next(e.seq for e in runtime.store.events(first) if e.type is EventType.BASELINE_RECORDED)
    forked = codepilot("fork", first, "--at", str(judged), "--json")
    assert forked.code == 0, forked.out + forked.err
    second = forked.json["run_id"]
    assert second != first
    assert load(codepilot, second).state is State.INIT
    ended = codepilot("resume", second, "--json")
    assert (ended.code, ended.json["verdict"]) == (0, "confirmed"), ended.out + ended.err
    assert kinds(codepilot, second).count(EventType.BASELINE_RECORDED) == 1, "what was taken over is not done again"
    third = codepilot("fork", first)
    assert third.code == 0
    assert load(codepilot, third.out.strip()).state is State.FINALIZE


def test_a_fork_from_nowhere_says_where_events_are_reported(codepilot: Command, shop: Path) -> None:
    run_id = codepilot("submit", str(shop)).out.strip()
    refused = codepilot("fork", run_id, "--at", "99")
    assert refused.code == 2
    assert "There is no event 99" in refused.err and "codepilot show RUN --events" in refused.err
    assert len(codepilot("history", "--json").json["runs"]) == 1


# prune ----------------------------------------------------------------------------------------------


@pytest.fixture
def old(codepilot: Command, finished: str) -> Callable[[], list[Path]]:
    """The artifacts of a home whose only run ended; all of them were put three days ago."""

    def lying() -> list[Path]:
        return [path for path in (codepilot.home / "artifacts" / "sha256").rglob("*") if path.is_file()]

    for path in lying():
        os.utime(path, (time.time() - 3 * 86_400,) * 2)
    return lying


def test_only_what_no_recent_run_names_is_pruned(codepilot: Command, old: Callable[[], list[Path]]) -> None:
    before = len(old())
    assert before > 0
    kept = codepilot("gc", "--artifacts", "90")
    assert (kept.code, kept.out) == (0, f"0 artifacts removed (0 bytes), {before} kept.\n")
    rehearsed = codepilot("gc", "--artifacts", "0", "--dry-run", "--json").json["artifacts"]
    assert (rehearsed["rehearsed"], rehearsed["removed"], rehearsed["kept"]) == (True, before, 0)
    assert len(old()) == before
    assert codepilot("gc", "--artifacts", "0").out.startswith(f"{before} artifacts removed (")
    assert old() == []


def test_artifacts_whose_store_is_not_named_are_not_pruned(
    codepilot: Command, old: Callable[[], list[Path]], tmp_path: Path
) -> None:
    """To the store of another home nothing of it is known, and all of it would go."""
    before = len(old())
    other, team = Command(tmp_path / "other"), str(codepilot.home / "artifacts")
    refused = other("gc", "--artifacts", "90", "--json", CODEPILOT_ARTIFACTS=team)
    assert (refused.code, refused.json["failure"]["kind"]) == (2, "invalid_spec")
    assert "CODEPILOT_STORE" in refused.json["failure"]["next_action"]
    [name] = (codepilot.home / "artifacts" / "stores").iterdir()
    name.unlink()  # as an earlier version has left it
    with other.runtime() as runtime:
        open_artifacts(team, {}).leave_name(runtime.store.store_id, runtime.store.place)
    assert other("gc", "--artifacts", "90", "--dry-run", CODEPILOT_ARTIFACTS=team).code == 2, (
        "that it has some there too proves nothing"
    )
    assert len(old()) == before
    (codepilot.home / "artifacts" / "stores" / runtime.store.store_id).unlink()
    named = other(
        "gc", "--artifacts", "90", CODEPILOT_ARTIFACTS=team, CODEPILOT_STORE=str(codepilot.home / "codepilot.db")
    )
    assert (named.code, named.out) == (0, f"0 artifacts removed (0 bytes), {before} kept.\n")


def test_nor_are_those_of_a_home_by_another_store(codepilot: Command, old: Callable[[], list[Path]]) -> None:
    before, elsewhere = len(old()), str(codepilot.home / "elsewhere.db")
    refused = codepilot("gc", "--artifacts", "90", "--json", CODEPILOT_STORE=elsewhere)
    assert (refused.code, refused.json["failure"]["kind"]) == (2, "invalid_spec")
    assert str(codepilot.home / "codepilot.db") in refused.json["failure"]["message"]
    [name] = (codepilot.home / "artifacts" / "stores").iterdir()
    name.unlink()  # as an earlier version has left it
    refused = codepilot("gc", "--artifacts", "90", "--json", CODEPILOT_STORE=elsewhere)
    assert refused.code == 2 and "CODEPILOT_ARTIFACTS" in refused.json["failure"]["next_action"]
    assert len(old()) == before
    assert codepilot("gc", "--artifacts", "90", "--dry-run").code == 0


def test_nor_does_a_home_take_what_runs_of_another_store_have_left_in_it(codepilot: Command, shop: Path) -> None:
    elsewhere = {"CODEPILOT_STORE": str(codepilot.home / "elsewhere.db")}
    run_id = codepilot("submit", str(shop), "--test", "tests/test_none.py::T::test_none", **elsewhere).out.strip()
    assert codepilot("worker", "--until-idle", **elsewhere).code == 0
    (codepilot.home / "workspaces" / run_id / "tree").mkdir(parents=True)
    assert codepilot("gc", "--artifacts", "90").code == 2
    left = codepilot("gc", "--days", "0", "--json").json
    assert left["removed"] == [] and elsewhere["CODEPILOT_STORE"] in left["left"][run_id]
    assert (codepilot.home / "workspaces" / run_id).is_dir()
    assert codepilot("gc", "--days", "0", "--json", **elsewhere).json["removed"] == [run_id]


def test_a_time_to_come_is_not_pruned(codepilot: Command) -> None:
    refused = codepilot("gc", "--artifacts", "-1")
    assert refused.code == 2 and "--artifacts" in refused.err
