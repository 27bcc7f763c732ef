"""What others ask of a run: it pauses at once where nobody holds it, and no further step is begun."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_kit import OUTCOMES, Log, failed, red

from codepilot.core.checkpoint import MessageSent, SessionRequested
from codepilot.core.decide import (
    ASKED_TO_PAUSE,
    Failed,
    Outcome,
    Succeeded,
    ask_cancel,
    ask_pause,
    cancelled,
    decide,
    decide_cancel,
    decide_due,
    decide_pause,
    decide_resume,
    decide_start,
)
from codepilot.core.events import TERMINAL, WAITING, BundleWritten, EventDraft, EventType, State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run, replay
from codepilot.telemetry import figures

Decision = Callable[[Run], list[EventDraft]]

STATES = [State.INIT, State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.TEST, State.REVIEW, State.FINALIZE]


@pytest.mark.parametrize("state", STATES)
def test_a_run_that_nobody_holds_pauses_at_once_and_one_resume_goes_on(state: State) -> None:
    log = Log()
    log.reach(state)
    step = log.now.step_id
    log.add(ask_pause(log.now))
    log.add(decide_pause(log.now))
    assert (log.now.state, log.now.pause_requested) == (State.PAUSED, False)
    assert ask_pause(log.now) == decide_pause(log.now) == [], "it waits already"
    log.add(decide_resume(log.now))
    assert (log.now.state, log.now.step_id) == (state, step)
    assert decide_start(log.now) is None


def test_a_step_of_a_run_that_is_to_pause_ends_before_it_begins() -> None:
    """Its worker died before it saw the request, and another one takes the step."""
    log = Log()
    log.add(ask_pause(log.now))
    log.started()
    assert decide_start(log.now) == ASKED_TO_PAUSE
    log.add(decide(log.now, ASKED_TO_PAUSE, log.clock))
    assert (log.now.state, log.now.resume_state) == (State.PAUSED, State.INIT)


def test_a_request_is_recorded_once_and_a_cancel_is_not_taken_back_by_a_pause() -> None:
    log = Log()
    log.started()
    for ask in (ask_pause, ask_cancel):
        log.add(ask(log.now))
        assert ask(log.now) == []
    assert log.now.pause_requested and log.now.cancel_requested
    other = Log()
    other.started()
    other.add(ask_cancel(other.now))
    assert ask_pause(other.now) == []


@pytest.mark.parametrize("also_pause", [False, True])
def test_a_cancel_that_a_dead_worker_left_ends_the_run_whatever_is_asked_next(also_pause: bool) -> None:
    log = Log()
    log.started()
    if also_pause:
        log.add(ask_pause(log.now))
    log.add(ask_cancel(log.now))
    (ended,) = decide_pause(log.now)
    assert (ended.type, ended.data) == (decide_cancel(log.now)[0].type, decide_cancel(log.now)[0].data)
    log.started()
    found = decide_start(log.now)
    assert found == Failed(cancelled()), "another one takes the step, and does nothing of it"
    log.add(decide(log.now, found, log.clock))
    assert log.now.state is State.ABORTED


def test_a_run_whose_change_is_handed_over_is_not_cancelled_by_a_step_that_begins_again() -> None:
    log = Log()
    log.reach(State.FINALIZE)
    log.started()
    log.record(EventType.BUNDLE_WRITTEN, BundleWritten(path="/b", sha256="0" * 64))
    log.add(ask_cancel(log.now))
    log.started()
    assert decide_start(log.now) is None
    log.add(decide(log.now, Succeeded(), log.clock))
    assert log.now.state is State.DONE


DAY = 86_400


@pytest.mark.parametrize("decide_later", [decide_pause, decide_resume, decide_cancel])
def test_the_time_in_which_nobody_worked_is_free_whatever_is_asked_of_the_run(decide_later: Decision) -> None:
    """Its worker died; a day later somebody pauses it, withdraws the pause that was asked for, or cancels it."""
    log = Log()
    log.started(5)
    log.spend()
    if decide_later is decide_resume:
        log.add(ask_pause(log.now))
    log.clock += DAY * 1_000_000
    if decide_later is decide_pause:
        log.add(ask_pause(log.now))
    log.add(decide_later(log.now))
    if decide_later is decide_pause:
        log.add(decide_resume(log.now))
    if not log.now.terminal:
        log.started()
        assert decide_start(log.now) is None
    assert log.now.spent.wall_us == pytest.approx(5_000_000, abs=10_000)
    reported = figures(log.events)
    assert reported is not None and reported.duration_sec == pytest.approx(5, abs=0.01)


def test_what_asks_to_pause_twice_is_asked_once() -> None:
    log = Log()
    log.add(ask_pause(log.now))
    assert ask_pause(log.now) == []


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(Succeeded(), State.REVIEW), (red(), State.REFLECT), (failed(FailureKind.EXECUTOR_LOST), State.TEST)],
)
def test_no_step_follows_one_that_ended_after_the_request(outcome: Outcome, state: State) -> None:
    log = Log()
    log.reach(State.TEST)
    log.add(ask_pause(log.now))
    log.ends(outcome)
    assert [event.type for event in log.events[-2:]] == [EventType.STEP_QUEUED, EventType.RUN_PAUSED]
    paused = log.events[-1]
    assert (paused.step_id, paused.attempt) == (log.now.step_id, log.now.attempt), "the step that waits is the new one"
    assert (log.now.state, log.now.resume_state) == (State.PAUSED, state)
    log.add(decide_resume(log.now))
    assert log.now.state is state


def test_a_request_that_is_withdrawn_is_forgotten() -> None:
    log = Log()
    log.reach(State.PLAN)
    log.add(ask_pause(log.now))
    log.add(decide_resume(log.now))
    assert (log.now.state, log.now.pause_requested) == (State.PLAN, False)
    assert decide_pause(log.now) == [], "who asked comes too late to pause it"
    log.ends(Succeeded())
    assert log.now.state is State.IMPLEMENT


def test_a_step_that_stopped_for_a_request_which_was_withdrawn_is_done_again() -> None:
    log = Log()
    log.reach(State.TEST)
    log.add(ask_pause(log.now))
    log.started()
    step = log.now.step_id
    log.add(decide_resume(log.now))
    log.add(decide(log.now, ASKED_TO_PAUSE, log.clock))
    assert [event.type for event in log.events[-2:]] == [EventType.RUN_PAUSED, EventType.RUN_RESUMED]
    assert (log.now.state, log.now.step_id) == (State.TEST, step)


def test_a_parked_run_is_paused_instead_of_going_on_by_itself() -> None:
    log = Log()
    quota = Failure(kind=FailureKind.MODEL_QUOTA, message="used up", details={"reset_at": log.clock + 60_000_000})
    log.ends(Failed(quota))
    assert log.now.parked_until is not None
    log.add(ask_pause(log.now))
    log.add(decide_pause(log.now))
    assert (log.now.state, log.now.parked_until) == (State.PAUSED, None)
    log.add(decide_resume(log.now))
    assert log.now.state is State.INIT


def test_what_waits_for_a_person_is_left_to_wait() -> None:
    log = Log()
    log.ends(failed(FailureKind.MODEL_AUTH))
    assert log.now.state is State.BLOCKED
    assert ask_pause(log.now) == decide_pause(log.now) == []


def test_nothing_can_be_asked_of_a_run_that_has_ended() -> None:
    log = Log()
    log.add(ask_pause(log.now))
    log.add(ask_cancel(log.now))
    log.add(decide_cancel(log.now))
    assert log.now.state is State.ABORTED
    for ask in (ask_pause, ask_cancel, decide_pause, decide_cancel, decide_resume):
        assert ask(log.now) == []


@pytest.mark.parametrize("ends", ["cancelled", "failed"])
def test_a_message_that_no_agent_got_is_recorded_as_not_delivered(ends: str) -> None:
    log = Log()
    log.reach(State.TEST)
    for number, kind in enumerate(("message", "checkpoint", "message")):
        asked = SessionRequested.model_validate({"request_id": f"q-{number}", "kind": kind, "text": f"text {number}"})
        log.record(EventType.SESSION_REQUESTED, asked)
    if ends == "cancelled":
        log.add(decide_cancel(log.now))
    else:
        log.add(ask_cancel(log.now))
        log.add(decide(log.now, Succeeded(), log.clock))
    assert log.now.terminal
    lost = [event.data for event in log.events if isinstance(event.data, MessageSent)]
    assert [(one.request_id, one.content, one.delivered) for one in lost] == [
        ("q-0", "text 0", False),
        ("q-2", "text 2", False),
    ]
    assert log.now.undelivered == ("text 0", "text 2")
    assert [one.kind for one in log.now.asked_of_session] == ["checkpoint"]


REQUESTS = st.sampled_from(["pause", "pause at once", "resume", "due"])


@given(st.lists(st.tuples(st.lists(REQUESTS, max_size=3), OUTCOMES | st.just(ASKED_TO_PAUSE)), max_size=40))
def test_who_asks_for_a_pause_gets_it_whatever_else_happens(course: list[tuple[list[str], Outcome]]) -> None:
    log = Log()
    for requests, outcome in course:
        if log.now.terminal:
            break
        for request in requests:
            _ask(log, request)
        if log.now.state in WAITING:
            log.add(decide_resume(log.now))
        else:
            wanted = log.now.pause_requested
            log.ends(decide_start(log.now) or outcome)
            if wanted:
                assert log.now.state in WAITING | TERMINAL, "no further step is begun"
            elif outcome == ASKED_TO_PAUSE:
                assert log.now.state not in WAITING, "nobody asks for it any more"
    assert replay(log.events) == log.now


def _ask(log: Log, request: str) -> None:
    if request == "resume":
        log.add(decide_resume(log.now))
        assert not log.now.pause_requested
        assert log.now.state not in WAITING
    elif request == "due":
        log.add(decide_due(log.now, log.clock))
    else:
        log.add(ask_pause(log.now))
        if request == "pause at once":
            log.add(decide_pause(log.now))
            assert log.now.state in WAITING
