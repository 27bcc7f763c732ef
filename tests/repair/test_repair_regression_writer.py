"""One more test in a file of tests: as its neighbours are written, and with every byte of theirs in its place."""

from __future__ import annotations

import ast
import difflib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codepilot.repair.regression.literals import CodeStyle, positional, read
from codepilot.repair.regression.writer import Example, Place, Subject, Thing, Unwritable, Written, write_test
from codepilot.verify.testcode import edits, silent_tests

SHIPPING = Subject(Thing("shipping", "shop", ("shipping",)), ("amount", "limit"))
FUNCTION = Place("test_shop.py", "", "test_free", False, "test_shop.py::test_free")
METHOD = Place("test_shop.py", "ShopTest", "test_free", True, "test_shop.ShopTest.test_free")


def value(text: str) -> ast.expr:
    node = read(text)
    assert node is not None, text
    return node


def example(*arguments: str, result: str | None = "0", raises: str = "", **named: str) -> Example:
    keywords = tuple((name, value(text)) for name, text in named.items())
    return Example(tuple(map(value, arguments)), keywords, value(result) if result is not None else None, raises)


def written(text: str | bytes, place: Place = FUNCTION, *examples: Example, **options: Any) -> Written:
    data = text if isinstance(text, bytes) else text.encode()
    subject = options.pop("subject", SHIPPING)
    return write_test(data, place, subject, examples or (example("50"),), options)


def added(before: str, after: bytes) -> str:
    lines = difflib.ndiff(before.splitlines(), after.decode().splitlines())
    return "\n".join(line[2:] for line in lines if line.startswith("+ "))


PYTEST = """import pytest

from shop import shipping


def test_free() -> None:
    assert shipping(51) == 0
    # what is below the limit is tested elsewhere


def test_more() -> None:
    assert shipping(1) == 5
"""

UNITTEST = """import unittest
from shop import shipping

class ShopTest(unittest.TestCase):
\tdef test_free(self):
\t\tself.assertEqual(0, shipping(51))
\tdef test_more(self):
\t\tself.assertEqual(5, shipping(1))

if __name__ == "__main__":
\tunittest.main()
"""


def test_a_function_stands_behind_the_failing_one_with_its_blank_lines_and_annotation() -> None:
    found = written(PYTEST)
    assert found.name == "test_shipping_regression"
    expected = PYTEST.replace(
        "\n\n\ndef test_more",
        "\n\n\ndef test_shipping_regression() -> None:\n    assert shipping(50) == 0\n\n\ndef test_more",
    )
    assert found.content.decode() == expected


def test_a_method_of_a_test_case_has_its_tabs_its_order_and_its_line_ends() -> None:
    text = UNITTEST.replace("\n", "\r\n")
    found = written(text, METHOD, example("50", limit="50"))
    new = "\tdef test_shipping_regression(self):\r\n\t\tself.assertEqual(0, shipping(50, limit=50))\r\n"
    assert found.content.decode() == text.replace("\tdef test_more", f"\r\n{new}\tdef test_more")
    assert METHOD.sibling(found.name) == "test_shop.ShopTest.test_shipping_regression"


def test_a_method_of_a_pytest_class_asserts_plainly() -> None:
    text = "from shop import shipping\n\n\nclass TestShop:\n  def test_free(self):\n    assert shipping(51) == 0\n"
    place = Place("test_shop.py", "TestShop", "test_free", False)
    new = "  def test_shipping_regression(self):\n    assert shipping(50) == 0"
    assert added(text, written(text, place).content) == f"\n{new}"


