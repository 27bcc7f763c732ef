"""The real command-line agents fix a bug in the sandbox, through the gateway: their model is scripted, nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_agent_kit import Scripts, data_of, scripts, settings, worked
from key_search import confined, files_with, holders, name_of

from agent_clis import path_with
from agent_script import AgentScript, Bash, Edit, Step, Write, results
from codepilot.core.events import EventType, State
from codepilot.core.failures import FailureKind
from codepilot.engine import Runtime
from configured import configured
from model_server import KEY, HttpError, ModelServer, Request

__all__ = ["scripts", "settings"]

NAMES = ("claude", "codex", "gemini", "opencode")
AGENTS = (*NAMES, "acp:gemini --acp")
FIX = Edit("shapes.py", "    return width + height", "    return width * height")
FIX_BY_COMMAND = Bash("sed -i '0,/return/s/+/*/' shapes.py")
"""Codex offers no tool that edits files with every model. Done twice, as by an agent that forgot, it is the same."""
RESUMED = ("claude", "codex")
"""The agents that always keep a session whose turn was cut off by a kill; the others may begin it anew, from the files
as left, if they had not written it down yet."""


def environment(settings: dict[str, str], server: ModelServer, name: str, home: Path) -> dict[str, str]:
    program = name.removeprefix("acp:").split()[0]
    return {**settings, **server.environ, "PATH": path_with(program), "HOME": str(home)}


def test_claude_fixes_a_bug_through_the_gateway_and_no_key_is_inside(
    settings: dict[str, str], scripts: Scripts, tmp_path: Path
) -> None:
    seen: list[tuple[int, set[str], set[str]]] = []

    def looked_at(request: Request) -> int:
        """The program waits for this reply, with all that it knows in its memory."""
        if results(request) == 1 and not seen:
            seen.append((len(confined()), holders(KEY.encode()), holders(b"cpk-")))
        return results(request)

    script = AgentScript(FIX, Bash("python3 -m unittest"), "Area is a product.", at=looked_at)
    with ModelServer(script) as server:
        environ = environment(settings, server, "claude", tmp_path / "user")
        run, events = worked(environ, scripts.checkout, "claude")
    assert run.state is State.DONE, run.failure
    assert run.verdict == "confirmed"
    [(processes, with_key, with_token)] = seen
    assert processes > 0
    assert with_token, "the search finds what is in memory"
    assert with_key == set()
    assert files_with(tmp_path / "home", KEY.encode()) == []
    assert {request.headers["x-api-key"] for request in server.requests} == {KEY}
    assert run.spent.tokens == sum(one.usage.tokens for one in data_of(events, EventType.MODEL_ANSWERED)) > 0
    tools = [turn.action["tool"] for turn in data_of(events, EventType.TURN_STARTED) if "tool" in turn.action]
    assert tools == ["Edit", "Bash"]


@pytest.mark.agents
@pytest.mark.parametrize("name", AGENTS)
def test_each_agent_fixes_a_bug_on_the_runs_budget_and_no_key_is_inside(
    settings: dict[str, str], scripts: Scripts, tmp_path: Path, name: str
) -> None:
    seen: list[tuple[set[str], set[str]]] = []

    def looked_at(request: Request) -> int:
        if results(request) == 1 and not seen:
            seen.append((holders(KEY.encode()), holders(b"cpk-")))
        return results(request)

    script = AgentScript(FIX_BY_COMMAND, Bash("python3 -m unittest"), "Area is a product.", at=looked_at)
    with ModelServer(script) as server:
        environ = environment(settings, server, name, tmp_path / "user")
        run, events = worked(environ, scripts.checkout, name, budget={"wall_sec": 200})
    [(with_key, with_token)] = seen
    assert with_token, "the search finds what is in memory"
    assert with_key == set()
    assert files_with(tmp_path / "home", KEY.encode()) == []
    assert run.state is State.DONE, run.failure
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    [started] = data_of(events, EventType.SESSION_STARTED)
    assert started.session_id
    assert run.spent.tokens > 0
    assert run.calls == {}


@pytest.mark.agents
@pytest.mark.parametrize("name", AGENTS)
def test_each_agent_is_refused_a_path_with_the_reason_and_does_it_elsewhere(
    settings: dict[str, str], scripts: Scripts, tmp_path: Path, name: str
) -> None:
    rule = '[policy.path_rules.implementer]\ndeny = ["ci/**"]\n[agents.codex]\nmodel = "gpt-5.5"\n'
    script = AgentScript(Write("ci/run.yml", "jobs: all\n"), FIX_BY_COMMAND, "Area is a product.")
    with ModelServer(script) as server:
        environ = environment(settings, server, name, tmp_path / "user")
        run, events = worked(environ, scripts.checkout, name, rule, budget={"wall_sec": 200})
    assert run.state is State.DONE, run.failure
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    refused = data_of(events, EventType.POLICY_DECIDED)
    assert [(one.rule, one.subject, one.effect) for one in refused] == [
        ("path_rules.implementer", "ci/run.yml", "deny")
    ]
    assert any("the implementer may not change ci/run.yml" in request.text for request in server.requests)


@pytest.mark.agents
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (HttpError(401), FailureKind.MODEL_AUTH),
        (HttpError(429), FailureKind.MODEL_QUOTA),
        (HttpError(529), FailureKind.MODEL_OVERLOADED),
    ],
)
def test_each_refusal_of_the_provider_ends_in_its_class_and_costs_nothing(
    settings: dict[str, str], scripts: Scripts, tmp_path: Path, name: str, step: Step, expected: FailureKind
) -> None:
    with ModelServer(AgentScript(step, side=step)) as server:
        environ = environment(settings, server, name, tmp_path / "user")
        run, events = worked(environ, scripts.checkout, name, budget={"wall_sec": 200})
    assert data_of(events, EventType.STEP_FAILED)[0].failure.kind is expected
    assert run.spent.tokens == 0


@pytest.mark.agents
@pytest.mark.parametrize("name", NAMES)
def test_each_agent_is_refused_a_call_past_the_budget(
    settings: dict[str, str], scripts: Scripts, tmp_path: Path, name: str
) -> None:
    with ModelServer(AgentScript(FIX_BY_COMMAND, "Done.")) as server:
        environ = environment(settings, server, name, tmp_path / "user")
        run, _ = worked(environ, scripts.checkout, name, budget={"wall_sec": 200, "tokens": 100})
    assert run.state is State.ABORTED
    assert run.failure is not None
    assert (run.failure.kind, run.failure.details.get("budget")) == (FailureKind.BUDGET_EXCEEDED, "tokens")
    assert server.requests == []


@pytest.mark.agents
@pytest.mark.parametrize("name", NAMES)
def test_an_agent_that_is_killed_goes_on_with_its_session(
    settings: dict[str, str], scripts: Scripts, tmp_path: Path, name: str
) -> None:
    killed: list[int] = []

    def kill_once(request: Request) -> int:
        """Kill the program while it waits for the reply that follows its first tool."""
        if results(request) == 1 and not killed:
            killed.extend(agent_processes())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
        return results(request)

    with ModelServer(
        AgentScript(FIX_BY_COMMAND, Bash("python3 -m unittest"), "Area is a product.", at=kill_once)
    ) as server:
        environ = environment(settings, server, name, tmp_path / "user")
        run, events = worked(environ, scripts.checkout, name, budget={"wall_sec": 200})
    assert killed
    assert run.state is State.DONE, run.failure
    first, *others = data_of(events, EventType.SESSION_STARTED)
    assert [one.resumed and one.session_id == first.session_id for one in others][-1:] in ([True], [name in RESUMED])
    assert data_of(events, EventType.SESSION_ENDED)[0].failure.kind is FailureKind.AGENT_CRASHED


@pytest.mark.agents
@pytest.mark.parametrize("name", NAMES)
def test_a_run_whose_worker_is_killed_goes_on_with_its_session(
    settings: dict[str, str], scripts: Scripts, tmp_path: Path, name: str
) -> None:
    command: list[subprocess.Popen[bytes]] = []

    def kill_once(request: Request) -> int:
        if results(request) == 1 and command[0].poll() is None:
            command[0].kill()
            command[0].wait()
        return results(request)

    with ModelServer(
        AgentScript(FIX_BY_COMMAND, Bash("python3 -m unittest"), "Area is a product.", at=kill_once)
    ) as server:
        environ = environment({**os.environ, **settings}, server, name, tmp_path / "user")
        argv = [sys.executable, "-m", "codepilot"]
        asked = ["--agent", name, "--interaction", "full_autonomy", "--run", "r-killed", "--json"]
        command.append(subprocess.Popen([*argv, "fix", str(scripts.checkout), *asked], env=environ))
        command[0].wait(200)
        assert command[0].returncode == -signal.SIGKILL
        subprocess.run([*argv, "resume", "r-killed", "--json"], env=environ, timeout=200, check=True)
    with Runtime.open(configured(settings)) as runtime:
        run, events = runtime.store.load("r-killed"), runtime.store.events("r-killed")
    assert run.state is State.DONE, run.failure
    first, *others = data_of(events, EventType.SESSION_STARTED)
    assert [one.resumed and one.session_id == first.session_id for one in others][-1:] in ([True], [name in RESUMED])


def agent_processes() -> list[int]:
    """The sandboxed processes that are the program itself, not what confines it."""
    return [
        pid for pid in confined() if "codepilot" not in name_of(pid) and name_of(pid) not in ("bwrap", "sh", "python3")
    ]
