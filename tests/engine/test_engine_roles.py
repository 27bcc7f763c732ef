"""Chat models in their roles, through the real engine and sandbox: what they get wrong, and how they come back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, DONE, MAP, PLAN, RIGHT, code, make_checkout, replaced, result, until

from codepilot.agents import CodeActAgent, RoleArtifact, StepContext
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.events import Event, EventType, State, Usage
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.plan import Plan
from codepilot.core.policy import Policy
from codepilot.core.run import Run
from codepilot.core.task import Capability
from codepilot.engine import Request, Runtime, Worker, cancel, make_task, submit
from codepilot.executor import RunCode
from codepilot.models import Message, Model, ReplayModel, Reply, ScriptedModel, exchanges
from configured import configured

WRONG = replaced("width + height", "width - height")
LOOKS = "run_tests(['test_shapes.py'])"
THOUGHT = result(root_cause="it subtracts now", fix_hypothesis="multiply")


def drive(
    runtime: Runtime,
    checkout: Path,
    model: Model,
    fallback: Model | None = None,
    policy: Policy | None = None,
    **asked: object,
) -> tuple[Run, list[Event]]:
    agent = CodeActAgent(model, fallback=fallback)
    task = make_task(Request(repo=str(checkout), **asked), CHEAP)  # type: ignore[arg-type]
    run = submit(runtime, task.model_copy(update={"policy": policy or task.policy}))
    ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    runtime.store.check(run.run_id)
    return ended, runtime.store.events(run.run_id)


def of(events: Sequence[Event], kind: EventType) -> list[Event]:
    return [event for event in events if event.type is kind]


def joined(messages: Sequence[Message]) -> str:
    return messages[-1].content


def test_a_plan_of_two_roles_ends_in_a_change_with_its_own_test(runtime: Runtime, checkout: Path) -> None:
    nodes = [{"id": "fix", "title": "multiply"}, {"id": "test", "role": "TestWriter", "depends_on": ["fix"]}]
    plan = result(nodes=nodes, allowed_areas=["shapes.py", "test_*.py"], forbidden_areas=["test_shapes.py"])
    test = "import unittest\nfrom shapes import area\n\n\nclass T(unittest.TestCase):\n    def test_unit(self):\n"
    write = code(f"create_file('test_unit.py', {test + '        self.assertEqual(area(1, 9), 9)' + chr(10)!r})")
    written = result(tests=["test_unit.T.test_unit"], rationale="one side of one")
    run, events = drive(runtime, checkout, ScriptedModel([MAP, plan, RIGHT, DONE, write, written, APPROVE]))
    assert (run.state, run.failure) == (State.DONE, None)
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py", "test_unit.py")
    assert [event.data.role for event in of(events, EventType.NODE_SUCCEEDED)] == ["Implementer", "TestWriter"]


class Careless:
    """An agent of somebody else's making that plans one thing and does another."""

    name = "careless"
    roles = frozenset({State.PLAN, State.IMPLEMENT})
    needs = Capability.WRITE_WITH_DIFF
    languages = None

    def perform(self, role: State, context: StepContext) -> RoleArtifact:
        if role is State.PLAN:
            return Plan(nodes=(), allowed_areas=("docs/",))
        code = "open('shapes.py', 'a').write('# ' + str(__import__('time').time()))"
        context.executor.run_code(RunCode(workspace=context.workspace, code=code))
        return PatchCandidate(diff="", touched_files=(), rationale="r")


def test_the_engine_holds_every_agents_change_to_its_plan(runtime: Runtime, checkout: Path) -> None:
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    ended = Worker(runtime, agent_for=lambda task: Careless()).drive(run.run_id)
    assert ended.state is State.FAILED
    events = runtime.store.events(run.run_id)
    assert {event.data.rule for event in of(events, EventType.GUARDRAIL_BLOCKED)} == {"plan.allowed_areas"}
    refused = [event.data.refused_by for event in of(events, EventType.PATCH_PROPOSED)]
    assert refused[0] == "plan.allowed_areas at shapes.py"
    assert not of(events, EventType.TESTS_JUDGED)


