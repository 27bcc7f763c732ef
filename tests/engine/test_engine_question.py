"""Read-only questions: the answer is an artifact. And dry runs: plan, commands and diff are artifacts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from engine_kit import CHEAP, EditingAgent, code, result, until

from codepilot.agents import CodeActAgent
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError
from codepilot.core.task import Capability, RiskProfile, TaskKind
from codepilot.engine import Request, Runtime, Worker, apply_run, make_task, submit
from codepilot.engine.report import document_of
from codepilot.telemetry import exit_code

READ = code("print(read_file('shapes.py'))")
WRITE = code("write_file('shapes.py', '')")


def test_a_question_is_answered_without_a_change(runtime: Runtime, checkout: Path) -> None:
    (checkout / "test_shapes.py").unlink()
    asked = Request(repo=str(checkout), kind=TaskKind.QUESTION, prompt="What does area return?")
    task = make_task(asked, CHEAP)
    task = task.model_copy(update={"risk_profile": RiskProfile(capability=Capability.READ_ONLY)})
    model = until(READ, WRITE, result(answer="The sum.", sources=["shapes.py:2"]))
    run = Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(submit(runtime, task).run_id)
    assert (run.state, run.failure, exit_code(run)) == (State.DONE, None, 0)
    assert document_of(runtime, run.run_id, "answer").decode() == "The sum.\n\nSources:\n- shapes.py:2\n"
    with pytest.raises(CodePilotError, match="no document"):
        document_of(runtime, run.run_id, "diff")


def test_a_dry_run_shows_plan_commands_and_diff_and_applies_nothing(runtime: Runtime, checkout: Path) -> None:
    task = make_task(Request(repo=str(checkout), dry_run=True, accept=("true",)), CHEAP)
    run = Worker(runtime, agent_for=lambda task: EditingAgent()).drive(submit(runtime, task).run_id)
    run = runtime.store.load(run.run_id)
    assert (run.state, sorted(run.documents)) == (State.DONE, ["commands", "diff", "plan"])
    plan = json.loads(document_of(runtime, run.run_id, "plan"))
    assert plan["not_done"] == [f"write 1 file(s) to {checkout}"]
    commands = [json.loads(line) for line in document_of(runtime, run.run_id, "commands").splitlines()]
    assert any("true" in str(one["command"]) for one in commands) and "unittest" in str(commands[0]["command"])
    assert b"+    return width * height" in document_of(runtime, run.run_id, "diff")
    with pytest.raises(CodePilotError, match="dry run"):
        apply_run(runtime, run.run_id, accept_plausible=True)
    assert subprocess.run(["git", "status", "--short"], cwd=checkout, capture_output=True).stdout == b""


def test_a_dry_run_commits_to_no_branch(checkout: Path) -> None:
    with pytest.raises(CodePilotError, match="dry run"):
        make_task(Request(repo=str(checkout), dry_run=True, branch="fix"), CHEAP)
