"""Builds: from a description to a tested program in a directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from engine_kit import CHEAP, Runtime, states, until

from build_kit import REQUEST, TODO_SCRIPT, result, written
from codepilot.agents import CodeActAgent
from codepilot.core.approval import ApprovalDecided
from codepilot.core.artifacts import TestResult
from codepilot.core.events import EditsFound, Event, GuardrailBlocked, State
from codepilot.core.policy import Policy
from codepilot.core.run import Run
from codepilot.core.task import TaskKind
from codepilot.engine import Request, Worker, make_task, submit
from codepilot.engine.control import decide_approval
from codepilot.models import ScriptedModel
from codepilot.telemetry import describe
from node_kit import NODE_SCRIPT


def built(
    runtime: Runtime, out: Path, model: ScriptedModel, policy: Policy | None = None, **asked: object
) -> tuple[Run, list[Event]]:
    request = Request(repo=str(out), kind=TaskKind.BUILD, prompt=REQUEST, **asked)  # type: ignore[arg-type]
    task = make_task(request, CHEAP.model_copy(update={"environ": {**CHEAP.environ, "ANTHROPIC_API_KEY": "x"}}))
    task = task.model_copy(update={"policy": policy or task.policy})
    run = submit(runtime, task)
    ended = Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(run.run_id)
    runtime.store.check(run.run_id)
    return ended, runtime.store.events(run.run_id)


def test_a_program_is_built_in_three_iterations(runtime: Runtime, tmp_path: Path) -> None:
    out = tmp_path / "todos"
    run, events = built(runtime, out, until(*TODO_SCRIPT))
    assert (run.state, run.failure, run.verdict) == (State.DONE, None, "confirmed")
    assert run.spent.iterations == 3
    assert states(events).count(State.PLAN) == 1
    assert run.test_result is not None and (run.test_result.coverage or 0) > 70
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=out, check=False)
    assert done.returncode == 0


@pytest.mark.builds
def test_a_node_package_is_built(runtime: Runtime, tmp_path: Path) -> None:
    out = tmp_path / "slugs"
    run, _ = built(runtime, out, until(*NODE_SCRIPT), language="node")
    assert (run.state, run.failure, run.spent.iterations) == (State.DONE, None, 2)
    assert run.test_result is not None and 50 < (run.test_result.coverage or 0) < 100
    done = subprocess.run(["node", "--test"], cwd=out, check=False, capture_output=True)
    assert done.returncode == 0, done.stdout


ASKING = """from urllib.request import urlopen


def greeting():
    return urlopen("https://api.example.com/hello").read().decode()
"""
QUIET = """def greeting():
    return "hello"
