"""The deterministic review lets ordinary good changes through, and no source makes it think for long."""

from __future__ import annotations

import time

import pytest

from codepilot.core.task import Budget, TaskKind
from codepilot.executor import DiffResult, FileChange
from codepilot.project import is_test
from codepilot.verify import review
from codepilot.verify.testcode import read_tests

Tree = dict[str, str]

PROGRAM = """import argparse


def main():
    args = argparse.ArgumentParser().parse_args()
"""
PYTHON = "from app import f\nimport pytest\n\n\ndef test_a():\n    assert f(1) == 2\n"
SCRIPT = """import { sum } from '../sum.js';
import { same } from './helpers.js';

it('adds', () => {
  expect(sum(1, 2)).toBe(3);
});
"""
REQUIRED = """const { sum } = require('../sum.js');
const rows = [
  1,
  2
];

it('adds', () => {
  expect(sum(rows)).toBe(3);
});
"""
JAVA = """class BasketTest extends Shared {
    @Test
    void total() {
        assertEquals(12, Basket.total(3, 4));
    }
"""


def refused(before: Tree, after: Tree) -> dict[str, str]:
    """The checks that do not hold, with their evidence."""
    kinds = {path: "modified" if path in before else "added" for path in after}
    changes = tuple(FileChange(path=path, change=kind) for path, kind in kinds.items())  # type: ignore[arg-type]
    diff = DiffResult(patch=b"+", base_tree="b" * 64, tree="c" * 64, changes=changes)
    sides = ((lambda path, tree=tree: tree[path].encode() if path in tree else None) for tree in (before, after))
    found = review(diff, *sides, Budget(), TaskKind.BUGFIX, failing=("x",))
    return {check.name: check.evidence for check in found.policy_checks if not check.ok}


@pytest.mark.parametrize(
    ("path", "before", "more"),
    [
        ("app/cli.py", "", "print('done')\n"),
        ("app/tool.py", PROGRAM, "    print(args)\n"),
        ("app/report.py", "print('a report')\n", "print('its end')\n"),
        ("app/warn.py", "import sys\n", "print('careful', file=sys.stderr)\n"),
        ("src/logger.js", "exports.info = m => m;\n", "exports.debug = m => console.debug(m);\n"),
        ("src/serve.js", "const port = process.argv[2];\n", "console.log(`on ${port}`);\n"),
        ("src/Main.java", "class Main {\n", '  void a() { System.out.println("a"); }\n'),
        ("src/Run.java", "class Run { static void main(String[] a) {\n", '  System.out.println("a");\n'),
        ("app/task.py", "A = 1\n", "STATES = ('TODO', 'DONE')\nMASK = 'XXX-XX-1234'\n"),
        ("src/State.java", "enum State {\n", "  TODO,\n  DONE\n"),
        ("src/lexer.js", "class Lexer {\n", "  next() { this.skip(1); }\n"),
        ("src/Lexer.java", "class Lexer {\n", "  @Ignore int at;\n  void next() { this.skip(1); }\n"),
        ("src/one.kt", "val rows = 1\n", "val found = rows.map { it.only }\n"),
    ],
)
def test_words_of_the_product_are_no_leftovers_and_skip_no_tests(path: str, before: str, more: str) -> None:
    assert refused({path: before}, {path: before + more}) == {}


def test_a_new_program_may_speak() -> None:
    assert refused({}, {"bin/run.js": "console.log('hello');\n"}) == {}
    assert refused({}, {"lib/run.mjs": "#!/usr/bin/env node\nconsole.log('hello');\n"}) == {}


@pytest.mark.parametrize(
    ("path", "before", "more", "check"),
    [
        ("app/price.py", "A = 1\n", "print(A)\n", "no_debug_left"),
        ("app/client.py", "A = 1\n", "print(A)\n", "no_debug_left"),
        ("app/catalog.py", "A = 1\n", "print(A)\n", "no_debug_left"),
        ("src/domain.js", "let a;\n", "console.log(a);\n", "no_debug_left"),
        ("app/cli.py", "A = 1\n", "breakpoint()\n", "no_debug_left"),
        ("app/price.py", "A = 1\n", "B = 2  # the sum; TODO: round\n", "no_debug_left"),
        ("app/price.py", "A = 1\n", '"""Prices.\n\n    FIXME: none of it holds\n"""\n', "no_debug_left"),
        ("src/a.ts", "let a;\n", "/**\n * TODO later\n */\n", "no_debug_left"),
        (
            "odd/place.ts",
            "import { test } from '@playwright/test';\n",
            "test.skip('a', () => {});\n",
            "no_disabled_tests",
        ),
        ("odd/Place.java", "import org.junit.jupiter.api.Test;\n", "@Disabled class A {}\n", "no_disabled_tests"),
        ("app/a.py", "import pytest\n", "pytest.skip('later')\n", "no_disabled_tests"),
    ],
)
def test_leftovers_and_skipped_tests_are_still_seen(path: str, before: str, more: str, check: str) -> None:
    assert list(refused({path: before}, {path: before + more})) == [check]


