"""A quota that is used up, or artifacts that are away, park a run: until when, and what may be asked meanwhile."""

from __future__ import annotations

from run_kit import Log

from codepilot.core.decide import MAX_ATTEMPTS, OUTAGE_PARKINGS, Failed, decide_due
from codepilot.core.events import EventType, Requested, State
from codepilot.core.failures import Failure, FailureKind

SECOND = 1_000_000


def spent(reset_at: int | None) -> Failed:
    details = {} if reset_at is None else {"reset_at": reset_at}
    return Failed(Failure(kind=FailureKind.MODEL_QUOTA, message="The quota is used up.", details=details))


def parked(log: Log) -> int:
    assert log.now.state is State.BLOCKED
    assert log.now.parked_until is not None
    return log.now.parked_until


def test_a_quota_that_is_never_whole_is_asked_for_less_and_less_often() -> None:
    """A provider may name a moment that has passed, again and again."""
    log = Log()
    waits = []
    for _ in range(9):
        log.ends(spent(log.clock - SECOND))
        waits.append((parked(log) - log.clock) / SECOND)
        log.clock = parked(log)
        log.add(decide_due(log.now, log.clock))
        assert log.now.state is State.INIT
    assert waits == sorted(waits)
    assert 0.9 < waits[0] < 1.1
    assert 59 < waits[-1] < 61


def test_a_moment_that_the_provider_names_is_kept() -> None:
    log = Log()
    reset = log.clock + 600 * SECOND
    log.ends(spent(reset))
    assert parked(log) == reset
    assert decide_due(log.now, reset - 1) == []


def test_without_a_moment_it_waits_for_a_person() -> None:
    log = Log()
    log.ends(spent(None))
    assert (log.now.state, log.now.parked_until) == (State.BLOCKED, None)


def test_a_parked_run_that_was_asked_to_pause_does_not_go_on_by_itself() -> None:
    log = Log()
    log.ends(spent(log.clock + 5 * SECOND))
    log.record(EventType.PAUSE_REQUESTED, Requested())
    log.add(decide_due(log.now, parked(log)))
    assert (log.now.state, log.now.parked_until, log.now.pause_requested) == (State.PAUSED, None, False)
    assert log.now.resume_state is State.INIT


def away(**details: bool) -> Failed:
    kind = FailureKind.ARTIFACT_STORE_UNAVAILABLE
    return Failed(Failure(kind=kind, message="No connection to the server.", details={**details}))


def test_artifacts_that_are_away_park_the_run_at_the_very_step_it_was_at() -> None:
    log = Log()
    waits = []
    step = log.now.step_id
    for _ in range(OUTAGE_PARKINGS):
        log.ends(away(passing=True))
        waits.append((parked(log) - log.clock) / SECOND)
        log.clock = parked(log)
        log.add(decide_due(log.now, log.clock))
        assert (log.now.state, log.now.step_id, log.now.attempt) == (State.INIT, step, 1)
    assert waits == sorted(waits)
    assert 0.9 < waits[0] < 1.1
    assert 59 < waits[-1] < 61
    assert 30 * 60 < sum(waits) < 60 * 60
    for _ in range(MAX_ATTEMPTS):
        log.ends(away(passing=True))
    assert log.now.state is State.FAILED, "it is not waited for for ever"


def test_artifacts_that_will_not_come_back_by_themselves_are_not_waited_for() -> None:
    log = Log()
    log.ends(away())
    assert (log.now.state, log.now.attempt) == (State.INIT, 2)
    log.ends(away(passing=False))
    assert log.now.state is State.FAILED
