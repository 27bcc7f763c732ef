"""What a person sees while a batch runs on a terminal."""

from __future__ import annotations

import io
import time

from rich.console import Console

from codepilot.batch import BatchTask, Progress
from codepilot.cli.batch import _TableView


def test_the_table_shows_status_time_last_line_and_keys() -> None:
    tasks = [
        BatchTask(task_id=name, agent="shell", prompt_template="x", enabled=name != "off")
        for name in ("works", "asks", "ended", "waits", "off")
    ]
    shown = io.StringIO()
    screen = Console(width=100, file=shown)
    view, began = _TableView(tasks, screen), time.monotonic() - 65
    view.show(Progress("works", "working", "pending", "shell", 1, began, last_line="step 3 of 4"))
    view.show(Progress("asks", "working", "pending", "shell", 1, began, keys=2))
    view.show(Progress("ended", "ended", "failed_auth", "shell", 1, began, message="not logged in"))
    screen.print(view._table())
    assert max(map(len, shown.getvalue().splitlines())) < 98, "a ^C has room"
    lines = [line.replace("1:06", "1:05").split() for line in shown.getvalue().splitlines()]
    assert ["works", "working", "1:05", "step", "3", "of", "4"] in lines
    assert ["asks", "working", "1:05", "2"] in lines
    assert ["ended", "failed_auth", "1:05", "not", "logged", "in"] in lines
    assert ["waits", "pending"] in lines and not any(line[:1] == ["off"] for line in lines)


def test_a_narrow_terminal_shows_everything_of_tasks_with_long_names() -> None:
    names = ["a" * 60 + "-7", *(f"numpy-linalg-{number}" for number in range(40))]
    shown = io.StringIO()
    screen = Console(width=80, file=shown)
    view = _TableView([BatchTask(task_id=name, agent="shell", prompt_template="x") for name in names], screen)
    began = time.monotonic() - 65
    view.show(Progress(names[0], "working", "pending", "shell", 1, began, last_line="step 3 of 4", keys=2))
    view.show(Progress(names[1], "ended", "failed_permission_blocked", "shell", 1, began, message="Press 1"))
    screen.print(view._table())
    lines = shown.getvalue().splitlines()
    assert "aaa…aaa" in lines[1] and "aa-7  working" in lines[1] and "2     step 3 of 4" in lines[1]
    assert "failed_permission_blocked" in lines[2] and "Press 1" in lines[2]
    assert "and 11 more" in shown.getvalue() and "1 failed_permission_blocked, 40 pending" in shown.getvalue()
