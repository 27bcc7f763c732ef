"""Agents that are programs: their work is recorded, judged and proved like any other, and each end has its class."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from cli_agent_kit import FIX, Scripts, data_of, mounted, scripts, settings, worked

from codepilot.core.events import Event, EventType, State, TurnStarted
from codepilot.core.failures import FailureKind
from codepilot.core.task import InteractionMode, TaskKind
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from codepilot.engine.control import pause, resume
from configured import configured

__all__ = ["scripts", "settings"]


def failed(kind: str, **fields: object) -> list[str]:
    """The step by which a program says that it failed."""
    return ["raw", json.dumps({"type": "failed", "kind": kind, "message": "it says no", **fields})]


def test_a_program_fixes_a_bug_and_the_change_is_proved(settings: Mapping[str, str], scripts: Scripts) -> None:
    agent = scripts.add(["say", "It adds."], FIX, ["run", "python3 -m unittest 2>&1 | tail -1"])
    run, events = worked(settings, scripts.checkout, agent)
    assert run.state is State.DONE, run.failure
    assert run.verdict == "confirmed"
    [started] = data_of(events, EventType.SESSION_STARTED)
    assert (started.agent, started.session_id, started.resumed) == (agent, "session-1", False)
    [ended] = data_of(events, EventType.SESSION_ENDED)
    assert (ended.how, ended.failure) == ("finished", None)
    turns = [one.action for one in data_of(events, EventType.TURN_STARTED)]
    assert [(turn.get("tool"), turn.get("subject")) for turn in turns][:1] == [("write", "shapes.py")]
    assert turns[0]["text"] == "It adds."
    tools = data_of(events, EventType.TURN_FINISHED)[1].observation["tools"]
    assert tools[0]["ok"] is True
    assert tools[0]["text"].strip() == "OK"
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)


@pytest.mark.variants
def test_a_refused_path_is_told_to_the_agent_which_then_does_it_elsewhere(
    settings: Mapping[str, str], scripts: Scripts
) -> None:
    agent = scripts.add(["ask", "path", "/etc/passwd"], ["write", "stray.py", ""], ["ask", "path", "shapes.py"], FIX)
    run, events = worked(settings, scripts.checkout, agent)
    assert run.state is State.DONE, run.failure
    [refused] = data_of(events, EventType.GUARDRAIL_BLOCKED)
    assert (refused.rule, refused.attempt) == ("path.outside", "/etc/passwd")
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)


@pytest.mark.variants
def test_a_path_of_the_task_is_judged_wherever_the_checkout_lies(settings: Mapping[str, str], scripts: Scripts) -> None:
    """Files in /tmp are the agent's own, but not those of a checkout there."""
    rule = '[policy.path_rules.implementer]\ndeny = ["ci/**"]\n'
    refused = ["ci/run.yml", f"{scripts.checkout}/ci/other.yml"]
    tries = [step for path in refused for step in (["ask", "path", path], ["write", path, ""])]
    agent = scripts.add(*tries, ["ask", "path", "/tmp/scratch"], FIX)
    run, events = worked(settings, scripts.checkout, agent, rule)
    assert run.state is State.DONE, run.failure
    blocked = [(one.rule, one.attempt) for one in data_of(events, EventType.GUARDRAIL_BLOCKED)]
    assert blocked == [("path_rules.implementer", "ci/run.yml"), ("path_rules.implementer", "ci/other.yml")]


@pytest.mark.variants
def test_an_agent_that_was_denied_everything_has_no_success(settings: Mapping[str, str], scripts: Scripts) -> None:
    agent = scripts.add(["ask", "command", "git push origin main"], ["say", "never"])
    run, events = worked(settings, scripts.checkout, agent)
    assert run.state is not State.DONE
    kinds = [one.failure.kind for one in data_of(events, EventType.STEP_FAILED)]
    assert kinds[0] is FailureKind.TOOL_PERMISSION_DENIED
    assert "git push origin main" in data_of(events, EventType.STEP_FAILED)[0].failure.message


def test_a_person_is_asked_and_the_session_goes_on_with_the_answer(
    settings: Mapping[str, str], scripts: Scripts
) -> None:
    agent = scripts.add(["ask", "install", "left-pad"], FIX)
    run, events = worked(settings, scripts.checkout, agent, interaction=InteractionMode.ASK_BEFORE_RISKY)
    assert run.state is State.BLOCKED
    assert run.open_request is not None
    assert (run.open_request.operation, run.open_request.details) == ("install", "left-pad")
    [ended] = data_of(events, EventType.SESSION_ENDED)
    assert ended.how == "stopped"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("auth", FailureKind.MODEL_AUTH),
        ("overload", FailureKind.MODEL_OVERLOADED),
        ("unreachable", FailureKind.MODEL_UNREACHABLE),
        ("crash", FailureKind.AGENT_CRASHED),
    ],
)
def test_each_failure_ends_in_its_own_class(
    settings: Mapping[str, str], scripts: Scripts, kind: str, expected: FailureKind
) -> None:
    agent = scripts.add(failed(kind))
    _, events = worked(settings, scripts.checkout, agent)
    assert data_of(events, EventType.STEP_FAILED)[0].failure.kind is expected


