from __future__ import annotations

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models import Message, Reply, ScriptedModel, ToolCall

HELLO = (Message(role="user", content="hello"),)


def ask(model: ScriptedModel, messages: tuple[Message, ...] = HELLO) -> Reply:
    return model.reply(messages, temperature=0.2, max_tokens=100)


def test_replies_come_in_order_and_count_a_turn_each() -> None:
    model = ScriptedModel(["one", Reply(text="two", stop_reason="length")])
    assert ask(model) == Reply(text="one")
    assert ask(model).stop_reason == "length"
    assert ask(ScriptedModel(["x"])).usage.turns == 1


def test_a_script_that_runs_out_says_so() -> None:
    model = ScriptedModel(["only"])
    ask(model)
    with pytest.raises(CodePilotError, match="has 1 replies and a further one was asked for") as caught:
        ask(model)
    assert caught.value.kind is FailureKind.MODEL_BAD_REPLY
    assert caught.value.failure.details["last_message"] == "hello"


def test_a_function_sees_the_conversation() -> None:
    model = ScriptedModel(lambda messages: messages[-1].content.upper())
    assert ask(model).text == "HELLO"
    assert model.requests == [HELLO]


def test_a_reply_can_always_be_stored() -> None:
    call = ToolCall(id="c", name="python", arguments={"code": "print('\ud800')", "more": ["\udfff"]})
    assert call.arguments == {"code": "print('?')", "more": ["?"]}
    assert Reply(text="half \ud83d").text == "half ?"
