"""Pairs of edits: in order, without overlap, and remembered in few letters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

from hypothesis import given
from hypothesis import strategies as st
from repair_kit import Bench

from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.ledger import CRASHED, FURTHER, LATE, PLAIN, marks_of, marks_text
from codepilot.repair.pairs import combine, pairs
from codepilot.repair.python.source import PythonSource

Open = Callable[[Mapping[str, str | bytes]], Bench]
SOURCE = PythonSource.read("m.py", b"def f(a, b):\n    c = a + b\n    return c\n")


def single(position: int, start: int, end: int, text: str, score: float = 0.5) -> Proposal:
    edit = Edit(start, end, text, "t")
    return Proposal(position, SOURCE, SOURCE.units[0], edit, score, SOURCE.line_of(start))


@given(st.lists(st.tuples(st.integers(13, 38), st.integers(0, 6), st.floats(0.01, 1)), max_size=12))
def test_pairs_come_in_order_and_never_overlap(drawn: list[tuple[int, int, float]]) -> None:
    singles = [single(n, at, min(41, at + size), f"<{n}>", score) for n, (at, size, score) in enumerate(drawn)]
    found = list(pairs(singles, {}, len(singles)))
    assert [one.position for one in found] == list(range(len(singles), len(singles) + len(found)))
    assert all(before.score >= after.score - 1e-12 for before, after in itertools.pairwise(found))
    wanted = {combine(one, other) for one, other in itertools.combinations(singles, 2)} - {None}
    assert {one.edit for one in found} == wanted


def test_both_edits_are_made_and_nothing_else() -> None:
    both = combine(single(1, 38, 39, "a"), single(0, 21, 22, "b"))
    assert both is not None
    assert SOURCE.apply(both) == b"def f(a, b):\n    c = b + b\n    return a\n"
    assert combine(single(0, 21, 26, "x"), single(1, 25, 30, "y")) is None


def test_an_edit_that_came_further_is_paired_before_one_that_crashed() -> None:
    singles = [single(0, 21, 22, "x"), single(1, 25, 26, "y"), single(2, 34, 35, "z"), single(3, 30, 30, "w")]
    first = next(pairs(singles, {0: CRASHED, 1: CRASHED, 2: FURTHER, 3: PLAIN}, 4))
    assert "z" in first.edit.replacement and "w" in first.edit.replacement


@given(st.dictionaries(st.integers(0, 60), st.sampled_from([FURTHER, CRASHED, LATE, PLAIN])))
def test_marks_survive_being_written_down(marks: dict[int, str]) -> None:
    known = marks_of(marks_text(marks))
    assert all(known[at] == mark for at, mark in marks.items())
    assert all(mark == PLAIN for at, mark in known.items() if at not in marks)
    assert marks_of("no marks+") == {}


def test_what_takes_two_edits_is_repaired(bench: Open) -> None:
    project = bench(
        {
            "span.py": "def inside(x, low, high):\n    return x > low and x > high\n",
            "test_span.py": (
                "from span import inside\n\n\ndef test_inside():\n    assert inside(2, 1, 3)\n"
                "    assert inside(1, 1, 3)\n"
                "    assert not inside(0, 1, 3)\n    assert not inside(3, 1, 3)\n    assert not inside(4, 1, 3)\n"
                "    assert inside(-5, -6, 9)\n    assert inside(-6, -6, 9)\n    assert not inside(9, 3, 9)\n"
            ),
        }
    )
    result = project.search()
    assert b"x >= low and x < high" in result.candidates[0].patched
    assert " + " in result.candidates[0].template