@pytest.mark.variants
def test_a_program_that_crashes_is_started_again_with_its_session(
    settings: Mapping[str, str], scripts: Scripts
) -> None:
    (scripts.checkout / ".gitignore").write_text("once\n")
    agent = scripts.add(["run", "test -e once || { touch once; kill -9 $PPID; }"], FIX)
    run, events = worked(settings, scripts.checkout, agent)
    assert run.state is State.DONE, run.failure
    assert [one.resumed for one in data_of(events, EventType.SESSION_STARTED)] == [False, True]
    assert [one.how for one in data_of(events, EventType.SESSION_ENDED)] == ["failed", "finished"]
    assert data_of(events, EventType.SESSION_ENDED)[0].failure.kind is FailureKind.AGENT_CRASHED


@pytest.mark.variants
def test_a_program_that_reports_nothing_is_ended(settings: Mapping[str, str], scripts: Scripts) -> None:
    agent = scripts.add(["say", "hm"], ["sleep", 60])
    _, events = worked(settings, scripts.checkout, agent, "[agents]\nno_progress_sec = 1\n")
    assert data_of(events, EventType.STEP_FAILED)[0].failure.kind is FailureKind.MODEL_TIMEOUT


def test_a_used_up_quota_waits_for_its_reset(settings: Mapping[str, str], scripts: Scripts) -> None:
    reset = time.time() + 3600
    run, _ = worked(settings, scripts.checkout, scripts.add(failed("quota", reset_at=reset)))
    assert run.state is State.BLOCKED
    assert run.parked_until is not None
    assert abs(run.parked_until / 1e6 - reset) < 2


@pytest.mark.variants
def test_a_used_up_quota_waits_for_a_person_if_so_configured(settings: Mapping[str, str], scripts: Scripts) -> None:
    agent = scripts.add(failed("quota", reset_at=time.time() + 3600))
    run, _ = worked(settings, scripts.checkout, agent, '[agents]\non_quota = "stop"\n')
    assert (run.state, run.parked_until) == (State.BLOCKED, None)


def test_the_next_agent_goes_on_from_the_same_files(settings: Mapping[str, str], scripts: Scripts) -> None:
    first = scripts.add(["write", "notes.py", "NOTE = 1\n"], failed("quota"))
    second = scripts.add(["run", "cat notes.py"], FIX, name="second")
    run, events = worked(settings, scripts.checkout, first, f"[agents]\nfallback = {json.dumps([second])}\n")
    assert run.state is State.DONE, run.failure
    [switched] = data_of(events, EventType.AGENT_SWITCHED)
    assert (switched.agent, switched.to) == (first, second)
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("notes.py", "shapes.py")


@pytest.mark.variants
def test_a_pause_ends_the_program_and_its_session_goes_on(settings: Mapping[str, str], scripts: Scripts) -> None:
    agent = scripts.add(["write", "notes.py", "NOTE = 1\n"], ["run", "test -e on || { touch on; sleep 30; }"], FIX)
    chosen = configured(settings)
    with Runtime.open(chosen) as runtime:
        run = submit(runtime, make_task(Request(repo=str(scripts.checkout), agent=agent), chosen))

        def pause_in_the_second_turn(event: Event) -> None:
            if isinstance(event.data, TurnStarted) and event.data.turn == 2:
                pause(runtime, run.run_id)

        paused = Worker(runtime, on_event=pause_in_the_second_turn).drive(run.run_id)
        assert paused.state is State.PAUSED, paused.failure
        resume(runtime, run.run_id)
        ended = Worker(runtime).drive(run.run_id)
        events = runtime.store.events(run.run_id)
    assert ended.state is State.DONE, ended.failure
    assert [one.resumed for one in data_of(events, EventType.SESSION_STARTED)] == [False, True]
    assert data_of(events, EventType.TURN_FINISHED)[1].observation["status"] == "interrupted"
    assert ended.proposal is not None
    assert ended.proposal.patch.touched_files == ("notes.py", "on", "shapes.py")


@pytest.mark.variants
def test_a_program_builds_a_program(settings: Mapping[str, str], tmp_path: Path) -> None:
    agent = mounted(
        tmp_path,
        ["write", "greet.py", 'def greeting():\n    """Say hello."""\n    return "hello"\n'],
        ["write", "test_greet.py", GREETING_TEST],
        ["write", "README.md", "# Greet\n\n`python -m unittest` runs the tests.\n"],
        ["write", "requirements.txt", ""],
    )
    chosen, out = configured(settings), tmp_path / "greet"
    with Runtime.open(chosen) as runtime:
        request = Request(repo=str(out), kind=TaskKind.BUILD, prompt="A program that greets", agent=agent)
        run = Worker(runtime).drive(submit(runtime, make_task(request, chosen)).run_id)
    assert (run.state, run.failure) == (State.DONE, None)
    assert sorted(path.name for path in out.glob("*.py")) == ["greet.py", "test_greet.py"]


GREETING_TEST = """from greet import greeting


def test_greeting():
    assert greeting() == "hello"
"""