@pytest.mark.variants
def test_a_verdict_that_cannot_be_read_is_a_refusal_and_no_failure(runtime: Runtime, checkout: Path) -> None:
    mumbling = ["Looks fine to me.", "<result>APPROVE</result>", '<result>{"verdict": "OK"}</result>']
    model = ScriptedModel([MAP, PLAN, RIGHT, DONE, *mumbling, RIGHT, DONE, APPROVE])
    run, events = drive(runtime, checkout, model)
    assert run.state is State.DONE
    first, second = (event.data for event in of(events, EventType.REVIEW_RECORDED))
    assert first.verdict == "REQUEST_CHANGES"
    assert "no verdict that can be read" in first.reasons[0]
    assert [check.ok for check in first.policy_checks] == [True] * len(second.policy_checks)


def paid(text: str, tokens: int, cost: float) -> Reply:
    return Reply(text=text, usage=Usage(turns=1, tokens=tokens, cost_usd=cost))


class Priced(ScriptedModel):
    """A model that is dear, and says so before it is asked."""

    def estimate(self, messages: Sequence[Message], max_tokens: int, tools: object = ()) -> Usage:
        return Usage(turns=1, tokens=100, cost_usd=0.4)


def test_money_is_kept_back_before_the_call_that_would_spend_it(runtime: Runtime, checkout: Path) -> None:
    model = Priced([paid(MAP, 50, 0.2), paid(PLAN, 50, 0.2), paid(RIGHT, 50, 0.2)])
    run, events = drive(runtime, checkout, model, budget={"cost_usd": 0.9})
    assert run.open_request is not None, "a person decides about more money"
    assert (run.state, run.open_request.operation) == (State.BLOCKED, "spend")
    assert (len(model.requests), round(run.spent.cost_usd, 2)) == (3, 0.6)
    assert [event.data.estimate.cost_usd for event in of(events, EventType.MODEL_ASKED)] == [0.4] * 3


@pytest.mark.variants
def test_a_call_whose_reply_is_not_on_record_is_charged_its_estimate(runtime: Runtime, checkout: Path) -> None:
    class PowerCut(BaseException):
        """The process is gone in the middle of the call."""

    def dies(messages: Sequence[Message]) -> str:
        raise PowerCut

    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    with pytest.raises(PowerCut):
        Worker(runtime, agent_for=lambda task: CodeActAgent(ScriptedModel(dies))).drive(run.run_id)
    asked = of(runtime.store.events(run.run_id), EventType.MODEL_ASKED)[0].data
    assert runtime.store.load(run.run_id).spent.tokens == asked.estimate.tokens > 0
    agent = CodeActAgent(ScriptedModel([paid(text, 10, 0) for text in (MAP, PLAN, RIGHT, DONE, APPROVE)]))
    ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    assert ended.state is State.DONE
    assert ended.spent.tokens == asked.estimate.tokens + 50


@pytest.mark.variants
def test_an_observation_of_200_000_tokens_is_shown_in_part_and_kept_whole(runtime: Runtime, checkout: Path) -> None:
    shout = code("for number in range(100_000):\n    print('line', number)")
    page = code("print(read_output(1, 500_000, 60))")
    model = ScriptedModel([shout, page, MAP, PLAN, RIGHT, DONE, APPROVE], context_tokens=30_000)
    run, events = drive(runtime, checkout, model)
    assert run.state is State.DONE
    shown = joined(model.requests[1])
    assert len(shown) < 10_000
    kept = of(events, EventType.TURN_FINISHED)[0]
    assert kept.artifacts[0].uri in shown
    whole = runtime.artifacts.get(kept.artifacts[0]).decode()
    assert "line 99999" in whole
    assert whole[500_000:500_060] in joined(model.requests[2])


