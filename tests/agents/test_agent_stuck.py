from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from codepilot.agents.loop import Action, going_in_circles

DEEDS = st.builds(
    Action, st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"]), st.sampled_from(["", "", "E", "F"])
)
HISTORY = st.lists(DEEDS, max_size=12)


@settings(max_examples=30)
@given(HISTORY, DEEDS)
def test_four_identical_pairs_are_a_circle(before: list[Action], deed: Action) -> None:
    assert going_in_circles([*before, *[deed] * 4])


@settings(max_examples=30)
@given(HISTORY, st.lists(DEEDS, min_size=3, max_size=3), st.sampled_from(["E", "F"]))
def test_three_identical_errors_are_a_circle_whatever_was_done(
    before: list[Action], actions: list[Action], error: str
) -> None:
    failing = [Action(deed.action, deed.observation, error) for deed in actions]
    assert going_in_circles([*before, *failing])


@settings(max_examples=30)
@given(HISTORY, DEEDS, DEEDS)
def test_six_alternations_are_a_circle(before: list[Action], one: Action, other: Action) -> None:
    assert going_in_circles([*before, *[one, other] * 3])


@settings(max_examples=30)
@given(st.lists(st.integers(), unique=True, max_size=30))
def test_doing_something_new_each_time_is_never_a_circle(numbers: list[int]) -> None:
    assert going_in_circles([Action(str(number), str(number), f"error {number}") for number in numbers]) == ""


@settings(max_examples=30)
@given(HISTORY)
def test_only_the_latest_deeds_count(history: list[Action]) -> None:
    fresh = [Action("new 1", "1"), Action("new 2", "2")]
    assert going_in_circles([*history, *fresh]) == ""


def test_one_less_is_not_yet_a_circle() -> None:
    same, other = Action("a", "x"), Action("b", "y")
    assert going_in_circles([same] * 3) == ""
    assert going_in_circles([Action("a", "x", "E")] * 2) == ""
    assert going_in_circles([same, other] * 2 + [same]) == ""
