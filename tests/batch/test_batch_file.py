"""The tasks file: read, refused with a reason, and changed without touching what is a person's."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from codepilot.batch import EXAMPLE, TasksFile, read_tasks, result_of
from codepilot.batch.logs import AttemptLogs
from codepilot.core.attempt import AttemptEnded
from codepilot.core.failures import CodePilotError
from codepilot.workspace import ObjectStore, pin_directory

ODD = """{
\t"run_id": "one",  "tasks":
\t[
\t\t{"task_id": "a", "agent": "shell", "prompt_template": "a é", "note": 1e5, "status": "pending"},
\t\t{
\t\t\t"zebra": {"kept": [1,2 , 3]},
\t\t\t"result": null,
\t\t\t"prompt_template": "b",
\t\t\t"agent": "shell",
\t\t\t"task_id": "b",
\t\t\t"alpha": "\\u00e9 }]"
\t\t}
\t], "last": true
}
"""


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def one(**fields: Any) -> str:
    task = {"task_id": "a", "agent": "shell", "prompt_template": "Do it", **fields}
    return json.dumps({"tasks": [task]})


def test_the_example_is_a_tasks_file(tmp_path: Path) -> None:
    (task,) = read_tasks(write(tmp_path / "tasks.json", EXAMPLE))
    assert task.prompt.endswith("print exactly: TASK_COMPLETE:pandas-merge-001")
    assert "test_quality_metric/CODING_AGENT_PROCEDURE.md" in task.prompt
    assert task.answers == ("press_1", "press_p")


def test_only_three_fields_change_and_everything_else_stays_byte_for_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", ODD)
    with TasksFile.open(path) as file:
        file.update("b", lambda task: {"status": "completed", "attempts": 1, "result": {"exit_code": 0, "log": ["x"]}})
        file.update("a", lambda task: {"status": "retryable", "attempts": task.attempts + 1})
    text = path.read_text(encoding="utf-8")
    assert text == ODD.replace(
        '"note": 1e5, "status": "pending"}', '"note": 1e5, "status": "retryable", "attempts": 1}'
    ).replace(
        '"result": null,', '"result": {\n\t\t\t\t"exit_code": 0,\n\t\t\t\t"log": [\n\t\t\t\t\t"x"\n\t\t\t\t]\n\t\t\t},'
    ).replace('"alpha": "\\u00e9 }]"\n', '"alpha": "\\u00e9 }]",\n\t\t\t"status": "completed",\n\t\t\t"attempts": 1\n')


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("indent", [None, 1, 4, "\t"])
def test_every_layout_is_kept(tmp_path: Path, newline: str, mark: str, indent: int | str | None) -> None:
    document = {"tasks": [{"task_id": name, "agent": "shell", "prompt_template": "x", "x": {}} for name in "ab"]}
    path = write(tmp_path / "t.json", mark + json.dumps(document, indent=indent).replace("\n", newline))
    with TasksFile.open(path) as file:
        for value in ({"n": [1]}, None, {"m": {"k": "é"}}):
            file.update("b", lambda task, value=value: {"status": "completed", "attempts": 3, "result": value})
    changed = json.loads(json.dumps(document))
    changed["tasks"][1] |= {"status": "completed", "attempts": 3, "result": {"m": {"k": "é"}}}
    wanted = mark + json.dumps(changed, indent=indent, ensure_ascii=False).replace("\n", newline)
    assert path.read_bytes().decode() == wanted


def test_edits_of_a_person_survive_a_write(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", ODD)
    with TasksFile.open(path) as file:
        write(path, ODD.replace('"b",\n\t\t\t"agent"', '"edited",\n\t\t\t"agent"').replace('"last": true', '"last": 2'))
        task = file.update("b", lambda task: {"status": "completed"})
        assert task.prompt_template == "edited"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["last"] == 2 and document["tasks"][1]["prompt_template"] == "edited"


def test_a_file_that_did_not_change_is_not_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", ODD)
    os.utime(path, (1.0, 1.0))
    with TasksFile.open(path) as file:
        first = file.tasks()
        assert file.tasks() is first
        write(path, ODD.replace('"b",\n\t\t\t"agent"', '"c",\n\t\t\t"agent"'))
        assert [task.prompt_template for task in file.tasks()] == ["a é", "c"]
        assert file.tasks() is not file.tasks(), "it may change again without a later time"


def test_nothing_but_the_three_fields_can_be_written(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", one())
    with TasksFile.open(path) as file, pytest.raises(ValueError, match="enabled"):
        file.update("a", lambda task: {"enabled": False})
    assert path.read_text(encoding="utf-8") == one()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", 'a list "tasks"'),
        (one(task_id="../x"), r"task ../x: task_id: use letters, digits"),
        (one(task_id="a\n"), "task_id: use letters"),
        (one(task_id="a\x07b"), "task_id: use letters"),
        (one(status="done"), "status"),
        (one(prompt_template="{missing}"), r"inputs has no such name"),
        (one(prompt_template="TASK_COMPLETE:{task_id}"), "no text besides"),
        (one(permission_policy={"press_1": True}), "auto_press_1"),
        (one(timeout_sec=0), "timeout_sec"),
        ('{"tasks": [%s, %s]}' % ((json.dumps(json.loads(one())["tasks"][0]),) * 2), "two tasks are called a"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CodePilotError, match=message):
        read_tasks(write(tmp_path / "tasks.json", text))


def test_a_null_is_a_field_that_is_left_out(tmp_path: Path) -> None:
    nulls = dict.fromkeys(("inputs", "permission_policy", "cwd", "timeout_sec", "status", "attempts", "result"))
    (task,) = read_tasks(write(tmp_path / "tasks.json", one(**nulls)))
    assert (task.inputs, task.answers, task.cwd, task.timeout_sec, task.status) == ({}, (), ".", 1800.0, "pending")


def test_a_file_that_is_not_there_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(CodePilotError, match=r"There is no file .*none.json") as refused:
        read_tasks(tmp_path / "none.json")
    assert "codepilot spec batch >" in refused.value.failure.advice
    with pytest.raises(CodePilotError, match="cannot be read: Is a directory"):
        read_tasks(tmp_path)


def test_a_second_runner_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", one())
    take = f"from pathlib import Path; from codepilot.batch import TasksFile; TasksFile.open(Path({str(path)!r}))"
    with TasksFile.open(path):
        done = subprocess.run([sys.executable, "-c", take], capture_output=True, text=True, check=False)
        assert done.returncode and "Another batch works on" in done.stderr
    link = tmp_path / "again.json"
    link.symlink_to(path)
    with TasksFile.open(path), pytest.raises(CodePilotError, match="Another batch works on"):
        TasksFile.open(link)


def test_a_file_of_a_killed_writer_is_whole_and_what_it_left_is_removed(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", one())
    left = write(tmp_path / ".tasks.json.x1.new", "{")
    with TasksFile.open(path):
        assert not left.exists() and len(read_tasks(path)) == 1


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file of this process can be larger, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_be_written_stays_whole_and_says_why(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", one())
    with TasksFile.open(path) as file:
        with small_files(10), pytest.raises(CodePilotError, match=r"tasks.json cannot be written: File too large"):
            file.update("a", lambda task: {"status": "completed"})
        assert path.read_text(encoding="utf-8") == one() and not list(tmp_path.glob(".tasks.json*.new"))
        assert file.update("a", lambda task: {"status": "completed"}).status == "completed"


def test_a_file_that_cannot_be_replaced_is_refused_before_anything_begins(tmp_path: Path) -> None:
    path = write(tmp_path / f"{'t' * 242}.json", one())  # a new file beside it has a name that is too long
    with pytest.raises(CodePilotError, match="cannot be written: File name too long"):
        TasksFile.open(path)


def test_an_attempt_goes_on_where_its_log_cannot_be_written(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", one())
    with TasksFile.open(path), AttemptLogs.open(path, "a", 1) as logs:
        with small_files(10):
            assert logs.write(b"first\nthe last line\n" * 10) == "the last line"
            logs.read("the last line\n" * 10)
            logs.begin("r-1")
            with pytest.raises(CodePilotError, match=r"attempt_1.patch cannot be written"):
                logs.patch(b"+" * 100)
        assert logs.problem == "File too large" and logs.patch(b"+") == str(tmp_path / "runs/a/attempt_1.patch")


def test_logs_are_no_part_of_what_agents_work_on(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", one())
    with TasksFile.open(path), AttemptLogs.open(path, "a", 1), ObjectStore.open(tmp_path / "x" / "venv") as objects:
        tree = pin_directory(tmp_path, objects)
        assert not [name for name in objects.read_tree(tree) if name.startswith("runs")]
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    listed = subprocess.run(["git", "-C", tmp_path, "status", "--short"], capture_output=True, text=True, check=True)
    assert "runs" not in listed.stdout and "lock" not in listed.stdout


def test_links_that_come_with_a_repository_are_not_followed(tmp_path: Path) -> None:
    path, outside = write(tmp_path / "tasks.json", one()), tmp_path / "outside"
    outside.mkdir()
    runs, shell = tmp_path / "runs", write(outside / "shell", "export MINE=1")
    for link in (runs, runs / "a"):
        link.symlink_to(outside)
        refused = pytest.raises(CodePilotError, match=r"cannot be (made|written)")
        with refused, TasksFile.open(path), AttemptLogs.open(path, "a", 1):
            raise AssertionError("a link was followed")
        link.unlink()
        link.mkdir()
    for suffix in (".log", ".txt", ".patch", ".json.new"):
        (runs / "a" / f"attempt_1{suffix}").symlink_to(shell)
    (runs / "a" / "attempt_1.json").symlink_to("/dev/zero")
    with AttemptLogs.open(path, "a", 1) as logs:
        assert logs.unended is None
        logs.begin("r-1")
        logs.write(b"output")
        logs.read("output")
        assert Path(logs.patch(b"+ evil")).read_bytes() == b"+ evil"
    assert [one.name for one in outside.iterdir()] == ["shell"] and shell.read_text() == "export MINE=1"


def test_a_run_is_only_ended_by_the_batch_that_began_it(tmp_path: Path) -> None:
    path = write(tmp_path / "tasks.json", one())
    with AttemptLogs.open(path, "a", 1) as logs:
        logs.begin("r-1")
    with AttemptLogs.open(tmp_path / "other.json", "a", 1) as logs:
        assert logs.unended is None
        logs.begin("r-2")
    with AttemptLogs.open(tmp_path / "other.json", "a", 1) as logs:
        assert logs.unended == "r-2"


def test_the_result_has_the_documented_fields_in_their_order() -> None:
    ended = AttemptEnded(outcome="failed_timeout", marker_seen=False, ended="timeout", keys={"press_1": 2})
    made = result_of(ended, ("press_1", "press_p"), "runs/a/attempt_1.log")
    assert list(made) == [
        "completed_at",
        "completion_marker_seen",
        "exit_code",
        "failure_type",
        "log_file",
        "auto_inputs",
    ]
    assert made["auto_inputs"] == [{"key": "1", "count": 2}, {"key": "p", "count": 0}]
    assert made["failure_type"] == "failed_timeout"