@pytest.mark.parametrize(
    ("before", "old", "new"),
    [
        (SCRIPT, "{ sum }", "{ sum, sub }"),
        (REQUIRED, "{ sum }", "{ first, sum }"),
        (REQUIRED, "  2\n", "  2,\n  3\n"),
    ],
)
def test_a_script_test_may_take_more_names_and_rows(before: str, old: str, new: str) -> None:
    assert refused({"test/sum.test.js": before}, {"test/sum.test.js": before.replace(old, new)}) == {}


@pytest.mark.parametrize(
    ("before", "old", "new"),
    [
        (SCRIPT, "../sum.js", "../fake.js"),
        (SCRIPT, "{ sum }", "{ fake as total }"),
        (REQUIRED, "  2\n", "  20\n"),
        (REQUIRED, "const { sum } = require('../sum.js')", "const sum = require('../sum.js')"),
        (SCRIPT, "toBe(3)", "toBe(4)"),
    ],
)
def test_a_script_test_that_takes_other_things_is_edited(before: str, old: str, new: str) -> None:
    found = refused({"test/sum.test.js": before}, {"test/sum.test.js": before.replace(old, new)})
    assert "tests_untouched_or_added" in found


@pytest.mark.parametrize(
    ("path", "before", "more", "silent"),
    [
        ("tests/test_a.py", PYTHON, "def test_b(round_trip):\n    round_trip(3)\n", False),
        ("tests/test_a.py", PYTHON, "from tests.support import same\n\n\ndef test_b():\n    same(f(1), 2)\n", False),
        ("tests/test_a.py", PYTHON, "from .conftest import same\n\n\ndef test_b():\n    same(f(1), 2)\n", False),
        ("tests/test_a.py", PYTHON, "@pytest.mark.parametrize('x', [1])\ndef test_b(x):\n    assert f(x)\n", False),
        ("tests/test_a.py", PYTHON, "def test_b(client):\n    f(client)\n", True),
        ("tests/test_a.py", PYTHON, "def test_b():\n    f(1)\n", True),
        ("test/a.test.js", SCRIPT, "it('b', () => { same(sum(1), 1); });\n", False),
        ("test/a.test.js", SCRIPT, "it('b', async () => { await screen.findByText('b'); });\n", False),
        ("test/a.test.js", SCRIPT, "it('b', () => { const a = /https?:\\/\\//; expect(a).toBe(1); });\n", False),
        ("test/a.test.js", SCRIPT, "it('b', () => { const a = (/[`'\"]/); expect(a).toBe(1); });\n", False),
        ("test/a.test.js", SCRIPT, "it('b', () => { sum(1, 2); });\n", True),
        ("src/test/java/BTest.java", JAVA, "    @Test\n    void b() {\n        roundTrip(3);\n    }\n", False),
        ("src/test/java/BTest.java", JAVA, "    @Test\n    void b() {\n        Basket.total(1, 2);\n    }\n", True),
        ("src/test/java/BTest.java", JAVA, "    @Test\n    void b() {\n        new Basket(1);\n    }\n", True),
    ],
)
def test_what_may_assert_elsewhere_is_taken_for_well(path: str, before: str, more: str, silent: bool) -> None:
    assert ("new_tests_assert" in refused({path: before}, {path: before + more})) is silent


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("packages/core/test/index.js", True),
        ("packages/core/spec/basketSpec.js", True),
        ("e2e/login.ts", True),
        ("src/__snapshots__/a.js.snap", True),
        ("src/integrationTest/java/Shared.java", True),
        ("django/test/client.py", False),
        ("src/contest/java/Round.java", False),
        ("src/attest.js", False),
    ],
)
def test_tests_of_packages_within_a_repository_are_tests(path: str, tests: bool) -> None:
    assert is_test(path) is tests


@pytest.mark.parametrize(
    "source",
    [
        "const a = /* " + "a licence " * 600 + "*/ 5;\n(1)",
        "const a = " + " " * 6_000 + "5;(",
        '\\"' * 100_000,
        "const a " * 50_000,
        "a() throws " + "a, " * 50_000,
    ],
)
def test_no_source_of_tests_takes_long_to_read(source: str) -> None:
    began = time.process_time()
    read_tests("a.test.js", source.encode())
    assert time.process_time() - began < 3


def test_no_line_takes_long_to_be_searched_for_leftovers_and_secrets() -> None:
    lines = ("secret" * 5_000, "#" * 30_000, "//" * 15_000, "eyJ" * 15_000, "'" + "a" * 30_000)
    began = time.process_time()
    assert refused({}, {"src/a.js": "\n".join(lines)}) == {}
    assert time.process_time() - began < 5
