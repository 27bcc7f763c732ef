"""Every candidate is judged by what it does itself, not by what was spent, left behind or not put in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from repair_kit import Bench, job_of, rulings, trial_of

from codepilot.repair.worker import Selection

Open = Callable[[Mapping[str, str | bytes]], Bench]


def test_each_call_that_is_weighed_has_its_own_rounds(bench: Open) -> None:
    project = bench(
        {
            "down.py": "def down(n):\n    k = 0\n    while n > 0:\n        n -= 1\n        k += 1\n    return k\n",
            "test_down.py": "from down import down\n\n\ndef test_down():\n"
            "    assert [down(n) for n in range(900, 916)] == list(range(900, 916))\n",
        }
    )
    tests = project.baseline.collected
    job = job_of(project, "down.py", "k += 1", "k += 1 ", Selection(tests, tests))
    with trial_of(project) as trial:
        trial.start()
        evidence = trial.weigh(job, [("down(9000)", "9000")] * 12)
    assert (evidence.promised, evidence.held) == (12, 12)
    assert (evidence.kept, evidence.broken) == (1.0, 0.0)


def test_what_a_decorator_made_while_the_project_was_loaded_is_changed_too(bench: Open) -> None:
    project = bench(
        {
            "shop.py": "def fixed(amount):\n    extra = amount + 0\n\n    def around(function):\n"
            "        def inner(*args):\n            tail = [extra for _ in args]\n"
            "            return function(*args) + tail[0]\n\n        return inner\n\n    return around\n\n\n"
            "@fixed(1)\ndef price(n):\n    return n\n",
            "test_shop.py": "from shop import price\n\n\ndef test_price():\n    assert price(3) == 2\n",
        }
    )
    changes = [
        ("*args) +", "*args) -"),
        ("amount + 0", "amount - 2"),
        ("*args) +", "*args) *"),
        ("return n", "return 1"),
    ]
    found = rulings(project, "shop.py", changes)
    assert [one.outcome for one in found] == ["passed", "passed", "failed", "passed"]


REMEMBERS = {
    "nth.py": (
        "import functools\n\nNAMES = ['a', 'b', 'c']\n\n\n"
        "class Shelf:\n    known = {}\n\n    def __init__(self):\n        self.mine = {}\n\n\n"
        "SHELF = Shelf()\nKNOWN = {}\nCOUNT = 0\n\n\n"
        "def plain(n):\n    if n not in KNOWN:\n        KNOWN[n] = NAMES[n]\n    return KNOWN[n]\n\n\n"
        "def of_class(n):\n    if n not in Shelf.known:\n        Shelf.known = {n: NAMES[n]}\n"
        "    return Shelf.known[n]\n\n\n"
        "def of_object(n):\n    if n not in SHELF.mine:\n        SHELF.mine[n] = NAMES[n]\n"
        "    return SHELF.mine[n]\n\n\n"
        "def given(n, known={}):\n    if n not in known:\n        known[n] = NAMES[n]\n    return known[n]\n\n\n"
        "def counted(n):\n    global COUNT\n    COUNT += 1\n    return NAMES[n - COUNT + 1]\n\n\n"
        "@functools.lru_cache\ndef cached(n):\n    return NAMES[n]\n"
    ),
    "test_nth.py": (
        "import nth\nimport pytest\n\n\n@pytest.mark.parametrize('name', ['NAME'])\ndef test_last(name):\n"
        "    function = getattr(nth, name)\n    assert function(3) == 'c'\n    assert nth.COUNT < 2\n"
    ),
}


@pytest.mark.parametrize("name", ["plain", "of_class", "of_object", "given", "counted", "cached"])
def test_what_a_wrong_candidate_left_in_a_cache_does_not_judge_the_right_one(bench: Open, name: str) -> None:
    tests = REMEMBERS["test_nth.py"].replace("NAME", name)
    before, function, after = REMEMBERS["nth.py"].partition(f"def {name}(n")
    project = bench({"nth.py": before + function + after.replace("NAMES[n", "NAMES[  n", 1), "test_nth.py": tests})
    found = rulings(project, "nth.py", [("[  n", "[0 * n"), ("[  n", "[n - 1")], places=1)
    assert [one.outcome for one in found] == ["failed", "passed"]
