"""What is seen of a run while it works, waits or is interrupted: `watch`, `logs`, progress in pipes, `-v`."""

from __future__ import annotations

import io
import signal
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest
from cli_kit import Command, Repo, started
from rich.console import Console

from codepilot.cli.live import Heartbeat, LineView, Stages, make_view
from codepilot.cli.progress import Progress
from codepilot.cli.team import WorkerLines
from codepilot.core.decide import Paused, decide
from codepilot.core.events import Event, EventType, SearchProgressed, State, StepQueued, StepStarted
from codepilot.core.run import Run
from codepilot.core.task import Goal, TaskSpec
from codepilot.store import Activity
from codepilot.telemetry import describe, now_us

SLOW = "import time, unittest\n\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        time.sleep(60)\n"
NO_WORKER = "no worker is running"


def event(seq: int, kind: EventType, data: object) -> Event:
    return Event(type=kind, data=data, event_id="e", seq=seq, run_id="r", at=now_us(), step_id="s-1")


SEARCH = [
    event(1, EventType.STEP_QUEUED, StepQueued(state=State.IMPLEMENT)),
    event(2, EventType.STEP_STARTED, StepStarted(worker="w", fence=1)),
    event(3, EventType.SEARCH_PROGRESSED, SearchProgressed(position=7, tried=340, plausible=0, per_sec=10.0)),
]


def is_rfc3339(text: object) -> bool:
    return isinstance(text, str) and text.endswith("Z") and datetime.fromisoformat(text).tzinfo is not None


# Progress in pipes ----------------------------------------------------------------------------------


def test_a_pipe_gets_a_line_every_few_seconds_while_nothing_happens() -> None:
    screen = Console(file=io.StringIO(), width=200)
    with LineView(screen, Progress(), every_sec=0.1) as view:
        for one in SEARCH:
            view.on_event(one)
        time.sleep(0.45)
    lines = screen.file.getvalue().splitlines()
    assert 2 <= len(lines) <= 5
    assert all("IMPLEMENT" in line and "340 candidates" in line and " s " in line for line in lines)


def test_a_search_that_tried_nothing_yet_says_what_it_does() -> None:
    begun = event(4, EventType.SEARCH_PROGRESSED, SearchProgressed(position=0, tried=0, plausible=0, left_sec=300.0))
    assert describe(begun) == "loading and tracing the failing tests · at most 300 s left"


def test_a_line_that_says_the_same_thing_is_not_printed_right_after_another() -> None:
    written: list[str] = []
    with Heartbeat(lambda: "still at it", written.append, 0.2) as heartbeat:
        for number in range(4):
            heartbeat.write(str(number))
            time.sleep(0.1)
    assert written == ["0", "1", "2", "3"]


@pytest.mark.parametrize("state", [state for state in State if state not in ("DONE", "FAILED", "ABORTED")])
def test_each_state_says_what_it_does_before_its_first_event(state: State) -> None:
    screen = Console(file=io.StringIO(), width=200)
    with LineView(screen, Progress(), every_sec=0.05) as view:
        view.on_event(event(1, EventType.STEP_QUEUED, StepQueued(state=state)))
        view.on_event(SEARCH[1])
        time.sleep(0.12)
    assert len(screen.file.getvalue().split("  ")[-1].split()) >= 1
    assert state in screen.file.getvalue()


def test_a_stage_is_a_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with Stages(Console(file=io.StringIO()), every_sec=0.1) as stages:
        stages.begin("running the tests")
        time.sleep(0.25)
    first, *later = capsys.readouterr().err.splitlines()
    assert first == "· running the tests" and later and all("running the tests (0 s)" in line for line in later)


def test_the_panel_takes_a_message_back() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    run = Run(run_id="r", task=TaskSpec(task_id="t-1", goal=Goal(natural="x"), repo="/r"))
    with make_view(screen, run, SEARCH, hint="Ctrl+C stops watching.") as view:
        view.message("Queued.")
        view.message("")
        time.sleep(0.25)
    shown = screen.file.getvalue()
    assert "Ctrl+C stops watching." in shown and "340 candidates" in shown


@pytest.mark.variants
def test_fix_and_verify_show_their_progress_on_standard_error(codepilot: Command, finished: str) -> None:
    checked = codepilot("verify", finished)
    assert checked.code == 0 and checked.out.startswith("The bundle holds"), checked.err
    for stage in ("checking the bundle's bytes", "tests before the change", "tests after the change", "mutants"):
        assert stage in checked.err
    assert codepilot("-q", "verify", finished).err == ""


def test_a_worker_says_what_its_runs_do_until_they_are_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("codepilot.cli.live.EVERY_SEC", 0.1)
    at_work = ["r"]
    with WorkerLines(str, lambda: at_work) as lines:
        for one in SEARCH:
            lines.on_event(one)
        time.sleep(0.25)
        at_work.clear()
        shown = capsys.readouterr().out.splitlines()
        time.sleep(0.25)
    assert shown and all("  r  " in line and "340 candidates" in line for line in shown)
    assert len(capsys.readouterr().out.splitlines()) <= 1, "a run that another worker has is not shown"


# watch ----------------------------------------------------------------------------------------------


