"""`codepilot build` at the command line: through a real SDK, killed, edited, refused; and its demonstration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from cli_kit import Command
from cli_terminal import Terminal

from build_kit import REQUEST, TODO_SCRIPT
from codepilot.cli.options import may_be_left
from model_server import ModelServer, Request

KILLED_AT = 9
"""The reply before which the command is killed: in the second iteration."""


@pytest.mark.builds
def test_a_build_killed_in_its_second_iteration_is_resumed_to_its_end(codepilot: Command, tmp_path: Path) -> None:
    out, replies, kills = tmp_path / "todos", [0], [0]

    def answer(request: Request) -> str:
        if replies[0] == KILLED_AT and not kills[0]:
            kills[0] += 1
            process.send_signal(signal.SIGKILL)
            time.sleep(0.5)
            return TODO_SCRIPT[KILLED_AT]  # nobody hears it
        replies[0] += 1
        return TODO_SCRIPT[replies[0] - 1]

    with ModelServer(answer) as server:
        environ = {**server.environ, "CODEPILOT_POLICY_GENERATED_CODE": "high"}
        model = ("--model", "anthropic:claude-sonnet-4-6", "--agent", "codeact")
        process = codepilot.start("build", REQUEST, "--out", str(out), "--yes", *model, "--run", "r-todos", **environ)
        assert process.wait(120) == -signal.SIGKILL
        resumed = codepilot("resume", "r-todos", **environ)
        ended = codepilot("show", "r-todos", "--json", **environ)
    assert resumed.code == 0, resumed.out + resumed.err
    assert "3 of 15" in resumed.out and "tests/test_api.py" in resumed.out and "python app.py" in resumed.out
    assert (ended.json["status"], ended.json["verdict"], ended.json["iterations"]) == ("DONE", "confirmed", 3)
    assert ended.json["cost_usd"] > 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"], cwd=out, check=False, env={"PATH": os.environ["PATH"]}
    )
    assert done.returncode == 0


@pytest.mark.builds
def test_the_demonstration_builds_without_a_key(codepilot: Command) -> None:
    ended = codepilot("demo", "build", POLICY="")
    assert ended.code == 0, ended.out + ended.err
    assert "Built, and its tests pass" in ended.out and (codepilot.home / "demo/todos/app.py").is_file()


@pytest.mark.parametrize("task", ["make something cool", "short", ""])
def test_a_task_that_says_nothing_is_refused_with_an_example(codepilot: Command, tmp_path: Path, task: str) -> None:
    ended = codepilot("build", task, cwd=tmp_path)
    assert ended.code == 2 and "Build a REST API" in ended.err
    assert not codepilot.home.exists() and list(tmp_path.iterdir()) == []


def test_without_a_terminal_the_task_must_be_given(codepilot: Command, tmp_path: Path) -> None:
    ended = codepilot("build", cwd=tmp_path)
    assert ended.code == 2 and "The task is empty" in ended.err


def test_on_a_terminal_it_asks_shows_what_it_may_cost_and_begins_only_if_told(
    codepilot: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ("--model", "anthropic:claude-sonnet-4-6")
    terminal = Terminal(codepilot, "build", *model, ANTHROPIC_API_KEY="never-used")
    terminal.until("What should the program do?")
    terminal.press("make something cool\n")
    terminal.until("does not say what the program does")
    terminal.until("What should the program do?")
    terminal.press(f"{REQUEST}\n")
    terminal.until("Language (python/node/java)")
    terminal.press("cobol\n")
    terminal.until("Programs are not built in 'cobol'.")
    terminal.until("Language (python/node/java)")
    terminal.press("node\n")
    for shown in (REQUEST, "node", str(tmp_path), "at most 15", "$", "Proceed?"):
        terminal.until(shown)
    terminal.press("n\n")
    terminal.until("Nothing was begun.")
    assert terminal.ended() == 131
    assert codepilot.newest() is None and [one.name for one in tmp_path.iterdir()] == ["home"]


@pytest.mark.builds
def test_a_module_that_is_written_down_is_handed_over(codepilot: Command, tmp_path: Path) -> None:
    (tmp_path / "module.json").write_text(codepilot("spec", "scaffold").out)
    ended = codepilot("run", "module.json", cwd=tmp_path, PROJECT_RUNNER="")
    assert ended.code == 0 and (tmp_path / "order-history/pyproject.toml").is_file(), ended.out + ended.err


@pytest.mark.parametrize("left", [typer.Abort, EOFError, KeyboardInterrupt])
def test_a_question_that_is_left_ends_the_command_and_says_so(
    capsys: pytest.CaptureFixture[str], left: type[BaseException]
) -> None:
    with pytest.raises(typer.Exit) as ended, may_be_left("Nothing was begun."):
        raise left
    assert ended.value.exit_code == 131 and capsys.readouterr().out == "\nNothing was begun.\n"
