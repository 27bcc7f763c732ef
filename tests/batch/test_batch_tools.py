"""The three tools of a model: over MCP with a real client, and in the loop of `--driver`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from batch_kit import BatchProject, shell
from mcp import ClientSession, StdioServerParameters, stdio_client

from codepilot.models import Reply, ToolCall

DONE = "echo TASK_COMPLETE:{task_id}"


@pytest.fixture
def project(tmp_path: Path) -> BatchProject:
    project = BatchProject.made(tmp_path)
    project.write(shell("good", DONE), shell("bad", ": TASK_COMPLETE:{task_id}"), shell("slow", f"sleep 600; {DONE}"))
    return project


def test_a_client_has_three_tools_and_cannot_decide_a_status(project: BatchProject) -> None:
    async def play() -> tuple[list[str], dict[str, tuple[bool, str]]]:
        answers: dict[str, tuple[bool, str]] = {}
        argv = ["-m", "codepilot", "batch", "tasks.json", "--mcp"]
        server = StdioServerParameters(command=sys.executable, args=argv, env=project.environ, cwd=project.folder)
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            opened = await client.initialize()
            assert "bad: pending" in (opened.instructions or "")

            async def call(name: str, tool: str, **arguments: Any) -> None:
                answer = await client.call_tool(tool, arguments)
                answers[name] = (not answer.is_error, answer.content[0].text)  # type: ignore[union-attr]

            names = [tool.name for tool in (await client.list_tools()).tools]
            await call("read", "get_task", task_id="good")
            await call("unknown", "get_task", task_id="worse")
            await call("tool", "bash", task_id="good")
            await call("run", "run_agent", task_id="good")
            await call("again", "run_agent", task_id="good")
            await call("decide", "update_task", task_id="bad", patch={"status": "completed"})
            await call("permit", "update_task", task_id="bad", patch={"permission_policy": {"auto_press_1": True}})
            await call("wrong", "update_task", task_id="bad", patch={"timeout_sec": -1})
            await call("edit", "update_task", task_id="bad", patch={"prompt_template": DONE})
            await call("edited", "run_agent", task_id="bad")
            waiting = asyncio.create_task(call("slow", "run_agent", task_id="slow"))
            while not (project.folder / "runs" / "slow" / "attempt_1.log").exists():
                await asyncio.sleep(0.1)
            await call("twice", "run_agent", task_id="slow")
            await call("running", "get_task", task_id="slow")
            waiting.cancel()
        return names, answers

    names, answers = asyncio.run(asyncio.wait_for(play(), 120))
    assert names == ["run_agent", "get_task", "update_task"]
    assert {name for name, (ok, _) in answers.items() if ok} == {"read", "run", "edit", "edited", "running"}
    assert json.loads(answers["read"][1])["status"] == "pending"
    assert json.loads(answers["run"][1])["status"] == "completed"
    assert json.loads(answers["running"][1])["running"] is True
    assert "code decides" in answers["decide"][1] and "good, bad, slow" in answers["unknown"][1]
    tasks = project.tasks()
    assert tasks["bad"]["status"] == "completed" and tasks["bad"]["prompt_template"] == DONE
    assert "permission_policy" not in tasks["bad"] and "status" not in tasks["slow"], "its attempt was ended"
    assert not project("--only", "good").code, "the file is free again"


def call(tool: str, **arguments: Any) -> Reply:
    made = ToolCall(id=f"c-{tool}-{arguments['task_id']}", name=tool, arguments=arguments)
    return Reply(tool_calls=(made,), stop_reason="tool_use")


def test_a_model_drives_the_batch_and_code_classifies(project: BatchProject) -> None:
    replies = [
        Reply(tool_calls=(*call("run_agent", task_id="good").tool_calls, *call("run_agent", task_id="bad").tool_calls)),
        call("update_task", task_id="bad", patch={"status": "pending", "prompt_template": DONE}),
        call("run_agent", task_id="bad"),
        Reply(text="Both went well."),
    ]
    script = project.folder / "script.json"
    script.write_text(json.dumps([reply.model_dump(mode="json") for reply in replies]))
    ended = project("--driver", f"scripted:{script}", "--jobs", "2", "--json", "--only", "good", "--only", "bad")
    assert ended.code == 0, ended.err
    assert ended.json["driver"] | {"tokens": 0} == {
        "turns": 4,
        "tokens": 0,
        "cost_usd": 0.0,
        "message": "Both went well.",
    }
    assert [(one["task_id"], one["status"], one["attempts"]) for one in ended.json["tasks"]] == [
        ("good", "completed", 1),
        ("bad", "completed", 2),
    ]


def test_a_driver_and_a_server_are_not_asked_for_at_once(project: BatchProject) -> None:
    ended = project("--mcp", "--driver", "scripted:x.json")
    assert ended.code == 2 and "exclude each other" in ended.err
    assert project("--driver", "scripted:x.json", "--only", "worse").code == 2
    script = project.folder / "script.json"
    script.write_text("[]")
    ended = project("--driver", f"scripted:{script}")
    assert ended.code and "run the same command again" in ended.err and "resume" not in ended.err