def test_watch_shows_a_run_of_another_process_to_its_end(codepilot: Command, queued: str) -> None:
    """Queued without a worker, then begun by one, then paused: all seen from here."""
    watching = codepilot.start("watch", queued)
    errors: list[str] = []
    assert watching.stderr is not None
    reader = threading.Thread(target=lambda: errors.extend(watching.stderr or ()))
    reader.start()
    _until(lambda: NO_WORKER in "".join(errors))
    with codepilot.runtime() as runtime:
        claimed = runtime.store.claim_next("w-one", queued)
        assert claimed is not None
        runtime.store.commit(claimed.claim, lambda run: decide(run, Paused("enough"), now_us()))
    assert watching.wait(60) == 130
    reader.join()
    assert watching.stdout is not None
    assert f"codepilot resume {queued}" in watching.stdout.read() and "codepilot worker" in "".join(errors)


def _until(seen: object) -> None:
    deadline = time.monotonic() + 60
    while not seen():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_watch_of_an_ended_run_shows_its_steps_and_its_result(codepilot: Command, finished: str) -> None:
    shown = codepilot("watch")
    assert shown.code == 0
    for state in ("INIT", "IMPLEMENT", "TEST", "REVIEW", "FINALIZE"):
        assert f"✓ {state}" in shown.err
    assert "+    if amount >= limit:" in shown.out and f"apply {finished}" in shown.out
    assert codepilot("watch", finished, "--json").json["verdict"] == "confirmed"


@pytest.mark.variants
def test_an_interrupted_watch_leaves_the_run_going(codepilot: Command, repo: Repo) -> None:
    process, run_id = started(codepilot, EventType.WORKSPACE_CREATED, "fix", str(repo({"test_slow.py": SLOW})))
    watching = codepilot.start("watch", run_id[:12])
    assert watching.stderr is not None
    time.sleep(0.7)
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(60)
    assert (watching.returncode, "The run goes on." in err, f"watch {run_id}" in err) == (130, True, True), err
    shown = codepilot("show", run_id, "--json").json
    assert (shown["status"], shown["activity"]) == ("INIT", "working")
    refused = codepilot("rm", run_id)
    assert refused.code == 2 and "--force" in refused.err and codepilot("history", "--json").json["runs"]
    removed = codepilot("rm", "--force", run_id, "--json")
    assert (removed.code, removed.json["runs"][0]["existed"]) == (0, True), removed.err
    process.communicate(timeout=60)
    assert codepilot("history", "--json").json["runs"] == []


# Queued and interrupted runs ------------------------------------------------------------------------


def test_a_queued_run_says_that_no_worker_is_running(codepilot: Command, queued: str) -> None:
    for command in ("show", "logs"):
        shown = codepilot(command, queued)
        assert NO_WORKER in shown.out and "codepilot worker" in shown.out, command
    assert "INIT (queued)" in codepilot("history").out
    listed = codepilot("history", "--json").json
    assert listed["schema_version"] == 1 and listed["runs"][0]["activity"] == "queued"
    assert is_rfc3339(listed["runs"][0]["created_at"]) and is_rfc3339(listed["runs"][0]["updated_at"])
    shown = codepilot("show", queued, "--events", "--json").json
    assert is_rfc3339(shown["run"]["created_at"]) and is_rfc3339(shown["events"][0]["at"])
    with codepilot.runtime() as runtime:
        runtime.store.register_worker("w-pool", takes_queued=True)
        assert "Queued for 1 worker." in codepilot("show", queued).out
        assert [one.worker for one in runtime.store.activities.workers()] == ["w-pool"]


def test_an_interrupted_run_says_how_to_go_on(codepilot: Command, interrupted: str) -> None:
    for command in ("show", "logs"):
        shown = codepilot(command).out
        assert "Interrupted" in shown and f"codepilot resume {interrupted}" in shown, command
    assert "INIT (interrupted)" in codepilot("history").out
    assert codepilot("show", "--json").json["activity"] == "interrupted"
    with codepilot.runtime() as runtime:
        runtime.store.reclaim(interrupted)  # any command may do that; nobody took the step since
        assert runtime.store.activities.of([interrupted]) == {interrupted: Activity.INTERRUPTED}
        runtime.store.register_worker("w-pool", takes_queued=True)
        assert runtime.store.activities.of([interrupted]) == {interrupted: Activity.QUEUED}


# logs and -v ----------------------------------------------------------------------------------------


def test_logs_are_lines_for_people_or_for_programs(codepilot: Command, finished: str) -> None:
    lines = codepilot("logs").out.splitlines()
    assert any("IMPLEMENT  patch proposed: shop.py changed" in line for line in lines)
    assert all(line[:2] == "20" and line[4] == "-" for line in lines)
    assert lines[-1].endswith("run finished: DONE")
    assert codepilot("logs", "--follow").out.splitlines() == lines
    documents = codepilot("logs", "--json").out.splitlines()
    assert len(documents) == len(lines) and documents[0].startswith('{"ts":')


def test_verbose_logs_steps_and_commands_and_twice_every_event(codepilot: Command, repo: Repo) -> None:
    checkout = repo({"README": "nothing to test\n"})
    once, twice = (codepilot(flag, "fix", str(checkout)) for flag in ("-v", "-vv"))
    assert once.code == twice.code == 2
    assert "the home is" in once.err and "step started" in once.err and "ran " in once.err
    assert "workspace created\n" not in once.err and "DEBUG" in twice.err and "step started" in twice.err


def test_submit_says_that_no_worker_is_running(codepilot: Command, shop: Path) -> None:
    ended = codepilot("submit", str(shop))
    assert ended.code == 0 and ended.out.strip().startswith("r-") and ended.out.count("\n") == 1
    assert NO_WORKER in ended.err and f"codepilot resume {ended.out.strip()}" in ended.err
    with codepilot.runtime() as runtime:
        runtime.store.register_worker("w-pool", takes_queued=True)
        assert "Queued for 1 worker" in codepilot("submit", str(shop)).err