@pytest.mark.variants
def test_a_conversation_that_grows_too_long_is_condensed_first(runtime: Runtime, checkout: Path) -> None:
    talk = [code(f"print('{letter}' * 7_000)") for letter in "abcdef"]
    model = ScriptedModel([MAP, PLAN, *talk, RIGHT, DONE, APPROVE], context_tokens=13_000)
    run, events = drive(runtime, checkout, model, budget={"turns_per_step": 20})
    assert run.state is State.DONE
    condensed = of(events, EventType.CONTEXT_CONDENSED)
    assert condensed
    assert condensed[0].data.turns[0] == 1
    assert condensed[0].data.after < condensed[0].data.before
    last = "\n".join(message.content for message in model.requests[8])
    assert "aaaa" not in last
    assert "[condensed; read_output(1) gives it again]" in last
    assert "ffff" in last


@pytest.mark.variants
def test_a_stuck_step_goes_on_with_the_other_model(runtime: Runtime, checkout: Path) -> None:
    first = ScriptedModel([MAP, PLAN, *[code("1 / 0")] * 3, APPROVE], name="first")
    other = ScriptedModel([RIGHT, DONE], name="second")
    run, events = drive(runtime, checkout, first, fallback=other)
    assert run.state is State.DONE
    (switched,) = of(events, EventType.MODEL_SWITCHED)
    assert (switched.data.model, switched.data.to) == ("first", "second")
    assert "ZeroDivisionError" in switched.data.reason
    assert "Another model goes on from here" in joined(other.requests[0])


def test_a_switch_of_models_survives_a_crash_and_happens_once(runtime: Runtime, checkout: Path) -> None:
    class PowerCut(BaseException):
        """The process is gone."""

    def dies(messages: Sequence[Message]) -> str:
        raise PowerCut

    first = ScriptedModel([MAP, PLAN, "hm", "hm", "hm"], name="first")
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    agent = CodeActAgent(first, fallback=ScriptedModel(dies, name="second"))
    with pytest.raises(PowerCut):
        Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    second = ScriptedModel([*["hm"] * 3], name="second")
    agent = CodeActAgent(until(), fallback=second)
    ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    events = runtime.store.events(run.run_id)
    assert len(of(events, EventType.MODEL_SWITCHED)) == 1
    assert len(second.requests) == 3
    failed = of(events, EventType.STEP_FAILED)[0].data.failure
    assert failed.kind is FailureKind.MODEL_BAD_REPLY
    assert ended.state is State.FAILED


def normalised(events: Sequence[Event], run: Run, home: Path) -> list[str]:
    """The events without times, identities and places."""
    lines = []
    for event in events:
        text = event.model_dump_json(exclude={"event_id", "run_id", "at"})
        text = text.replace(run.run_id.removeprefix("r-"), "ID").replace(run.task.task_id, "TASK")
        text = text.replace(str(home), "HOME")
        text = re.sub(r'"worker":"[^"]*"', '"worker":"w"', text)
        text = re.sub(r'"(duration_ms|duration_sec|confidence)":[\d.e-]+', r'"\1":0', text)
        text = re.sub(r'"snapshot":"[0-9a-f]{64}"', '"snapshot":"with times"', text)
        text = re.sub(r"in \d+\.\d+s", "in 0s", text)
        text = re.sub(r'hash://[^"\\ ;]+|"(sha256|size_bytes)":("[0-9a-f]+"|\d+)', "HASH", text)
        lines.append(text)
    return lines


