"""The run's log file while its worker works: every event, once and in order, in time for those who follow it."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from codepilot.core.decide import Outcome, Paused, Succeeded, start
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine import CodePilot, Runtime, Worker, cancel, follower, pause
from codepilot.engine import worker as corridor
from codepilot.engine.close import open_log
from codepilot.engine.work import Work
from codepilot.store import Unreadable, new_id
from codepilot.telemetry import RunLog


class SlowSite:
    """An execution plane that takes its time to close."""

    def __init__(self, runtime: Runtime) -> None:
        self.closed = threading.Event()

    def settle(self, run: object) -> None: ...

    def interrupt(self) -> None: ...

    def close(self) -> None:
        self.closed.wait(0.5)


def lines(runtime: Runtime, run_id: str, *, follow: bool) -> Iterator[str]:
    with CodePilot(runtime.settings) as pilot:
        yield from pilot.log(run_id, follow=follow)


def seqs(runtime: Runtime, run_id: str) -> list[int]:
    path = runtime.home.logs / f"{run_id}.jsonl"
    return [json.loads(line)["seq"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def run_id(runtime: Runtime) -> str:
    task = TaskSpec(task_id=new_id("t-"), goal=Goal(natural="Nothing"), repo="/nowhere", sandbox_level="none")
    run_id = new_id("r-")
    runtime.store.create_run(run_id, start(task, run_id))
    return run_id


@pytest.fixture
def drive(
    runtime: Runtime, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Work], Outcome]], None]:
    """Works on the run with steps that are given."""

    def drive(step: Callable[[Work], Outcome]) -> None:
        monkeypatch.setattr(corridor, "RunResources", SlowSite)
        monkeypatch.setattr(corridor, "STEPS", dict.fromkeys(State, step))
        worker = Worker(runtime, agent_for=lambda task: None)  # type: ignore[arg-type,return-value]
        with worker.monitor:
            begun = runtime.store.claim_next(worker.name, run_id)
            assert begun is not None
            worker.execute(begun)

    return drive


def test_who_follows_is_shown_all_of_it_requests_of_others_included(
    runtime: Runtime, run_id: str, drive: Callable[[Callable[[Work], Outcome]], None]
) -> None:
    reported: list[int] = []
    follower = threading.Thread(
        target=lambda: reported.extend(json.loads(line)["seq"] for line in lines(runtime, run_id, follow=True))
    )

    def step(work: Work) -> Outcome:
        if work.run.state is State.INIT:
            follower.start()
            return Succeeded()
        pause(runtime, run_id)
        return Paused("asked to pause")

    drive(step)
    follower.join(10)
    whole = [event.seq for event in runtime.store.events(run_id)]
    assert reported == seqs(runtime, run_id) == whole


def test_what_a_step_began_with_is_in_the_log_while_it_works(
    runtime: Runtime, run_id: str, drive: Callable[[Callable[[Work], Outcome]], None]
) -> None:
    seen: list[list[int]] = []

    def step(work: Work) -> Outcome:
        if work.run.state is State.INIT:
            return Succeeded()
        until = time.monotonic() + 10
        while time.monotonic() < until and (not seen or seen[0][-1:] != [work.run.last_seq]):
            seen[:] = [seqs(runtime, run_id)]
        return Paused("enough")

    drive(step)
    assert seen[0] == list(range(1, seen[0][-1] + 1))
    assert runtime.store.events(run_id)[seen[0][-1] - 1].type == "step_started"


@pytest.mark.variants
@pytest.mark.parametrize("kept", [0, 1, 3], ids=["elsewhere", "begun", "behind"])
def test_lines_that_the_file_here_lacks_are_reported_by_the_store(
    runtime: Runtime,
    run_id: str,
    drive: Callable[[Callable[[Work], Outcome]], None],
    kept: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drive(lambda work: Paused("a\u2028b\x0b") if work.run.state is not State.INIT else Succeeded())
    path = runtime.home.logs / f"{run_id}.jsonl"
    whole = [f"{line}\n" for line in path.read_text().split("\n")[:-1]]
    path.write_text("".join(whole[:kept]) + whole[kept][:9])
    monkeypatch.setattr(follower, "PAGE", 2)
    for waiting in (False, True):
        assert list(lines(runtime, run_id, follow=waiting)) == [line.rstrip("\n") for line in whole]
    path.unlink()
    assert list(lines(runtime, run_id, follow=True)) == [line.rstrip("\n") for line in whole]


def test_a_step_that_is_not_known_here_is_no_reason_to_show_no_log(runtime: Runtime, run_id: str) -> None:
    shown = list(lines(runtime, run_id, follow=False))
    with closing(sqlite3.connect(runtime.home.database)) as connection, connection:
        connection.execute("UPDATE steps SET state = 'DREAM', status = 'DOZING'")
    assert list(lines(runtime, run_id, follow=False)) == shown != []
    with pytest.raises(Unreadable, match=f"Run {run_id} cannot be read") as refused:
        cancel(runtime, run_id)
    assert "codepilot fsck" in refused.value.failure.next_action


def test_lines_that_another_process_has_written_are_not_written_again(
    runtime: Runtime, run_id: str, drive: Callable[[Callable[[Work], Outcome]], None]
) -> None:
    def step(work: Work) -> Outcome:
        open_log(runtime, run_id).close()
        return Paused("enough")

    drive(step)
    assert seqs(runtime, run_id) == [event.seq for event in runtime.store.events(run_id)]


def test_a_run_that_another_took_over_has_no_line_twice(
    runtime: Runtime, run_id: str, drive: Callable[[Callable[[Work], Outcome]], None]
) -> None:
    def step(work: Work) -> Outcome:
        runtime.store.give_back(work.claim)
        runtime.store.register_worker("w-heir")
        assert runtime.store.claim_next("w-heir", run_id) is not None
        open_log(runtime, run_id).close()
        return Succeeded()

    drive(step)
    assert seqs(runtime, run_id) == [event.seq for event in runtime.store.events(run_id)]


def test_a_log_file_that_cannot_be_written_stops_nothing_and_is_completed_later(
    runtime: Runtime,
    run_id: str,
    drive: Callable[[Callable[[Work], Outcome]], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The store has every event. A warning is logged once, until a write succeeds again."""
    append, opened, full = RunLog._append, set(), [True]

    def no_room(log: RunLog, lines: bytes) -> None:
        opened.add(log)
        if full[0]:
            raise CodePilotError(FailureKind.DISK_FULL, "The disk is full.")
        append(log, lines)

    monkeypatch.setattr(RunLog, "_append", no_room)

    def step(work: Work) -> Outcome:
        full[0] = work.run.state in (State.INIT, State.MAP_REPO)
        return Paused("enough") if work.run.state is State.REFLECT else Succeeded()

    drive(step)
    assert seqs(runtime, run_id) == [event.seq for event in runtime.store.events(run_id)]
    assert [record.message for record in caplog.records] == ["The disk is full."]
    assert {log._file for log in opened} == {-1}, "every file was closed"
