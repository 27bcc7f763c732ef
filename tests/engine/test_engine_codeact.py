"""A chat model drives a run through every state: scripted replies, everything else real."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, DONE, MAP, PLAN, RIGHT, code, drive, replaced, result, states

from codepilot.agents import CodeActAgent
from codepilot.core.events import EventType, State
from codepilot.core.failures import FailureKind
from codepilot.core.policy import Policy
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from codepilot.models import ScriptedModel


def test_a_model_goes_straight_to_a_proved_change(runtime: Runtime, checkout: Path) -> None:
    run, events = drive(runtime, checkout, ScriptedModel([MAP, PLAN, RIGHT, DONE, APPROVE]), Policy())
    assert (run.state, run.failure) == (State.DONE, None)
    assert run.proposal is not None
    assert "+    return width * height" in run.proposal.patch.diff
    assert run.plan is not None
    assert run.plan.root_cause == "it adds"
    assert run.review is not None
    assert run.review.verdict == "APPROVE"
    assert all(check.ok for check in run.review.policy_checks)
    assert "generated_code" in {check.name for check in run.review.policy_checks}
    assert State.REFLECT not in states(events)


def test_a_wrong_change_is_reflected_on_and_starts_again_from_the_base(runtime: Runtime, checkout: Path) -> None:
    wrong = replaced("width + height", "width - height")
    thought = result(root_cause="it subtracts now", fix_hypothesis="multiply")
    run, events = drive(runtime, checkout, ScriptedModel([MAP, PLAN, wrong, DONE, thought, RIGHT, DONE, APPROVE]))
    assert run.state is State.DONE
    assert run.spent.iterations == 2
    road = [s for s in states(events) if s in (State.IMPLEMENT, State.TEST, State.REFLECT)]
    assert road == [State.IMPLEMENT, State.TEST, State.REFLECT, State.IMPLEMENT, State.TEST]
    assert run.proposal is not None
    assert "width - height" not in run.proposal.patch.diff


@pytest.mark.variants
def test_deleting_the_test_is_no_repair(runtime: Runtime, checkout: Path) -> None:
    cheat = code("import os\nos.remove('test_shapes.py')")
    model = ScriptedModel(lambda messages: next(replies))
    thought = result(root_cause="none", fix_hypothesis="none")
    replies = iter([MAP, PLAN, *[cheat, DONE, thought] * 2, PLAN, *[cheat, DONE, thought] * 4])
    run, _ = drive(runtime, checkout, model)
    assert run.state is State.FAILED
    assert run.verdict is None
    assert run.failure is not None
    assert run.failure.kind is FailureKind.REPEATED_FAILURE


@pytest.mark.variants
def test_a_nested_git_directory_is_a_violation_and_the_third_ends_the_run(runtime: Runtime, checkout: Path) -> None:
    plant = code(
        "import os\nos.makedirs('sub/.git')\nwrite_file('sub/.git/config', '[core]\\nfsmonitor = touch /tmp/owned')"
    )
    replies = iter([MAP, PLAN, *[plant, DONE] * 5])
    run, events = drive(runtime, checkout, ScriptedModel(lambda messages: next(replies)))
    assert run.state is State.FAILED
    assert run.failure is not None
    assert run.failure.kind in (FailureKind.POLICY_VIOLATION, FailureKind.REPEATED_FAILURE)
    assert sum(event.type is EventType.GUARDRAIL_BLOCKED for event in events) >= 1
    refused = [e.data.refused_by for e in events if e.type is EventType.PATCH_PROPOSED]  # type: ignore[attr-defined]
    assert all("sub/.git" in rule for rule in refused)


@pytest.mark.variants
def test_a_run_whose_agent_dies_mid_turn_goes_on_from_its_last_observation(runtime: Runtime, checkout: Path) -> None:
    class PowerCut(BaseException):
        """The process is gone; nothing may be recorded by it any more."""

    replies = iter([MAP, PLAN, RIGHT])

    def first_life(messages: object) -> str:
        try:
            return next(replies)
        except StopIteration:
            raise PowerCut from None

    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    dying = Worker(runtime, agent_for=lambda task: CodeActAgent(ScriptedModel(first_life)))
    with pytest.raises(PowerCut):
        dying.drive(run.run_id)
    assert runtime.store.load(run.run_id).state is State.IMPLEMENT
    second_life = ScriptedModel([DONE, APPROVE])
    ended = Worker(runtime, agent_for=lambda task: CodeActAgent(second_life)).drive(run.run_id)
    assert ended.state is State.DONE
    assert ended.proposal is not None
    assert "+    return width * height" in ended.proposal.patch.diff
