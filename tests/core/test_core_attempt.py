"""How an attempt of a batch task is judged from what its program printed."""

from datetime import UTC, datetime

import pytest

from codepilot.core.attempt import (
    AUTH,
    QUOTA,
    MarkerWatch,
    Profile,
    Seen,
    classify,
    render,
    reset_time,
    with_marker,
)

PROMPT = "Follow 'guide.md' for the page. When complete, print exactly: TASK_COMPLETE:merge-001"
MARKER = "TASK_COMPLETE:merge-001"


@pytest.mark.parametrize(
    ("output", "complete"),
    [
        (MARKER, True),
        (f"I looked at it.\n● {MARKER}\n", True),
        (f"Done: `{MARKER}`.", True),
        (PROMPT, False),
        (f"> {PROMPT}\nworking ...\n", False),
        (f"> {PROMPT}\nworking ...\n{MARKER}\n", True),
        (f"{MARKER}\n> {PROMPT}\n", False),
        ("│ When complete, print   │\n│ exactly: TASK_COMPLETE:merge-001 │\n", False),
        ("So it is done: TASK_COMPLE\nTE:merge-001\n", True),
        ("│ So it is done: TASK_COMPLE  │\n│ TE:merge-001                 │\n", True),
        ("│ print exactly: TASK_COMPLE  │\n│ TE:merge-001                 │\n", False),
        ("TASK_COMPLETE:merge-0012", False),
        ("TASK_COMPLETE:merge-001.5", False),
        ("XTASK_COMPLETE:merge-001", False),
        ("TASK_COMPLETE:merge-00", False),
    ],
)
def test_marker_counts_after_the_last_echo_of_the_prompt(output: str, complete: bool) -> None:
    assert MarkerWatch(MARKER, PROMPT).look(output) is complete


def test_a_marker_that_was_seen_stays_seen_when_the_screen_is_cleared() -> None:
    watch = MarkerWatch(MARKER, PROMPT)
    assert watch.look(f"{PROMPT}\n{MARKER}") and watch.look("bye")
    assert not watch.look(f"again: {PROMPT}")


def test_a_marker_at_the_end_of_output_that_goes_on_may_become_another_one() -> None:
    watch = MarkerWatch(MARKER, PROMPT)
    assert watch.look(MARKER, going_on=True) and not watch.look(f"{MARKER}-2", going_on=True)
    assert watch.look(f"{MARKER}\nbye", going_on=True) and watch.look("", going_on=True)


def test_a_script_that_prints_the_marker_is_told_from_its_own_text() -> None:
    script = "echo TASK_COMPLETE:x"
    watch = MarkerWatch("TASK_COMPLETE:x", script)
    assert not watch.look("$ echo TASK_COMPLETE:x\n")
    assert watch.look("$ echo TASK_COMPLETE:x\nTASK_COMPLETE:x\n")


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (Seen("exit", True, 0, "you are not logged in"), "completed"),
        (Seen("after_marker", True, None, ""), "completed"),
        (Seen("exit", True, 1, "traceback"), "failed_process"),
        (Seen("exit", False, 0, "all done"), "failed_incomplete"),
        (Seen("exit", False, 0, "Not logged in · Please run /login"), "failed_auth"),
        (Seen("exit", False, 1, "Your session expired"), "failed_auth"),
        (Seen("timeout", False, None, "Rate limit reached, waiting"), "failed_quota"),
        (Seen("exit", False, 1, "Insufficient balance"), "failed_quota"),
        (Seen("timeout", False, None, "working"), "failed_timeout"),
        (Seen("timeout", False, None, "Authenticated with an API key"), "failed_timeout"),
        (Seen("exit", False, 1, "You are not authenticated."), "failed_auth"),
        (Seen("timeout", False, None, "401 invalid x-api-key · Retrying in 35s"), "failed_auth"),
        (Seen("timeout", False, None, "API key not valid. Please pass a valid API key."), "failed_auth"),
        (Seen("exit", False, -9, ""), "failed_process"),
        (Seen("blocked", False, None, "please log in"), "failed_permission_blocked"),
    ],
)
def test_most_specific_class_wins(seen: Seen, outcome: str) -> None:
    assert classify(seen, AUTH, QUOTA) == outcome


def test_prompt_is_rendered_and_asks_for_the_marker_once() -> None:
    assert render("Follow {path}: {{kept}}", {"path": "a{b}"}) == "Follow a{b}: {kept}"
    with pytest.raises(KeyError, match="missing"):
        render("{missing}", {})
    assert with_marker("Do it", "x").endswith("print exactly: TASK_COMPLETE:x")
    assert with_marker(PROMPT, "merge-001") == PROMPT


NOW = datetime(2026, 2, 24, 14, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("You've hit your limit · resets 3pm", "2026-02-24T15:00:00+00:00"),
        ("resets at 1:30am (UTC)", "2026-02-25T01:30:00+00:00"),
        ("try again in 20 minutes", "2026-02-24T14:20:00+00:00"),
        ("Please retry after 90 s", "2026-02-24T14:01:30+00:00"),
        ("try again in 2 hours 5 minutes", "2026-02-24T16:05:00+00:00"),
        ("quota until 2026-02-25T00:00:00Z", "2026-02-25T00:00:00+00:00"),
        ("Quota exceeded. Check your plan.", None),
        ("resets 99pm", None),
        ("resets 9999-99-99T99:99", None),
        ("quota until 9999-12-31T23:59:59Z", None),
        (f"try again in {'9' * 400} days", None),
        (f"try again in 1 h and {'9' * 5000} s", None),
    ],
)
def test_reset_of_a_quota_is_read_from_the_text(text: str, at: str | None) -> None:
    found = reset_time(text, NOW)
    assert (found.isoformat() if found else None) == at


def test_a_profile_with_a_bad_expression_is_refused() -> None:
    with pytest.raises(ValueError, match="not a regular expression"):
        Profile(auth_regex=("(",))
    assert Profile().typed("press_1") == "1\r" and Profile(keys={"press_1": "1"}).typed("press_1") == "1"