def test_a_table_is_written_where_the_failing_test_has_one() -> None:
    mark = '@pytest.mark.parametrize("amount, cost", [(51, 0), (1, 5)])\n'
    text = PYTEST.replace(
        "def test_free() -> None:\n    assert shipping(51) == 0",
        f"{mark}def test_free(amount, cost):\n    assert shipping(amount) == cost",
    )
    found = written(text, FUNCTION, example("50"), example("7", result="None"), example("8", limit="8"))
    assert added(text, found.content).strip() == "\n".join(
        [
            "@pytest.mark.parametrize(",
            '    "amount, expected",',
            "    [",
            "        (50, 0),",
            "        (7, None),",
            "    ],",
            ")",
            "def test_shipping_regression(amount, expected):",
            "    assert shipping(amount) == expected",
        ]
    )
    assert FUNCTION.sibling(found.name) == "test_shop.py::test_shipping_regression"


def test_names_that_are_taken_are_not_taken_again() -> None:
    text = PYTEST.replace("test_more", "test_shipping_regression") + "\n\ntest_shipping_regression_2 = None\n"
    assert written(text).name == "test_shipping_regression_3"
    camel = UNITTEST.replace("test_free", "testFree")
    assert written(camel, Place("t.py", "ShopTest", "testFree", True)).name == "testShippingRegression"


def test_what_the_file_has_by_another_name_is_called_by_it() -> None:
    subject = Subject(Thing("shipping", "shop.costs", ("costs.shipping",)), ("amount",))
    text = PYTEST.replace("from shop import shipping", "from shop import costs")
    assert "assert costs.shipping(50) == 0" in written(text, subject=subject).content.decode()


def test_an_import_is_added_behind_the_others_or_where_the_tests_have_theirs() -> None:
    subject = Subject(Thing("shipping", "shop", ()), ("amount",))
    text = PYTEST.replace("from shop import shipping", "from shop import bill")
    assert b"from shop import bill\nfrom shop import shipping\n\n" in written(text, subject=subject).content
    inner = text.replace("from shop import bill\n", "").replace(
        "    assert", "    from shop import shipping\n    assert"
    )
    new = "def test_shipping_regression() -> None:\n    from shop import shipping\n    assert shipping(50) == 0"
    assert new in written(inner, subject=subject).content.decode()
    taken = text.replace("import bill", "import bill\n\nshipping = 1")
    assert new in written(taken, subject=subject).content.decode()


def test_classes_come_with_the_values_that_need_them() -> None:
    span = Thing("Span", "shop.spans", ())
    one = example("Span(start=1, end=2)", result="[Span(start=1, end=2)]")
    found = written(PYTEST, FUNCTION, one, Span=span).content.decode()
    assert "from shop import shipping\nfrom shop.spans import Span\n" in found
    assert "assert shipping(Span(start=1, end=2)) == [Span(start=1, end=2)]" in found


def test_exceptions_are_expected_in_the_way_of_the_runner() -> None:
    one = example("-1", result=None, raises="ValueError")
    assert (
        "    with pytest.raises(ValueError):\n        shipping(-1)\n" in written(PYTEST, FUNCTION, one).content.decode()
    )
    without = PYTEST.replace("import pytest\n\n", "")
    assert written(without, FUNCTION, one).content.startswith(b"from shop import shipping\nimport pytest\n")
    assert b"\t\twith self.assertRaises(ValueError):\n\t\t\tshipping(-1)\n" in written(UNITTEST, METHOD, one).content


def test_single_values_are_compared_as_such() -> None:
    assert b"assert shipping(50) is None" in written(PYTEST, FUNCTION, example("50", result="None")).content
    assert b"self.assertIsNone(shipping(50))" in written(UNITTEST, METHOD, example("50", result="None")).content
    assert b"self.assertIs(shipping(50), True)" in written(UNITTEST, METHOD, example("50", result="True")).content


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("def broken(:\n", FUNCTION),
        (PYTEST, Place("t.py", "", "test_other", False)),
        (PYTEST, Place("t.py", "Nowhere", "test_free", True)),
        (PYTEST.replace("test_free", "check_free"), Place("t.py", "", "check_free", False)),
        ("class T: x = 1\n", Place("t.py", "T", "test_x", True)),
    ],
)
def test_where_it_cannot_be_done_safely_nothing_is_written(text: str, place: Place) -> None:
    with pytest.raises(Unwritable):
        written(text, place)


