from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from codepilot.agents import CodeActAgent
from codepilot.core.artifacts import PatchCandidate, Reflection, RepoMap, Review
from codepilot.core.events import Event, EventDraft, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.plan import Plan
from codepilot.core.task import Capability, RiskProfile
from codepilot.models import Message, ReplayModel, Reply, ScriptedModel, ToolCall, exchanges

if TYPE_CHECKING:
    from conftest import Harness

WRONG = """--- a/shop/price.py
+++ b/shop/price.py
@@ -9,2 +9,2 @@
     for price in prices:
-    return amount - discount // 10
+    return amount - amount * discount // 100
"""
RIGHT = """--- a/shop/price.py
+++ b/shop/price.py
@@ -1,3 +1,3 @@
         amount += price
-    return amount - amount * discount // 10
+    return amount - amount * discount // 100
"""
DONE = '<result>{"rationale": "A percentage is a hundredth.", "confidence": 0.9}</result>'


def act(code: str) -> str:
    return f"I try this.\n\n```python\n{code}\n```\n"


def patch_with(diff: str) -> str:
    return act(f"print(apply_patch({diff!r}))")


FIX = [patch_with(WRONG), patch_with(RIGHT), act(f'run_tests(["{"tests/test_price.py"}"])'), DONE]


def observation(messages: tuple[Message, ...]) -> str:
    return messages[-1].content


def test_the_model_reads_its_error_and_patches_right(harness: Harness) -> None:
    model = ScriptedModel(FIX)
    patch = CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert isinstance(patch, PatchCandidate)
    assert (patch.rationale, patch.confidence, patch.diff) == ("A percentage is a hundredth.", 0.9, "")
    assert "+    return amount - amount * discount // 100" in harness.patch()
    assert harness.passes()
    assert "hunk 1 of 1 for shop/price.py" in observation(model.requests[1])
    assert "amount - amount * discount // 10" in observation(model.requests[1])
    assert "patched shop/price.py" in observation(model.requests[2])
    assert "3 passed" in observation(model.requests[3])


def test_every_turn_is_recorded_before_it_is_carried_out(harness: Harness) -> None:
    seen: list[tuple[EventType, bool]] = []
    harness.on_record = lambda draft: seen.append((draft.type, "// 100" in harness.text("shop/price.py")))
    CodeActAgent(ScriptedModel([patch_with(RIGHT), DONE])).perform(State.IMPLEMENT, harness.context())
    asked, started, finished = EventType.MODEL_ASKED, EventType.TURN_STARTED, EventType.TURN_FINISHED
    first_turn = [(asked, False), (started, False), (finished, True)]
    assert seen[1:] == [*first_turn, (asked, True), (started, True), (finished, True)]
    assert harness.run.spent.turns == 2
    first = harness.of(started)[0].data
    assert first.action["code"].startswith("print(apply_patch(")


def test_the_opening_shows_the_task_the_failure_and_the_skills(harness: Harness) -> None:
    harness.edit()
    model = ScriptedModel([DONE])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    system, task = model.requests[0]
    assert "apply_patch(diff: str) -> str" in system.content
    assert '"rationale"' in system.content
    assert '"touched_files"' not in system.content
    assert "The discount is wrong." in task.content
    assert "tests/test_price.py::test_discount\nAssertionError" in task.content


def test_tool_calls_are_answered_one_by_one(harness: Harness) -> None:
    harness.edit()

    def call(name: str, code: str) -> ToolCall:
        return ToolCall(id=name, name="python", arguments={"code": code})

    model = ScriptedModel(
        [
            Reply(tool_calls=(call("a", "x = 1"), call("b", "x = 2")), stop_reason="tool_use"),
            Reply(tool_calls=(call("c", "x = 41"),), stop_reason="tool_use"),
            Reply(tool_calls=(call("d", "x + 1"),), stop_reason="tool_use"),
            DONE,
        ]
    )
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    answers = [(message.tool_call_id, message.content) for message in model.requests[1][-2:]]
    assert [answer[0] for answer in answers] == ["a", "b"]
    assert "exactly one a turn" in answers[0][1]
    assert "value:\n42" in observation(model.requests[3])


def test_a_result_that_does_not_fit_is_answered_with_the_precise_error(harness: Harness) -> None:
    harness.edit()
    model = ScriptedModel(['<result>{"confidence": 7, "extra": 1}</result>', DONE])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    text = observation(model.requests[1])
    assert "- rationale: Field required" in text
    assert "- confidence: Input should be less than or equal to 1" in text
    assert "- extra: Extra inputs are not permitted" in text


def test_what_the_model_says_about_the_platforms_fields_is_ignored(harness: Harness) -> None:
    harness.edit()
    lie = {"rationale": "r", "diff": "--- lies", "touchedFiles": ["x"], "touched_files": ["y"]}
    model = ScriptedModel([f"<result>{json.dumps(lie)}</result>"])
    patch = CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert patch == PatchCandidate(diff="", touched_files=(), rationale="r")


