"""`codepilot init` writes a configuration that works, and `doctor` says what agents there are."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from cli_kit import Command


@pytest.fixture
def bin_with_claude(tmp_path: Path) -> Path:
    """A directory with a program of that name and version, as a package of npm lays it out."""
    package = tmp_path / "node_modules" / "claude-code"
    package.mkdir(parents=True)
    (package / "package.json").write_text('{"version": "2.1.325"}')
    program = package / "claude"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "claude").symlink_to(program)
    return tmp_path / "bin"


def test_the_agent_that_is_ready_is_chosen_and_nothing_is_replaced(
    codepilot: Command, tmp_path: Path, bin_with_claude: Path
) -> None:
    config = tmp_path / "config"
    place = {
        "XDG_CONFIG_HOME": str(config),
        "PATH": os.pathsep.join([str(bin_with_claude), os.environ["PATH"]]),
        "ANTHROPIC_API_KEY": "sk-test-0123456789abcdefghijkl",
        "HOME": str(tmp_path),
    }
    done = codepilot("init", "--yes", "--budget", "cost_usd=2", "--json", cwd=tmp_path, **place)
    assert done.code == 0, done.err
    written = config / "codepilot" / "codepilot.toml"
    assert (done.json["file"], done.json["agent"], done.json["mode"]) == (str(written), "claude", "deterministic")
    assert tomllib.loads(written.read_text()) == {
        "agents": {"default": "claude"},
        "interactive": {"execution_mode": "deterministic"},
        "budget": {"cost_usd": 2},
    }
    again = codepilot("init", "--yes", "--agent", "repair", cwd=tmp_path, **place)
    assert (again.code, "--force" in again.err) == (2, True)
    replaced = codepilot("init", "--yes", "--force", "--agent", "repair", "--mode", "interactive", **place)
    assert replaced.code == 0, replaced.err
    assert tomllib.loads(written.read_text())["agents"] == {"default": "repair"}
    assert "claude" in written.with_name("codepilot.toml.bak").read_text()
    found = {
        one["name"]: one for one in codepilot("doctor", "--no-tests", "--json", cwd=tmp_path, **place).json["findings"]
    }
    claude = found["agent claude"]
    assert claude["status"] == "ok", claude
    for words in ("2.1.325", str(bin_with_claude), "not logged in", "ANTHROPIC_API_KEY is set", "interactive mode"):
        assert words in claude["detail"]


def test_a_repository_gets_no_agent_and_an_unknown_one_is_refused(codepilot: Command, tmp_path: Path) -> None:
    done = codepilot("init", "--repository", "--yes", "--mode", "interactive", cwd=tmp_path)
    assert done.code == 0, done.err
    assert tomllib.loads((tmp_path / "codepilot.toml").read_text()) == {
        "interactive": {"execution_mode": "interactive"}
    }
    place = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    unknown = codepilot("init", "--yes", "--agent", "nobody", **place)
    assert (unknown.code, "nobody" in unknown.err) == (2, True)
    assert not (tmp_path / "config").exists()
