"""Requests to a person: who is asked again, and what becomes of a request that nobody answers."""

from __future__ import annotations

from run_kit import Log

from codepilot.core.approval import ApprovalDecided, ApprovalRequested, approval_id
from codepilot.core.decide import NeedsApproval, decide_approval, decide_due
from codepilot.core.events import EventType, State

ASK = ApprovalRequested(approval_id="a-1", operation="network", details="pypi.org", expires_at=1_000_000_000)


def asked() -> Log:
    log = Log()
    log.reach(State.IMPLEMENT)
    log.ends(NeedsApproval(ASK))
    return log


def test_a_request_that_nobody_answers_is_denied_at_its_time_and_the_run_goes_on() -> None:
    log = asked()
    assert decide_due(log.now, 999_999_999) == []
    log.add(decide_due(log.now, 1_000_000_000))
    assert log.now.state is State.IMPLEMENT
    answer = log.now.answer_to(ASK)
    assert answer is not None
    assert (answer.decision, answer.by) == ("denied", "expiry")


def test_an_answer_that_comes_too_late_is_the_denial() -> None:
    log = asked()
    yes = ApprovalDecided(approval_id="a-1", decision="always", by="someone")
    log.add(decide_approval(log.now, yes, now=1_000_000_001))
    answer = log.now.answer_to(ASK)
    assert answer is not None
    assert (answer.decision, answer.by) == ("denied", "expiry")


def test_a_run_that_is_asked_again_keeps_the_time_of_the_first_request() -> None:
    log = asked()
    later = ASK.model_copy(update={"expires_at": 5_000_000_000})
    log.ends(NeedsApproval(later))
    assert log.now.parked_until == ASK.expires_at
    assert [event.type for event in log.events].count(EventType.APPROVAL_REQUESTED) == 1


def test_ids_depend_on_all_that_tells_requests_apart_and_on_nothing_else() -> None:
    same = approval_id("r-1", "network", "pypi.org", "s-1")
    assert same == approval_id("r-1", "network", "pypi.org", "s-1")
    others = {
        approval_id("r-2", "network", "pypi.org", "s-1"),
        approval_id("r-1", "command", "pypi.org", "s-1"),
        approval_id("r-1", "network", "pypi.or", "gs-1"),
        approval_id("r-1", "network", "pypi.org", "s-2"),
    }
    assert same not in others
    assert len(others) == 4
