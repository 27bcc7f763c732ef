"""Names of a function that an edit puts to use, or leaves idle, and what the order makes of that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repair_kit import BACKEND, plausible_of

from codepilot.repair.edit import Edit
from codepilot.repair.messages import Evidence
from codepilot.repair.python.names_used import idle_names
from codepilot.repair.python.source import PythonSource
from codepilot.repair.rank import rank

TEXT = """
class Shop:
    def price(self, item, rebate, _):
        total = item.cost
        return item.cost
"""


def _uses(old: str, new: str) -> int:
    source = PythonSource.read("shop.py", TEXT.encode())
    at = TEXT.index(old)
    return BACKEND.name_use(source.unit_at(at), Edit(at, at + len(old), new, "x"))


@pytest.mark.parametrize(
    ("old", "new", "uses"),
    [
        ("return item.cost", "return total", 1),
        ("return item.cost", "return item.cost - rebate", 1),
        ("return item.cost", "return item.price", 0),
        ("return item.cost", "return locals()", 1),
        ("        total = item.cost\n", "", 0),
        ("total = item.cost", "return item.cost", 0),
        ("item.cost\n        return item.cost", "1\n        return 2", -1),
    ],
)
def test_what_an_edit_makes_of_the_names(old: str, new: str, uses: int) -> None:
    assert _uses(old, new) == uses


def test_outside_of_functions_there_is_nothing_to_tell() -> None:
    source = PythonSource.read("a.py", b"x = 1\n")
    assert BACKEND.name_use(source.unit_at(0), Edit(4, 5, "2", "x")) == 0


def test_names_of_other_scopes_are_never_idle() -> None:
    assert idle_names("def f(a):\n    global b\n    b = a\n") == frozenset()
    assert idle_names("def f(a, *b, c=1, **d):\n    e = 1\n    def g(h): return a\n") == {"b", "c", "d", "e"}


@given(st.text(max_size=40))
def test_any_text_is_borne(text: str) -> None:
    idle_names(text)


def test_of_equals_the_one_comes_first_that_keeps_the_functions_types() -> None:
    changed = plausible_of(0, Evidence(behaviour="x", new_types=1.0), score=0.4)
    same = plausible_of(1, Evidence(behaviour="y"), score=0.3)
    first, second = rank([changed, same])
    assert first.one is same and second.features["new_types"] == 1.0