def test_three_unusable_replies_in_a_row_end_the_step(harness: Harness) -> None:
    with pytest.raises(CodePilotError, match="3 replies in a row that could not be used") as caught:
        CodeActAgent(ScriptedModel(["hm", "<result>[]</result>", "hm"])).perform(State.IMPLEMENT, harness.context())
    assert caught.value.kind is FailureKind.MODEL_BAD_REPLY
    assert len(harness.of(EventType.TURN_FINISHED)) == 3


def test_two_unusable_replies_are_forgiven(harness: Harness) -> None:
    harness.edit()
    CodeActAgent(ScriptedModel(["hm", "hm", act("1"), "hm", "hm", DONE])).perform(State.IMPLEMENT, harness.context())


def test_a_refusal_is_a_typed_failure(harness: Harness) -> None:
    with pytest.raises(CodePilotError) as caught:
        CodeActAgent(ScriptedModel([Reply(text="No.", stop_reason="refusal")])).perform(
            State.IMPLEMENT, harness.context()
        )
    assert caught.value.kind is FailureKind.MODEL_REFUSED


def test_turns_are_budgeted_and_the_last_ones_announced(harness: Harness) -> None:
    count = iter(range(100))
    model = ScriptedModel(lambda messages: act(f"print({next(count)})"))
    with pytest.raises(CodePilotError, match="turns_per_step=5 is spent") as caught:
        CodeActAgent(model).perform(State.IMPLEMENT, harness.context(turns_per_step=5))
    assert caught.value.kind is FailureKind.BUDGET_EXCEEDED
    assert "turns left" not in observation(model.requests[1])
    assert "[1 turn left; end with a <result>.]" in observation(model.requests[4])


def test_going_in_circles_ends_the_step(harness: Harness) -> None:
    with pytest.raises(CodePilotError, match="the same error came 3 times") as caught:
        CodeActAgent(ScriptedModel(lambda messages: act("1 / 0"))).perform(State.IMPLEMENT, harness.context())
    assert caught.value.kind is FailureKind.STUCK


def test_long_output_is_shown_by_head_and_tail(harness: Harness) -> None:
    harness.edit()
    model = ScriptedModel([act("print('head' + 'x' * 100_000 + 'tail')"), DONE])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    text = observation(model.requests[1])
    assert len(text) < 10_000
    assert "stdout:\nhead" in text
    assert "tail" in text
    assert "characters left out" in text


def test_the_third_forbidden_action_ends_the_run(harness: Harness) -> None:
    commands = iter(["git fetch", "curl x", "sh -c ls", "git fetch"])
    model = ScriptedModel(lambda messages: act(f"run_command({next(commands).split()!r})"))
    with pytest.raises(CodePilotError, match="3 forbidden actions") as caught:
        CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert caught.value.kind is FailureKind.POLICY_VIOLATION
    blocked = [event.data.model_dump() for event in harness.of(EventType.GUARDRAIL_BLOCKED)]
    assert [(one["skill"], one["rule"]) for one in blocked] == [
        ("run_command", "command.git"),
        ("run_command", "command.unknown"),
        ("run_command", "command.unknown"),
    ]
    assert "[command.git] run_command: git fetch" in observation(model.requests[1])


def test_capability_of_task_and_role_decide_which_skills_exist(harness: Harness) -> None:
    harness.edit()
    task = harness.run.task.model_copy(update={"risk_profile": RiskProfile(capability=Capability.READ_ONLY)})
    harness.run = harness.run.model_copy(update={"task": task})
    model = ScriptedModel([act('write_file("x", "y")'), DONE])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert "NameError: name 'write_file' is not defined" in observation(model.requests[1])
    assert "`write_file` is not allowed to this role" in observation(model.requests[1])


def test_the_skills_are_there_again_after_a_lost_kernel(harness: Harness) -> None:
    harness.edit()
    model = ScriptedModel([act("x = 1\nimport os\nos._exit(3)"), act("print(len(list_files()))\nx"), DONE])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert "its variables are lost" in observation(model.requests[1])
    assert "stdout:\n3" in observation(model.requests[2])
    assert "NameError: name 'x' is not defined" in observation(model.requests[2])


class Crash(Exception):
    """Stands for a killed worker."""


def crash_at(kind: EventType, number: int, harness: Harness) -> None:
    """Die instead of recording the given event."""
    seen = 0

    def on_record(draft: EventDraft) -> None:
        nonlocal seen
        seen += draft.type is kind
        if seen == number:
            raise Crash

    harness.on_record = on_record


def test_an_action_without_an_observation_is_reported_as_interrupted(harness: Harness) -> None:
    crash_at(EventType.TURN_FINISHED, 2, harness)
    with pytest.raises(Crash):
        CodeActAgent(ScriptedModel([act("seen = 1"), patch_with(RIGHT)])).perform(State.IMPLEMENT, harness.context())
    harness.on_record = lambda draft: None
    harness.rewind()
    model = ScriptedModel([patch_with(RIGHT), DONE])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    request = model.requests[0]
    assert [message.role for message in request] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "interrupted before its result was recorded" in observation(request)
    assert "Kernel variables were lost" in observation(request)
    assert harness.patch().count("+    return") == 1
    assert [event.data.turn for event in harness.of(EventType.TURN_STARTED)] == [1, 2, 3, 4]


