"""What a change took from existing tests, read from their source."""

from __future__ import annotations

import pytest

from codepilot.verify.testcode import lost_lines
from codepilot.verify.weakening import weakenings

TESTS = """
CASES = [(1, 2), (3, 4)]
LIMIT = 0.1

def rows():
    return load(CASES)

def close(a, b):
    assert abs(a - b) < LIMIT

@pytest.mark.parametrize("x", [1, 2])
def test_one(x):
    wide = list(range(100))
    for n in wide:
        assert f(n, x) == n

class TestTwo:
    def test_two(self):
        numbers = []
        with self.assertRaises(ValueError):
            f(numbers)
        self.assertEqual(g(numbers, 5), 7)
"""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("        self.assertEqual(g(numbers, 5), 7)\n", "        g(numbers, 5)\n", "no longer has"),
        ("assertEqual(g(numbers, 5), 7)", "assertTrue(g(numbers, 5))", "no longer has"),
        ("== n", "is not None", "no longer has"),
        ("LIMIT = 0.1", "LIMIT = 10", "became"),
        ("range(100)", "range(1)", "became"),
        ("(1, 2), (3, 4)", "(1, 2)", "lost elements"),
        ("numbers = []", "numbers = [1]", "no longer empty"),
        ("[1, 2])", "[1])", "no longer has `2`"),
        ("    assert abs(a - b) < LIMIT", "    abs(a - b) < LIMIT", "close no longer has"),
        ("        assert f(n, x) == n", "        if n:\n            assert f(n, x) == n", "only checked if `n`"),
        (
            "        assert f(n, x) == n",
            "        try:\n            assert f(n, x) == n\n        except Exception:\n            pass",
            "swallowed",
        ),
        (
            "        assert f(n, x) == n",
            "        with suppress(AssertionError):\n            assert f(n, x) == n",
            "swallowed",
        ),
        ("    wide = list", "    if x:\n        return\n    wide = list", "only reached unless `x`"),
        ("        numbers = []", "        return\n        numbers = []", "ended"),
        ("    wide = list(range(100))", "    wide = []", "empty now"),
        ("        assert f(n, x) == n", "        def inner():\n            assert f(n, x) == n", "inside inner"),
        ("def close(a, b):\n    assert abs(a - b) < LIMIT\n", "", "close, which asserts, was removed"),
        ("LIMIT = 0.1\n", "LIMIT = 0.1\nTestCase.assertEqual = print\n", "`assertEqual` is replaced"),
        (
            "        numbers = []\n",
            "        numbers = []\n        self.assertEqual = print\n",
            "`assertEqual` is replaced",
        ),
        ("\nclass TestTwo:", "\ndef pytest_runtest_call(item):\n    pass\n\nclass TestTwo:", "new hook"),
        ("    return load(CASES)", "    return []\n    return load(CASES)", "rows ends before `return load(CASES)`"),
        ("\nclass TestTwo:", "\nclose = print\n\nclass TestTwo:", "close is bound again"),
        ("LIMIT = 0.1\n", "LIMIT = 0.1\nsetattr(pytest, 'raises', nothing)\n", "`raises` is replaced"),
        ("LIMIT = 0.1\n", "LIMIT = 0.1\npatch('unittest.TestCase.assertEqual').start()\n", "`assertEqual` is replaced"),
        (
            "class TestTwo:\n",
            "class TestTwo:\n    def assertEqual(self, *_):\n        pass\n",
            "replaces unittest's own",
        ),
        ("LIMIT = 0.1\n", "LIMIT = 0.1\n\ndef load_tests(a, b, c):\n    return Suite()\n", "`load_tests` is new"),
        (
            "    for n in wide:\n",
            "    for n in wide:\n        if n:\n            continue\n",
            "only reached unless `n`",
        ),
        ("\nclass TestTwo:", "\nclose: object = print\n\nclass TestTwo:", "close is bound again"),
        ("\nclass TestTwo:", "\nfrom shop import close\n\nclass TestTwo:", "close is bound again"),
        ("\nclass TestTwo:", "\nfor close in [print]:\n    pass\n\nclass TestTwo:", "close is bound again"),
        ("\nclass TestTwo:", "\nCASES = [(5, 6)]\n\nclass TestTwo:", "CASES is bound again"),
        ("\nclass TestTwo:", "\n@overload\ndef close(a, b): ...\n\nclass TestTwo:", "close is bound again"),
        ("class TestTwo:\n", "class TestTwo:\n    test_two = None\n", "TestTwo.test_two is bound again"),
        (
            "self.assertEqual(g(numbers, 5), 7)\n",
            "g(numbers, 5)\nTestTwo.test_two = print\n",
            "TestTwo.test_two is bound",
        ),
        (
            "        self.assertEqual(g(numbers, 5), 7)\n",
            "        g(numbers, 5)\n\n    def test_b(self):\n        numbers = [7]\n"
            "        self.assertEqual(g(numbers, 5), 7)\n",
            "no longer has",
        ),
        ("assertRaises(ValueError)", "assertRaises((ValueError, KeyError))", "no longer has"),
        ("for n in wide", "for n in []", "for each of `[]`"),
    ],
)
def test_what_checks_less_is_named(old: str, new: str, why: str) -> None:
    assert TESTS.count(old) == 1
    found = weakenings(TESTS.encode(), TESTS.replace(old, new).encode())
    assert any(why in one for one in found), found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(3, 4)]", "(3, 4), (5, 6)]"),
        ("[1, 2])", "[1, 2, 3])"),
        ("5), 7)\n", "5), 7)\n        self.assertEqual(g([1], 5), 8)\n"),
        ("CASES =", "import json\n\nCASES ="),
        ("def test_one(x):", 'def test_one(x):\n    """Says more."""'),
        ("    wide = list", "    setup()\n    wide = list"),
        ("\nclass TestTwo:", "\ndef test_three():\n    assert f(3, 3)\n\nclass TestTwo:"),
        ("\nclass TestTwo:", "\ndef test_x():\n    patch('shop.raises').start()\n    assert f(3, 3)\n\nclass TestTwo:"),
        ("\nclass TestTwo:", "\ndef load_tests(a, tests, c):\n    return tests\n\nclass TestTwo:"),
        ("\nclass TestTwo:", "\nclass TestNear:\n    def assertEqual(self, a, b):\n        pass\n\nclass TestTwo:"),
        ("\nclass TestTwo:", "\nCASES += [(5, 6)]\nMORE = CASES\n\nclass TestTwo:"),
        ("[(1, 2), (3, 4)]", "[\n    (1, 2),\n    (3, 4),\n]"),
        ("assertRaises(ValueError)", "assertRaisesRegex(ValueError, 'no numbers')"),
        ("assertEqual(g(numbers, 5), 7)", "assertEqual(g(numbers, 5), 7, msg='five')"),
        (
            "    def test_two(self):\n",
            "    def test_two(self):\n        if NEW:\n            def made():\n                return 1\n",
        ),
        ("\nclass TestTwo:", "\n@f.register\ndef _(x):\n    return x\n\nclass TestTwo:"),
        ("def close(a, b):", "@overload\ndef close(a: int, b: int): ...\n\ndef close(a, b):"),
        (
            "        self.assertEqual(g(numbers, 5), 7)\n",
            "        for size in (1, 2):\n            with self.subTest(size=size):\n"
            "                self.assertEqual(g(numbers, 5), 7)\n",
        ),
    ],
)
def test_what_adds_or_explains_takes_nothing(old: str, new: str) -> None:
    assert TESTS.count(old) == 1
    assert weakenings(TESTS.encode(), TESTS.replace(old, new).encode()) == []


