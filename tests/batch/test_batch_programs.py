"""Programs that misbehave on a terminal, and what the batch makes of each: the seed's classes and its checklist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from batch_kit import WAYS_AND_CLASSES, BatchProject, Ended, odd


@dataclass(frozen=True)
class Done:
    """A batch of all of them that has ended."""

    project: BatchProject
    ended: Ended
    tasks: dict[str, dict[str, Any]]

    def result(self, way: str) -> dict[str, Any]:
        found: dict[str, Any] = self.tasks[way]["result"]
        return found


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    project = BatchProject.made(tmp_path_factory.mktemp("batch"))
    project.write(
        *(odd(way, **fields) for way, (_, fields) in WAYS_AND_CLASSES.items()),
        odd("asks", task_id="asks_nobody"),
        odd("works", task_id="left_out", enabled=False),
    )
    ended = project("--jobs", "4", "--json")
    yield Done(project, ended, project.tasks())


@pytest.mark.parametrize("way", WAYS_AND_CLASSES)
def test_each_way_has_its_class(done: Done, way: str) -> None:
    task, expected = done.tasks[way], WAYS_AND_CLASSES[way][0]
    assert task["status"] == expected, (task["result"], done.project.log(way, suffix=".txt")[-500:])
    assert task["result"]["failure_type"] == (None if expected == "completed" else expected)


def test_only_timeouts_and_failed_processes_are_tried_again(done: Done) -> None:
    attempts = {
        way: done.tasks[way]["attempts"] for way, (_, fields) in WAYS_AND_CLASSES.items() if fields.get("max_retries")
    }
    assert attempts == {
        "only_echoes": 1,
        "crashes": 2,
        "hangs": 2,
        "asks_for_ever": 1,
        "logged_out": 1,
        "out_of_quota": 1,
    }


def test_the_results_have_what_the_contract_names(done: Done) -> None:
    assert all(
        {"completed_at", "completion_marker_seen", "exit_code", "failure_type", "log_file", "auto_inputs"}
        <= task["result"].keys()
        for way, task in done.tasks.items()
        if way != "left_out"
    )
    seen = {way: done.result(way)["completion_marker_seen"] for way in ("works", "crashes", "only_echoes", "goes_on")}
    assert seen == {"works": True, "crashes": True, "only_echoes": False, "goes_on": True}
    codes = {way: done.result(way)["exit_code"] for way in ("works", "crashes", "only_echoes", "hangs", "goes_on")}
    assert codes == {"works": 0, "crashes": 3, "only_echoes": 0, "hangs": None, "goes_on": None}
    assert "not logged in" in done.result("logged_out")["message"]
    assert "Rate limit reached" in done.result("out_of_quota")["message"]
    assert done.result("crashes")["message"] == "It printed TASK_COMPLETE:crashes, but ended with code 3."
    assert done.result("fails")["message"] == "It ended with code 1: FileNotFoundError: plan.txt"


def test_prompts_are_answered_as_often_as_allowed_and_each_answer_is_logged_with_its_time(done: Done) -> None:
    assert done.result("asks_both")["auto_inputs"] == [{"key": "1", "count": 2}, {"key": "p", "count": 1}]
    assert done.result("asks_for_ever")["auto_inputs"][0] == {"key": "1", "count": 5}
    logged = json.loads(done.project.log("asks_both", suffix=".json"))["auto_inputs"]
    assert [one["key"] for one in logged] == ["1", "p", "1"]
    assert all(one["at"].endswith("Z") and one["prompt"].startswith("Press") for one in logged)
    assert b"got '1'" in done.project.log("asks", suffix=".txt")


def test_a_prompt_that_the_policy_does_not_allow_blocks_its_task(done: Done) -> None:
    assert done.tasks["asks_nobody"]["status"] == "failed_permission_blocked"
    assert done.result("asks_nobody")["auto_inputs"] == []
    assert "allows no press_1" in done.result("asks_nobody")["message"]


def test_logs_are_kept_as_bytes_and_as_text(done: Done) -> None:
    assert b"\x1b[35m" in done.project.log("redraws")
    assert b"TASK_COMPLETE:redraws" in done.project.log("redraws", suffix=".txt")
    flood = done.project.log("floods")
    assert flood.count(b"\n") > 60_000 and b"line 59999 " in flood
    assert b"line 30000 " in done.project.log("floods", suffix=".txt")
    assert b"thinking" in done.project.log("hangs", attempt=2, suffix=".txt")
    assert b"TASK_COMPLETE:goes_on" in done.project.log("goes_on", suffix=".txt")
    assert b"Press 1" in done.project.log("asks_nobody", suffix=".txt")


def test_what_a_task_changed_comes_back_as_a_patch_and_the_directory_stays(done: Done) -> None:
    patch = done.project.folder / done.result("works")["patch"]
    assert "+made" in patch.read_text()
    assert sorted(path.name for path in done.project.work.iterdir()) == ["odd_program.py"]
    assert "patch" not in done.result("redraws")


def test_nothing_is_left_running(done: Done) -> None:
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if b"odd_program.py" in line or b"987.5" in line]


def test_a_task_that_is_not_enabled_is_left_out(done: Done) -> None:
    assert done.tasks["left_out"].get("status") is None
    assert {task["task_id"] for task in done.ended.json["tasks"]} == done.tasks.keys() - {"left_out"}


def test_the_exit_code_says_that_some_did_not_complete(done: Done) -> None:
    assert done.ended.code == 3, "a person must log in"
    assert done.ended.json["counts"]["completed"] == sum(
        status == "completed" for status, _ in WAYS_AND_CLASSES.values()
    )


def test_running_it_again_begins_nothing(done: Done) -> None:
    before = done.project.path.read_bytes()
    assert done.project("--json").code == 3
    assert done.project.path.read_bytes() == before
