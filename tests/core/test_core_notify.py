"""Notifications: what follows from a try, what a URL may be, and that a run is the same with them as without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_kit import Log

from codepilot.core.decide import Failed, decide_resume
from codepilot.core.events import EventDraft, EventType, RunFinished, State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.fork import fork, taken_over
from codepilot.core.notify import (
    LONGEST_ASKED_SEC,
    LONGEST_WAIT_SEC,
    PASSING,
    PATIENCE_SEC,
    Again,
    GivenUp,
    NotificationFailed,
    NotificationSent,
    Taken,
    Tried,
    after_try,
    asked_wait,
    mistake_in,
    secrets_in,
    wait_after,
)

statuses = st.none() | st.integers(100, 599)
ages = st.floats(-60, 10 * PATIENCE_SEC, allow_nan=False)
chances = st.floats(0, 1, exclude_max=True)


asked = st.none() | st.floats(0, 1e9)


@given(statuses, st.integers(1, 10_000), ages, asked, chances)
def test_what_follows_from_a_try(
    status: int | None, tries: int, age: float, asked: float | None, chance: float
) -> None:
    found = after_try(Tried(status, tries, age, asked), chance)
    taken = status is not None and 200 <= status < 300
    refused = status is not None and 400 <= status < 500 and status not in PASSING
    assert isinstance(found, Taken) == taken
    assert isinstance(found, GivenUp) == (not taken and (refused or age >= PATIENCE_SEC))
    if isinstance(found, Again):
        own = wait_after(tries, chance)
        assert 0.5 <= own <= LONGEST_WAIT_SEC
        received = min(asked or 0.0, LONGEST_ASKED_SEC) if status in (429, 503) else 0.0
        assert found.seconds == max(own, received)


@pytest.mark.parametrize(
    ("output", "seconds"),
    [
        (None, None),
        ("", None),
        ("0", 0.0),
        (" 120 ", 120.0),
        ("9" * 5000, 999_999_999_999.0),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 59.0),
        ("Friday, 31-Dec-99 23:59:59 GMT", 59.0),
        ("Fri Dec 31 23:59:59 1999", 59.0),
        ("Sat, 01 Jan 2000 00:59:59 +0100", 59.0),
        ("Fri, 31 Dec 1999 23:58:59 GMT", 0.0),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("Fri, 99 Dec 1999 23:59:59 GMT", None),
        ("Fri, 31 Dec 99999999999999999999 23:59:59 GMT", None),
    ],
)
def test_when_an_answer_asks_to_come_back(output: str | None, seconds: float | None) -> None:
    assert asked_wait(output, 946_684_740.0) == seconds


@given(st.text(max_size=60))
def test_whatever_an_answer_says_of_it_is_judged(output: str) -> None:
    found = asked_wait(output, 0.0)
    assert found is None or found >= 0


@given(st.integers(1, 10_000), chances, chances)
def test_each_wait_is_as_long_as_the_longest_before_until_it_is_long_enough(
    tries: int, chance: float, later: float
) -> None:
    this, following = wait_after(tries, chance), wait_after(tries + 1, later)
    assert this <= following or this >= LONGEST_WAIT_SEC / 2
    assert wait_after(tries, 0.0) < wait_after(tries, 0.9), "two who fail together do not come back together"


@pytest.mark.parametrize(
    ("url", "output"),
    [
        ("https://hooks.example/x?token=s3cr3t-s3cr3t", ""),
        ("http://127.0.0.1:8080", ""),
        ("https://user:s3cr3t@[::1]:8443/x", ""),
        ("ftp://host/s3cr3t", "http:// or https://"),
        ("s3cr3t", "http:// or https://"),
        ("http:///s3cr3t", "no host"),
        ("http://host:0/s3cr3t", "no host"),
        ("http://host:s3cr3t/", "no URL"),
        ("http://[s3cr3t/", "no URL"),
        ("http://s3cr3t..example/", "no URL"),
        ("http://host/s3cr3t\r\nX: y", "characters"),
        ("http://host/s3 cr3t", "characters"),
        ("http://hôst/s3cr3t", "characters"),
    ],
)
def test_a_url_that_cannot_be_used_is_reported_without_its_secret(url: str, output: str) -> None:
    found = mistake_in(url)
    assert bool(found) == bool(output)
    assert output in found and "s3cr3t" not in found


@given(st.text(max_size=40))
def test_any_text_is_judged(url: str) -> None:
    assert mistake_in(url) or mistake_in(url) == ""


def test_what_of_a_url_is_secret() -> None:
    url = "https://someone:a-long-password@host/hooks/T000/B000?key=0123456789"
    assert set(secrets_in(url)) == {
        url,
        "a-long-password",
        "key=0123456789",
        "/hooks/T000/B000?key=0123456789",
    }
    assert secrets_in("https://host/hook") == ("https://host/hook",), "a word that texts may well have"


def settled(of: int, *, failed: bool = False) -> EventDraft:
    if failed:
        failure = Failure(kind=FailureKind.NOTIFY_FAILED, message="it was refused")
        return EventDraft(type=EventType.NOTIFICATION_FAILED, data=NotificationFailed(of=of, failure=failure))
    return EventDraft(type=EventType.NOTIFICATION_SENT, data=NotificationSent(of=of, status=204))


def spent(log: Log) -> None:
    log.ends(Failed(Failure(kind=FailureKind.BUDGET_EXCEEDED, message="spent", details={"budget": "wall_sec"})))


@pytest.mark.parametrize("failed", [False, True])
def test_a_run_is_the_same_with_its_notifications(failed: bool) -> None:
    log = Log(notify=True)
    spent(log)
    before = log.now
    log.add([settled(before.last_seq, failed=failed)])
    moved = {"updated_at": log.now.updated_at, "last_seq": log.now.last_seq}
    assert log.now == before.model_copy(update=moved)
    assert [draft.type for draft in decide_resume(log.now)] == [EventType.RUN_RESUMED, EventType.STEP_QUEUED]


def test_a_late_notification_is_no_progress_of_the_run_that_goes_on() -> None:
    log = Log(notify=True)
    spent(log)
    ended = log.now.last_seq
    log.add(decide_resume(log.now))
    log.started()
    log.add([settled(ended)])
    log.started()
    assert log.now.idle_starts == 2


def test_a_fork_does_not_repeat_what_was_sent_of_the_other_run() -> None:
    log = Log(notify=True)
    spent(log)
    ended = log.now.last_seq
    log.add([settled(ended)])
    log.add(decide_resume(log.now))
    drafts = fork(taken_over(log.events, len(log.events)), "r-2")
    kinds = [draft.type for draft in drafts]
    assert EventType.NOTIFICATION_SENT not in kinds and EventType.RUN_FORKED in kinds
    assert next(draft.data for draft in drafts if isinstance(draft.data, RunFinished)).state is State.ABORTED
