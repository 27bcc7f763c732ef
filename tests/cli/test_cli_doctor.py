"""`codepilot doctor` tells what a run started here would meet."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_kit import Command

from codepilot.sandbox import choose


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "home")


def runs(document: dict) -> dict:
    return next(finding for finding in document["findings"] if finding["name"] == "runs")


def test_a_machine_that_can_run_is_told_ready(command: Command, tmp_path: Path):
    done = command("doctor", "--json", cwd=tmp_path)
    assert (done.code, done.json["ok"]) == (0, True)
    assert runs(done.json)["detail"] == f"use {choose().level}"
    assert "Ready" in command("doctor", cwd=tmp_path).out


@pytest.mark.parametrize("where", ["environment", "repository"])
def test_the_level_that_the_configuration_demands_is_the_one_that_is_told(command: Command, tmp_path: Path, where: str):
    environ = {"CODEPILOT_SANDBOX_LEVEL": "landlock"}
    if where == "repository":
        (tmp_path / "codepilot.toml").write_text('[policy]\nleast_level = "bubblewrap"\n')
    done = command("doctor", "--json", cwd=tmp_path, **environ)
    if where == "repository":
        assert done.code == 4
        assert "demands at least" in runs(done.json)["detail"]
        assert runs(done.json)["advice"]
    else:
        assert runs(done.json)["detail"] == "use landlock"


def test_a_mistake_in_the_configuration_is_told(command: Command, tmp_path: Path):
    (tmp_path / "codepilot.toml").write_text("[sandbox]\nlevle = 1\n")
    done = command("doctor", cwd=tmp_path)
    assert done.code == 4
    assert "sandbox.levle" in done.out
    assert "Not ready" in done.out


def test_an_executor_that_does_not_answer_is_told(command: Command, tmp_path: Path):
    done = command("doctor", "--json", cwd=tmp_path, CODEPILOT_EXECUTOR_URL="http://127.0.0.1:9")
    assert done.code == 4
    assert "127.0.0.1:9" in runs(done.json)["detail"]


def test_without_control_groups_the_watchdog_is_told(command: Command, tmp_path: Path):
    done = command("doctor", "--json", cwd=tmp_path, CODEPILOT_CGROUPS="off")
    limits = next(finding for finding in done.json["findings"] if finding["name"] == "limits")
    assert limits["ok"] is True
    assert "watchdog every 25 ms; control groups are not usable" in limits["detail"]
