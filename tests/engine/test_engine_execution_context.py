"""What a repository may ask for, and what it may not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from engine_kit import MAP, drive, until

from codepilot.core.events import BasePinned
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskKind
from codepilot.engine import Request, Runtime, cancel, make_task, submit
from codepilot.engine.close import sweep
from codepilot.engine.execution_context import ExecutionContext, WorkspaceLease, _within, remove_leased_workspaces
from codepilot.engine.settings import Settings, make_budget
from codepilot.store import Home
from configured import configured


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link/secret", "a/../../secret"])
def test_a_repository_carries_only_its_own_files(tmp_path: Path, path: str) -> None:
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(CodePilotError) as refused:
        _within(root, path)
    assert refused.value.kind is FailureKind.INVALID_SPEC
    assert _within(root, "build/made.py") == root / "build/made.py"


@pytest.mark.parametrize("path", [".git/config", "sub/.GIT/config", ".git ", "git~1", "a/.g\u200cit/x", "..", ""])
def test_a_repository_never_carries_a_git_directory(tmp_path: Path, path: str) -> None:
    (tmp_path / "codepilot.toml").write_text(f'[project]\ncarry = ["{path}"]\n', encoding="utf-8")
    with pytest.raises(CodePilotError, match="git directory" if "it" in path.lower() else "relative path") as refused:
        Settings.load(tmp_path, {})
    assert refused.value.kind is FailureKind.INVALID_SPEC


@pytest.mark.parametrize("path", ["store/config", "link/info/exclude"])
def test_a_git_directory_of_another_name_is_not_carried_either(tmp_path: Path, path: str) -> None:
    (tmp_path / "store/info").mkdir(parents=True)
    (tmp_path / "link").symlink_to("store")
    with pytest.raises(CodePilotError) as refused:
        _within(tmp_path, path, tmp_path / "store")
    assert refused.value.kind is FailureKind.INVALID_SPEC


def test_later_layers_win_and_unknown_keys_are_named(tmp_path: Path) -> None:
    home, repo = tmp_path / "home", tmp_path / "repo"
    (home / "codepilot").mkdir(parents=True)
    repo.mkdir()
    (home / "codepilot" / "codepilot.toml").write_text("[budget]\nwall_sec = 1\niterations = 2\n", encoding="utf-8")
    (repo / "codepilot.toml").write_text("[budget]\nwall_sec = 0.5\n", encoding="utf-8")
    environ = {"XDG_CONFIG_HOME": str(home), "CODEPILOT_BUDGET_COMMAND_SEC": "7"}
    settings = Settings.load(repo, environ)
    budget = make_budget(TaskKind.BUGFIX, settings.budget, {"tokens": 5})
    assert (budget.wall_sec, budget.iterations, budget.command_sec, budget.tokens) == (0.5, 2, 7, 5)
    with pytest.raises(CodePilotError, match="wall"):
        make_budget(TaskKind.BUGFIX, {"wall": 3})


def test_a_command_that_no_executor_would_run_for_so_long_is_refused_before_the_run() -> None:
    assert make_budget(TaskKind.BUGFIX, {"command_sec": 86_400}).command_sec == 86_400
    with pytest.raises(CodePilotError, match="command_sec is 86401"):
        make_budget(TaskKind.BUGFIX, {"command_sec": 86_401})


def test_a_repository_cannot_switch_its_sandbox_off(tmp_path: Path) -> None:
    (tmp_path / "codepilot.toml").write_text('[sandbox]\nlevel = "none"\n', encoding="utf-8")
    with pytest.raises(CodePilotError, match="level"):
        Settings.load(tmp_path, {})


def test_a_repository_cannot_raise_what_may_be_paid(tmp_path: Path) -> None:
    (tmp_path / "codepilot.toml").write_text("[budget]\ncost_usd = 500\ntokens = 10\n", encoding="utf-8")
    budget = make_budget(TaskKind.BUGFIX, Settings.load(tmp_path, {}).budget)
    assert (budget.cost_usd, budget.tokens) == (5.0, 10)


@pytest.mark.parametrize("url", ["https://u:secret@host/x.git", "https://token@host/x", "ssh://git:pw@host/x"])
def test_a_url_with_a_secret_is_refused_before_anything_is_kept(url: str) -> None:
    with pytest.raises(CodePilotError, match="password"):
        make_task(Request(repo=url), configured())
    assert make_task(Request(repo="ssh://git@host/x.git"), configured()).repo == "ssh://git@host/x.git"


@pytest.mark.parametrize("run_id", ["../../etc", "r-", "r-A", "r-a.2", "r-a-base", "x-1", "r-a/b"])
def test_an_id_that_could_be_a_path_or_another_runs_workspace_is_refused(
    runtime: Runtime, checkout: Path, run_id: str
) -> None:
    with pytest.raises(CodePilotError, match="cannot be the id"):
        submit(runtime, make_task(Request(repo=str(checkout)), configured()), run_id)
    assert runtime.store.history() == []


def test_a_sweep_removes_what_is_over_and_leaves_what_is_in_use(runtime: Runtime, checkout: Path) -> None:
    run = submit(runtime, make_task(Request(repo=str(checkout)), configured()), "r-over")
    cancel(runtime, run.run_id)
    used = WorkspaceLease.take(runtime.home, run.run_id)
    for name in (used.name, f"{run.run_id}.2", f"{run.run_id}.2-proof"):
        (runtime.home.workspaces / name / "tree").mkdir(parents=True)
    WorkspaceLease.take(runtime.home, run.run_id).close()
    half_made = runtime.home.repos / "x.tmp"
    half_made.mkdir()
    sweep(runtime)
    assert [path.name for path in runtime.home.workspaces.iterdir()] == [used.name]
    assert half_made.exists()
    used.close()
    os.utime(half_made, (0, 0))
    sweep(runtime)
    assert list(runtime.home.workspaces.iterdir()) == list(runtime.home.locks.glob("*.workspace-lease")) == []
    assert not half_made.exists()


def test_a_workspace_whose_lock_file_is_gone_is_removed_with_its_parts(runtime: Runtime) -> None:
    removed: list[str] = []
    remove_leased_workspaces(runtime.home, "r-none", removed.append)
    assert removed == list(runtime.home.locks.glob("r-none*")) == []
    (runtime.home.workspaces / "r-old-proof").mkdir(parents=True)
    remove_leased_workspaces(runtime.home, "r-old", removed.append)
    assert removed == ["r-old", "r-old-base", "r-old-proof", "r-old-copy"]


def test_a_workspace_is_taken_only_after_the_sandbox_is_on_record(
    runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone who ends a run without one looks for no workspace."""
    on_record = []
    take = WorkspaceLease.take

    def taken(home: Home, run_id: str) -> WorkspaceLease:
        on_record.append(runtime.store.load(run_id).sandbox_level)
        return take(home, run_id)

    monkeypatch.setattr(WorkspaceLease, "take", taken)
    drive(runtime, checkout, until(MAP))
    assert on_record
    assert None not in on_record


def test_the_past_of_the_base_is_asked_where_its_checkout_is(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid", "-C", str(tmp_path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    commits = []
    for text in ("one\n", "one\ntwo\n", "changed since\n"):
        (tmp_path / "a.py").write_text(text, encoding="utf-8")
        git("add", "-A")
        git("commit", "-qm", "x")
        commits.append(git("rev-parse", "HEAD"))
    base = BasePinned(repo_id="r", commit=commits[1], commit_tree="t", tree="t", checkout=str(tmp_path))
    nothing = cast(Any, None)
    context = ExecutionContext(executor=nothing, objects=nothing, base=base, project=nothing)
    assert context.ages(("a.py",)) == {"a.py": ((b"one", None), (b"two", 1))}
    for elsewhere in (None, str(tmp_path / "on another machine")):
        away = ExecutionContext(nothing, nothing, base.model_copy(update={"checkout": elsewhere}), nothing)
        assert away.ages(("a.py",)) == {}
