"""Recency breaks ties of localisation, and nothing but ties."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repair_kit import Bench

from codepilot.repair import SearchRequest, search
from codepilot.repair.localise import Suspicion, break_ties, freshness, newest_first
from codepilot.repair.python.source import PythonSource

Open = Callable[[Mapping[str, str | bytes]], Bench]

scores = st.floats(1e-4, 1.0) | st.sampled_from([0.3, 0.5, 1.0])
suspicions = st.dictionaries(
    st.sampled_from(["a.py", "b.py", "c.py"]), st.dictionaries(st.integers(1, 30), scores, min_size=1), min_size=1
).map(Suspicion)
fresh_lines = st.dictionaries(
    st.sampled_from(["a.py", "b.py"]), st.dictionaries(st.integers(1, 30), st.floats(0.0, 1.0))
)


@pytest.mark.variants
@given(suspicions, fresh_lines)
def test_no_line_passes_one_that_was_more_suspicious(
    suspicion: Suspicion, fresh: Mapping[str, Mapping[int, float]]
) -> None:
    after = break_ties(suspicion, fresh)
    places = [(path, line) for path, lines in suspicion.lines.items() for line in lines]
    assert [(path, line) for path, lines in after.lines.items() for line in lines] == places
    for path, line in places:
        one, now = suspicion.lines[path][line], after.lines[path][line]
        assert 0.997 * one <= now <= one
        for other_path, other_line in places:
            other, then = suspicion.lines[other_path][other_line], after.lines[other_path][other_line]
            if one > other:
                assert now > then or one - other < 1e-12
            elif one == other:
                mine, theirs = (fresh.get(p, {}).get(at, 0.0) for p, at in ((path, line), (other_path, other_line)))
                assert mine > theirs or now <= then


def test_a_line_that_is_not_committed_is_newest_and_old_ones_are_alike() -> None:
    source = PythonSource.read("a.py", b"x = 1\r\ny = 2\r\nnew = 3\r\nz = 4\r\n")
    found = freshness(source, ((b"x = 1", None), (b"gone", 1), (b"y = 2", 2), (b"z = 4", 300)))
    assert found[3] == 1.0 > found[2] > found[4] > found[1] == 0.0


def test_the_rest_of_a_function_shares_in_what_was_changed_in_it() -> None:
    text = b"def f():\n    a = 1\n    return a\n\n\ndef g():\n    return 2\n"
    lines = text.removesuffix(b"\n").split(b"\n")
    found = freshness(PythonSource.read("a.py", text), [(row, 1 if b"a = 1" in row else None) for row in lines])
    assert found[2] > found[3] > found[7] == 0.0


def test_nothing_changes_without_a_history() -> None:
    suspicion = Suspicion({"a.py": {1: 0.5, 2: 0.5}})
    sources = {"a.py": PythonSource.read("a.py", b"x = 1\ny = 2\n")}
    assert newest_first(suspicion, sources, lambda paths: {}) is suspicion
    old = newest_first(suspicion, sources, lambda paths: {"a.py": ((b"x = 1", None), (b"y = 2", None))})
    assert old is suspicion


@given(st.sampled_from([1, 2]))
def test_the_order_that_a_search_may_be_continued_in_knows_of_it(newer: int) -> None:
    suspicion = Suspicion({"a.py": {1: 0.5, 2: 0.5}})
    sources = {"a.py": PythonSource.read("a.py", b"x = 1\ny = 2\n")}
    ages = ((b"x = 1", 1 if newer == 1 else 9), (b"y = 2", 1 if newer == 2 else 9))
    found = newest_first(suspicion, sources, lambda paths: {"a.py": ages})
    assert found.lines["a.py"][newer] == max(found.lines["a.py"].values())
    assert found.digest != suspicion.digest
    other = newest_first(suspicion, sources, lambda paths: {"a.py": ages[::-1]})
    assert other.digest != found.digest


def test_the_search_tries_what_was_changed_last_before_what_looks_the_same(bench: Open) -> None:
    names = ("low", "mid", "top")
    project = bench(
        {
            "three.py": "".join(f"def {name}(a, b):\n    return a - b\n\n\n" for name in names),
            "test_three.py": "from three import low, mid, top\n\n\n"
            "def test_all():\n    assert (low(5, 2), mid(5, 2), top(5, 2)) == (3, 3, 7)\n",
        }
    )
    rows = project.files["three.py"].removesuffix(b"\n").split(b"\n")

    def position(recent: str | None) -> int:
        at = next((i for i, row in enumerate(rows) if recent and recent.encode() in row), -2)
        dated = tuple((row, 1 if i == at + 1 else None) for i, row in enumerate(rows))
        plain = project.request()
        request = SearchRequest(**{**vars(plain), "ages": lambda paths: dict.fromkeys(paths, dated)})
        best = search(request).candidates[0]
        assert b"def top(a, b):\n    return a + b" in best.patched
        return best.position

    assert position("top") < position(None)
    assert project.unchanged()
