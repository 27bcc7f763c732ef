from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codepilot.agents.loop import Action, action_of, going_in_circles
from codepilot.agents.transcript import Turn, conversation, observation_of
from codepilot.executor import CodeResult

DEEDS = st.builds(
    Action, st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"]), st.sampled_from(["", "", "E", "F"])
)
HISTORY = st.lists(DEEDS, max_size=12)


@given(HISTORY, DEEDS)
def test_four_identical_pairs_are_a_circle(before: list[Action], action: Action) -> None:
    assert going_in_circles([*before, *[action] * 4])


@given(HISTORY, st.lists(DEEDS, min_size=3, max_size=3), st.sampled_from(["E", "F"]))
def test_three_identical_errors_are_a_circle_whatever_was_done(
    before: list[Action], actions: list[Action], error: str
) -> None:
    failing = [Action(action.action, action.observation, error) for action in actions]
    assert going_in_circles([*before, *failing])


@given(HISTORY, DEEDS, DEEDS)
def test_six_alternations_are_a_circle(before: list[Action], one: Action, other: Action) -> None:
    assert going_in_circles([*before, *[one, other] * 3])


@given(st.lists(st.integers(), unique=True, max_size=30))
def test_doing_something_new_each_time_is_never_a_circle(numbers: list[int]) -> None:
    assert going_in_circles([Action(str(number), str(number), f"error {number}") for number in numbers]) == ""


@given(HISTORY)
def test_only_the_latest_deeds_count(history: list[Action]) -> None:
    fresh = [Action("new 1", "1"), Action("new 2", "2")]
    assert going_in_circles([*history, *fresh]) == ""


def test_one_less_is_not_yet_a_circle() -> None:
    same, other = Action("a", "x"), Action("b", "y")
    assert going_in_circles([same] * 3) == ""
    assert going_in_circles([Action("a", "x", "E")] * 2) == ""
    assert going_in_circles([same, other] * 2 + [same]) == ""


def test_numbers_that_vary_do_not_hide_a_circle() -> None:
    def seen(number: int) -> str:
        where = f'File "<action {number}>", line 1; <object at 0x7f00000{number}>; /tmp/tmpab{number}defgh'
        return f"{where}; 1 failed in 0.0{number}s"

    turns = [Turn(n, "r", code="f()", observation={"status": "ok", "stdout": seen(n)}) for n in range(1, 5)]
    assert going_in_circles([action_of(turn) for turn in turns])
    shown = observation_of(CodeResult(status="ok", stdout=seen(1)))["stdout"]
    assert shown == 'File "<action>", line 1; <object at …>; /tmp/tmpab1defgh; 1 failed in …'


def test_an_action_that_is_repeated_is_marked() -> None:
    turns = [Turn(n, "r", code="f()", observation={"status": "ok", "stdout": "x"}) for n in (1, 2)]
    messages = conversation((), turns, 40)
    assert "same result in turn" not in messages[1].content
    assert "[The same action gave the same result in turn 1. Do something else.]" in messages[3].content
