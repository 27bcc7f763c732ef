"""Reading evidence: tests by their ids, frames in each language's traces, and what a task's words name."""

from __future__ import annotations

import pytest
from little_shop import SHOP, TRACE, files_of

from codepilot.context import Evidence, map_repository
from codepilot.context.evidence import Clues

MIXED = {
    **SHOP,
    "src/main/java/com/shop/Till.java": b"package com.shop;\nclass Till {\n  int open() {\n    return 1;\n  }\n}\n",
    "src/test/java/com/shop/TillTest.java": b"class TillTest {\n  void opens() {\n    new Till().open();\n  }\n}\n",
    "web/cart.js": b"function add(a) {\n  return a.b;\n}\nmodule.exports = { add };\n",
    "web/cart.test.js": b"const { add } = require('./cart');\ntest('adds one more', () => {\n  add();\n});\n",
    "web/view.tsx": b"export const View = () => {\n  return <a/>;\n};\n",
}


def clues(**evidence: object) -> Clues:
    files = files_of(MIXED)
    return Clues(map_repository(files.hashes, files.read), Evidence(**evidence))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("test", "path", "symbol"),
    [
        ("tests/test_basket.py::TestTotal::test_one[1]", "tests/test_basket.py", "TestTotal.test_one"),
        ("tests/test_basket.py::test_empty", "tests/test_basket.py", "test_empty"),
        ("tests.test_basket.TestTotal.test_one", "tests/test_basket.py", "TestTotal.test_one"),
        ("test_basket.TestTotal.test_one", "tests/test_basket.py", "TestTotal.test_one"),
        ("com.shop.TillTest#opens", "src/test/java/com/shop/TillTest.java", "TillTest.opens"),
        ("com.shop.TillTest.opens", "src/test/java/com/shop/TillTest.java", "TillTest.opens"),
        ("com.shop.TillTest#opens()", "src/test/java/com/shop/TillTest.java", "TillTest.opens"),
        ("tests/test_basket.py", "tests/test_basket.py", None),
        ("web/cart.test.js > cart > adds one more", "web/cart.test.js", None),
    ],
)
def test_a_test_is_found_by_its_id(test: str, path: str, symbol: str | None) -> None:
    (place,) = clues(failing_tests=(test,)).tests
    assert place.path == path
    assert (place.symbol.qualified if place.symbol else None) == symbol


def test_a_test_that_is_nowhere_is_left_out() -> None:
    assert clues(failing_tests=("tests/gone.py::test_x", "", "::", "no.such.Thing")).tests == ()


def frames(trace: str) -> list[tuple[str, int, str]]:
    return [(one.path, one.line, one.symbol.qualified if one.symbol else "") for one in clues(traces=(trace,)).frames]


def test_python_frames_come_innermost_first_and_from_this_tree_alone() -> None:
    assert frames(TRACE) == [
        ("shop/money.py", 9, "with_tax"),
        ("shop/basket.py", 12, "Basket.total_price"),
        ("tests/test_basket.py", 15, "TestTotal.test_one"),
    ]


def test_pytest_frames() -> None:
    trace = "tests/test_basket.py:15: in test_one\n    x\nshop/basket.py:12: TypeError\n"
    assert [path for path, _, _ in frames(trace)] == ["shop/basket.py", "tests/test_basket.py"]


def test_java_frames() -> None:
    trace = (
        "java.lang.IllegalStateException: closed\n"
        "\tat com.shop.Till.open(Till.java:4)\n"
        "\tat com.shop.TillTest.opens(TillTest.java:3)\n"
        "\tat java.base/java.util.ArrayList.forEach(ArrayList.java:1596)\n"
    )
    assert [(path.rpartition("/")[2], line, name) for path, line, name in frames(trace)] == [
        ("Till.java", 4, "Till.open"),
        ("TillTest.java", 3, "TillTest.opens"),
    ]


def test_compilers_name_lines_too() -> None:
    assert frames("[ERROR] /w/src/main/java/com/shop/Till.java:[4,9] incompatible types\n")[0][1:] == (4, "Till.open")
    assert frames("web/view.tsx(2,10): error TS2322: no\n") == [("web/view.tsx", 2, "View")]


def test_javascript_frames() -> None:
    trace = (
        "TypeError: Cannot read properties of undefined (reading 'b')\n"
        "    at add (/w/web/cart.js:2:12)\n"
        "    at Object.<anonymous> (file:///w/web/cart.test.js:3:3)\n"
        "    at run (node:internal/test.js:9:1)\n"
        "    at /w/node_modules/jest/cart.js:2:1\n"
    )
    assert frames(trace) == [("web/cart.js", 2, "add"), ("web/cart.test.js", 3, "")]


def test_a_tasks_words_name_files_and_symbols_but_not_by_chance() -> None:
    task = "Add a discount to `pay(basket)` in shop/checkout.py, see money.py and index.js. The Stock can take it."
    named = clues(task=task)
    assert named.named_paths == ("shop/checkout.py", "shop/money.py")
    assert {place.symbol.name for place in named.named_symbols if place.symbol} == {"pay", "Stock"}
