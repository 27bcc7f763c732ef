"""What a repository may ask for, and what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskKind
from codepilot.engine import Request, make_task
from codepilot.engine.settings import load_settings, make_budget
from codepilot.engine.site import _within


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link/secret", "a/../../secret"])
def test_a_repository_carries_only_its_own_files(tmp_path: Path, path: str) -> None:
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(CodePilotError) as refused:
        _within(root, path)
    assert refused.value.kind is FailureKind.INVALID_SPEC
    assert _within(root, "build/made.py") == root / "build/made.py"


def test_later_layers_win_and_unknown_keys_are_named(tmp_path: Path) -> None:
    home, repo = tmp_path / "home", tmp_path / "repo"
    (home / "codepilot").mkdir(parents=True)
    repo.mkdir()
    (home / "codepilot" / "codepilot.toml").write_text("[budget]\nwall_sec = 1\niterations = 2\n", encoding="utf-8")
    (repo / "codepilot.toml").write_text("[budget]\nwall_sec = 0.5\n", encoding="utf-8")
    environ = {"XDG_CONFIG_HOME": str(home), "CODEPILOT_BUDGET_COMMAND_SEC": "7"}
    settings = load_settings(repo, environ)
    budget = make_budget(TaskKind.BUGFIX, settings.budget, {"tokens": 5})
    assert (budget.wall_sec, budget.iterations, budget.command_sec, budget.tokens) == (0.5, 2, 7, 5)
    with pytest.raises(CodePilotError, match="wall"):
        make_budget(TaskKind.BUGFIX, {"wall": 3})


def test_a_repository_cannot_switch_its_sandbox_off(tmp_path: Path) -> None:
    (tmp_path / "codepilot.toml").write_text('[sandbox]\nlevel = "none"\n', encoding="utf-8")
    with pytest.raises(CodePilotError, match="level"):
        load_settings(tmp_path, {})


def test_a_repository_cannot_raise_what_may_be_paid(tmp_path: Path) -> None:
    (tmp_path / "codepilot.toml").write_text("[budget]\ncost_usd = 500\ntokens = 10\n", encoding="utf-8")
    budget = make_budget(TaskKind.BUGFIX, load_settings(tmp_path, {}).budget)
    assert (budget.cost_usd, budget.tokens) == (5.0, 10)


@pytest.mark.parametrize("url", ["https://u:secret@host/x.git", "https://token@host/x", "ssh://git:pw@host/x"])
def test_a_url_with_a_secret_is_refused_before_anything_is_kept(url: str) -> None:
    with pytest.raises(CodePilotError, match="password"):
        make_task(Request(repo=url), {})
    assert make_task(Request(repo="ssh://git@host/x.git"), {}).repo == "ssh://git@host/x.git"
