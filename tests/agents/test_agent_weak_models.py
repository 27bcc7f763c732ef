"""What a model that is weak, small or far away does not know: each is answered so that it can go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from codepilot.agents import CodeActAgent
from codepilot.agents.context_window import condense
from codepilot.agents.transcript import Shortened, Turn
from codepilot.core.artifacts import PatchCandidate, RepoMap
from codepilot.core.events import ContextCondensed, EventType, ModelAsked, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.plan import Plan
from codepilot.core.run import UNCHARGED
from codepilot.models import ReplayModel, Reply, ScriptedModel, exchanges, make_model
from model_server import HttpError, ModelServer, Request

if TYPE_CHECKING:
    from conftest import Harness

FIX = (
    "text = read_file('shop/price.py')\n"
    "write_file('shop/price.py', text.replace('discount // 10', 'discount // 100'))\n"
    "run_tests(['tests/test_price.py'])"
)
OBJECT = '```json\n{"rationale": "A percentage is a hundredth.", "confidence": 0.9}\n```'


def act(code: str) -> str:
    return f"```python\n{code}\n```"


def textual(code: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'python', 'arguments': {'code': code}})}\n</tool_call>"


def test_textual_calls_and_a_fenced_object_do_the_work_and_the_model_is_asked_for_fences(harness: Harness) -> None:
    with ModelServer([textual("print(1)"), textual(FIX), OBJECT]) as server:
        model = make_model(server.compatible, environ=server.environ)
        patch = CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert isinstance(patch, PatchCandidate)
    assert patch.rationale == "A percentage is a hundredth."
    assert harness.passes()
    first, second, third = server.requests
    assert "tools" in first.body and "tools" not in second.body and "tools" not in third.body
    assert "one fenced block that begins with ```python" in second.body["messages"][0]["content"]
    (degraded,) = harness.of(EventType.DEPENDENCY_DEGRADED)
    assert degraded.data.consequence == f"{model.name} is asked for fenced code in place of tool calls"  # type: ignore[attr-defined]
    assert "3 passed" in third.last


def test_a_server_without_tools_is_reported_once_and_remembered_in_later_steps(harness: Harness) -> None:
    def answer(request: Request) -> str | HttpError:
        if "tools" in request.body:
            return HttpError(500, {"error": {"message": "tools param requires --jinja flag"}})
        return act(FIX) if len(request.body["messages"]) == 2 else OBJECT

    with ModelServer(answer) as server:
        model = make_model(server.compatible, environ=server.environ)
        CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
        again = make_model(server.compatible, environ=server.environ)
        harness.run = harness.run.model_copy(update={"step_id": "s-2"})
        before = len(server.requests)
        CodeActAgent(again).perform(State.IMPLEMENT, harness.context())
    assert len(harness.of(EventType.DEPENDENCY_DEGRADED)) == 1
    assert not [request for request in server.requests[before:] if "tools" in request.body]
    replies = [one.reply for one in exchanges(harness.events)]
    assert replies[0].fenced and not replies[1].fenced


def test_a_result_without_a_change_goes_back_to_the_agent(harness: Harness) -> None:
    model = ScriptedModel([OBJECT, act("x = 1"), act(FIX), OBJECT])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    seen = [request[-1].content for request in model.requests[1:]]
    assert "no file differs from the base" in seen[0]
    assert seen[1] == "Observation:\n[ok] no output; files changed: none"
    assert "3 passed" in seen[2]
    with pytest.raises(CodePilotError, match="no file differs") as caught:
        harness.rewind()
        harness.run = harness.run.model_copy(update={"step_id": "s-2"})
        harness.events = []
        CodeActAgent(ScriptedModel([OBJECT] * 3)).perform(State.IMPLEMENT, harness.context())
    assert caught.value.kind is FailureKind.MODEL_BAD_REPLY


def test_who_suspects_the_test_changes_nothing(harness: Harness) -> None:
    suspect = {"test": "tests/test_price.py::test_discount", "reason": "it contradicts the others"}
    reply = json.dumps({"rationale": "r", "suspect": suspect})
    patch = CodeActAgent(ScriptedModel([reply])).perform(State.IMPLEMENT, harness.context())
    assert isinstance(patch, PatchCandidate)
    assert patch.suspect is not None


def test_a_silent_change_names_its_file(harness: Harness) -> None:
    model = ScriptedModel([act("open('shop/new.py', 'w').close()"), OBJECT])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert model.requests[1][-1].content == "Observation:\n[ok] no output; files changed: shop/new.py"


def test_an_object_that_does_not_fit_is_answered_with_the_difference(harness: Harness) -> None:
    harness.edit()
    model = ScriptedModel(['{"reason": "x", "confidence": "sure"}', '{"result": {"rationale": "r"}}'])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    text = model.requests[1][-1].content
    assert "Your reply is one JSON object, read as your result. It does not fit:" in text
    assert '- rationale: Field required ({"type": "string"})' in text
    assert "- reason: Extra inputs are not permitted; the fields are rationale, confidence" in text
    assert 'not "sure"' in text


def test_no_example_of_the_prompt_does_harm_if_it_is_repeated(harness: Harness) -> None:
    model = ScriptedModel([act(FIX), OBJECT])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    prompt = model.requests[0][0].content
    assert "README" not in prompt
    example, form = prompt.split("```python\n")[1].split("\n```")[0], prompt.split("<result>")[1].split("</result>")[0]
    assert example == "print(read_file('tests/test_price.py'))"
    with pytest.raises(ValueError):
        json.loads(form)


def test_the_size_of_context_is_learnt_from_a_refusal_and_costs_nothing(harness: Harness) -> None:
    limit = 6000

    def answer(request: Request) -> str | HttpError:
        size = len(request.text) // 4 + request.body["max_tokens"]
        if size > limit:
            return HttpError(
                400, {"error": {"message": "too long", "type": "exceed_context_size_error", "n_ctx": limit}}
            )
        turn = sum(message["role"] == "assistant" for message in request.body["messages"])
        return OBJECT if turn > 3 or "left out here" in request.text else act(f"print('x{turn}' * 3000)")

    harness.edit()
    with ModelServer(answer) as server:
        model = make_model(server.compatible, environ=server.environ)
        CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    asked = [event.data for event in harness.of(EventType.MODEL_ASKED) if isinstance(event.data, ModelAsked)]
    assert asked[0].context_tokens is None
    assert asked[-1].context_tokens is not None and asked[-1].context_tokens <= limit
    assert harness.of(EventType.CONTEXT_CONDENSED)
    used = sum(one.reply.usage.tokens for one in exchanges(harness.events))
    assert harness.run.spent.tokens == used
    assert len(asked) > len(exchanges(harness.events))


def test_a_small_context_is_asked_from_the_server_and_kept_to(harness: Harness) -> None:
    harness.edit()
    with ModelServer([act("print('y' * 7000)"), OBJECT], models=[{"id": "local", "meta": {"n_ctx": 6000}}]) as server:
        CodeActAgent(make_model(server.compatible, environ=server.environ)).perform(State.IMPLEMENT, harness.context())
    assert {request.body["max_tokens"] for request in server.requests} == {1500}
    assert server.looked == 1


def test_what_never_fits_is_a_failure_of_its_own_that_names_the_way_out(harness: Harness) -> None:
    model = ScriptedModel([OBJECT], context_tokens=1000)
    with pytest.raises(CodePilotError) as caught:
        CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED
    assert "--agent propose" in caught.value.failure.advice
    assert not harness.of(EventType.MODEL_ASKED)


def test_a_replay_of_a_condensed_run_is_the_same(harness: Harness) -> None:
    harness.edit()
    replies = [act(f"print('{n}' * 7900)") for n in range(4)] + [OBJECT]
    CodeActAgent(ScriptedModel(replies, context_tokens=9000)).perform(State.IMPLEMENT, harness.context())
    recorded, harness.events = harness.events, []
    harness.run = harness.run.model_copy(update={"run_id": "r-2"})
    CodeActAgent(ReplayModel(exchanges(recorded))).perform(State.IMPLEMENT, harness.context())
    made = [event.data for event in harness.of(EventType.CONTEXT_CONDENSED)]
    assert made and made == [event.data for event in recorded if isinstance(event.data, ContextCondensed)]


def test_old_observations_go_first_then_old_turns_then_the_rest_of_the_last() -> None:
    turns = [Turn(n, "r" * 100, observation={"status": "ok", "stdout": "x" * 2000}) for n in range(1, 6)]

    def tokens(shortened: Shortened) -> int:
        kept = [turn for turn in turns if turn.number not in shortened.left_out]
        return sum(len(turn.reply) + (400 if turn.number in shortened.turns else 2000) for turn in kept)

    assert condense(turns, Shortened(), tokens, 20_000) is None
    first = condense(turns, Shortened(), tokens, 9000)
    assert first is not None
    assert (first.turns, first.left_out) == ((1, 2, 3, 4), ())
    second = condense(turns, Shortened(frozenset({1, 2, 3, 4})), tokens, 4000)
    assert second is not None
    assert (second.turns, second.left_out) == ((), (1, 2, 3, 4))
    last = condense(turns, Shortened(frozenset({1, 2, 3, 4}), frozenset({1, 2, 3, 4})), tokens, 1000)
    assert last is not None
    assert (last.turns, last.after) == ((5,), 500)


def test_only_a_refused_call_is_asked_again(harness: Harness) -> None:
    class Refusing(ScriptedModel):
        def reply(self, messages: object, **more: object) -> Reply:  # type: ignore[override]
            self.requests.append(())
            raise CodePilotError(FailureKind.CONTEXT_EXCEEDED, "too long", **{UNCHARGED: True})

    model = Refusing(lambda messages: "")
    with pytest.raises(CodePilotError, match="too long"):
        CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    assert len(model.requests) == 3


# Replies of a real weak model --------------------------------------------------------------------------

RECORDED = Path(__file__).parent / "recorded" / "qwen2.5-coder-1.5b.jsonl"
"""What Qwen2.5-Coder-1.5B-Instruct (Q4_K_M) answered behind llama.cpp's server, for a bug like the harness's."""


def recorded(role: str) -> list[str]:
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return [line["reply"] for line in lines if line["role"] == role]


def test_a_recorded_map_of_the_repository_is_taken_at_once(harness: Harness) -> None:
    with ModelServer(recorded("RepoMapper")) as server:
        model = make_model(server.compatible, environ=server.environ)
        found = CodeActAgent(model).perform(State.MAP_REPO, harness.context())
    assert isinstance(found, RepoMap)
    assert found.key_files == ("tests/test_price.py", "price.py")


def test_a_recorded_plan_in_prose_is_answered_and_one_beside_a_quotation_is_taken(harness: Harness) -> None:
    prose, quoting, _ = recorded("Planner")
    with ModelServer([prose, quoting]) as server:
        model = make_model(server.compatible, environ=server.environ)
        plan = CodeActAgent(model).perform(State.PLAN, harness.context())
    assert isinstance(plan, Plan)
    assert plan.root_cause == "The discount is greater than 100%"
    assert "neither an action nor a result" in server.requests[1].last