def test_a_file_that_cannot_be_parsed_is_left_to_other_checks() -> None:
    assert weakenings(b"def", b"x = 1") == []


def test_of_two_tests_of_one_name_the_later_counts() -> None:
    first, second = (f"    def test_a(self):\n        n = {n}\n        assert f(n)\n" for n in (1, 2))
    twice = f"class TestA:\n{first}{second}".encode()
    assert weakenings(twice, twice + b"    def test_b(self):\n        assert h()\n") == []
    assert weakenings(twice, twice + b"    def test_a(self):\n        h()\n") != []


SCRIPT = "test('adds', () => {\n  const found = add(1);\n\n  assert.equal(found, 3);\n  if (found)\n    return;\n});\n"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("  assert.equal(found, 3);\n", "", "was removed"),
        ("  const found", "  return;\n\n  const found", "ends a test before"),
        ("test(", "assert.equal = () => {};\ntest(", "replaces what checks"),
        ("  if (found)", "  if (!found) {\n    return;\n  }\n  if (found)", ""),
        ("  if (found)", "  if (!found)\n    return;\n  if (found)", ""),
        ("test(", "const assert = require('assert');\ntest(", ""),
    ],
)
def test_what_a_script_checks_no_more_is_named(old: str, new: str, why: str) -> None:
    assert SCRIPT.count(old) == 1
    found = lost_lines(SCRIPT.encode(), SCRIPT.replace(old, new).encode())
    assert (len(found) == 1 and why in found[0]) if why else found == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "ROWS = [1]\n\n@each(ROWS)\ndef test_a(row):\n    assert f(row)\n",
            "ROWS = [1]\n\n@each(ROWS)\ndef test_a(row):\n    assert f(row)\n\n"
            "ROWS = [2]\n\n@each(ROWS)\ndef test_b(row):\n    assert g(row)\n",
        ),
        (
            "def test_a():\n    assert f(1) == 2\n    assert f(2) == 3\n",
            "def test_a():\n    assert f(1) == 2\n\ndef test_b():\n    assert f(2) == 3\n",
        ),
        ("def rows():\n    return 1\n", "def rows():\n    raise StopIteration\n    yield\n"),
        ("def test_a():\n    x = u'a'\n    assert f(x)\n", "def test_a():\n    x = 'a'\n    assert f(x)\n"),
        (
            "def test_a():\n    with pytest.raises(ValueError):\n        f()\n",
            "def test_a():\n    with pytest.raises(ValueError, match='x'):\n        f()\n",
        ),
        (
            "class T:\n    def test_a(self):\n        self.assertEquals(f(), 1)\n",
            "class T:\n    def test_a(self):\n        self.assertEqual(f(), 1)\n",
        ),
    ],
)
def test_what_real_fixes_do_with_tests_is_no_loss(before: str, after: str) -> None:
    assert weakenings(before.encode(), after.encode()) == []
    assert weakenings(before.encode(), before.encode()) == []
