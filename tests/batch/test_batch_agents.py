"""The real command-line agents do the tasks of a batch; their model is scripted, nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from batch_kit import BatchProject

from agent_clis import agent_cli, path_with
from agent_script import AgentScript, Bash
from model_answers import Answer, refusals
from model_server import ModelServer, Request

APIS = {"claude": "anthropic", "codex": "responses", "gemini": "gemini", "opencode": "anthropic"}
EVERY = [pytest.param(name, marks=pytest.mark.agents) for name in APIS]


class ByTask:
    """The script of the task that a request is about."""

    def __init__(self, scripts: Mapping[str, AgentScript]) -> None:
        self._scripts = scripts

    def __call__(self, request: Request) -> Answer:
        for task_id, script in self._scripts.items():
            if f"TASK_COMPLETE:{task_id}" in request.text:
                return script(request)
        return "{}"


def task(task_id: str, agent: str, **fields: Any) -> dict[str, Any]:
    prompt = "Write hello into made.txt. When complete, print exactly: TASK_COMPLETE:{task_id}"
    own = {"task_id": task_id, "agent": agent, "cwd": "work", "timeout_sec": 120, "prompt_template": prompt}
    return {**own, **fields}


def environment(server: ModelServer, name: str, home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return {**server.environ, "PATH": path_with(name), "HOME": str(home)}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", EVERY)
def test_each_end_of_a_real_agent_has_its_class(tmp_path: Path, name: str) -> None:
    refused = refusals("key")[APIS[name]], refusals("credit")[APIS[name]]
    scripts = {
        "made": AgentScript(Bash("echo hello > made.txt"), "I made it.\n\nTASK_COMPLETE:made"),
        "quiet": AgentScript(Bash("echo hello > made.txt"), "I made it."),
        "auth": AgentScript(refused[0]),
        "quota": AgentScript(refused[1]),
    }
    project = BatchProject.made(tmp_path)
    project.write(*(task(one, name, max_retries=1) for one in scripts))
    with ModelServer(ByTask(scripts)) as server:
        ended = project("--jobs", "2", "--json", **environment(server, name, tmp_path / "user"))
    tasks = project.tasks()
    assert {one: (tasks[one]["status"], tasks[one]["attempts"]) for one in tasks} == {
        "made": ("completed", 1),
        "quiet": ("failed_incomplete", 1),
        "auth": ("failed_auth", 1),
        "quota": ("failed_quota", 1),
    }, ended
    made = tasks["made"]["result"]
    assert "+hello" in (project.folder / made["patch"]).read_text()
    assert made["completion_marker_seen"] and made["exit_code"] == 0
    assert b"I made it." in project.log("made", suffix=".log")
    with project.pilot() as pilot:
        assert pilot.run(made["run_id"]).spent.tokens > 0


@pytest.mark.agents
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "words", "answers"),
    [
        ("claude", ("--permission-mode", "manual"), 1),
        ("codex", ("--no-daemon",), 0),
        ("gemini", (), 1),
        ("opencode", (), 1),
    ],
)
def test_a_real_agent_on_a_terminal_is_typed_its_prompt_and_answered_when_it_asks(
    tmp_path: Path, name: str, words: tuple[str, ...], answers: int
) -> None:
    """Its screen is drawn by moving the cursor; its dialog takes a key; after its work it stays at its prompt."""
    scripts = {"made": AgentScript(Bash("echo hello > made.txt"), "I made it.\n\nTASK_COMPLETE:made")}
    project = BatchProject.made(tmp_path)
    program = str(agent_cli(name).program) if name == "codex" else name  # it needs the files beside it
    with (tmp_path / "config" / "codepilot" / "codepilot.toml").open("a") as config:
        config.write(f"[profiles.{name}]\ncommand = {json.dumps([program, *words])}\n")
    project.write(task("made", name, permission_policy={"auto_press_1": True}, timeout_sec=400))
    with ModelServer(ByTask(scripts)) as server:
        ended = project("--json", **environment(server, name, tmp_path / "user"))
    made = project.tasks()["made"]
    assert made["status"] == "completed", (ended, project.log("made", suffix=".txt"))
    assert made["result"]["auto_inputs"] == [{"key": "1", "count": answers}] and made["result"]["exit_code"] is None
    assert "+hello" in (project.folder / made["result"]["patch"]).read_text()
