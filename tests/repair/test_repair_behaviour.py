"""What a candidate does on the tests' inputs and others: recorded, varied, described and compared."""

from __future__ import annotations

import operator
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from repair_kit import plausible_of

from codepilot.repair.localise import TestTrace
from codepilot.repair.messages import Evidence
from codepilot.repair.python.inside.behaviour import (
    Calls,
    agreeing,
    changes,
    described,
    digest,
    outcomes,
    varied,
    with_other_functions,
)
from codepilot.repair.rank import rank
from codepilot.repair.selection import TestSelector


class Shelf:
    def __init__(self, **books: int) -> None:
        self.books = OrderedDict(books)

    def put(self, name: str, count: int) -> None:
        self.books[name] = count


def _recorded(function: Any, *calls: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    with Calls({function.__code__}) as seen:
        for call in calls:
            function(*call)
    return seen.found


def test_calls_are_recorded_with_all_their_arguments_as_they_were() -> None:
    def gather(first: list[int], *rest: int, last: int = 0, **more: int) -> None:
        first.append(last)

    with Calls({gather.__code__}) as seen:
        gather([1], 2, 3, last=4, extra=5)
        gather([1], 2, 3, last=4, extra=5)
    assert seen.found == [([1], 4, (2, 3), {"extra": 5})]
    assert outcomes(gather, seen.found) == ["returned:NoneType:None:tuple(list(1,4),4,tuple(2,3),{'extra':5})"]


def test_what_a_method_leaves_behind_is_part_of_what_it_does() -> None:
    def put_once(self: Shelf, name: str, count: int) -> None:
        self.books.setdefault(name, count)

    inputs = varied(_recorded(Shelf.put, (Shelf(a=1), "a", 2)))
    assert len(inputs) > 40
    assert digest(outcomes(Shelf.put, inputs)) != digest(outcomes(put_once, inputs))


def test_objects_are_varied_by_their_state() -> None:
    def count(self: Shelf, name: str) -> int:
        return self.books[name]

    inputs = varied([(Shelf(a=1), "a")])
    assert len({described(shelf) for shelf, _ in inputs}) > 3
    answers = [digest(outcomes(function, inputs)) for function in (lambda s, n: s.books[n] + 1, lambda s, n: 2, count)]
    assert len(set(answers)) == 3


def test_addresses_endless_generators_and_things_that_cannot_be_copied_tell_nothing_wrong() -> None:
    def numbers(lock: Any) -> Iterator[int]:
        while True:
            yield 1

    assert described([object(), threading.Lock()]) == described([object(), threading.Lock()])
    (once,) = outcomes(numbers, [(threading.Lock(),)])
    assert once.startswith("returned:list:list(1,1,1")


@pytest.mark.parametrize(
    ("after", "kept", "broken"),
    [
        (["returned:1:", "returned:2:", "raised:'ValueError':"], 1.0, 0.0),
        (["returned:1:", "returned:3:", "raised:'ValueError':"], 0.667, 0.0),
        (["returned:1:", "raised:'TypeError':", "returned:1:"], 0.333, 0.5),
        (["returned:1:", "raised:'ValueError':", "raised:'TypeError':"], 0.333, 0.0),
    ],
)
def test_changes_are_shares_of_inputs(after: list[str], kept: float, broken: float) -> None:
    before = ["returned:1:", "returned:2:", "raised:'ValueError':"]
    assert changes(before, after) == {"unchanged": kept, "new_crashes": broken}
    assert changes([], []) == {"unchanged": 1.0, "new_crashes": 0.0}
    wrong = ["raised:'RecursionError':", "stopped:'Stop':"]
    assert changes([*wrong, *before], ["returned:7:", "returned:8:", *after]) == {
        "unchanged": kept,
        "new_crashes": broken,
    }


def test_examples_that_cannot_be_tried_promise_nothing() -> None:
    names = {"twice": lambda x: 2 * x}
    examples = [["twice(2)", "4"], ["twice(3)", "7"], ["nowhere.twice(3)", "6"], ["twice(None)", "1"]]
    assert agreeing(examples, names) == [True, False, None, False]


def test_edits_that_agree_only_because_a_function_never_varied_are_distinguished() -> None:
    def reduce_by(key: Any, operate: Any, items: list[int], skip: bool) -> dict[Any, int]:
        found: dict[Any, int] = {}
        for item in items:
            if key(item) not in found:
                found[key(item)] = item if skip else not item
                if skip:
                    continue
            found[key(item)] = operate(found[key(item)], item)
        return found

    calls = _recorded(reduce_by, (lambda n: n % 2, operator.add, [1, 2, 3, 4, 5], True))
    right, wrong = (lambda *given, skip=skip: reduce_by(*given[:3], skip) for skip in (True, False))
    assert outcomes_of(right, calls) == outcomes_of(wrong, calls)
    others = with_other_functions(calls)
    assert len(others) == 8 and outcomes_of(right, others) != outcomes_of(wrong, others)


def outcomes_of(function: Any, inputs: list[tuple[Any, ...]]) -> list[Any]:
    found = []
    for values in inputs:
        try:
            found.append(function(*values))
        except (TypeError, IndexError) as error:
            found.append(type(error))
    return found


def test_a_repair_that_leaves_passing_calls_alone_is_preferred() -> None:
    loud = plausible_of(0, Evidence(behaviour="x", unchanged=0.5), score=0.6)
    crashing = plausible_of(1, Evidence(behaviour="y", unchanged=0.95, new_crashes=0.5), score=0.6)
    calm = plausible_of(2, Evidence(behaviour="z"), score=0.5)
    assert rank([loud, crashing, calm])[0].one is calm
    assert calm.trusted and not loud.trusted and not crashing.trusted


def test_a_repair_that_changes_everything_comes_behind_one_of_another_function_that_changes_nothing() -> None:
    loud = plausible_of(0, Evidence(behaviour="x", unchanged=0.0), score=0.5)
    calm = plausible_of(1, Evidence(behaviour="y", unchanged=1.0), score=0.3)
    calm = replace(calm, proposal=replace(calm.proposal, unit=None))
    assert calm.proposal.function != loud.proposal.function
    assert [ranked.one for ranked in rank([loud, calm])] == [calm, loud]
    half = plausible_of(0, Evidence(behaviour="x", unchanged=0.5), score=0.5)
    assert rank([half, calm])[0].one is half, "some change may be what the function needs"


def test_a_repair_that_crashes_where_another_answers_comes_behind_it() -> None:
    crashing = plausible_of(0, Evidence(behaviour="x", crash_rate=0.75), score=0.4)
    answers = plausible_of(1, Evidence(behaviour="y", crash_rate=0.25), score=0.3)
    first, second = rank([crashing, answers])
    assert first.one is answers and first.features["crash_rate"] == 0.0
    assert second.features["crash_rate"] == 0.5


def test_more_tests_through_an_edit_speak_for_it() -> None:
    seen = plausible_of(0, Evidence(behaviour="x"), score=0.5, tests=64)
    alone = plausible_of(1, Evidence(behaviour="y"), score=0.6, tests=1)
    assert rank([alone, seen])[0].one is seen


def test_only_tests_that_run_what_is_edited_tell_edits_apart() -> None:
    proposal = plausible_of(0, Evidence()).proposal
    ran = {"target": {1, 2}, "runs it": {1, 2, 3}, "leaves before": {1}, "elsewhere": {9}}
    traces = [TestTrace(test, "passed", lines={"m.py": frozenset(lines)}) for test, lines in ran.items()]
    assert TestSelector(("target",), traces).covering_tests(proposal) == 2
