from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codepilot.agents.stuck import Deed, going_in_circles

DEEDS = st.builds(
    Deed, st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "y"]), st.sampled_from(["", "", "E", "F"])
)
HISTORY = st.lists(DEEDS, max_size=12)


@given(HISTORY, DEEDS)
def test_four_identical_pairs_are_a_circle(before: list[Deed], deed: Deed) -> None:
    assert going_in_circles([*before, *[deed] * 4])


@given(HISTORY, st.lists(DEEDS, min_size=3, max_size=3), st.sampled_from(["E", "F"]))
def test_three_identical_errors_are_a_circle_whatever_was_done(
    before: list[Deed], deeds: list[Deed], error: str
) -> None:
    failing = [Deed(deed.action, deed.observation, error) for deed in deeds]
    assert going_in_circles([*before, *failing])


@given(HISTORY, DEEDS, DEEDS)
def test_six_alternations_are_a_circle(before: list[Deed], one: Deed, other: Deed) -> None:
    assert going_in_circles([*before, *[one, other] * 3])


@given(st.lists(st.integers(), unique=True, max_size=30))
def test_doing_something_new_each_time_is_never_a_circle(numbers: list[int]) -> None:
    assert going_in_circles([Deed(str(number), str(number), f"error {number}") for number in numbers]) == ""


@given(HISTORY)
def test_only_the_latest_deeds_count(history: list[Deed]) -> None:
    fresh = [Deed("new 1", "1"), Deed("new 2", "2")]
    assert going_in_circles([*history, *fresh]) == ""


def test_one_less_is_not_yet_a_circle() -> None:
    same, other = Deed("a", "x"), Deed("b", "y")
    assert going_in_circles([same] * 3) == ""
    assert going_in_circles([Deed("a", "x", "E")] * 2) == ""
    assert going_in_circles([same, other] * 2 + [same]) == ""