def test_a_test_that_nobody_could_read_is_not_written() -> None:
    with pytest.raises(Unwritable, match="too long"):
        written(PYTEST, FUNCTION, example(repr("long" * 40)))


def test_letters_that_the_encoding_lacks_are_escaped() -> None:
    data = b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + PYTEST.encode()
    found = written(data, FUNCTION, example(repr("\N{SNOWMAN}"))).content
    assert b"\\u2603" in found
    assert found.startswith(data[:40])


# --- whatever the values and the file ---------------------------------------------------------------------------------

PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
)
VALUES = st.recursive(
    PLAIN | st.binary(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        | st.sets(st.integers() | st.text(max_size=3), max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES, st.sampled_from("'\""), st.booleans())
def test_what_is_written_of_a_value_gives_it_back(any_value: object, quote: str, wide: bool) -> None:
    if (node := read(repr(any_value))) is None:
        assert len(repr(any_value)) > 400
        return
    text = CodeStyle(quote, wide).written(node)
    again = eval(text, {"set": set})  # an expression that was read as a value
    assert (again, type(again), "\n" in text) == (any_value, type(any_value), False)
    assert wide or text.isascii()
    assert ast.dump(positional(node)) == ast.dump(value(ast.unparse(node)))


FILES = st.sampled_from([(PYTEST, FUNCTION), (UNITTEST, METHOD)])


@settings(max_examples=60)
@given(
    FILES,
    st.lists(PLAIN, max_size=2),
    PLAIN,
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.booleans(),
)
def test_every_byte_stays_and_the_new_test_says_what_was_meant(
    file: tuple[str, Place], arguments: list[object], result: object, newline: str, mark: bytes, ends: bool
) -> None:
    text, place = file
    data = mark + (text if ends else text.rstrip("\n")).replace("\n", newline).encode()
    try:
        found = written(data, place, example(*map(repr, arguments), result=repr(result)))
    except Unwritable as error:
        assert "too long" in str(error)
        return
    steps = difflib.SequenceMatcher(
        None, *(one.split(newline.encode()) for one in (data, found.content)), autojunk=False
    )
    assert {kind for kind, *_ in steps.get_opcodes()} == {"equal", "insert"}
    assert (b"\r" in found.content) == (newline == "\r\n")
    before, after = ast.parse(data), ast.parse(found.content)
    assert edits(before, after) == []
    assert silent_tests(place.path, data, found.content) == []
    calls = [node for node in ast.walk(_named(after, found.name)) if isinstance(node, ast.Call)]
    (call,) = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "shipping"]
    assert [ast.literal_eval(argument) for argument in call.args] == arguments


def _named(tree: ast.Module, name: str) -> ast.AST:
    (found,) = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    return found


@pytest.mark.parametrize(
    "text",
    ["open('x').read()", "x.y.z", "[a for a in b]", "f'{x}'", "1 + 1", "lambda: 0", "f(*a)", "f(**a)", "...", "x"],
)
def test_what_is_more_than_a_value_is_not_read(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(
    ("path", "test", "named"),
    [
        ("tests/[x]/test_a.py", "tests/[x]/test_a.py::test_b[1-[y]]", "tests/[x]/test_a.py::test_c"),
        ("tests/test_a.py", "tests/test_a.py::A::test_b[1]", "tests/test_a.py::A::test_c"),
        ("tests/test_a.py", "tests.test_a.A.test_b", "tests.test_a.A.test_c"),
    ],
)
def test_a_neighbour_is_named_by_its_file_whatever_that_is_called(path: str, test: str, named: str) -> None:
    assert Place(path, "", "test_b", False, test).sibling("test_c") == named
