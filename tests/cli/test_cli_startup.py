"""Anyone who only reads the store waits for the store, not for the whole runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_kit import Command, git

from codepilot.core.decide import start
from codepilot.core.task import Goal, TaskSpec

RUN = "r-01"
_THEN_TELL_ROOMS = (
    "import atexit, sys; from codepilot.cli import main; "
    "atexit.register(lambda: print(*{name.split('.')[1] for name in sys.modules if name.startswith('codepilot.')},"
    " file=sys.stderr)); main()"
)


@pytest.mark.parametrize(
    "asked", [("history",), ("show", RUN), ("logs", RUN, "--json"), ("history", "--json"), ("show", RUN, "--json")]
)
def test_what_reads_the_store_loads_nothing_that_runs_code(codepilot: Command, asked: tuple[str, ...]) -> None:
    with codepilot.runtime() as runtime:
        task = TaskSpec(task_id="t-01", goal=Goal(natural="Mend it"), repo="/nowhere")
        runtime.store.create_run(RUN, start(task, RUN))
    argv = [sys.executable, "-c", _THEN_TELL_ROOMS, *asked]
    ended = subprocess.run(argv, env=codepilot.environ, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0 and RUN in ended.stdout, ended.stderr
    loaded = set(ended.stderr.splitlines()[-1].split())
    assert {"cli", "core", "engine", "store", "telemetry"} <= loaded
    assert loaded <= {"cli", "core", "engine", "store", "telemetry", "workspace"}


def test_a_mistake_is_reported_without_them_either(codepilot: Command) -> None:
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


@pytest.mark.variants
@pytest.mark.parametrize("mistake", ["[sandbox]\nlevle = 1\n", "[budget\n"])
def test_a_mistake_in_the_configuration_does_not_stop_reading(codepilot: Command, tmp_path: Path, mistake: str) -> None:
    with codepilot.runtime() as runtime:
        task = TaskSpec(task_id="t-01", goal=Goal(natural="Mend it"), repo="/nowhere")
        runtime.store.create_run(RUN, start(task, RUN))
    (tmp_path / "codepilot").mkdir()
    (tmp_path / "codepilot" / "codepilot.toml").write_text(mistake)
    own = {"XDG_CONFIG_HOME": str(tmp_path)}
    for asked in ("history", "show", "show --events", "show --json", "logs", "diff", "artifacts"):
        ended = codepilot(*asked.split(), **own)
        assert (ended.code, ended.err) == (0, ""), asked
    checked = codepilot("doctor", "--no-tests", "--json", cwd=tmp_path, **own)
    found = {one["name"]: (one["ok"], one["detail"]) for one in checked.json["findings"]}
    assert checked.code == 4 and found["home"][0] and "codepilot.toml" in found["configuration"][1]
    for asked in ("pause", "fork", "cancel last"):
        assert codepilot(*asked.split(), **own).code == 0, asked
    for asked in ("submit", "resume", "verify"):
        refused = codepilot(asked, cwd=tmp_path, **own)
        assert (refused.code, "codepilot.toml" in refused.err, "line" in refused.err) == (2, True, True)


def _least_cpu_sec(*argv: str) -> float:
    """The least of five runs: other work on the machine only adds."""
    spent = []
    for _ in range(5):
        process = subprocess.Popen([sys.executable, *argv], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        spent.append(used.ru_utime + used.ru_stime)
    return min(spent)


def test_help_and_the_import_are_quick() -> None:
    assert _least_cpu_sec("-m", "codepilot", "--help") < 0.2
    assert _least_cpu_sec("-c", "import codepilot") - _least_cpu_sec("-c", "pass") < 0.02


def test_completion_is_printed_and_completes(codepilot: Command) -> None:
    script = codepilot("--show-completion", "bash")
    assert script.code == 0 and "_CODEPILOT_COMPLETE" in script.out
    asked = {"_CODEPILOT_COMPLETE": "complete_bash", "COMP_WORDS": "codepilot hist", "COMP_CWORD": "1"}
    assert codepilot(**asked).out.split() == ["history"]


def test_nothing_is_cut_in_a_pipe(codepilot: Command) -> None:
    repo, goal = f"/nowhere/{'deep/' * 40}", "Mend it " * 40
    with codepilot.runtime() as runtime:
        task = TaskSpec(task_id="t-01", goal=Goal(natural=goal.strip()), repo=repo)
        runtime.store.create_run(RUN, start(task, RUN))
    for asked in ("history", "show"):
        shown = codepilot(asked, COLUMNS="40").out
        assert repo in shown and goal.strip() in shown, asked


def test_quiet_prints_results_only(codepilot: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    git(tmp_path / "empty", "commit", "-q", "--allow-empty", "-m", "first")
    empty = str(tmp_path / "empty")
    quiet, after, usual = (codepilot(*asked, empty) for asked in (("-q", "fix"), ("fix", "-q"), ("fix",)))
    assert quiet.code == after.code == usual.code == 2
    assert (after.out.splitlines()[0], after.err) == (quiet.out.splitlines()[0], ""), "-q may stand after the command"
    assert "repository" in usual.out and "INIT" in usual.err
    assert quiet.out.splitlines()[0] in usual.out and quiet.err == ""
