"""A failing test that may be wrong, and candidates that satisfy their tests without being repairs."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from repair_kit import Bench

from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.ledger import Ledger
from codepilot.repair.localise import TestTrace
from codepilot.repair.python.claims import claims
from codepilot.repair.python.related import general_rivals, same_edit_elsewhere, special_case
from codepilot.repair.python.source import PythonSource
from codepilot.repair.python.test_files import TestFiles
from codepilot.repair.suspect import suspicious

Open = Callable[[Mapping[str, str | bytes]], Bench]

ROMAN = (
    "STEPS = [(10, 'X'), (9, 'IX'), (5, 'V'), (4, 'IV'), (1, 'I')]\n\n\n"
    "def roman(number):\n"
    "    text = ''\n"
    "    for value, letters in STEPS:\n"
    "        while number >= value:\n"
    "            text += letters\n"
    "            number -= value\n"
    "    return text\n"
)
ROMAN_TESTS = "from roman import roman\n\n\n" + "\n\n".join(
    f"def test_{number}():\n    assert roman({number}) == {text!r}\n"
    for number, text in ((3, "III"), (4, "IV"), (6, "VI"), (7, "VII"), (9, "IX"), (10, "X"), (8, "IIX"))
)


def _trace(test: str, outcome: str, *lines: int, exception: str = "") -> TestTrace:
    return TestTrace(test, outcome, lines={"roman.py": frozenset(lines)}, exception=exception)


WRONG = _trace("t::wrong", "failed", 1, 2, exception="AssertionError")
RIGHT = (_trace("t::one", "passed", 1, 2), _trace("t::two", "passed", 1, 2, 3))


@pytest.mark.parametrize(
    ("rejected", "traces", "suspected"),
    [
        (2, (WRONG, *RIGHT), True),
        (1, (WRONG, *RIGHT), False),
        (2, (WRONG, RIGHT[0]), False),
        (2, (WRONG, *RIGHT, _trace("t::other", "failed", 1, exception="AssertionError")), False),
        (2, (replace(WRONG, exception="TypeError"), *RIGHT), False),
        (2, (replace(WRONG, branches={"roman.py": frozenset({(1, 2)})}), *RIGHT), False),
    ],
    ids=["alone", "one change only", "one sibling only", "another fails", "it crashes", "a branch of its own"],
)
def test_a_test_that_every_change_contradicts_is_suspected_if_it_stands_alone(
    rejected: int, traces: tuple[TestTrace, ...], suspected: bool
) -> None:
    ledger = Ledger(rejected={f"change {number}": "t::one" for number in range(rejected)})
    assert suspicious(ledger, ["t::wrong"], traces) is suspected


@pytest.mark.slow
def test_a_wrong_test_next_to_right_ones_is_suspected_and_the_code_is_left_alone(bench: Open) -> None:
    project = bench({"roman.py": ROMAN, "test_roman.py": ROMAN_TESTS})
    result = project.search()
    assert result.candidates == ()
    assert result.suspect is not None and result.suspect.test == "test_roman.py::test_8"
    assert result.suspect.repairs and "assert 'VIII' == 'IIX'" in result.suspect.reason
    assert "roman(7) == 'VII'" in result.suspect.reason


def test_a_wrong_test_that_contradicts_the_documentation_is_suspected(bench: Open) -> None:
    code = (
        "def middle(values):\n"
        '    """The median.\n\n    >>> middle([1, 2, 3, 4])\n    2.5\n    """\n'
        "    values = sorted(values)\n"
        "    at = len(values) // 2\n"
        "    if len(values) % 2:\n        return values[at]\n"
        "    return (values[at - 1] + values[at]) / 2\n"
    )
    tests = (
        "from medians import middle\n\n\n"
        "def test_odd():\n    assert middle([3, 1, 2]) == 2\n\n\n"
        "def test_same():\n    assert middle([5, 5]) == 5\n\n\n"
        "def test_even():\n    assert middle([1, 2, 3, 4]) == 3\n"
    )
    result = bench({"medians.py": code, "test_medians.py": tests}).search()
    assert result.candidates == () and result.suspect is not None
    broken = [text for one in result.suspect.repairs for text in one.breaks]
    assert "the documented example `middle([1, 2, 3, 4])` → `2.5`" in broken


def test_a_repair_that_leaves_a_test_of_the_same_function_failing_is_not_offered(bench: Open) -> None:
    code = (
        "def total(lines):\n    amount = 0\n    for line in lines:\n        amount = amount + line.price\n"
        "    return amount\n"
    )
    line = "class Line:\n    def __init__(self, price, quantity):\n        self.price = price\n"
    line += "        self.quantity = quantity\n\n\n"
    tests = (
        "from shop import Line, total\n\n\n"
        "def test_one():\n    assert total([Line(5, 1)]) == 5\n\n\n"
        "def test_none():\n    assert total([]) == 0\n\n\n"
        "def test_two():\n    assert total([Line(5, 2)]) == 10\n\n\n"
        "def test_three():\n    assert total([Line(5, 3), Line(1, 1)]) == 16\n"
    )
    project = bench({"shop.py": line + code, "test_shop.py": tests})
    result = project.search(targets=("test_shop.py::test_two",))
    assert b"amount + line.price * line.quantity" in result.candidates[0].patched
    assert all("quantity" in one.rationale for one in result.candidates)


# --- without a sandbox ------------------------------------------------------------------------------------------


def proposed(text: str, old: str, new: str) -> Proposal:
    source = PythonSource.read("m.py", text.encode())
    at = source.text.index(old)
    edit = Edit(at, at + len(old), new, "t")
    return Proposal(0, source, source.unit_at(at), edit, 1.0, source.line_of(at))


PLAIN = "def f(n, text):\n    return g(n)\n"
LITERALS = frozenset({"8", "'IIX'", "3", "'empty'", "''"})


@pytest.mark.parametrize(
    ("new", "found"),
    [
        ("if n == 8:\n        return 'IIX'\n    return g(n)", "8"),
        ("return 'IIX' if n in (8,) else g(n)", "8"),
        ("return 'IIX' if n > 7 else g(n)", "'IIX'"),
        ("if n > 2:\n        return 'IIX'\n    return g(n)", "'IIX'"),
        ("if not text:\n        return 'empty'\n    return g(n)", ""),
        ("if n == 0:\n        return g(1)\n    return g(n)", ""),
        ("if len(text) == 3:\n        return 0\n    return g(n)", ""),
        ("return g(n) + 8", ""),
    ],
)
def test_special_cases_of_the_tests_inputs_are_known(new: str, found: str) -> None:
    assert special_case(proposed(PLAIN, "return g(n)", new), LITERALS) == found


def test_an_equality_with_a_number_has_general_rivals() -> None:
    proposal = proposed("def f(n):\n    return g(n)\n", "return", "if n == -1:\n        return None\n    return")
    texts = [edit.replacement.partition(":")[0] for edit in general_rivals(proposal)]
    assert texts == ["if n < 0", "if n >= -1"]
    assert not list(general_rivals(proposed("def f(n):\n    return n == 3\n", "n == 3", "g(n == 3)")))


def test_an_edit_that_moves_a_value_has_rivals_where_the_value_is_calculated() -> None:
    text = "def f(n, most):\n    width = 2 * n\n    left = most - width\n    return left > 0 and n > 7\n"

    def rivals(old: str, new: str) -> list[str]:
        source = PythonSource.read("m.py", text.encode())
        found = [source.apply(edit) or b"" for edit in general_rivals(proposed(text, old, new))]
        return [one.decode().split("\n")[1].strip() for one in found]

    upstream = ["width = 3 * n", "width = 1 * n"]
    assert rivals("left > 0", "left > 1") == rivals("left > 0", "left >= 0") == upstream
    assert rivals("most - width", "most - (width + 1)") == rivals("most - width", "most - 1 - width") == upstream
    assert rivals("most - width", "most - n") == rivals("left > 0", "left") == rivals("n > 7", "n > 8") == []


def test_an_edit_is_made_at_all_places_with_the_same_text() -> None:
    text = "def f(a, r):\n    x = a * r / 10\n    return x\n\n\ndef g(a, r):\n    return a * r / 10 + 1\n"
    edit = same_edit_elsewhere(proposed(text, "10", "100"))
    assert edit is not None
    assert PythonSource.read("m.py", text.encode()).apply(edit) == text.replace("10", "100").encode()
    assert same_edit_elsewhere(proposed(text, "return x", "return a")) is None


def test_what_tests_claim_of_calls_is_read_from_plain_and_parametrised_ones() -> None:
    tree = ast.parse(
        "@pytest.mark.parametrize('n, want', [(7, 'VII'), (8, 'IIX')])\n"
        "def test_all(n, want):\n    assert roman(n) == want\n\n"
        "class T:\n    def test_one(self):\n        self.assertEqual('I', roman(1))\n"
    )
    found = {one.test: one.text for one in claims(tree)}
    assert found == {
        "test_all[7-VII]": "roman(7) == 'VII'",
        "test_all[8-IIX]": "roman(8) == 'IIX'",
        "test_one": "roman(1) == 'I'",
    }


def test_a_module_with_doctests_is_code_and_no_test_file() -> None:
    ids = ("lib/sorted/lists.py::sorted.lists.Heap.push", "lib/sorted/__init__.py::sorted", "checks/c.py::check_all")
    files = TestFiles(ids)
    assert "lib/sorted/lists.py" not in files and "lib/sorted/__init__.py" not in files
    assert "checks/c.py" in files