@pytest.mark.variants
def test_a_recorded_run_replays_to_the_same_events_in_another_home(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = make_checkout(tmp_path / "shapes")
    talk = [code(f"print('{letter}' * 7_000)") for letter in "abcdef"]
    replies = [MAP, PLAN, *talk, *[code("1 / 0")] * 3, APPROVE]
    first = ScriptedModel(replies, name="first", context_tokens=13_000)
    second = ScriptedModel([code("print('x' * 50_000)"), RIGHT, DONE], name="second", context_tokens=60_000)
    run, events = drive(runtime, checkout, first, fallback=second, budget={"turns_per_step": 30})
    assert run.state is State.DONE
    wanted = {EventType.CONTEXT_CONDENSED, EventType.MODEL_SWITCHED, EventType.MODEL_ASKED, EventType.NODE_SUCCEEDED}
    assert wanted <= {event.type for event in events}
    with Runtime.open(configured({"CODEPILOT_HOME": str(tmp_path / "elsewhere")})) as other:
        model = ReplayModel(exchanges(events))
        again, replayed = drive(other, checkout, model, fallback=model, budget={"turns_per_step": 30})
        assert again.state is State.DONE
        assert normalised(replayed, again, tmp_path / "elsewhere") == normalised(events, run, tmp_path / "home")


def test_cancelling_does_not_wait_for_the_models_reply(runtime: Runtime, checkout: Path) -> None:
    received: list[bool] = []

    class Slow(ScriptedModel):
        def reply(self, messages: Sequence[Message], *, stopped: Callable[[], bool], **more: object) -> Reply:  # type: ignore[override]
            cancel(runtime, run.run_id)
            while not stopped():
                time.sleep(0.01)
            received.append(True)
            raise CodePilotError(FailureKind.CANCELLED, "stopped")

    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    ended = Worker(runtime, agent_for=lambda task: CodeActAgent(Slow([]))).drive(run.run_id)
    assert received == [True]
    assert ended.state is State.ABORTED
    assert ended.failure is not None
    assert ended.failure.kind is FailureKind.CANCELLED


RISKY = result(nodes=[{"id": "one", "title": "mend area"}], allowed_areas=["shapes.py", "Dockerfile"], approach="both")
OBJECTION = result(verdict="REQUEST_CHANGES", reasons=["leave the Dockerfile alone"])
FINE = result(verdict="APPROVE")


def test_a_critic_looks_at_a_risky_plan_before_it_is_carried_out(runtime: Runtime, checkout: Path) -> None:
    model = until(MAP, RISKY, OBJECTION, PLAN, FINE, RIGHT, DONE, APPROVE)
    run, events = drive(runtime, checkout, model)
    assert (run.state, run.failure) == (State.DONE, None)
    assert "You are the Critic" in model.requests[2][0].content and "Dockerfile" in joined(model.requests[2])
    assert "leave the Dockerfile alone" in joined(model.requests[3])
    (planned,) = of(events, EventType.PLAN_CREATED)
    assert isinstance(planned.data, Plan) and planned.data.critique is not None
    assert (planned.data.allowed_areas, planned.data.critique.verdict) == ((), "APPROVE")


def test_a_person_decides_on_a_plan_to_which_the_critic_still_objects(runtime: Runtime, checkout: Path) -> None:
    run, events = drive(runtime, checkout, until(MAP, RISKY, OBJECTION, RISKY, OBJECTION))
    assert run.state is State.BLOCKED and run.open_request is not None
    assert (run.open_request.operation, run.open_request.risk) == ("plan", "high")
    assert "leave the Dockerfile alone" in run.open_request.reasons
    assert not of(events, EventType.PLAN_CREATED)


@pytest.mark.variants
def test_a_critic_can_refuse_a_risky_change_that_the_reviewer_approved(runtime: Runtime, checkout: Path) -> None:
    budget = {"patch_lines": 3}
    refused = result(verdict="REQUEST_CHANGES", reasons=["say in the docstring what an area is"])
    model = until(MAP, PLAN, RIGHT, DONE, APPROVE, refused, RIGHT, DONE, APPROVE, FINE)
    run, _ = drive(runtime, checkout, model, budget=budget)
    assert (run.state, run.failure) == (State.DONE, None)
    assert any("say in the docstring what an area is" in message.content for message in model.requests[6])
