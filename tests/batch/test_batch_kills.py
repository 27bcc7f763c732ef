"""A batch that is killed, interrupted or edited: the file is whole at every moment and loses one attempt at most."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from batch_kit import WAYS_AND_CLASSES, BatchProject, odd, shell

DONE = "echo TASK_COMPLETE:{task_id}"
SLEEPING = "sleep 611.{task_id}"
"""What a task runs that is to be killed: its command line tells its processes from all others."""


@pytest.fixture
def project(tmp_path: Path) -> BatchProject:
    return BatchProject.made(tmp_path)


@contextmanager
def watched(project: BatchProject) -> Iterator[list[int]]:
    """Read the file all the time; it is a whole one each time. Yields how often that was."""
    over, looks = threading.Event(), [0]
    wrong: list[str] = []

    def look() -> None:
        while not over.wait(0.002):
            try:
                json.loads(project.path.read_bytes())
            except ValueError as error:
                wrong.append(str(error))
            looks[0] += 1

    reader = threading.Thread(target=look)
    reader.start()
    try:
        yield looks
    finally:
        over.set()
        reader.join()
    assert not wrong


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def changed(project: BatchProject, before: dict[str, dict[str, Any]]) -> bool:
    return project.tasks() != before


def sleeping(task_id: str) -> list[str]:
    """The processes of a task."""
    wanted = f"611.{task_id}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"sleep") and wanted in words:
            found.append(place.parent.name)
    return found


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])])
def test_kills_lose_at_most_the_attempts_in_hand(project: BatchProject, kills: int) -> None:
    dice = random.Random(kills)
    for round_number in range(kills):
        if round_number % 10 == 0:
            project.write(*(shell(f"t{number}", f"sleep 0.{number % 4}; {DONE}", kept=number) for number in range(60)))
        before = project.tasks()
        with watched(project) as looks:
            batch = project.start("--jobs", "3")
            until(partial(changed, project, before))
            time.sleep(dice.uniform(0.0, 0.5))
            assert batch.poll() is None
            batch.kill()
            batch.wait(20)
        after = project.tasks()
        assert looks[0] > 10 and list(after) == list(before)
        for name, task in after.items():
            assert task["kept"] == before[name]["kept"]
            assert (task.get("status"), task.get("attempts")) in ((None, None), ("completed", 1)), task
            if before[name].get("status"):
                assert task == before[name], "what was written down stays"
    left = [name for name, task in project.tasks().items() if not task.get("status")][:3]
    assert project("--jobs", "3", *(word for name in left for word in ("--only", name))).code == 0
    assert not list(project.folder.glob(".tasks.json*.new"))


def test_the_run_of_a_killed_batch_is_ended_by_the_next_one(project: BatchProject) -> None:
    number = str(os.getpid())
    project.write(shell(number, f"test -e go || {SLEEPING}; {DONE}"))
    batch = project.start()
    until(lambda: bool(sleeping(number)))
    batch.kill()
    batch.wait(20)
    until(lambda: not sleeping(number), 10)
    (project.work / "go").write_text("")
    first = json.loads(project.log(number, suffix=".json"))["run_id"]
    assert project().code == 0
    task = project.tasks()[number]
    assert (task["status"], task["attempts"]) == ("completed", 1)
    with project.pilot() as pilot:
        assert pilot.run(first).failure.kind == "cancelled"
        assert pilot.run(task["result"]["run_id"]).state == "DONE"


def test_one_interrupt_finishes_the_attempts_in_hand_and_begins_no_other(project: BatchProject) -> None:
    project.write(shell("a", f"while ! test -e stop; do sleep 0.1; done; {DONE}"), shell("b", DONE))
    batch = project.start("--in-place")
    until(lambda: (project.folder / "runs" / "a" / "attempt_1.log").exists())
    time.sleep(1.0)
    batch.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert batch.poll() is None
    (project.work / "stop").write_text("")
    assert batch.wait(60) == 130
    assert [task.get("status") for task in project.tasks().values()] == ["completed", None]


def interrupt_twice(project: BatchProject, number: str) -> None:
    """Interrupt a batch twice while its program sleeps: nothing runs on, and the file is as it was."""
    before = project.path.read_bytes()
    batch = project.start()
    until(lambda: bool(sleeping(number)))
    batch.send_signal(signal.SIGINT)
    time.sleep(0.3)
    batch.send_signal(signal.SIGINT)
    assert batch.wait(30) == 130
    assert project.path.read_bytes() == before and not sleeping(number)


def test_two_interrupts_end_the_attempts_and_their_tasks_stay_as_they_were(project: BatchProject) -> None:
    number = f"{os.getpid()}7"
    project.write(shell(number, f"{SLEEPING}; {DONE}"))
    interrupt_twice(project, number)


@pytest.mark.variants
def test_two_interrupts_end_a_proof_too(project: BatchProject) -> None:
    number = f"{os.getpid()}8"
    (project.work / "test_it.py").write_text("def test_it():\n    assert True\n")
    project.write(shell(number, f"echo x > made.txt; {DONE}", verify=SLEEPING.format(task_id=number)))
    interrupt_twice(project, number)


def test_edits_while_a_batch_runs_are_kept_and_count(project: BatchProject) -> None:
    project.write(
        shell("a", f"while ! test -e stop; do sleep 0.1; done; {DONE}"), shell("b", "false"), shell("c", DONE)
    )
    batch = project.start("--in-place")
    until(lambda: (project.folder / "runs" / "a" / "attempt_1.log").exists())
    edited = json.loads(project.path.read_text())
    edited["mine"] = [1]
    edited["tasks"][0]["note"] = "a person was here"
    edited["tasks"][1]["prompt_template"] = DONE
    del edited["tasks"][2]
    project.path.write_text("{ half of it")
    (project.work / "stop").write_text("")
    noticed = ""
    while "The batch waits" not in noticed:
        line = batch.stderr.readline()
        assert line, noticed
        noticed += line
    project.path.write_text(json.dumps(edited, indent=4))
    assert batch.wait(60) == 0
    assert "is no tasks file" in noticed and "The batch goes on." in batch.stderr.read()
    document = json.loads(project.path.read_text())
    assert document["mine"] == [1] and document["tasks"][0]["note"] == "a person was here"
    assert [(task["task_id"], task["status"]) for task in document["tasks"]] == [("a", "completed"), ("b", "completed")]
    assert project.path.read_text().startswith('{\n    "run_id"')


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_two_hundred_tasks_with_eight_jobs(project: BatchProject, capsys: pytest.CaptureFixture[str]) -> None:
    ways = list(WAYS_AND_CLASSES)
    made = [(f"{ways[n % len(ways)]}-{n}", *WAYS_AND_CLASSES[ways[n % len(ways)]]) for n in range(200)]
    project.write(*(odd(name.partition("-")[0], **{**fields, "task_id": name}) for name, _, fields in made))
    began = time.monotonic()
    with watched(project):
        ended = project("--jobs", "8", "--json")
    seconds = time.monotonic() - began
    with capsys.disabled():
        print(f"\n200 tasks, 8 jobs: {seconds:.0f} s, load {os.getloadavg()[0]:.1f}")  # noqa: T201
    tasks = project.tasks()
    wrong = {name: (tasks[name]["status"], expected) for name, expected, _ in made if tasks[name]["status"] != expected}
    assert not wrong
    assert ended.code == 3 and sum(ended.json["counts"].values()) == 200
