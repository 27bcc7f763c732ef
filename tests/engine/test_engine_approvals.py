"""What an agent may do only with a person's answer, in whole runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, DONE, MAP, PLAN, RIGHT, code

from codepilot.agents import CodeActAgent
from codepilot.core.approval import ApprovalDecided
from codepilot.core.events import EventType, State, TurnFinished
from codepilot.core.run import Run
from codepilot.core.task import Interaction, InteractionMode, RiskProfile
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from codepilot.engine.control import decide_approval
from codepilot.models import ScriptedModel

FETCH = code(
    "open('ran.txt', 'w').write('x')\nimport urllib.request\n"
    "urllib.request.urlopen('https://data.example.com/table').read()"
)
UNLISTED = code("print(run_command(['uname', '-s']))")


def started(runtime: Runtime, checkout: Path, *replies: str, **contract: object) -> tuple[Run, CodeActAgent]:
    task = make_task(Request(repo=str(checkout)), CHEAP).model_copy(update={"agent": "codeact"})
    agent = CodeActAgent(ScriptedModel([MAP, PLAN, *replies, RIGHT, DONE, APPROVE]))
    run = submit(runtime, task.model_copy(update=contract))
    return Worker(runtime, agent_for=lambda task: agent).drive(run.run_id), agent


def answered(runtime: Runtime, run: Run, agent: CodeActAgent, decision: str, reason: str = "") -> Run:
    request = run.open_request
    assert request is not None
    decided = {"approval_id": request.approval_id, "decision": decision, "by": "someone", "reason": reason}
    decide_approval(runtime, run.run_id, ApprovalDecided.model_validate(decided))
    return Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)


def observations(runtime: Runtime, run: Run) -> list[str]:
    events = runtime.store.events(run.run_id)
    return [str(event.data.observation) for event in events if isinstance(event.data, TurnFinished)]


def test_a_denied_host_leads_to_another_way_and_nothing_of_the_action_runs(runtime: Runtime, checkout: Path) -> None:
    run, agent = started(runtime, checkout, FETCH)
    assert (run.state, run.open_request and run.open_request.details) == (State.BLOCKED, "data.example.com")
    kinds = [event.type for event in runtime.store.events(run.run_id)]
    assert kinds.count(EventType.TURN_STARTED) == kinds.count(EventType.TURN_FINISHED) + 1
    ended = answered(runtime, run, agent, "denied", "use what is in the repository")
    assert (ended.state, ended.failure) == (State.DONE, None)
    denials = [seen for seen in observations(runtime, run) if "denied" in seen]
    assert len(denials) == 1
    assert "use what is in the repository" in denials[0]
    assert ended.proposal is not None
    assert ended.proposal.patch.touched_files == ("shapes.py",)
    runtime.store.check(run.run_id)


@pytest.mark.variants
def test_an_allowed_command_runs_once_and_is_asked_about_again(runtime: Runtime, checkout: Path) -> None:
    run, agent = started(runtime, checkout, UNLISTED, UNLISTED)
    assert run.open_request is not None
    assert (run.open_request.operation, run.open_request.details) == ("command", "uname -s")
    first = answered(runtime, run, agent, "once")
    assert first.state is State.BLOCKED, first.failure
    assert sum("Linux" in seen for seen in observations(runtime, run)) == 1
    ended = answered(runtime, first, agent, "always")
    assert (ended.state, ended.failure) == (State.DONE, None)
    assert sum("Linux" in seen for seen in observations(runtime, run)) == 2


def test_always_is_for_the_same_operation_and_subject_in_this_run(runtime: Runtime, checkout: Path) -> None:
    other = code("print(run_command(['uname', '-m']))")
    run, agent = started(runtime, checkout, UNLISTED, UNLISTED, other)
    second = answered(runtime, run, agent, "always")
    assert second.open_request is not None
    assert second.open_request.details == "uname -m"


@pytest.mark.variants
def test_full_autonomy_does_not_ask_and_is_on_record(runtime: Runtime, checkout: Path) -> None:
    free = RiskProfile(interaction=Interaction(mode=InteractionMode.FULL_AUTONOMY))
    run, _ = started(runtime, checkout, UNLISTED, risk_profile=free)
    assert (run.state, run.failure) == (State.DONE, None)
    assert [one.decided.by for one in run.approvals if one.decided] == ["full_autonomy"]
    assert sum("Linux" in seen for seen in observations(runtime, run)) == 1


@pytest.mark.variants
def test_a_policy_without_time_to_answer_denies_at_once(runtime: Runtime, checkout: Path) -> None:
    task = make_task(Request(repo=str(checkout)), CHEAP)
    strict = task.policy.model_copy(update={"approval_timeout_sec": 0.0})
    run, _ = started(runtime, checkout, FETCH, policy=strict)
    assert (run.state, run.failure) == (State.DONE, None)
    assert [one.decided.by for one in run.approvals if one.decided] == ["expiry"]


def test_an_agent_can_ask_in_the_middle_of_an_action(runtime: Runtime, checkout: Path) -> None:
    asks = code(
        "name = 'una' + 'me'\nopen('half.txt', 'w').write('x')\n"
        "if request_permission('command', f'{name} -s', 'to know the system'):\n    print(run_command([name, '-s']))"
    )
    clean = code("import os\nprint(os.path.exists('half.txt'))\nos.remove('half.txt')")
    run, agent = started(runtime, checkout, asks, clean)
    assert run.open_request is not None, run.failure
    assert run.open_request.reasons == ("to know the system",)
    ended = answered(runtime, run, agent, "once")
    assert (ended.state, ended.failure) == (State.DONE, None)
    assert sum("Linux" in seen for seen in observations(runtime, run)) == 1


def test_a_protected_file_is_asked_about_before_the_change_is_run_and_can_be_left_alone(
    runtime: Runtime, checkout: Path
) -> None:
    policy = make_task(Request(repo=str(checkout)), CHEAP).policy
    protected = policy.model_copy(update={"protected_areas": ("notes.md",)})
    note = code("write_file('notes.md', 'changed')")
    run, agent = started(runtime, checkout, note, RIGHT, DONE, policy=protected)
    assert run.open_request is not None, run.failure
    assert (run.open_request.operation, run.open_request.details) == ("path", "notes.md")
    assert "+changed" in run.open_request.snippet
    assert run.proposal is None, "nothing is proposed, so nothing is tested"
    ended = answered(runtime, run, agent, "denied")
    assert (ended.state, ended.failure) == (State.DONE, None)
    assert ended.proposal is not None
    assert ended.proposal.patch.touched_files == ("shapes.py",)
