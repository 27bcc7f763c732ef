"""Whoever only reads the store waits for the store, not for the whole runtime."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_kit import Command

from codepilot.core.decide import start
from codepilot.core.task import Goal, TaskSpec

RUN = "r-01"
_THEN_TELL_ROOMS = (
    "import atexit, sys; from codepilot.cli import main; "
    "atexit.register(lambda: print(*{name.split('.')[1] for name in sys.modules if name.startswith('codepilot.')},"
    " file=sys.stderr)); main()"
)


@pytest.mark.parametrize(
    "asked", [("history",), ("show", RUN), ("logs", RUN), ("history", "--json"), ("show", RUN, "--json")]
)
def test_what_reads_the_store_loads_nothing_that_runs_code(codepilot: Command, asked: tuple[str, ...]) -> None:
    with codepilot.runtime() as runtime:
        task = TaskSpec(task_id="t-01", goal=Goal(natural="Mend it"), repo="/nowhere")
        runtime.store.create_run(RUN, start(task, RUN))
    argv = [sys.executable, "-c", _THEN_TELL_ROOMS, *asked]
    ended = subprocess.run(argv, env=codepilot.environ, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0 and RUN in ended.stdout, ended.stderr
    loaded = set(ended.stderr.split())
    assert {"cli", "core", "engine", "store", "telemetry"} <= loaded
    assert loaded <= {"cli", "core", "engine", "store", "telemetry", "workspace"}


def test_a_mistake_is_told_without_them_either(codepilot: Command) -> None:
    argv = [sys.executable, "-c", _THEN_TELL_ROOMS, "show", "nonsense"]
    ended = subprocess.run(argv, env=codepilot.environ, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2 and "nonsense" in ended.stderr
    assert set(ended.stderr.splitlines()[-1].split()) <= {"cli", "core", "engine", "store", "telemetry"}


@pytest.mark.parametrize("command", ["show", "logs", "diff"])
def test_a_command_about_a_run_takes_the_last_one_by_default(codepilot: Command, command: str) -> None:
    with codepilot.runtime() as runtime:
        task = TaskSpec(task_id="t-01", goal=Goal(natural="Mend it"), repo="/nowhere")
        runtime.store.create_run(RUN, start(task, RUN))
    assert codepilot(command).code == 0
