"""Every candidate is judged by what it does itself, not by what was spent, left behind or not put in place."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from repair_kit import BACKEND, Bench, job_of, plausible_of, results, trial_of

from codepilot.repair.acceptance import Acceptance
from codepilot.repair.backend import Failure, SearchFacts
from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.localise import Suspicion
from codepilot.repair.messages import Evidence, Selection
from codepilot.repair.python.inside.children import PAGE, Children
from codepilot.repair.python.source import PythonSource
from codepilot.repair.queue import SLOW
from codepilot.repair.search import Search
from codepilot.repair.selection import TestSelector
from codepilot.repair.trial import Trial, WorkersLost
from codepilot.repair.worker import WorkerLost

Open = Callable[[Mapping[str, str | bytes]], Bench]


@pytest.mark.variants
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
        evidence = trial.examine(job, [("down(9000)", "9000")] * 12)
    assert (evidence.examples, evidence.examples_held) == (12, 12)
    assert (evidence.unchanged, evidence.new_crashes) == (1.0, 0.0)


@pytest.mark.variants
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
    found = results(project, "shop.py", changes)
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


@pytest.mark.variants
@pytest.mark.parametrize("name", ["plain", "of_class", "of_object", "given", "counted", "cached"])
def test_what_a_wrong_candidate_left_in_a_cache_does_not_judge_the_right_one(bench: Open, name: str) -> None:
    tests = REMEMBERS["test_nth.py"].replace("NAME", name)
    before, function, after = REMEMBERS["nth.py"].partition(f"def {name}(n")
    project = bench({"nth.py": before + function + after.replace("NAMES[n", "NAMES[  n", 1), "test_nth.py": tests})
    found = results(project, "nth.py", [("[  n", "[0 * n"), ("[  n", "[n - 1")], places=1)
    assert [one.outcome for one in found] == ["failed", "passed"]


@pytest.mark.variants
@pytest.mark.parametrize(("change", "kept", "settled"), [("n + n", 1, True), ("n + n + 0 * spin(9)", 0, True)])
def test_a_right_candidate_whose_tests_are_long_once_they_pass_is_found(
    bench: Open, change: str, kept: int, settled: bool
) -> None:
    project = bench(
        {
            "twice.py": "import time\n\n\ndef spin(seconds):\n    end = time.process_time() + seconds\n"
            "    while time.process_time() < end:\n        pass\n    return 1\n\n\n"
            "def twice(n):\n    return n * n\n",
            "test_twice.py": "from twice import spin, twice\n\n\ndef test_twice():\n    assert twice(1) == 2\n"
            "    assert spin(0.5)\n",
        }
    )
    job = job_of(project, "twice.py", "n * n", change, Selection(project.baseline.red))
    search = Search(project.request(), BACKEND)
    search._queue.add(SLOW, Proposal(0, job.source, job.unit, job.edit, 0.5, 1))
    with trial_of(project) as trial:
        trial.start()
        traces = trial.trace(project.baseline.collected, alone=project.baseline.red)
        selector = TestSelector(project.baseline.red, traces)
        facts = SearchFacts({"twice.py": job.source}, Suspicion({}), Failure(), selector)
        search._accept = Acceptance(BACKEND, trial, facts, search._ledger, (), traces, (), traces)
        assert search._retry_slow(trial, selector, trial.deadline) is settled
    assert len(search._ledger.found) == kept


def test_what_there_was_no_time_to_be_patient_with_is_not_settled(bench: Open) -> None:
    project = bench({"test_no.py": "def test_no():\n    assert False\n"})
    source = PythonSource.read("m.py", b"def f():\n    return 1\n")
    search = Search(project.request(seconds=0.0), BACKEND)
    search._queue.add(SLOW, Proposal(0, source, source.units[0], Edit(0, 0, "", "test"), 0.5, 1))
    assert not search._retry_slow(trial_of(project), TestSelector((), []), 0.0)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("change", "trusted", "known"),
    [
        ("n + 1 + 0", True, True),
        ("n + 1 if n < 9 else __import__('os')._exit(0)", False, False),
        ("n + 1 if n < 9 else any(False for _ in iter(int, 1))", False, True),
    ],
)
def test_evidence_that_could_not_be_had_is_not_the_best(bench: Open, change: str, trusted: bool, known: bool) -> None:
    project = bench(
        {
            "after.py": "def after(n, text):\n    return n + 1\n",
            "test_after.py": "from after import after\n\n\ndef test_after():\n"
            "    assert [after(n, 'abc') for n in range(9)] == list(range(1, 10))\n",
        }
    )
    tests = project.baseline.collected
    job = job_of(project, "after.py", "n + 1", change, Selection(tests, tests))
    with trial_of(project) as trial:
        trial.start()
        begun = time.monotonic()
        evidence = trial.examine(job, [])
        assert plausible_of(0, trial.examine(replace(job, unit=None), [])).trusted
    assert (plausible_of(0, evidence).trusted, bool(evidence.behaviour)) == (trusted, known)
    assert time.monotonic() - begun < 30


def test_a_function_that_no_test_calls_behaves_in_no_known_way(bench: Open) -> None:
    project = bench(
        {"one.py": "def one():\n    return 1\n", "test_one.py": "import one\n\n\ndef test_one():\n    pass\n"}
    )
    job = job_of(project, "one.py", "return 1", "return 2", Selection(project.baseline.collected))
    with trial_of(project) as trial:
        trial.start()
        assert trial.examine(job, []).behaviour == ""


def test_a_candidate_may_not_make_a_database_in_the_tree(bench: Open) -> None:
    project = bench(
        {
            "twice.py": "import sqlite3\n\n\ndef twice(n):\n    return n * n\n",
            "test_twice.py": "from twice import twice\n\n\ndef test_twice():\n    assert twice(1) == 2\n",
        }
    )
    made = "n + n if sqlite3.connect('{}') else 0"
    found = results(project, "twice.py", [("n * n", made.format(place)) for place in ("made.db", ":memory:")])
    assert [(one.outcome, one.kind) for one in found] == [("failed", "PermissionError"), ("passed", "")]


@pytest.mark.parametrize(("size", "received", "renewed"), [(PAGE // 4, 3, True), (PAGE, 0, False)])
def test_a_child_with_more_to_say_than_there_is_room_for_is_renewed(size: int, received: int, renewed: bool) -> None:
    def body(say: Callable[..., None], folder: str) -> None:
        for number in range(5):
            say(number=number, text="x" * size)

    found: list[int] = []
    turn = Children((), 1).run(body, lambda message: found.append(message["number"]))
    assert (found, turn.renewed) == (list(range(received)), renewed)


class _Unlucky(Search):
    """Loses one worker after the other."""

    finds = True

    def _seek(self, trial: Trial, *_: object) -> None:
        self._ledger.found = [plausible_of(0, Evidence())] if self.finds else []
        while True:
            trial._lose(WorkerLost("it ended"))


def test_what_was_found_before_too_many_workers_were_lost_is_offered(bench: Open) -> None:
    project = bench(
        {"m.py": "def f():\n    return 1\n", "test_m.py": "import m\n\ndef test_m():\n    assert m.f() == 2\n"}
    )
    result = _Unlucky(project.request(), BACKEND).run()
    assert len(result.candidates) == 1 and not result.exhausted
    search = _Unlucky(project.request(), BACKEND)
    search.finds = False
    with pytest.raises(WorkersLost, match="lost 61 times"):
        search.run()


@pytest.mark.variants
def test_what_watching_showed_is_known_to_the_workers_that_follow(bench: Open) -> None:
    project = bench(
        {
            "note.py": "def note(n):\n    return n + 2\n",
            "test_note.py": "from note import note\n\n\ndef test_note():\n"
            "    with open('noted.txt', 'w') as file:\n        file.write('1')\n    assert note(1) == 2\n",
        }
    )
    jobs = [
        job_of(project, "note.py", "n + 2", "n + 1", Selection(project.baseline.red), number=0),
        replace(job_of(project, "note.py", "n + 2", "n + 1", Selection(project.baseline.red), number=1), unit=None),
    ]
    with trial_of(project) as trial:
        trial.start()
        trial.trace(project.baseline.collected, alone=project.baseline.red)
        trial._restore()
        found = trial.judge(jobs)
    assert [found[number].outcome for number in (0, 1)] == ["passed", "passed"]


@pytest.mark.variants
def test_what_the_tests_import_while_they_run_is_no_state(bench: Open) -> None:
    project = bench(
        {
            "front.py": "def price(n):\n    from back import with_tax\n    return with_tax(n) + 1\n",
            "back.py": (
                "SEEN = []\n\n\ndef with_tax(n):\n    SEEN.append(n)\n    return n * 2 if len(SEEN) == 1 else 0\n"
            ),
            "test_front.py": "from front import price\n\n\ndef test_price():\n    assert price(3) == 6\n",
        }
    )
    selection = Selection(project.baseline.red)
    changes = [("+ 1", "+ 0"), ("+ 1", "+ 2"), ("+ 1", "* 1")]
    jobs = [job_of(project, "front.py", *change, selection, number=at) for at, change in enumerate(changes)]
    with trial_of(project) as trial:
        trial.start()
        trial.trace(project.baseline.collected, alone=project.baseline.red)
        assert trial._learned["leaks"] == 0
        assert not trial.losses
        for _ in range(2):
            found = trial.finish(trial.begin(jobs), reload=False)
            assert [found[at].outcome for at in range(3)] == ["passed", "failed", "passed"]
            trial._restore()


def test_what_must_be_loaded_anew_waits_and_is_found(bench: Open) -> None:
    project = bench(
        {
            "limit.py": (
                "def at_most(limit):\n    def holds(n):\n        return n <= 0\n\n    return holds\n\n\n"
                "small = at_most(3)\nlarge = at_most(30)\n"
            ),
            "test_limit.py": (
                "from limit import large, small\n\n\n"
                "def test_small():\n    assert small(3) and not small(4)\n\n\n"
                "def test_large():\n    assert large(30) and not large(31)\n"
            ),
        }
    )
    result = project.search()
    assert b"return n <= limit" in result.candidates[0].patched


NEEDS_CALM = {
    "shop.py": (
        "import functools\n\nRATE = 3\nTAX = 0\nOWED = []\n\n\n@functools.lru_cache\ndef rate():\n    return RATE\n\n\n"
        "def price(n):\n    return n + rate()\n\n\ndef taxed(n):\n    return n + TAX\n"
    ),
    "test_rate.py": (
        "import pytest\nimport shop\n\n\n@pytest.fixture(autouse=True)\ndef calm():\n    yield\n"
        "    shop.rate.cache_clear()\n\n\n@pytest.mark.parametrize('new', [5, 6])\n"
        "def test_rate(new, monkeypatch):\n    monkeypatch.setattr(shop, 'RATE', new)\n    assert shop.rate() == new\n"
    ),
    "test_opened.py": (
        "import shop\n\n\ndef test_opening():\n    shop.opened = True\n\n\ndef test_opened():\n    assert shop.opened\n"
    ),
    "test_shop.py": (
        "import os\nimport shop\n\n\ndef test_free():\n    assert shop.RATE\n\n\n"
        "def test_taxed():\n    assert 'TAXED' not in os.environ\n    os.environ['TAXED'] = '1'\n"
        "    assert shop.taxed(4) == 4\n    del os.environ['TAXED']\n\n\n"
        "def test_nothing_is_owed():\n    assert shop.taxed(5) == 5\n    assert len(shop.OWED) < 2\n\n\n"
        "def test_price():\n    assert shop.price(4) == 12\n"
    ),
}


@pytest.mark.variants
@pytest.mark.parametrize(
    ("target", "old", "new", "outcome"),
    [
        pytest.param("test_price", "n + rate()", "n * rate()", "passed", id="swapped"),
        pytest.param("test_price", "RATE = 3", "RATE = 8", "passed", id="loaded-anew"),
        pytest.param("test_price", "TAX = 0\n", "TAX = 1\nRATE = 8\n", "failed", id="broken-anew"),
        pytest.param("test_free", "return n + TAX", "return n + TAX + 1", "failed", id="broken"),
        pytest.param("test_free", "return n + TAX", "OWED.append(n)\n    return n", "failed", id="left-behind"),
    ],
)
def test_a_test_that_falls_without_the_change_as_well_is_not_held_against_it(
    bench: Open, target: str, old: str, new: str, outcome: str
) -> None:
    project = bench(NEEDS_CALM)
    targets = (f"test_shop.py::{target}",)
    others = [test for test in project.baseline.collected if test not in (*targets, "test_opened.py::test_opening")]
    green = tuple(test for test in others if test not in project.baseline.red)
    job = job_of(project, "shop.py", old, new, Selection(targets, green, thorough=True))
    with trial_of(project) as trial:
        trial.start()
        together, confirmed = trial.judge([job])[0], trial.confirm(job, 1.0)
    assert together.outcome == "failed"
    assert "test_opened.py::test_opened" in together.failed
    assert confirmed is not None
    assert confirmed.outcome == outcome


def test_warnings_that_the_project_takes_for_errors_are_errors(bench: Open) -> None:
    project = bench(
        {
            "pytest.ini": "[pytest]\nfilterwarnings =\n    error\n    ignore:.*fine:UserWarning\n",
            "twice.py": "import warnings\n\n\ndef twice(n):\n    return n + 1\n",
            "test_twice.py": "from twice import twice\n\n\ndef test_twice(tmp_path):\n    assert twice(3) == 6\n",
        }
    )
    reported = "warnings.warn({!r}) or n * 2"
    changes = [("n + 1", "n * 2"), ("n + 1", reported.format("old")), ("n + 1", reported.format("all fine"))]
    assert [result.outcome for result in results(project, "twice.py", changes)] == ["passed", "failed", "passed"]


def test_a_test_with_a_temporary_folder_or_parts_of_its_own_is_judged_as_its_runner_would(bench: Open) -> None:
    project = bench(
        {
            "twice.py": "def twice(n):\n    return n + 1\n",
            "test_folder.py": "from twice import twice\n\n\ndef test_folder(tmp_path):\n    assert twice(3) == 6\n",
            "test_parts.py": (
                "import unittest\n\nfrom twice import twice\n\n\nclass PartsTest(unittest.TestCase):\n"
                "    def test_parts(self):\n        for n in (3, 4):\n            with self.subTest(n=n):\n"
                "                self.assertEqual(twice(n), 2 * n)\n"
            ),
        }
    )
    assert len(project.baseline.red) == 2
    changes = [("n + 1", "n * 2"), ("n + 1", "6"), ("n + 1", "n + 3")]
    assert [result.outcome for result in results(project, "twice.py", changes)] == ["passed", "failed", "failed"]


IMPORTING = "from app import front\n\n\ndef test_front({fixture}):\n{before}    from app import back\n{after}"
ODD_IMPORTS = {
    "under another environment": (
        "import os\n\nMODE = os.environ.get('APP_MODE', 'dev')\n",
        IMPORTING.format(
            fixture="monkeypatch",
            before="    monkeypatch.setenv('APP_MODE', 'prod')\n",
            after="    assert front.total(2, 2 if back.MODE == 'prod' else 7) == 4\n",
        ),
    ),
    "again each time": (
        "from app.front import total\n\nTOTAL = total(2, 2)\n",
        "import sys\n\nfrom app import front\n\n\ndef test_front():\n    sys.modules.pop('app.back', None)\n"
        "    import app.back\n    assert sys.modules['app.back'].TOTAL == 4 == front.total(1, 3)\n",
    ),
    "not before it is needed": (
        "THREE = 3\n",
        IMPORTING.format(
            fixture="",
            before="    import sys\n    assert 'app.back' not in sys.modules\n",
            after="    assert front.total(1, back.THREE) == 4\n",
        ),
    ),
    "what counts its calls": (
        "import itertools\n\nNUMBERS = itertools.count(1)\n\n\ndef first():\n    if next(NUMBERS) > 1:\n"
        "        return 9\n    return 3\n",
        IMPORTING.format(fixture="", before="", after="    assert front.total(1, back.first()) == 4\n"),
    ),
    "what nobody can look into": (
        "THREE = 3\n",
        "import sys\nimport types\n\nfrom app import front\n\n\ndef test_front():\n"
        "    if 'hidden' not in sys.modules:\n        sys.modules['hidden'] = types.ModuleType('hidden')\n"
        "        sys.modules['hidden'].__file__ = 'app/back.py'\n    assert front.total(1, 3) == 4\n",
    ),
    "what it has written": (
        "",
        "import pathlib\n\nfrom app import front\n\n\ndef test_front():\n"
        "    pathlib.Path('made.py').write_text(f'TOTAL = {front.total(1, 3)}')\n"
        "    import made\n    assert made.TOTAL == 4\n",
    ),
}


@pytest.mark.variants
@pytest.mark.parametrize("how", ODD_IMPORTS)
def test_what_the_tests_import_is_as_they_would_have_it(bench: Open, how: str) -> None:
    back, test = ODD_IMPORTS[how]
    project = bench(
        {
            "app/__init__.py": "",
            "app/front.py": "def total(a, b):\n    return a - b\n",
            "app/back.py": back,
            "test_front.py": test,
        }
    )
    changes = [("a - b", "a * b + 9"), ("a - b", "a + b"), ("a - b", "a"), ("a - b", "b + a")]
    targets = project.baseline.red
    jobs = [job_of(project, "app/front.py", *change, Selection(targets), at) for at, change in enumerate(changes)]
    with trial_of(project, places=1) as trial:
        trial.start()
        traces = trial.trace(project.baseline.collected, alone=targets)
        found = trial.judge(jobs)
    assert [trace.outcome for trace in traces] == ["failed"]
    assert [found[at].outcome for at in range(4)] == ["failed", "passed", "failed", "passed"]
