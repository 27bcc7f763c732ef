"""A model's call is paid before it is made, and settled when its reply is there."""

from __future__ import annotations

from run_kit import Log

from codepilot.core.events import EventType, ModelAsked, State, TurnStarted, Usage
from codepilot.core.spending import unaffordable
from codepilot.core.task import Budget
from codepilot.telemetry.figures import COUNTED, figures


def asked(tokens: int, cost: float = 0.0) -> ModelAsked:
    return ModelAsked(model="m", estimate=usage(tokens, cost))


def replied(tokens: int, cost: float = 0.0) -> TurnStarted:
    return TurnStarted(turn=1, action={}, usage=usage(tokens, cost))


def usage(tokens: int, cost: float) -> Usage:
    """A third of the tokens are output."""
    message = tokens // 3
    return Usage(turns=1, tokens=tokens, cost_usd=cost, input_tokens=tokens - message, output_tokens=message)


def test_a_reply_takes_the_place_of_its_calls_estimate() -> None:
    log = Log()
    log.started()
    log.record(EventType.MODEL_ASKED, asked(1000, 0.5))
    assert (log.now.spent.tokens, log.now.spent.cost_usd, log.now.spent.turns) == (1000, 0.5, 0)
    log.record(EventType.TURN_STARTED, replied(300, 0.1))
    assert (log.now.spent.tokens, log.now.spent.cost_usd, log.now.spent.turns) == (300, 0.1, 1)


def test_calls_without_a_reply_stay_charged() -> None:
    log = Log()
    for _ in range(2):
        log.started()
        log.record(EventType.MODEL_ASKED, asked(1000))
    log.record(EventType.TURN_STARTED, replied(300))
    assert log.now.spent.tokens == 1300


def test_a_turn_without_a_model_pays_for_itself_alone() -> None:
    """A call that a crash cut off is not given back by a tool's turn after it."""
    log = Log()
    log.started()
    log.record(EventType.MODEL_ASKED, asked(1000, 0.5))
    log.started()
    log.record(EventType.TURN_STARTED, replied(0))
    assert (log.now.spent.tokens, log.now.spent.cost_usd) == (1000, 0.5)


def test_iterations_come_to_what_the_run_has_spent() -> None:
    """Calls that a crash cut off, that were refused and that were answered, each where it was made."""
    log = Log()
    log.started()
    log.record(EventType.MODEL_ASKED, asked(1000, 0.1))
    log.reach(State.IMPLEMENT)
    for _ in range(2):
        log.started()
        log.record(EventType.MODEL_ASKED, asked(500, 0.7))
    log.record(EventType.MODEL_ASKED, asked(50, 0.2))
    log.record(EventType.TURN_STARTED, replied(30, 0.1))
    log.record(EventType.TURN_STARTED, replied(1, 0.1))
    reported = figures(log.events)
    assert reported is not None
    before, first = reported.iterations
    assert (before.tokens, before.cost_usd, before.turns) == (1000, 0.1, 0)
    assert (first.tokens, first.cost_usd, first.turns) == (1031, 1.6, 2)
    assert (before.input_tokens, before.output_tokens) == (0, 0), "no reply has arrived"
    assert (first.input_tokens, first.output_tokens) == (21, 10)
    spent = log.now.spent
    assert (reported.tokens, reported.cost_usd, reported.turns) == (spent.tokens, spent.cost_usd, spent.turns)
    assert reported == figures(event for event in log.events if event.type in COUNTED)


def test_to_ask_a_model_is_no_progress() -> None:
    log = Log()
    for _ in range(3):
        log.started()
        log.record(EventType.MODEL_ASKED, asked(1))
    assert log.now.idle_starts == 3


def test_what_cannot_be_paid_is_reported_before_it_is_asked() -> None:
    log = Log(budget=Budget(tokens=1000, cost_usd=1.0))
    log.record(EventType.TURN_STARTED, replied(400, 0.4))
    assert unaffordable(log.now, Usage(tokens=599, cost_usd=0.5)) is None
    for name, estimate in (("tokens", Usage(tokens=601)), ("cost_usd", Usage(tokens=1, cost_usd=0.7))):
        failure = unaffordable(log.now, estimate)
        assert failure is not None
        assert failure.details["budget"] == name
    granted = log.now.model_copy(update={"grants": 2})
    assert unaffordable(granted, Usage(tokens=601, cost_usd=0.7)) is None