def test_a_worker_that_takes_over_tells_that_variables_are_lost(harness: Harness) -> None:
    harness.edit()
    crash_at(EventType.TURN_STARTED, 2, harness)
    with pytest.raises(Crash):
        CodeActAgent(ScriptedModel([act("seen = 1"), act("2")])).perform(State.IMPLEMENT, harness.context())
    harness.on_record = lambda draft: None
    model = ScriptedModel([DONE])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert "The Python process was restarted since" in observation(model.requests[0])


def test_a_recorded_result_is_not_asked_for_again(harness: Harness) -> None:
    harness.edit()
    crash_at(EventType.TURN_FINISHED, 1, harness)
    with pytest.raises(Crash):
        CodeActAgent(ScriptedModel([DONE])).perform(State.IMPLEMENT, harness.context())
    harness.on_record = lambda draft: None
    patch = CodeActAgent(ScriptedModel([])).perform(State.IMPLEMENT, harness.context())
    assert isinstance(patch, PatchCandidate)


def test_a_safe_point_lies_between_turns(harness: Harness) -> None:
    stops = iter([None, Crash()])

    def raise_if_stopped() -> None:
        if (stop := next(stops)) is not None:
            raise stop

    harness.raise_if_stopped = raise_if_stopped
    with pytest.raises(Crash):
        CodeActAgent(ScriptedModel([act("1")])).perform(State.IMPLEMENT, harness.context())
    assert [event.type for event in harness.events[-2:]] == [EventType.TURN_STARTED, EventType.TURN_FINISHED]


def test_a_recorded_run_replays_to_the_same_events(harness: Harness) -> None:
    CodeActAgent(ScriptedModel(FIX)).perform(State.IMPLEMENT, harness.context())
    recorded = harness.events
    harness.rewind()
    harness.events = []
    harness.run = harness.run.model_copy(update={"run_id": "r-2"})
    CodeActAgent(ReplayModel(exchanges(recorded))).perform(State.IMPLEMENT, harness.context())

    def summaries(events: list[Event]) -> list[str]:
        varying = r"in \d+\.\d+s|\"duration_\w+\":[\d.]+"
        return [re.sub(varying, "", event.data.model_dump_json()) for event in events]

    assert summaries(harness.events) == summaries(recorded)


@pytest.mark.parametrize(
    ("role", "result", "kind"),
    [
        (State.MAP_REPO, {"buildSystem": "pytest", "testCmd": ["pytest"]}, RepoMap),
        (State.PLAN, {"nodes": [{"id": "a"}, {"id": "b", "depends_on": ["a"]}], "root_cause": "x"}, Plan),
        (State.REFLECT, {"root_cause": "x", "fix_hypothesis": "y", "confidence": "high"}, Reflection),
        (State.REVIEW, {"verdict": "APPROVE", "policyChecks": {"noSecrets": True}, "patchLOC": 12}, Review),
    ],
)
def test_each_role_gives_its_artifact(harness: Harness, role: State, result: dict[str, object], kind: type) -> None:
    model = ScriptedModel([act("print(list_files())"), f"<result>{json.dumps(result)}</result>"])
    assert isinstance(CodeActAgent(model).perform(role, harness.context(role)), kind)
    assert "shop/price.py" in observation(model.requests[1])


def test_a_plan_in_a_circle_is_answered(harness: Harness) -> None:
    circle = {"nodes": [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}]}
    model = ScriptedModel([f"<result>{json.dumps(circle)}</result>", '<result>{"nodes": []}</result>'])
    CodeActAgent(model).perform(State.PLAN, harness.context(State.PLAN))
    assert "the nodes depend on each other in a circle" in observation(model.requests[1])


def test_a_refusal_without_a_reason_goes_back_to_the_reviewer(harness: Harness) -> None:
    silent, reasoned = '{"verdict": "REQUEST_CHANGES"}', '{"verdict": "REQUEST_CHANGES", "reasons": ["name the unit"]}'
    model = ScriptedModel([f"<result>{silent}</result>", f"<result>{reasoned}</result>"])
    review = CodeActAgent(model).perform(State.REVIEW, harness.context(State.REVIEW))
    assert isinstance(review, Review)
    assert review.reasons == ("name the unit",)
    assert "say what must be different" in model.requests[1][-1].content


def test_hosts_that_may_be_reached_are_reported(harness: Harness) -> None:
    harness.edit()
    task = harness.run.task
    granted = task.model_copy(update={"policy": task.policy.model_copy(update={"hosts": ("pypi.example",)})})
    harness.run = harness.run.model_copy(update={"task": granted})
    model = ScriptedModel([DONE])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert "only pypi.example." in model.requests[0][0].content
    assert "There is no network" not in model.requests[0][0].content
