"""Changes that others propose, as edits of the search."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repair_kit import Bench

from codepilot.repair import search
from codepilot.repair.python.source import PythonSource
from codepilot.repair.queue import proposed

BEFORE = "def area(width, height):\n    return width + height\n\n\nSIDES = 4\n"
LINES = st.lists(st.sampled_from(["x = 1\n", "y = 2\n", "\n", "# ä\n", "def f():\n    pass\n"]), max_size=8).map(
    "".join
)


def source(text: str, encoding: str = "utf-8") -> PythonSource:
    return PythonSource.read("shapes.py", text.encode(encoding))


@given(LINES, LINES)
def test_the_edit_makes_the_file_what_was_proposed(before: str, after: str) -> None:
    edit = source(before).difference(after.encode())
    if before == after:
        assert edit is None
    else:
        assert edit is not None
        assert source(before).apply(edit) == after.encode()


def test_what_lies_in_one_function_is_tried_by_swapping_it() -> None:
    sources = {"shapes.py": source(BEFORE)}
    inside, outside = BEFORE.replace("+", "*"), BEFORE.replace("4", "6")
    one, other = proposed(sources, [("shapes.py", inside.encode()), ("shapes.py", outside.encode())], 1.0)
    assert one.unit is not None and one.unit.qualname == "area"
    assert (one.line, other.unit, other.line) == (2, None, 5)


def test_what_cannot_be_read_or_says_nothing_new_is_left_out() -> None:
    sources = {"shapes.py": source(BEFORE)}
    changed = [("shapes.py", BEFORE.encode()), ("other.py", b"x = 1\n"), ("shapes.py", b"\xff\xfe")]
    assert list(proposed(sources, changed, 1.0)) == []


def test_a_proposal_that_changes_the_tests_is_not_tried(bench: Callable[[Mapping[str, str | bytes]], Bench]) -> None:
    check = "from shapes import area\n\n\ndef test_area():\n    assert area(3, 4) == 12\n"
    project = bench(
        {
            "shapes.py": BEFORE,
            "check_shapes.py": check,
            "pyproject.toml": "[tool.pytest.ini_options]\npython_files = 'check_*.py'\n",
        }
    )
    tests = (("check_shapes.py", check.replace("12", "7").encode()), ("conftest.py", b"collect_ignore = []\n"))
    own = ("shapes.py", BEFORE.replace("+", "*").encode())
    result = search(replace(project.request(), proposed=(*tests, own)))
    assert {found.path for found in result.candidates} == {"shapes.py"}
    assert [found.patched for found in result.candidates].count(own[1]) == 1


@pytest.mark.variants
def test_what_was_not_tried_for_something_was_found_is_not_used_up(
    bench: Callable[[Mapping[str, str | bytes]], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SYNTHESISE_AFTER", "SINGLES"):
        monkeypatch.setattr(sys.modules["codepilot.repair.search"], name, 2)
    tests = "from shapes import area\n\n\ndef test_area():\n    assert area(3, 4) == 12\n"
    project = bench({"shapes.py": BEFORE, "test_shapes.py": tests})
    own = ("shapes.py", BEFORE.replace("+", "*").encode())
    result = search(replace(project.request(), proposed=(own,)))
    assert own[1] in [found.patched for found in result.candidates] and result.tried <= 2
    assert not result.exhausted
