"""What a policy means for a run: violations, flagged files, scanned code, demanded levels, opened hosts."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from engine_kit import APPROVE, DONE, MAP, PLAN, RIGHT, code, drive, result, until

from codepilot.core.events import (
    EventType,
    FilesFlagged,
    GuardrailBlocked,
    NetworkAllowed,
    NetworkRefused,
    State,
    TurnFinished,
)
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import Policy
from codepilot.engine import Runtime
from codepilot.models import ScriptedModel

THOUGHT = result(root_cause="none", fix_hypothesis="none")
PLANT = code("import os\nos.makedirs('sub/.git')")


def test_what_may_not_stand_in_the_tree_is_reported_at_once(runtime: Runtime, checkout: Path) -> None:
    seen: list[str] = []
    replies = iter([MAP, PLAN, PLANT, code("os.rmdir('sub/.git')"), RIGHT, DONE, APPROVE])

    def reply(messages: object) -> str:
        seen.append(str(messages))
        return next(replies)

    run, events = drive(runtime, checkout, ScriptedModel(reply))
    assert run.state is State.DONE
    assert "sub/.git may not be there (nested_git)" in seen[3]
    assert [event.data for event in events if isinstance(event.data, GuardrailBlocked)] == [
        GuardrailBlocked(skill="workspace", rule="nested_git", attempt="sub/.git", paths=("sub/.git",))
    ]


@pytest.mark.variants
def test_what_one_action_left_is_one_violation_reported_whole(runtime: Runtime, checkout: Path) -> None:
    seen: list[str] = []
    plant = code("import os\nfor name in 'abcd': os.makedirs(f'{name}/.git')")
    tidy = code("for name in 'abcd': os.rmdir(f'{name}/.git')")
    replies = iter([MAP, PLAN, plant, code("print(1)"), code("print(2)"), tidy])

    def reply(messages: object) -> str:
        seen.append(str(messages))
        if text := next(replies, None):
            return text
        raise CodePilotError(FailureKind.MODEL_REFUSED, "The script is over.")

    run, events = drive(runtime, checkout, ScriptedModel(reply))
    assert run.failure is not None
    assert run.failure.kind is FailureKind.MODEL_REFUSED
    assert "a/.git, b/.git, c/.git, d/.git may not be there" in seen[3]
    assert sum(isinstance(event.data, GuardrailBlocked) for event in events) == 1


@pytest.mark.variants
def test_a_policy_may_end_the_run_at_the_first_violation(runtime: Runtime, checkout: Path) -> None:
    push = code("run_command(['git', 'fetch'])")
    run, events = drive(runtime, checkout, ScriptedModel([MAP, PLAN, push]), Policy(violations=1))
    assert (run.state, run.failure and run.failure.kind) == (State.FAILED, FailureKind.POLICY_VIOLATION)
    blocked = [event.data for event in events if isinstance(event.data, GuardrailBlocked)]
    assert [one.skill for one in blocked] == ["run_command"]
    assert "git fetch" in blocked[0].attempt


@pytest.mark.variants
def test_a_caught_refusal_counts_all_the_same_and_the_third_ends_the_run(runtime: Runtime, checkout: Path) -> None:
    sly = code("try:\n    run_command(['git', 'fetch'])\nexcept Exception:\n    pass")
    run, events = drive(runtime, checkout, ScriptedModel([MAP, PLAN, *[sly] * 5]))
    assert (run.state, run.failure and run.failure.kind) == (State.FAILED, FailureKind.POLICY_VIOLATION)
    assert sum(isinstance(event.data, GuardrailBlocked) for event in events) == 3


def test_skill_calls_are_on_record(runtime: Runtime, checkout: Path) -> None:
    _, events = drive(runtime, checkout, until(MAP, PLAN, RIGHT))
    calls = [call for event in events if isinstance(event.data, TurnFinished) for call in event.data.calls]
    assert [(call.skill, call.status) for call in calls] == [
        ("read_file", "success"),
        ("write_file", "success"),
        ("read_file", "success"),
    ]


def test_files_that_run_where_nobody_looks_are_flagged(runtime: Runtime, checkout: Path) -> None:
    sneak = code(
        "import os\nwrite_file('.vscode/tasks.json', '-x')\nwrite_file('go.sh', 'echo')\nos.chmod('go.sh', 0o755)"
    )
    run, events = drive(runtime, checkout, until(MAP, PLAN, sneak, RIGHT, DONE))
    assert run.test_result is not None
    assert run.test_result.passed
    flags = {event.data.rule: event.data.paths for event in events if isinstance(event.data, FilesFlagged)}
    assert flags == {"new_executable": ("go.sh",), "tool_configuration": (".vscode/tasks.json",)}


def test_a_grave_finding_in_generated_code_goes_to_reflection(runtime: Runtime, checkout: Path) -> None:
    grave = code(
        "write_file('shapes.py', read_file('shapes.py').replace('width + height', 'width * height', 1)"
        " + '\\n\\ndef ls(name):\\n    import subprocess\\n    subprocess.call(name, shell=True)\\n')"
    )
    run, events = drive(runtime, checkout, until(MAP, PLAN, grave, DONE, THOUGHT, RIGHT, DONE), Policy())
    assert run.test_result is not None
    assert run.test_result.passed
    assert run.proposal is not None
    assert "shell" not in run.proposal.patch.diff
    refused = next(event.data for event in events if event.type is EventType.REVIEW_RECORDED)
    assert "B602" in str(refused)


def test_a_level_that_the_policy_demands_is_not_given_up(runtime: Runtime, checkout: Path) -> None:
    demand = Policy(least_level="landlock")
    run, _ = drive(runtime, checkout, ScriptedModel([]), demand, unsafe_no_sandbox=True)
    assert (run.state, run.failure and run.failure.kind) == (State.FAILED, FailureKind.SANDBOX_UNAVAILABLE)


@pytest.fixture
def greeting() -> object:
    class Greeter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"good day")

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Greeter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def ask_for(port: int) -> str:
    return code(
        "import subprocess, sys\n"
        f"src = 'import urllib.request as r; print(r.urlopen(\"http://localhost:{port}\", timeout=5).read())'\n"
        "out = subprocess.run([sys.executable, '-c', src], capture_output=True, text=True)\n"
        "print(out.stdout[-500:], out.stderr[-500:])"
    )


@pytest.mark.parametrize("opened", [True, False])
def test_only_hosts_that_were_opened_are_reached(runtime: Runtime, checkout: Path, greeting: int, opened: bool) -> None:
    ask = ask_for(greeting)
    hosts = (f"localhost:{greeting}",) if opened else ()
    _, events = drive(runtime, checkout, until(MAP, PLAN, ask), hosts=hosts)
    message = " ".join(str(event.data.observation) for event in events if isinstance(event.data, TurnFinished))
    assert ("good day" in message) is opened
    allowed = [event.data for event in events if isinstance(event.data, NetworkAllowed)]
    assert allowed == [NetworkAllowed(scope="run", hosts=hosts, by="person")] * opened


@pytest.mark.variants
def test_a_host_that_was_refused_is_reported_once(runtime: Runtime, checkout: Path, greeting: int) -> None:
    ask = ask_for(greeting)
    hosts = ("localhost:1",)
    run, events = drive(runtime, checkout, until(MAP, PLAN, ask, ask), hosts=hosts)
    assert run.failure is not None
    assert run.failure.kind is FailureKind.MODEL_REFUSED, "a refused host is no violation"
    refused = [event.data for event in events if isinstance(event.data, NetworkRefused)]
    assert [one.host for one in refused] == [f"localhost:{greeting}"]
    assert refused[0].why


@pytest.mark.variants
@pytest.mark.parametrize("opened", [True, False])
def test_hosts_opened_for_the_tests_are_reached_by_their_command_alone(
    runtime: Runtime, checkout: Path, greeting: int, opened: bool
) -> None:
    url = f"http://localhost:{greeting}"
    (checkout / "test_greeting.py").write_text(
        "import unittest, urllib.request\n\n\nclass GreetingTest(unittest.TestCase):\n    def test_it(self):\n"
        f"        self.assertEqual(urllib.request.urlopen('{url}', timeout=5).read(), b'good day')\n"
    )
    hosts = (f"localhost:{greeting}",) if opened else ()
    script = until(MAP, PLAN, ask_for(greeting))
    run, events = drive(runtime, checkout, script, test_hosts=hosts, tests=("test_shapes.py::ShapesTest::test_area",))
    message = " ".join(str(event.data.observation) for event in events if isinstance(event.data, TurnFinished))
    assert "good day" not in message, "actions of the agent do not reach it"
    assert run.baseline is not None
    failing = [name for name in run.baseline.before.failed if "Greeting" in name]
    assert bool(failing) is not opened
    allowed = [event.data for event in events if isinstance(event.data, NetworkAllowed)]
    assert allowed == [NetworkAllowed(scope="command", hosts=hosts, by="person", command=("tests",))] * opened
