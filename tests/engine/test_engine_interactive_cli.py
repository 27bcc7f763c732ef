"""Interactive runs of `stdio:` agents as users begin them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cli_agent_kit import FIX, Scripts, data_of, scripts, settings, worked
from engine_kit import commit

from codepilot.core.events import EventType
from codepilot.core.task import InteractionMode
from codepilot.engine import CodePilot
from configured import configured

__all__ = ["scripts", "settings"]

GUARD = '[policy]\nprotected_areas = ["ci/**"]\n[interactive]\nmin_checkpoint_interval_ms = 0\n'


def test_a_stdio_agent_is_told_of_its_violation_and_corrects_it(settings: Mapping[str, str], scripts: Scripts) -> None:
    agent = scripts.add(FIX, ["write", "ci/run.yml", "jobs\n"], ["turn"], ["run", "rm -r ci"], ["turn"])
    run, events = worked(
        settings,
        scripts.checkout,
        agent,
        GUARD,
        execution_mode="interactive",
        interaction=InteractionMode.ASK_BEFORE_RISKY,
    )
    assert run.verdict == "confirmed", run.failure
    statuses = [one.status for one in data_of(events, EventType.CHECKPOINT_RECORDED)]
    assert statuses[0] == "invalid"
    assert statuses[-1] == "valid"
    assert [one.acknowledged for one in data_of(events, EventType.VIOLATION_ACKNOWLEDGED)] == [True]


def test_a_stdio_agent_works_in_a_shadow(settings: Mapping[str, str], scripts: Scripts) -> None:
    agent = scripts.add(["write", "ci/run.yml", "jobs\n"], ["turn"], FIX, ["turn"])
    run, events = worked(
        settings,
        scripts.checkout,
        agent,
        GUARD,
        execution_mode="interactive",
        strategy="shadow",
        interaction=InteractionMode.ASK_BEFORE_RISKY,
    )
    assert run.verdict == "confirmed", run.failure
    first, *later = data_of(events, EventType.CHECKPOINT_RECORDED)
    assert first.action_taken == "discarded"
    promoted = {one.checkpoint_id for one in data_of(events, EventType.PROMOTED)}
    assert promoted
    assert promoted <= {one.checkpoint_id for one in later}
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)


def test_the_program_of_the_documentation_is_an_agent(settings: Mapping[str, str], scripts: Scripts) -> None:
    page = (Path(__file__).parents[2] / "docs" / "agent-protocol.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    (scripts.checkout / "program.py").write_text(program)
    commit(scripts.checkout, "a program")
    agent = f"stdio:{sys.executable} program.py"
    run, events = worked(settings, scripts.checkout, agent, GUARD, execution_mode="interactive")
    assert run.verdict == "confirmed", run.failure
    assert run.proposal is not None
    assert run.proposal.patch.rationale == "An area is a product."
    assert [turn.action.get("tool") for turn in data_of(events, EventType.TURN_STARTED)] == ["replace", None]
    assert [one.trigger for one in data_of(events, EventType.CHECKPOINT_RECORDED)][:1] == ["turn"]


@pytest.mark.variants
@pytest.mark.parametrize(
    "mode",
    [
        {},
        {"execution_mode": "interactive"},
        {"execution_mode": "interactive", "strategy": "shadow"},
        {"execution_mode": "interactive", "worktree": "look"},
    ],
    ids=["deterministic", "direct", "shadow", "worktree"],
)
def test_an_agents_own_git_shows_exactly_its_edit(
    settings: Mapping[str, str], scripts: Scripts, tmp_path: Path, mode: dict[str, str]
) -> None:
    if "worktree" in mode:
        mode = {**mode, "worktree": str(tmp_path / mode["worktree"])}
    (scripts.checkout / ".gitignore").write_text("*.log\n")
    status = ["run", "git status --porcelain; git log --oneline | wc -l"]
    agent = scripts.add(FIX, status, ["turn"], ["run", "git commit -qam mine && git status --porcelain"], ["turn"])
    run, events = worked(settings, scripts.checkout, agent, GUARD, **mode)
    assert run.verdict == "confirmed", run.failure
    shown = [tool["text"].split() for turn in data_of(events, EventType.TURN_FINISHED) for tool in _tools(turn)]
    assert shown == [["M", "shapes.py", "1"]]
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    assert not [one for found in data_of(events, EventType.CHECKPOINT_RECORDED) for one in found.violations]
    assert not (tmp_path / "look" / ".git").exists()


def test_a_link_out_of_the_tree_is_reported_as_soon_as_the_tool_has_ended(
    settings: Mapping[str, str], scripts: Scripts
) -> None:
    agent = scripts.add(["sleep", 1.5], ["run", "ln -s / out"], ["receive"], ["run", "rm out"], FIX, ["turn"])
    rarely = "[interactive]\nwatchdog_poll_interval_ms = 600000\nmin_checkpoint_interval_ms = 0\n"
    run, events = worked(settings, scripts.checkout, agent, rarely, execution_mode="interactive")
    assert run.verdict == "confirmed", run.failure
    first = data_of(events, EventType.CHECKPOINT_RECORDED)[0]
    assert [one.constraint for one in first.violations] == ["symlink_leaves_tree"]


def _tools(turn: Any) -> list[Any]:
    return [tool for tool in turn.observation.get("tools", ()) if tool.get("text")]


def test_a_repository_below_the_top_breaks_a_rule(settings: Mapping[str, str], scripts: Scripts) -> None:
    agent = scripts.add(FIX, ["run", "git init -q below"], ["turn"])
    run, events = worked(settings, scripts.checkout, agent, GUARD, execution_mode="interactive")
    assert run.verdict != "confirmed"
    broken = [one.file for found in data_of(events, EventType.CHECKPOINT_RECORDED) for one in found.violations]
    assert broken[:1] == ["below/.git"]


@pytest.mark.variants
@pytest.mark.parametrize("strategy", ["direct", "shadow"])
def test_what_a_person_edits_in_the_worktree_outlives_a_killed_worker(
    settings: Mapping[str, str], scripts: Scripts, tmp_path: Path, strategy: str
) -> None:
    """An edit that a checkpoint had taken over before the kill, one that none had, and one made while nobody worked."""
    agent = scripts.add(["write", "one.txt", "1\n"], ["receive"], ["receive"], FIX)
    environ, place = {**os.environ, **settings}, tmp_path / "mine"
    (tmp_path / "config" / "codepilot" / "codepilot.toml").write_text(GUARD)
    pilot = CodePilot(configured(environ))
    argv = [sys.executable, "-m", "codepilot"]
    asked = ["--agent", agent, "--execution-mode", "interactive", "--strategy", strategy, "--worktree", str(place)]
    begun = [*argv, "fix", str(scripts.checkout), *asked, "--interaction", "full_autonomy", "--run", "r-1", "--json"]
    with subprocess.Popen(begun, env=environ, stdout=subprocess.PIPE) as command:
        try:
            shown = tmp_path / "home" / "workspaces" / "r-1" / "shadow"
            until(lambda: (shown / "one.txt").exists())
            pilot.checkpoint("r-1", wait_sec=30)
            until(lambda: (place / "one.txt").exists())
            (place / "taken.txt").write_text("taken\n")
            pilot.checkpoint("r-1", wait_sec=30)
            assert (shown / "taken.txt").exists()
            (place / "late.txt").write_text("late\n")
        finally:
            command.kill()
    (place / "alone.txt").write_text("alone\n")
    resumed = threading.Thread(
        target=subprocess.run, args=([*argv, "resume", "r-1", "--json"],), kwargs={"env": environ}
    )
    resumed.start()
    for text in ("go on", "that is all"):
        until(lambda: pilot.run("r-1").state.value == "IMPLEMENT")
        pilot.message("r-1", text, wait_sec=60)
    resumed.join(120)
    kept = {path.name: path.read_text() for path in place.glob("*.txt")}
    assert kept == {f"{word}.txt": f"{word}\n" for word in ("taken", "late", "alone")} | {"one.txt": "1\n"}
    proposal = pilot.run("r-1").proposal
    assert proposal is not None and {"taken.txt", "late.txt", "alone.txt"} <= set(proposal.patch.touched_files)


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
