"""Inputs by type: of the kinds that annotations and recorded calls show, and within what those show."""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codepilot.repair.python.inside.behaviour import changes, described, digest, kinds, new_types, outcomes
from codepilot.repair.python.inside.typed_inputs import annotated_kinds, random_inputs


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


def _plain(value: Any, more: Any = None) -> Any:
    return value


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-50, 50) | st.floats(-9, 9) | st.text("abc", max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text("xy"), inner),
    max_leaves=8,
)


@given(st.lists(st.tuples(PLAIN, PLAIN), min_size=1, max_size=5))
def test_the_same_inputs_come_for_the_same_calls_and_the_calls_stay_as_they_were(inputs: list[tuple[Any, ...]]) -> None:
    before = described(inputs)
    once, again = random_inputs(_plain, inputs), random_inputs(_plain, inputs)
    assert described(once) == described(again) and described(inputs) == before
    assert all(len(values) == 2 for values in once)
    seen = {type(values[0]) for values in inputs}
    assert {type(values[0]) for values in once} <= seen


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=6))
def test_numbers_keep_to_their_side_of_zero(seen: list[int]) -> None:
    values = [value for value, _ in random_inputs(_plain, [(number, None) for number in seen])]
    assert min(seen) < 0 or min(values) >= min(1, *seen)
    assert max(seen) > 0 or min(seen) == 0 or max(values) <= max(seen)


@given(st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=1, max_size=6))
@example([5.0, 5.0, 4.5625])
@example([-1.0, -1.0, -1.125])
def test_fractions_stay_near_those_that_were_seen(seen: list[float]) -> None:
    values = [value for value, _ in random_inputs(_plain, [(number, None) for number in seen])]
    room = (max(seen) - min(seen)) / 2 or abs(max(seen)) / 2 or 1.0
    rounded = 0.0051 * (max(map(abs, seen)) + room)  # to three digits
    assert all(min(seen) - room - rounded <= value <= max(seen) + room + rounded for value in values)
    assert min(seen) < 0 or min(values) >= 0
    assert max(seen) > 0 or min(seen) == 0 or max(values) <= 0


def test_years_stay_years() -> None:
    values = [value for value, _ in random_inputs(_plain, [(2020, None), (2024, None)])]
    assert min(values) > 2000 and max(values) < 2040


@given(st.lists(st.text("xyz", max_size=6), min_size=1, max_size=6))
def test_texts_have_the_letters_that_were_seen_and_are_empty_only_where_some_were(seen: list[str]) -> None:
    values = [value for value, _ in random_inputs(_plain, [(text, None) for text in seen])]
    letters = set("".join(seen))
    assert not letters or set("".join(values)) <= letters
    assert "" in seen or "" not in values


def test_annotations_tell_what_no_call_has_shown() -> None:
    def use(items: list[int], colour: Colour, mode: Literal["a", "b"], maybe: str | None, point: Point) -> None: ...

    inputs = random_inputs(use, [([], Colour.RED, "a", None, Point(1))])
    assert any(items for items, *_ in inputs)
    assert all(type(item) is int for items, *_ in inputs for item in items)
    assert {colour for _, colour, *_ in inputs} == {Colour.RED, Colour.BLUE}
    assert {mode for _, _, mode, *_ in inputs} == {"a", "b"}
    assert {type(maybe) for *_, maybe, _ in inputs} == {str, type(None)}
    assert {point.x for *_, point in inputs} == {1}, "what was seen is not taken apart"


def test_a_record_that_was_never_seen_is_made_by_its_annotations() -> None:
    def use(points: list[Point]) -> None: ...

    inputs = random_inputs(use, [([],)])
    assert len({point.x for (points,) in inputs for point in points}) > 2
    seen = [([Point(1), Point(4)],), ([Point(7)],)]
    assert all(points in [one for (one,) in seen] for (points,) in random_inputs(use, seen))


def test_what_is_optional_is_none_at_times() -> None:
    def use(one: int | None, other: int | None) -> None: ...

    inputs = random_inputs(use, [(4, 7)])
    assert {None} < {one for one, _ in inputs} and {None} < {other for _, other in inputs}


