"""Changes that others propose, as edits of the search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codepilot.repair.proposed import difference, proposed
from codepilot.repair.source import Source

BEFORE = "def area(width, height):\n    return width + height\n\n\nSIDES = 4\n"
LINES = st.lists(st.sampled_from(["x = 1\n", "y = 2\n", "\n", "# ä\n", "def f():\n    pass\n"]), max_size=8).map(
    "".join
)


def source(text: str, encoding: str = "utf-8") -> Source:
    return Source.read("shapes.py", text.encode(encoding))


@given(LINES, LINES)
def test_the_edit_makes_the_file_what_was_proposed(before: str, after: str) -> None:
    edit = difference(source(before), after.encode())
    if before == after:
        assert edit is None
    else:
        assert edit is not None
        assert source(before).apply(edit) == after.encode()


def test_what_lies_in_one_function_is_tried_by_swapping_it() -> None:
    sources = {"shapes.py": source(BEFORE)}
    inside, outside = BEFORE.replace("+", "*"), BEFORE.replace("4", "6")
    one, other = proposed(sources, [("shapes.py", inside.encode()), ("shapes.py", outside.encode())])
    assert one.unit is not None and one.unit.qualname == "area"
    assert (one.line, other.unit, other.line) == (2, None, 5)


def test_what_cannot_be_read_or_says_nothing_new_is_left_out() -> None:
    sources = {"shapes.py": source(BEFORE)}
    changed = [("shapes.py", BEFORE.encode()), ("other.py", b"x = 1\n"), ("shapes.py", b"\xff\xfe")]
    assert list(proposed(sources, changed)) == []
