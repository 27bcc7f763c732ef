"""Inputs that tell a repair from the base, found by calling both in the sandbox; or why there is none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from repair_kit import Bench, open_bench

from codepilot.repair import DistinguishingInputs, DistinguishingRequest, find_distinguishing_inputs, nearby_tests

CODE = """import random
from dataclasses import dataclass


def least(values, start=9):
    best = start
    for value in values:
        if value > best:
            best = value
    return best


def root(number):
    return int(number ** 0.5) + 1


def tags(words):
    return list(set(words[1:]))


def drawn(many):
    return [random.random() for _ in range(many - 1)]


def counted(limit):
    number = 0
    while number < limit - 1:
        yield number
        number += 1


def twice(number):
    while number == 3:
        pass
    return number


@dataclass(frozen=True)
class Point:
    x: int
    y: int

    def moved(self, by):
        return Point(self.x - by, self.y)


def mirrored(point):
    return Point(point.y, point.y)


class Box:
    def __init__(self, held):
        self.held = held

    def taken(self, at):
        return self.held[at + 1]


def outer(number):
    return inner(number, 1)


def inner(number, step):
    return number - step


def first(items: "list[int]", other: "int | None" = None):
    return items[0]
"""
TESTS = """from things import Box, Point, counted, drawn, first, least, mirrored, outer, root, tags, twice


def test_least():
    assert least([3, 1, 2]) == 1
    assert least([5]) == 5
    assert least([], start=2) == 2


def test_root():
    assert root(9) == 3


def test_tags():
    assert sorted(tags(["b", "a", "c", "d"])) == ["a", "b", "c", "d"]


def test_drawn():
    assert len(drawn(2)) == 2


def test_counted():
    assert list(counted(2)) == [0, 1]


def test_twice():
    assert twice(4) == 8
    assert twice(5) == 10


def test_mirrored():
    assert mirrored(Point(1, 2)) == Point(2, 1)


def test_moved():
    assert Point(1, 2).moved(3) == Point(4, 2)


def test_taken():
    assert Box([1, 2]).taken(0) == 1


def test_outer():
    assert outer(1) == 2


def test_first():
    assert first([]) is None
