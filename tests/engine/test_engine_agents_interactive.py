"""The real command-line agents in interactive mode: checked, refused, corrected, stopped, put back and resumed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_agent_kit import Scripts, data_of, scripts, settings, worked
from key_search import confined, name_of

from agent_clis import path_with
from agent_script import AgentScript, Bash, results
from codepilot.agents.cli.prompt import GO_ON
from codepilot.core.checkpoint import CheckpointRecorded, MessageSent, RolledBack
from codepilot.core.events import EventType, State
from codepilot.core.task import InteractionMode
from codepilot.engine import CodePilot, Runtime
from configured import configured
from model_server import KEY, ModelServer, Request

__all__ = ["scripts", "settings"]

AGENTS = ("claude", "codex", "gemini", "opencode", "acp:gemini --acp")
GUARD = '[policy]\nprotected_areas = ["ci/**"]\n[interactive]\nmin_checkpoint_interval_ms = 0\n'
FIX = Bash("sed -i '0,/return/s/+/*/' shapes.py")
FORBIDDEN = Bash("mkdir -p ci; echo jobs > ci/run.yml")
UNDO = Bash("rm -rf ci")
RESUMED = ("claude", "codex")
"""The agents that always keep a session whose turn was cut off by a kill."""


def environment(settings: dict[str, str], server: ModelServer, agent: str, home: Path) -> dict[str, str]:
    program = agent.removeprefix("acp:").split()[0]
    return {**settings, **server.environ, "PATH": path_with(program), "HOME": str(home)}


def corrected(request: Request) -> int:
    """The first turn breaks a rule and ends; what follows comes once the violation is part of the conversation."""
    done = results(request)
    return done if done < 1 or "ci/run.yml' breaks" not in request.text else done + 1


@pytest.mark.agents
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("strategy", ["direct", "shadow"])
def test_each_agent_is_refused_a_path_at_a_checkpoint_and_corrects_itself(
    settings: dict[str, str], scripts: Scripts, tmp_path: Path, agent: str, strategy: str
) -> None:
    script = AgentScript(FORBIDDEN, "I wrote it.", UNDO, FIX, "Area is a product.", at=corrected)
    with ModelServer(script) as server:
        environ = environment(settings, server, agent, tmp_path / "user")
        run, events = worked(
            environ,
            scripts.checkout,
            agent,
            GUARD,
            execution_mode="interactive",
            strategy=strategy,
            interaction=InteractionMode.ASK_BEFORE_RISKY,
            budget={"wall_sec": 200},
        )
    assert run.state is State.DONE, run.failure
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    first, *later = data_of(events, EventType.CHECKPOINT_RECORDED)
    assert [one.file for one in first.violations] == ["ci/run.yml"]
    assert first.action_taken == ("discarded" if strategy == "shadow" else "none")
    assert later[-1].status == "valid"
    assert [one.delivered for one in data_of(events, EventType.VIOLATION_ACKNOWLEDGED)] == [True]
    if strategy == "shadow":
        valid = {one.checkpoint_id for one in later if one.status == "valid"}
        assert {one.checkpoint_id for one in data_of(events, EventType.PROMOTED)} <= valid
    assert all(KEY in str(request.headers) for request in server.requests)
    assert not data_of(events, EventType.MODE_CHANGED)


WAITING = Bash(
    "echo one > one.txt; touch first; while [ ! -e go ]; do sleep 0.1; done;"
    " echo two > two.txt; rm one.txt; chmod +x shapes.py; touch second; while [ ! -e never ]; do sleep 0.1; done"
)
"""Waits until a person has let it go on, and then for ever."""
CLEAN = Bash("rm -f first second go one.txt two.txt; sed -i '0,/return/s/+/*/' shapes.py")
PLEASE = "Please keep the perimeter as it is."
CRASHED = "You were started again"


def after_the_stop(request: Request) -> int:
    """The agent waits in its first command until it is stopped; what comes next is a new beginning."""
    if GO_ON not in request.text and CRASHED not in request.text:
        return 0
    return 2 if "[done]" in request.text else 1


@pytest.mark.agents
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("stop", ["pause", "worker", "agent"])
@pytest.mark.parametrize("strategy", ["direct", "shadow"])
def test_each_agent_is_put_back_messaged_stopped_and_goes_on(
    settings: dict[str, str], scripts: Scripts, tmp_path: Path, agent: str, stop: str, strategy: str
) -> None:
    """Everything that people do to a running agent, in one run; it is stopped by a pause or a kill, and finishes."""
    done = Bash(f"{CLEAN.command}; echo '[done]'")
    with ModelServer(AgentScript(WAITING, done, "Area is a product.", at=after_the_stop)) as server:
        environ = environment({**os.environ, **settings}, server, agent, tmp_path / "user")
        (tmp_path / "config" / "codepilot" / "codepilot.toml").write_text(GUARD)
        pilot = CodePilot(configured(environ))
        argv = [sys.executable, "-m", "codepilot"]
        asked = ["--agent", agent, "--execution-mode", "interactive", "--interaction", "full_autonomy"]
        asked += ["--strategy", strategy]
        begun = [*argv, "fix", str(scripts.checkout), *asked, "--run", "r-1", "--json"]
        with subprocess.Popen(begun, env=environ, stdout=subprocess.PIPE) as command:
            tree = tmp_path / "home" / "workspaces" / "r-1" / ("shadow" if strategy == "shadow" else "tree")
            try:
                until(lambda: (tree / "first").exists())
                kept = pilot.checkpoint("r-1", wait_sec=30).done
                assert isinstance(kept, CheckpointRecorded)
                sent = pilot.message("r-1", PLEASE, wait_sec=30).done
                assert isinstance(sent, MessageSent)
                assert sent.delivered
                (tree / "go").touch()
                until(lambda: (tree / "second").exists())
                put_back = pilot.rollback("r-1", kept.checkpoint_id, wait_sec=30).done
                assert isinstance(put_back, RolledBack)
                assert put_back.tree == kept.tree
                assert (tree / "one.txt").read_text() == "one\n"
                assert not (tree / "two.txt").exists()
                assert not (tree / "shapes.py").stat().st_mode & 0o100
                if stop == "agent":
                    for pid in agent_processes():
                        with contextlib.suppress(ProcessLookupError):  # its parent took it along
                            os.kill(pid, signal.SIGKILL)
                elif stop == "worker":
                    command.kill()
                else:
                    pilot.pause("r-1")
                ended = command.wait(200)
            finally:
                command.kill()
        assert ended == {"agent": 0, "worker": -signal.SIGKILL, "pause": 130}[stop]
        if stop != "agent":
            assert confined() == []
            subprocess.run([*argv, "resume", "r-1", "--json"], env=environ, timeout=200, check=True)
    with Runtime.open(configured(environ)) as runtime:
        run, events = runtime.store.load("r-1"), runtime.store.events("r-1")
    assert run.state is State.DONE, run.failure
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    assert any(PLEASE in request.text for request in server.requests)
    first, *others = data_of(events, EventType.SESSION_STARTED)
    assert others
    assert [one.resumed and one.session_id == first.session_id for one in others][-1:] in ([True], [agent in RESUMED])
    assert not (tmp_path / "home" / "workspaces" / "r-1").exists()


def agent_processes() -> list[int]:
    """The sandboxed processes that are the program itself, not what confines it or what it started."""
    others = ("bwrap", "sh", "bash", "sleep")
    return [pid for pid in confined() if "codepilot" not in name_of(pid) and name_of(pid) not in others]


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
