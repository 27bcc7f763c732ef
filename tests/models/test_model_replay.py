from __future__ import annotations

import pytest

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import Event, EventType, ModelAsked, State, StepFailed, StepStarted, TurnStarted, Usage
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.models import Exchange, Message, ReplayModel, Reply, ToolCall, exchanges, fingerprint

FIRST = (Message(role="system", content="be brief"), Message(role="user", content="fix it"))
SECOND = (*FIRST, Message(role="assistant", content="a"), Message(role="user", content="Observation:\nok"))
RECORDED = (
    Exchange(request=fingerprint(FIRST), reply=Reply(text="a")),
    Exchange(request=fingerprint(SECOND), reply=Reply(text="b")),
)


def ask(model: ReplayModel, messages: tuple[Message, ...]) -> Reply:
    return model.reply(messages, temperature=0.0, max_tokens=10)


def test_equal_requests_get_the_recorded_replies() -> None:
    model = ReplayModel(RECORDED)
    assert [ask(model, FIRST).text, ask(model, SECOND).text] == ["a", "b"]


@pytest.mark.parametrize(
    ("asked", "how"),
    [
        ((*SECOND[:3], Message(role="user", content="Observation:\nfailed")), "turn 2: message 4 of 4 .*failed"),
        ((*SECOND[:2], SECOND[3], SECOND[2]), "an? assistant message then, a user message now"),
        (SECOND[:3], "4 messages were sent then, 3 now"),
    ],
)
def test_another_request_is_refused_with_the_turn_and_the_difference(asked: tuple[Message, ...], how: str) -> None:
    model = ReplayModel(RECORDED)
    ask(model, FIRST)
    with pytest.raises(CodePilotError, match=how) as caught:
        ask(model, asked)
    assert caught.value.kind is FailureKind.INVALID_SPEC
    assert ask(model, SECOND).text == "b"


def test_a_recording_that_is_over_is_refused() -> None:
    with pytest.raises(CodePilotError, match="turn 1: the recording ends after 0 turns"):
        ask(ReplayModel([]), FIRST)


def test_exchanges_are_read_from_events_with_calls_and_usage() -> None:
    call = ToolCall(id="c1", name="python", arguments={"code": "1"})
    spoken = TurnStarted(
        turn=1,
        action={
            "reply": "",
            "request": list(fingerprint(FIRST)),
            "tool_calls": [call.model_dump(mode="json")],
            "stop_reason": "tool_use",
            "code": "1",
        },
        usage=Usage(turns=1, tokens=7),
    )
    silent = TurnStarted(turn=1, action={"tool": "write_file"})
    events = [
        Event(type=EventType.TURN_STARTED, data=data, event_id=str(seq), seq=seq, run_id="r-1", at=0)
        for seq, data in enumerate((silent, spoken), 1)
    ]
    expected = Reply(tool_calls=(call,), usage=Usage(turns=1, tokens=7), stop_reason="tool_use")
    assert exchanges(events) == (Exchange(request=fingerprint(FIRST), reply=expected),)


def test_durations_and_addresses_do_not_make_a_request_another_one() -> None:
    def replies(text: str) -> tuple[str, ...]:
        return fingerprint([Message(role="user", content=text)])

    assert replies("3 passed in 0.05s, <Shop at 0x7f1a>") == replies("3 passed in 12.4s, <Shop at 0x55ee>")
    assert replies("3 passed in 0.05s") != replies("2 passed in 0.05s")


def test_a_replay_goes_on_where_a_run_already_is() -> None:
    model = ReplayModel(RECORDED)
    model.continue_after(1)
    assert ask(model, SECOND).text == "b"


def test_a_call_that_failed_fails_again_and_one_cut_short_is_left_out() -> None:
    asked = ModelAsked(model="anthropic:x", estimate=Usage(turns=1, tokens=9))
    refused = Failure(kind=FailureKind.MODEL_AUTH, message="no such key", details={"status": 401})
    spent = Failure(kind=FailureKind.BUDGET_EXCEEDED, message="spent")
    started = StepStarted(worker="w", fence=1)
    action: JsonObject = {"reply": "a", "request": list(fingerprint(FIRST))}
    happened: list[tuple[EventType, Contract]] = [
        (EventType.MODEL_ASKED, asked),
        (EventType.STEP_FAILED, StepFailed(state=State.PLAN, failure=refused)),
        (EventType.MODEL_ASKED, asked),
        (EventType.STEP_FAILED, StepFailed(state=State.PLAN, failure=spent)),
        (EventType.MODEL_ASKED, asked),
        (EventType.STEP_STARTED, started),
        (EventType.STEP_FAILED, StepFailed(state=State.PLAN, failure=refused)),
        (EventType.MODEL_ASKED, asked),
        (EventType.TURN_STARTED, TurnStarted(turn=1, action=action)),
    ]
    events = [
        Event(type=kind, data=data, event_id=f"e{seq}", seq=seq, run_id="r", at=seq)
        for seq, (kind, data) in enumerate(happened, 1)
    ]
    found = exchanges(events)
    assert [exchange.failure for exchange in found] == [refused, None]
    model = ReplayModel(found)
    assert model.estimate(FIRST, 10).tokens == 9
    with pytest.raises(CodePilotError, match="no such key") as caught:
        ask(model, FIRST)
    assert caught.value.failure == refused
    assert ask(model, FIRST).text == "a"