"""


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = open_bench(Path(tmp_path_factory.mktemp("things")), {"things.py": CODE, "test_things.py": TESTS})
    yield bench
    bench.executor.delete(bench.workspace)


def found(bench: Bench, test: str, old: str, new: str, *others: str) -> DistinguishingInputs:
    original = bench.files["things.py"]
    patched, *rest = (original.replace(old.encode(), one.encode()) for one in (new, *others))
    assert patched != original
    tests, targets = nearby_tests((f"test_things.py::{test}",), bench.baseline, "things.py")
    request = DistinguishingRequest(
        bench.executor, bench.workspace, bench.project, tests, targets, "things.py", original, patched, tuple(rest)
    )
    inputs = find_distinguishing_inputs(request)
    assert bench.unchanged()
    return inputs


def calls(inputs: DistinguishingInputs) -> list[tuple[str, str]]:
    shown = []
    for one in inputs.examples:
        given = [*map(ast.unparse, one.arguments), *(f"{name}={ast.unparse(value)}" for name, value in one.keywords)]
        shown.append((", ".join(given), ast.unparse(one.result) if one.result else one.raises))
    return shown


def test_the_smallest_input_that_no_test_has_comes_first(things: Bench) -> None:
    inputs = found(things, "test_least", "if value > best", "if value < best")
    assert inputs.reason == ""
    assert inputs.place is not None
    assert (inputs.place.name, inputs.place.path) == ("test_least", "test_things.py")
    shown = calls(inputs)
    assert shown[0][0] not in ("[3, 1, 2]", "[5]", "[], start=2")
    assert [len("".join(one)) for one in shown] == sorted(len("".join(one)) for one in shown)
    for arguments, result in shown:
        given = ast.literal_eval(arguments.partition(", start=")[0])
        assert int(result) == min([*given, int(arguments.partition("start=")[2] or 9)])


@pytest.mark.variants
def test_where_no_recorded_input_leads_on_the_annotations_do(things: Bench) -> None:
    inputs = found(things, "test_first", "return items[0]", "return items[0] if items else other")
    shown = calls(inputs)
    assert shown and all(arguments == f"[], other={result}" for arguments, result in shown)


@pytest.mark.variants
def test_values_of_the_projects_own_classes_are_written_by_their_names(things: Bench) -> None:
    inputs = found(things, "test_mirrored", "Point(point.y, point.y)", "Point(point.y, point.x)")
    assert inputs.things is not None
    assert inputs.things["Point"].bound == ("Point",)
    assert all(arguments.startswith("Point(") for arguments, _ in calls(inputs))


@pytest.mark.variants
@pytest.mark.parametrize(
    ("test", "old", "new", "why"),
    [
        ("test_taken", "self.held[at + 1]", "self.held[at]", "method"),
        ("test_counted", "while number < limit - 1", "while number < limit", "plain values"),
        ("test_drawn", "range(many - 1)", "range(many)", "plain values"),
        ("test_twice", "    while number == 3:\n        pass\n", "    number = number * 2\n", ""),
    ],
)
def test_what_cannot_be_reported_by_a_plain_call_is_left_alone(
    things: Bench, test: str, old: str, new: str, why: str
) -> None:
    inputs = found(things, test, old, new)
    assert "3" not in [arguments for arguments, _ in calls(inputs)], "the base never ends on it"
    if why:
        assert inputs.examples == ()
        assert why in inputs.reason


@pytest.mark.variants
def test_what_depends_on_the_order_of_hashes_is_left_alone(things: Bench) -> None:
    inputs = found(things, "test_tags", "set(words[1:])", "set(words)")
    assert all(len(set(ast.literal_eval(arguments))) == 1 for arguments, _ in calls(inputs)), calls(inputs)


@pytest.mark.variants
def test_exceptions_are_expected_only_of_the_repairs_own_raise(things: Bench) -> None:
    guard = "    if number < 9:\n        raise ValueError(number)\n    return int(number ** 0.5)"
    inputs = found(things, "test_root", "    return int(number ** 0.5) + 1", guard)
    raising = [one for one in calls(inputs) if one[1] == "ValueError"]
    assert raising
    assert all(int(arguments) < 9 for arguments, _ in raising)
    by_accident = guard.replace("raise ValueError(number)", "int('')")
    inputs = found(things, "test_root", "    return int(number ** 0.5) + 1", by_accident)
    assert "ValueError" not in [result for _, result in calls(inputs)]


def test_where_other_repairs_disagree_nothing_is_claimed(things: Bench) -> None:
    rivals = ("if value <= best and value != 0", "if value < best or value > 90", "if value < best and values")
    agreed = found(things, "test_least", "if value > best", "if value < best", *rivals)
    assert agreed.examples
    odd = ("return 3 * (number == 9)", "return 3 * (number > 4)", "return number // 3")
    alone = found(things, "test_root", "return int(number ** 0.5) + 1", "return int(number ** 0.5)", *odd)
    exact = {arguments: int(result) for arguments, result in calls(alone)}
    assert all(sum(_others(int(n))[at] != result for at in range(3)) <= 1 for n, result in exact.items())


def _others(number: int) -> list[int]:
    return [3 * (number == 9), 3 * (number > 4), number // 3]


@pytest.mark.variants
def test_a_repair_that_only_helpers_reach_is_tested_where_it_can_be_called(things: Bench) -> None:
    inputs = found(things, "test_outer", "number - step", "number + step")
    assert inputs.subject is not None
    assert inputs.subject.thing.name == "inner"
    assert inputs.subject.thing.bound == ()
    assert inputs.subject.thing.module == "things"


def test_a_change_outside_of_functions_has_no_input(things: Bench) -> None:
    inputs = found(things, "test_root", "import random", "import random as random")
    assert "outside of any function" in inputs.reason


@pytest.mark.variants
def test_a_method_is_reached_through_a_function_that_a_test_calls(tmp_path: Path) -> None:
    code = CODE + "\n\ndef shifted(x, y, by):\n    return Point(x, y).moved(by).x\n"
    tests = TESTS + "\n\ndef test_shifted():\n    from things import shifted\n    assert shifted(1, 2, 3) == 4\n"
    bench = open_bench(tmp_path, {"things.py": code, "test_things.py": tests})
    inputs = found(bench, "test_shifted", "self.x - by", "self.x + by")
    bench.executor.delete(bench.workspace)
    assert inputs.subject is not None, inputs.reason
    assert inputs.subject.thing.name == "shifted"
    assert inputs.place is not None
    assert inputs.place.name == "test_shifted"