"""
GREETING_TESTS = "from greet import greeting\n\n\ndef test_greeting():\n    assert greeting() == 'hello'\n"
GREETING_PLAN = result(
    nodes=[{"id": "one", "title": "Greet"}, {"id": "two", "title": "Test it", "role": "Tester", "depends_on": ["one"]}]
)
BEGUN = (GREETING_PLAN, written({"greet.py": ASKING}), result(rationale="it asks"))
TESTED = (written({"tests/test_greet.py": GREETING_TESTS}), result(tests=["x"], rationale="y"))
OTHERWISE = (
    result(root_cause="the network was denied", fix_hypothesis="answer without it", confidence="high"),
    written({"greet.py": QUIET}),
    result(rationale="without a network"),
)


@pytest.mark.builds
def test_nothing_runs_before_its_answer_and_a_denial_leads_to_another_way(runtime: Runtime, tmp_path: Path) -> None:
    model = until(*BEGUN, *TESTED, *OTHERWISE)
    run, _ = built(runtime, tmp_path / "greet", model, Policy())
    assert run.state is State.BLOCKED and run.open_request is not None
    assert (run.open_request.operation, run.open_request.details) == ("network", "api.example.com")
    assert run.test_result is None and "urlopen" in run.open_request.snippet
    denied = ApprovalDecided(approval_id=run.open_request.approval_id, decision="denied", reason="no data leaves.")
    decide_approval(runtime, run.run_id, denied)
    run = Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(run.run_id)
    assert (run.state, run.failure, run.verdict) == (State.DONE, None, "confirmed")
    red = next(event.data for event in runtime.store.events(run.run_id) if isinstance(event.data, TestResult))
    assert [error.error_type for error in red.errors] == ["ApprovalDenied"] and red.exit_code is None
    assert "no data leaves. Find another way" in red.errors[0].message
    readme = (tmp_path / "greet/README.md").read_text()
    assert REQUEST in readme and "python -m pytest" in readme, "the agent wrote none"
    assert (tmp_path / "greet/requirements.txt").is_file()


@pytest.mark.builds
def test_blocked_code_is_reflected_on_and_not_run(runtime: Runtime, tmp_path: Path) -> None:
    evil = written({"greet.py": "def greeting():\n    return eval('\"hello\"')\n"})
    run, events = built(runtime, tmp_path / "greet", until(BEGUN[0], evil, BEGUN[2], *TESTED, *OTHERWISE))
    assert (run.state, run.failure) == (State.DONE, None)
    red = next(event.data for event in events if isinstance(event.data, TestResult))
    assert [error.error_type for error in red.errors] == ["BlockedCode"] and red.exit_code is None
    assert [gate.ok for gate in red.gates] == [False, None]


@pytest.mark.builds
def test_an_action_of_a_build_cannot_run_what_was_not_scanned(runtime: Runtime, tmp_path: Path) -> None:
    run_it = "```python\nimport subprocess\nsubprocess.run(['python', 'greet.py'])\n```"
    import_it = "```python\nimport greet\n```"
    model = until(BEGUN[0], written({"greet.py": QUIET}), run_it, import_it, BEGUN[2], *TESTED)
    run, events = built(runtime, tmp_path / "greet", model)
    assert (run.state, run.failure) == (State.DONE, None)
    blocked = [event.data.rule for event in events if isinstance(event.data, GuardrailBlocked)]
    assert blocked == ["build.unscanned"] * 2


@pytest.mark.builds
def test_a_persons_edits_are_shown_and_kept(runtime: Runtime, tmp_path: Path) -> None:
    out = tmp_path / "todos"

    def edit() -> None:
        (out / "NOTES.md").write_text("Ask Ada before you rename anything.\n")
        (out / "README.md").write_text("# Ada's todos\n")

    model = until(*TODO_SCRIPT, before={7: edit})
    run, events = built(runtime, out, model)
    assert (run.state, run.failure) == (State.DONE, None)
    found = [event.data for event in events if isinstance(event.data, EditsFound)]
    assert [one.files for one in found] == [("NOTES.md", "README.md")]
    assert describe(next(one for one in events if one.data is found[0])) == (
        "takes over your edits: NOTES.md, README.md"
    )
    shown = model.requests[8][1].content
    assert "A person edited NOTES.md, README.md" in shown and "Ask Ada" in shown
    assert (out / "README.md").read_text() == "# Ada's todos\n"
    assert run.proposal is not None and "NOTES.md" in run.proposal.patch.touched_files


@pytest.mark.builds
def test_a_given_directory_is_built_on_and_its_tests_must_still_pass(runtime: Runtime, tmp_path: Path) -> None:
    out = tmp_path / "greet"
    (out / "tests").mkdir(parents=True)
    (out / "base.py").write_text("def name():\n    return 'ada'\n")
    (out / "tests/test_base.py").write_text("from base import name\n\n\ndef test_name():\n    assert name() == 'ada'\n")
    breaking = written({"greet.py": QUIET, "base.py": "def name():\n    return 'bob'\n"})
    mended = (OTHERWISE[0], written({"base.py": "def name():\n    return 'ada'\n"}), OTHERWISE[2])
    run, events = built(runtime, out, until(BEGUN[0], breaking, BEGUN[2], *TESTED, *mended))
    assert (run.state, run.failure) == (State.DONE, None)
    red = next(event.data for event in events if isinstance(event.data, TestResult))
    assert red.regressions == ("tests/test_base.py::test_name",)