class Shelf:
    def __init__(self) -> None:
        self.books = [1]


class Collection:
    """Called like a type of the library, and none."""

    def __iter__(self) -> Any:
        raise AssertionError("looked into")


def test_what_is_of_an_unknown_type_stays_what_was_recorded_and_gathered_arguments_too() -> None:
    def use(self: Any, other: Any, count: int, *rest: int, **more: int) -> None: ...

    inputs = random_inputs(use, [(Shelf(), Collection(), 3, (1, 2), {"a": 1})])
    assert all(type(shelf) is Shelf and shelf.books == [1] for shelf, *_ in inputs)
    assert all(type(other) is Collection for _, other, *_ in inputs)
    assert len({count for _, _, count, *_ in inputs}) > 1
    assert all(values[3:] == ((1, 2), {"a": 1}) for values in inputs)
    assert random_inputs(use, []) == []


def test_a_literal_leaves_room_for_what_stands_next_to_it() -> None:
    def use(size: int | Literal["auto"], mode: Literal["a", "b"] | None) -> None: ...

    inputs = random_inputs(use, [(5, "a"), (3, None)])
    assert {type(size) for size, _ in inputs} >= {int}
    assert {mode for _, mode in inputs} == {"a", "b", None}


def test_an_annotation_that_nobody_can_read_does_not_spoil_the_others() -> None:
    def use(one: Missing, other: list[int]) -> int: ...  # type: ignore[name-defined]  # noqa: F821

    inputs = random_inputs(use, [(1, [])])
    assert any(other for _, other in inputs)
    assert annotated_kinds(use) == {"number"}


def test_what_was_seen_is_never_outgrown_by_much() -> None:
    deep: list[Any] = [[[[[["x"] * 9] * 9] * 9] * 9] * 9]
    inputs = random_inputs(_plain, [(deep, None), ([[list(range(60))] * 60], None)])
    assert max(len(repr(values)) for values in inputs) < 40 * len(repr((deep, None)))
    assert all(len(values[0]) <= 12 for values in inputs)


def test_a_class_that_refuses_what_it_is_given_or_ends_the_process_costs_no_more_than_itself() -> None:
    made = []

    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            made.append(self.number)
            if len(made) % 2:
                raise ValueError("not even")
            sys.exit(1)

    def use(values: Any, count: int) -> None: ...

    use.__annotations__["values"] = list[Even]
    inputs = random_inputs(use, [([], 3)])
    assert all(values == [] for values, _ in inputs) and len({count for _, count in inputs}) > 2
    assert len(made) > 2


def test_inputs_by_type_tell_apart_what_the_tests_inputs_do_not() -> None:
    def right(numbers: list[int]) -> int:
        return max(numbers)

    def first(numbers: list[int]) -> int:
        return numbers[0]

    calls = [([5, 1, 2],), ([9, 3],)]
    assert digest(outcomes(right, calls)) == digest(outcomes(first, calls))
    inputs = random_inputs(right, calls)
    assert digest(outcomes(right, inputs)) != digest(outcomes(first, inputs))


@pytest.mark.parametrize(
    ("hint", "allowed"),
    [
        (int, {"number"}),
        (list[int] | None, {"list", "NoneType"}),
        (dict[str, int] | str, {"dict", "str"}),
        (Point, set()),
        (Any, set()),
        (None, {"NoneType"}),
    ],
)
def test_an_annotation_promises_kinds_of_results_unless_it_leaves_them_open(hint: Any, allowed: set[str]) -> None:
    def function() -> None: ...

    function.__annotations__["return"] = hint
    assert annotated_kinds(function) == allowed


def test_results_of_a_type_that_the_function_never_had_are_noticed() -> None:
    inputs: list[tuple[Any, ...]] = [(1,), (2,), (None,)]
    before = outcomes(lambda value: value * 2, inputs)
    after = outcomes(lambda value: str(value) if value == 1 else 2.5, inputs)
    assert new_types(after, set(kinds(before))) == pytest.approx(1 / 3, abs=0.01)
    assert new_types(after, set()) == 0.0
    assert changes(before, before)["unchanged"] == 1.0
