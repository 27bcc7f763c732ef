"""The whole search on small projects, in the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from repair_kit import Bench

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.repair import Progress, mutation_score
from codepilot.verify.confidence import STRONG_SCORE

Open = Callable[[Mapping[str, str | bytes]], Bench]

SHOP = {
    "src/shop/__init__.py": "",
    "src/shop/prices.py": (
        "from shop.rates import RATES\n\n\n"
        "class Basket:\n"
        '    """What a customer wants to buy."""\n\n'
        "    def __init__(self, country):\n"
        "        self.country = country\n"
        "        self.lines = []\n\n"
        "    def add(self, price, count=1):\n"
        "        self.lines.append((price, count))\n"
        "        return self\n\n"
        "    def net(self):\n"
        "        return sum(price for price, count in self.lines)  # in cents\n\n"
        "    def gross(self):\n"
        "        return self.net() * (100 + RATES[self.country]) // 100\n"
    ),
    "src/shop/rates.py": 'RATES = {"de": 19, "fr": 20}\n',
    "tests/conftest.py": (
        "import pytest\nfrom shop.prices import Basket\n\n\n@pytest.fixture\ndef basket():\n    return Basket('de')\n"
    ),
    "tests/test_prices.py": (
        "import pytest\nfrom shop.prices import Basket\n\n\n"
        "def test_empty(basket):\n    assert basket.net() == 0\n\n\n"
        "def test_one(basket):\n    assert basket.add(100).gross() == 119\n\n\n"
        "@pytest.mark.parametrize('count', [2, 3])\n"
        "def test_many(basket, count):\n    assert basket.add(100, count).net() == 100 * count\n\n\n"
        "def test_mixed():\n    assert Basket('fr').add(50, 2).add(10).net() == 110\n"
    ),
    "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\naddopts = '-q'\n",
}


def test_a_method_is_repaired_in_a_src_layout_with_fixtures_and_parameters(bench: Open) -> None:
    shop = bench(SHOP)
    assert len(shop.baseline.red) == 3
    result = shop.search()
    best = result.candidates[0]
    assert best.path == "src/shop/prices.py"
    assert b"sum(price * count for price, count in self.lines)  # in cents" in best.patched
    assert best.original == shop.files[best.path]
    assert 0 < best.confidence <= 1 and "net" in best.rationale
    assert shop.unchanged()
    assert [seen.phase for seen in shop.seen][-1] == "ended"


def test_a_unittest_project_with_crlf_and_latin_1_keeps_every_other_byte(bench: Open) -> None:
    text = (
        "# -*- coding: latin-1 -*-\r\n"
        "def spread(values):  # Gr\xf6\xdfe\r\n"
        "    if not values:\r\n"
        "        return 0\r\n"
        "    return max(values) + min(values)\r\n"
    ).encode("latin-1")
    tests = (
        "import unittest\nfrom spread import spread\n\n\nclass SpreadTest(unittest.TestCase):\n"
        "    def test_none(self):\n        self.assertEqual(spread([]), 0)\n\n"
        "    def test_some(self):\n        self.assertEqual(spread([3, 9, 5]), 6)\n\n"
        "    def test_negative(self):\n        self.assertEqual(spread([-3, 4]), 7)\n"
    )
    project = bench({"spread.py": text, "test_spread.py": tests})
    result = project.search()
    assert result.candidates[0].patched == text.replace(b"max(values) + min", b"max(values) - min")


@pytest.mark.variants
def test_a_module_level_table_is_repaired_by_loading_anew(bench: Open) -> None:
    project = bench(
        {
            "roman.py": (
                'VALUES = {"I": 1, "V": 5, "X": 11}\n\n\n'
                "def value(text):\n    return sum(VALUES[letter] for letter in text)\n"
            ),
            "test_roman.py": (
                "from roman import value\n\n\ndef test_small():\n    assert value('VI') == 6\n\n\n"
                "def test_ten():\n    assert value('XX') == 20\n\n\ndef test_mixed():\n    assert value('XVI') == 16\n"
            ),
        }
    )
    result = project.search()
    assert any(b'"X": 10' in found.patched for found in result.candidates)


@pytest.mark.variants
def test_tests_that_need_their_order_judge_in_it(bench: Open) -> None:
    """The dear one must come before the cheap one, whose traces it cannot bear; the target leaves some too."""
    tests = (
        "import os\nfrom ages import grown_up\n\nSEEN = []\n\n\n"
        "def test_first():\n    assert not SEEN and not grown_up(3)\n\n\n"
        "def test_target():\n    SEEN.append(0)\n    assert grown_up(18)\n\n\n"
        "def test_dear():\n    assert sum(range(10**6)) and 'CHEAP' not in os.environ\n    assert grown_up(30)\n\n\n"
        "def test_cheap():\n    os.environ['CHEAP'] = '1'\n    assert not grown_up(7)\n"
    )
    project = bench({"ages.py": "def grown_up(age):\n    return age > 18\n", "test_ages.py": tests})
    assert b"age >= 18" in project.search().candidates[0].patched


@pytest.mark.variants
def test_a_test_that_misses_an_error_leads_to_the_place(bench: Open) -> None:
    """`pytest.raises` ends a test by what is no `Exception`."""
    code = "def root(n):\n    if n < -1:\n        raise ValueError(n)\n    return n**0.5\n"
    tests = (
        "import pytest\nfrom roots import root\n\n\n"
        "def test_below():\n    with pytest.raises(ValueError):\n        root(-1)\n\n\n"
        "def test_root():\n    assert root(4) == 2 and root(0) == 0\n"
    )
    result = bench({"roots.py": code, "test_roots.py": tests}).search()
    assert b"n < 0" in result.candidates[0].patched or b"n <= -1" in result.candidates[0].patched


@pytest.mark.variants
def test_a_mutable_default_is_repaired(bench: Open) -> None:
    project = bench(
        {
            "log.py": "def collect(entry, into=[]):\n    into.append(entry)\n    return into\n",
            "test_log.py": (
                "from log import collect\n\n\ndef test_given():\n    assert collect(1, [0]) == [0, 1]\n\n\n"
                "def test_fresh():\n    assert collect(1) == [1]\n    assert collect(2) == [2]\n"
            ),
        }
    )
    result = project.search()
    assert any(b"into=None" in found.patched for found in result.candidates)
    assert project.unchanged()


@pytest.mark.variants
def test_a_cached_function_is_tried_without_what_others_left_in_its_cache(bench: Open) -> None:
    project = bench(
        {
            "fib.py": (
                "from functools import lru_cache\n\n\n@lru_cache(maxsize=None)\ndef fib(n):\n    if n < 2:\n"
                "        return n\n    return fib(n - 1) + fib(n - 3)\n"
            ),
            "test_fib.py": (
                "from fib import fib\n\n\ndef test_fib():\n"
                "    assert [fib(n) for n in range(8)] == [0, 1, 1, 2, 3, 5, 8, 13]\n"
            ),
        }
    )
    assert b"fib(n - 1) + fib(n - 2)" in project.search().candidates[0].patched


UNFIXABLE = {
    "unit.py": "def answer():\n    return 1\n",
    "test_unit.py": "from unit import answer\n\n\ndef test_answer():\n    assert answer() == 'thirty-one pieces'\n",
}


def test_a_bug_that_no_template_fits_ends_by_itself_without_a_claim(bench: Open) -> None:
    result = bench(UNFIXABLE).search()
    assert result.candidates == ()
    assert result.exhausted and result.reason
    assert result.tried > 0 and result.seconds < 60.0


COUNTER = {
    "counter.py": (
        "def count(words, limit):\n    found = {}\n    for word in words:\n        if len(word) > limit:\n"
        "            found[word] = found.get(word, 1) + 1\n    return found\n"
    ),
    "test_counter.py": (
        "from counter import count\n\n\ndef test_count():\n    assert count(['aa', 'b', 'aa'], 1) == {'aa': 2}\n\n\n"
        "def test_none():\n    assert count([], 3) == {}\n"
    ),
}


class Interrupted(Exception):
    pass


def test_code_that_the_failing_test_does_not_run_is_left_alone(bench: Open) -> None:
    """A module that is only imported has code on line 1, as a function that begins there."""
    project = bench(
        {
            "wordy.py": "def slug(title): return title.lower()\n",
            "test_old.py": "def test_red():\n    assert 1 == 2\n",
            "test_wordy.py": "from wordy import slug\n\n\ndef test_slug():\n    assert slug('A') == 'a'\n",
        }
    )
    result = project.search(seconds=20.0)
    assert result.tried == 0
    assert "the failing test runs only files that judge a repair (test_old.py)" in result.reason


def test_a_search_stopped_on_the_way_continues_where_it_was(bench: Open) -> None:
    project = bench(COUNTER)
    whole = project.search()
    stopped: list[Progress] = []

    def stop(progress: Progress) -> None:
        stopped.append(progress)
        if progress.position > 0:
            raise Interrupted

    with pytest.raises(Interrupted):
        project.search(on_progress=stop)
    assert project.unchanged()
    state = stopped[-1].state
    project.seen.clear()
    rest = project.search(state=state)
    positions = [seen.position for seen in project.seen if seen.phase == "search"]
    assert min(positions) >= stopped[-1].position
    assert rest.candidates[0].patched == whole.candidates[0].patched


@pytest.mark.variants
def test_a_state_of_other_files_is_not_continued(bench: Open) -> None:
    project = bench(COUNTER)
    result = project.search(state={"digest": "other", "position": 10**6, "plausible": []})
    assert result.candidates


@pytest.mark.variants
def test_what_was_turned_down_is_not_offered_again(bench: Open) -> None:
    project = bench(COUNTER)
    first = project.search().candidates[0]
    again = project.search(refused=(first.patched,))
    assert first.patched not in [found.patched for found in again.candidates]


@pytest.mark.variants
def test_a_folder_of_tests_that_cannot_be_loaded_keeps_no_other_from_being_repaired(bench: Open) -> None:
    broken = {"other/conftest.py": "raise RuntimeError('not here')\n", "other/test_o.py": "def test_o():\n    pass\n"}
    project = bench({**COUNTER, **broken})
    target = next(test for test in project.baseline.red if not test.startswith("other"))
    assert project.search(targets=(target,)).candidates


@pytest.mark.variants
def test_a_suite_that_cannot_load_any_more_is_reported_plainly(bench: Open) -> None:
    project = bench(COUNTER)
    with pytest.raises(CodePilotError) as refused:
        project.search(targets=("test_missing.py::test_gone",))
    assert refused.value.kind in (FailureKind.TEST_NOT_FOUND, FailureKind.SUITE_CANNOT_START)


GRADE = "def grade(n):\n    if n >= 80:\n        return 'A'\n    if n >= 50:\n        return 'C'\n    return 'F'\n"
TOTAL = (
    "def total(prices, count):\n    found = 0\n    for price in prices[:count]:\n        found += price\n"
    "    return found\n"
)


@pytest.mark.parametrize(
    ("code", "mistake", "checks", "strong"),
    [
        (GRADE, ("n >= 80", "n > 80"), "[grade(n) for n in (0, 49, 50, 79, 80, 100)] == list('FFCCAA')", True),
        (GRADE, ("n >= 80", "n > 80"), "grade(80)", False),
        (TOTAL, ("[:count]", "[: count.size]"), "isinstance(total([1, 2], 2), int)", False),
    ],
)
def test_strength_tells_strong_tests_from_weak_ones(
    bench: Open, code: str, mistake: tuple[str, str], checks: str, strong: bool
) -> None:
    tests = f"from shop import *\n\n\ndef test_it():\n    assert {checks}\n"
    project = bench({"shop.py": code, "test_shop.py": tests})
    found = mutation_score(
        project.executor,
        "w",
        project.project,
        ["shop.py"],
        ["test_shop.py::test_it"],
        seconds=60.0,
        originals={"shop.py": code.replace(*mistake).encode()},
    )
    assert found is not None and found.mutants >= 5 and found.near
    holds = found.score >= STRONG_SCORE and found.near_killed >= STRONG_SCORE * found.near
    assert holds is strong, found
    assert project.unchanged()


@pytest.mark.variants
def test_examples_of_a_docstring_notice_mutants(bench: Open) -> None:
    code = 'def total(prices, discount=0):\n    """\n    >>> total([300, 180], 25)\n    360\n'
    code += '    >>> total([10])\n    10\n    """\n'
    code += "    amount = sum(prices)\n    return amount - amount * discount // 100\n"
    project = bench({"shop.py": code, "pytest.ini": "[pytest]\naddopts = --doctest-modules\n"})
    tests = project.baseline.collected
    assert tests == ("shop.py::shop.total",)
    found = mutation_score(project.executor, "w", project.project, ("shop.py",), tests, seconds=60.0)
    assert found is not None and found.mutants >= 5 and found.score > 0.7


@pytest.mark.variants
@pytest.mark.parametrize(("checks", "strong"), [("sign(9) == 'IX' and sign(5) == 'V'", True), ("sign(9)", False)])
def test_changed_tables_are_mutated_too(bench: Open, checks: str, strong: bool) -> None:
    code = 'SIGNS = {\n    1: "I",\n    5: "V",\n    9: "IX",\n}\n\n\ndef sign(n):\n    return SIGNS.get(n, "X")\n'
    tests = f"from shop import *\n\n\ndef test_it():\n    assert {checks}\n"
    project = bench({"shop.py": code, "test_shop.py": tests})
    found = mutation_score(
        project.executor,
        "w",
        project.project,
        ["shop.py"],
        ["test_shop.py::test_it"],
        seconds=60.0,
        originals={"shop.py": code.replace('    9: "IX",\n', "").encode()},
    )
    assert found is not None and found.mutants == found.near >= 3
    assert (found.near_killed == found.near) is strong, found
    assert project.unchanged()
